#include "trainers/optimizers.h"

#include <fmt/format.h>

#include <bit>

namespace tandem {
namespace {

/// Calls f(node, argument) for each floating number of the update that is not a run-time scalar yet.
template <class G, class F>
void for_each_number(G& graph, std::size_t first_update, F&& f) {
  for (std::size_t n = first_update; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].side == Side::update)
      for (auto& a : graph.nodes[n].args)
        if (a.kind == Argument::Kind::constant && a.scalar < 0 && std::holds_alternative<double>(a.constant)) f(graph.nodes[n], a);
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

std::string mismatch(const Graph& graph, std::size_t first_update, const std::vector<Number>& numbers) {
  std::string sentence;
  std::size_t count = 0;
  for_each_number(graph, first_update, [&](const Node& node, const Argument& a) {
    const double recorded = std::get<double>(a.constant);
    if (sentence.empty() && count >= numbers.size())
      sentence = fmt::format("{} has the number {:.17g} where the update was expected to have no number after the first {}", describe(node),
                             recorded, numbers.size());
    else if (sentence.empty() && !same_bits(recorded, numbers[count].value))
      sentence = fmt::format("{} has the number {:.17g} where {} = {:.17g} was expected", describe(node), recorded, numbers[count].name,
                             numbers[count].value);
    ++count;
  });
  if (sentence.empty() && count < numbers.size())
    sentence = fmt::format("the recorded update has {} numbers where {} were expected, the first missing one is {} = {:.17g}", count,
                           numbers.size(), numbers[count].name, numbers[count].value);
  return sentence;
}

}  // namespace

std::string bind_numbers(Graph& graph, std::size_t first_update, const std::vector<Number>& numbers) {
  auto sentence = mismatch(graph, first_update, numbers);
  if (!sentence.empty()) return sentence;
  auto next = numbers.begin();
  for_each_number(graph, first_update, [&](const Node&, Argument& a) {
    a.scalar = static_cast<std::int32_t>(graph.scalars.size());
    graph.scalars.push_back({next->name, next->value});
    ++next;
  });
  return sentence;
}

}  // namespace tandem
