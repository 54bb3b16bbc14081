#include "runtime/check.h"

#include "autograd/audit.h"
#include "autograd/interpret.h"
#include "autograd/op.h"
#include "autograd/verify.h"
#include "runtime/reference.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace tandem {
namespace {

/// `empty` and its kin return whatever the memory held.
bool content_is_arbitrary(const Node& n) {
  const auto* row = find_op(n.op);
  return row && row->kind == Kind::factory;
}

std::uint64_t content_hash(const Graph& graph, const Node& n, Slots& slots) {
  std::uint64_t all = 0;
  auto add = [&](ValueId v) { all = combine_hashes(all, hash_of(slots.get(v).storage())); };
  for_each_value(n.args, [&](ValueId v) {
    if (std::binary_search(n.writes.begin(), n.writes.end(), graph.values[v].storage)) add(v);
  });
  for_each_value(n.results, add);
  return all;
}

std::string geometry_fault(const Graph& graph, const Node& n, Slots& slots, const RunInputs& inputs) {
  std::string fault;
  for_each_value(n.results, [&](ValueId v) {
    const auto& expected = graph.values[v];
    const auto& found = slots.get(v);
    const auto shift = inputs.storages[expected.storage].shift / std::int64_t(c10::elementSize(expected.dtype));
    if (found.sizes() != at::IntArrayRef(expected.sizes) || found.strides() != at::IntArrayRef(expected.strides) ||
        found.scalar_type() != expected.dtype || found.storage_offset() != expected.offset + shift)
      fault = describe(n) + " gave another geometry than recorded, expected " + describe(expected);
  });
  return fault;
}

std::string missing_node(const Graph& graph, const std::vector<Node>& recorded) {
  std::vector<char> there(recorded.size(), false);
  for (const auto& n : graph.nodes)
    if (std::size_t(n.id) < there.size()) there[n.id] = true;
  for (std::size_t i = 0; i < there.size(); i++)
    if (!there[i]) return describe(recorded[i]) + " was recorded but is not in the graph";
  return "";
}

std::string join(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + "; " + b; }

Verdict failed(std::string sentence) {
  return {.passed = false, .sentence = std::move(sentence), .with_reference = false, .max_error_ratio = HUGE_VAL};
}

/// Contents of each value of the captured graph, for the bisect.
using Contents = std::unordered_map<ValueId, at::Tensor>;

double gap(const at::Tensor& a, const at::Tensor& b) {
  if (bit_equal(a, b)) return 0;
  if (a.sizes() != b.sizes() || !a.is_floating_point() || a.scalar_type() != b.scalar_type()) return HUGE_VAL;
  const auto x = a.to(at::kDouble).nan_to_num(), y = b.to(at::kDouble).nan_to_num();
  const auto scale = y.abs().max().item<double>();
  return (x - y).abs().max().item<double>() / (scale > 0 ? scale : 1);
}

/// The first call of the plan whose results are far from the same values of the graph; else the first that is not bit-equal. Passes keep the numbers
/// of values that they keep; what they add (recomputed nodes, say) has no counterpart and is left out.
std::string first_wrong_call(const Graph& graph, const Plan& plan, Executor& executor, const EagerStep& eager) {
  constexpr double far = 1e-4;  // relative to the largest element: well above rounding, well below a wrong constant
  Contents expected;
  {
    GeneratorScope generator(eager.generator_before);
    Interpreter interpreter(graph);
    interpreter.run(private_copy(graph, eager.before), [&](std::size_t i, Slots& slots) {
      if (!content_is_arbitrary(graph.nodes[i]))
        for_each_value(graph.nodes[i].results, [&](ValueId v) { expected[v] = slots.get(v).clone(); });
    });
  }
  std::string first_far, first_different;
  GeneratorScope generator(eager.generator_before);
  executor.run(private_copy(plan.graph, eager.before), [&](std::size_t call, Slots& slots) {
    if (!first_far.empty()) return;
    for (ValueId v : executor.made_by(call)) {
      const auto other = expected.find(v);
      if (other == expected.end() || !(plan.graph.values[std::size_t(v)] == graph.values[std::size_t(v)])) continue;
      const auto g = gap(slots.get(v), other->second);
      if (g > 0 && first_different.empty()) first_different = describe_call(plan, call);
      if (g > far && first_far.empty()) first_far = fmt::format("{} (off by {:g} of its largest element)", describe_call(plan, call), g);
    }
  });
  executor.end();
  return first_far.empty() ? first_different : first_far;
}

/// Where tensors are large, an element's neighbours give enough samples of the error, and a run in double takes its time.
int perturbations_for(const Graph& graph) {
  constexpr std::int64_t large = std::int64_t{32} << 20;
  std::int64_t bytes = 0;
  for (const auto& s : graph.storages)
    if (s.role == Role::internal) bytes += s.bytes;
  return bytes > large ? 1 : 3;
}

}  // namespace

