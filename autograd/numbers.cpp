#include "autograd/numbers.h"

#include "autograd/node_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tandem {
namespace {

constexpr std::int64_t exact = std::int64_t{1} << 53;

bool is_number(const Argument& a, const c10::FunctionSchema& schema, std::size_t i) {
  if (a.kind != Argument::Kind::constant) return false;
  if (std::holds_alternative<double>(a.constant)) return true;
  const auto* whole = std::get_if<std::int64_t>(&a.constant);
  if (!whole || *whole > exact || *whole < -exact) return false;
  if (a.wrapped) return true;
  auto type = schema.arguments()[i].type();
  if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
  return type->kind() == c10::TypeKind::NumberType;
}

Argument& at(Graph& g, const NumberPlace& p) { return g.nodes[std::size_t(p.node)].args[std::size_t(p.arg)]; }
const Argument& at(const Graph& g, const NumberPlace& p) { return g.nodes[std::size_t(p.node)].args[std::size_t(p.arg)]; }

}  // namespace

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::vector<NumberPlace> numbers_of(const Graph& g) {
  std::vector<NumberPlace> out;
  for (std::size_t n = 0; n < g.nodes.size(); n++) {
    const auto handle = handle_of(g.nodes[n]);
    for (std::size_t i = 0; i < g.nodes[n].args.size(); i++)
      if (is_number(g.nodes[n].args[i], handle.schema(), i)) out.push_back({std::int32_t(n), std::int32_t(i)});
  }
  return out;
}

double value_of(const Argument& a) {
  const auto* whole = std::get_if<std::int64_t>(&a.constant);
  return whole ? double(*whole) : std::get<double>(a.constant);
}

bool is_integral(const Argument& a) { return std::holds_alternative<std::int64_t>(a.constant); }

Moved moved_numbers(const Graph& a, const Graph& b) {
  Moved out;
  const auto mine = numbers_of(a), theirs = numbers_of(b);
  auto same_numbers = b;
  for (std::size_t i = 0; i < mine.size() && mine == theirs; i++) {
    const auto& from = at(a, mine[i]);
    auto& to = at(same_numbers, mine[i]);
    if (is_integral(from) != is_integral(to)) continue;
    if (!same_bits(value_of(from), value_of(to))) out.numbers.push_back(i);
    to.constant = from.constant;
    to.scalar = from.scalar;
  }
  same_numbers.scalars = a.scalars;
  out.difference = first_difference(a, same_numbers);
  return out;
}

double derive(Derived::How how, double from) {
  switch (how) {
    case Derived::How::same: return from;
    case Derived::How::negated: return -from;
    case Derived::How::reciprocal: return 1.0 / from;
    case Derived::How::negated_reciprocal: return -1.0 / from;
  }
  return from;
}

Named named_by(const Graph& g, std::size_t nodes) {
  Named e;
  auto see = [&](ValueId v) {
    e.values = std::max(e.values, std::size_t(v) + 1);
    e.storages = std::max(e.storages, std::size_t(g.values[std::size_t(v)].storage) + 1);
  };
  for (std::size_t i = 0; i < nodes; i++) {
    for_each_value(g.nodes[i].args, see);
    for_each_value(g.nodes[i].results, see);
  }
  return e;
}

Graph calls_of(const Graph& graph, std::size_t nodes) {
  Graph g = graph;
  g.nodes.resize(nodes);
  g.outputs.clear();
  g.gradients.clear();
  g.loss = g.grad_norm = -1;
  const auto named = named_by(graph, nodes);
  g.values.resize(named.values);
  g.storages.resize(named.storages);
  return g;
}

void set_numbers(Graph& graph, const std::vector<double>& values) {
  const auto places = numbers_of(graph);
  for (std::size_t i = 0; i < std::min(places.size(), values.size()); i++) {
    auto& number = at(graph, places[i]);
    if (is_integral(number))
      number.constant = std::int64_t(values[i]);
    else
      number.constant = values[i];
  }
  for (auto& n : graph.nodes)
    for (auto& a : n.args) a.scalar = -1;
  graph.scalars.clear();
}

void free_number(Graph& graph, const NumberPlace& place) {
  auto& number = at(graph, place);
  const auto& n = graph.nodes[std::size_t(place.node)];
  number.scalar = std::int32_t(graph.scalars.size());
  graph.scalars.push_back(
      {n.op + " argument " + std::to_string(place.arg) + " of node " + std::to_string(n.id), value_of(number), is_integral(number)});
}

namespace {
/// Whether the autograd node that `late` ran for was made by `early`.
bool belongs(const Node& early, const Node& late) {
  return !late.ran_for.empty() && std::find(early.created.begin(), early.created.end(), late.ran_for) != early.created.end();
}
}  // namespace

std::optional<std::vector<Derived>> derive_numbers(const Graph& a, const Graph& b, const std::vector<std::size_t>& moved,
                                                   std::size_t boundary) {
  using How = Derived::How;
  const auto places = numbers_of(a);
  std::vector<std::size_t> sources;
  std::vector<Derived> out;
  for (auto m : moved)
    if (std::size_t(places[m].node) < boundary) sources.push_back(m);
  auto gives = [&](std::size_t from, std::size_t to, How how) {
    auto holds = [&](const Graph& g) { return same_bits(derive(how, value_of(at(g, places[from]))), value_of(at(g, places[to]))); };
    return holds(a) && holds(b);
  };
  for (auto m : moved) {
    if (std::size_t(places[m].node) < boundary) continue;
    std::vector<Derived> found;
    for (auto s : sources)
      for (auto how : {How::same, How::negated, How::reciprocal, How::negated_reciprocal})
        if (gives(s, m, how)) found.push_back({m, s, how});
    if (found.size() > 1)  // the same number in several places: that of the op whose derivative this is
      std::erase_if(found, [&](const Derived& d) {
        return !belongs(b.nodes[std::size_t(places[d.from].node)], b.nodes[std::size_t(places[m].node)]);
      });
    if (found.size() != 1) return std::nullopt;
    out.push_back(found[0]);
  }
  return out;
}

}  // namespace tandem