Verdict check_capture(const Graph& graph, const EagerStep& eager, const std::vector<Node>& recorded,
                      const std::vector<std::uint64_t>& hashes) {
  const auto missing = missing_node(graph, recorded);
  if (auto fault = verify(graph); !fault.empty()) return failed("capture check: " + join(missing, fault));
  GeneratorScope generator(eager.generator_before);
  const auto inputs = private_copy(graph, eager.before);
  std::string geometry, first_node;
  GradientKeeper gradients(graph);
  Interpreter interpreter(graph);
  try {
    interpreter.run(inputs, [&](std::size_t i, Slots& slots) {
      const auto& n = graph.nodes[i];
      if (i + 1 == graph.update_begin()) gradients.keep(slots);
      if (geometry.empty()) geometry = geometry_fault(graph, n, slots, inputs);
      if (first_node.empty() && std::size_t(n.id) < hashes.size() && !content_is_arbitrary(n) &&
          content_hash(graph, n, slots) != hashes[n.id])
        first_node = describe(n);
    });
  } catch (const std::exception& e) {
    return failed("capture check: " + join(missing, std::string("the graph does not run: ") + e.what()));
  }
  auto difference =
      bit_difference(outcome_of(eager, graph), outcome_of(
                                                   graph, inputs, [&](ValueId v) { return interpreter.value(v); }, gradients.gradients()));
  if (difference.empty()) difference = geometry;
  if (difference.empty() && !bit_equal(generator_state(), eager.generator_after))
    difference = "the random generator ends elsewhere than eager's";
  if (difference.empty()) return {true, "", false, 0};
  if (!first_node.empty()) difference = join(difference, "the first node that differs from the recording is " + first_node);
  return failed("capture check: " + join(missing, difference));
}

Verdict check_generation(const Graph& graph, const Plan& plan, Executor& executor, const EagerStep& eager) {
  GradientKeeper gradients(plan.graph);
  const auto inputs = private_copy(plan.graph, eager.before);
  Outcome found;
  {
    GeneratorScope generator(eager.generator_before);
    executor.run(inputs, [&](std::size_t call, Slots& slots) {
      if (call + 1 == executor.index().update_begin) gradients.keep(slots);
    });
    auto value = [&](ValueId v) { return v < 0 ? at::Tensor() : executor.value(v).clone(); };
    found = outcome_of(plan.graph, inputs, value, gradients.gradients());
    if (!bit_equal(generator_state(), eager.generator_after))
      return failed("generation check: the plan leaves the random generator elsewhere than eager");
  }
  executor.end();
  if (bit_difference(outcome_of(eager, graph), found).empty()) return {true, "", false, 0};

  const auto reference = run_reference(graph, eager, gradients.gradients(), perturbations_for(graph));
  const auto worst = error_ratio(reference, found);
  Verdict verdict{.passed = worst.ratio <= 1, .sentence = "", .with_reference = true, .max_error_ratio = worst.ratio};
  if (!verdict.passed)
    verdict.sentence =
        fmt::format("generation check: {} is {:.3g} times farther from the reference in double than allowed; the first wrong node is {}",
                    worst.where, worst.ratio, first_wrong_call(graph, plan, executor, eager));
  return verdict;
}

}  // namespace tandem
