#include "runtime/check.h"

#include "autograd/audit.h"
#include "autograd/interpret.h"
#include "autograd/op.h"
#include "autograd/support/sentence.h"
#include "autograd/verify.h"
#include "runtime/reference.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

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
  std::unordered_set<NodeId> there;
  for (const auto& n : graph.nodes) there.insert(n.id);
  for (const auto& n : recorded)
    if (!there.count(n.id)) return describe(n) + " was recorded but is not in the graph";
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

/// Runs all plans of the step on private copies; the probe is called after each call of each.
using Observe = std::function<void(const Plan&, Executor&, std::size_t call, Slots&)>;
using RunAll = std::function<void(const Observe&)>;

/// The same value, apart from the version that it has in its part.
bool same_value(Value a, const Value& b) {
  a.version = b.version;
  return a == b;
}

/// The first call of the plans whose results are far from the same values of the graph; else the first that is not bit-equal. Passes keep the numbers
/// of values that they keep; what they add (recomputed nodes, say) has no counterpart and is left out.
std::string first_wrong_call(const Graph& graph, const RunAll& run, const EagerStep& eager) {
  constexpr double far = 1e-4;  // relative to the largest element: well above rounding, well below a wrong constant
  Contents expected;
  {
    GeneratorScope generator(graph, eager.generator_before);
    Interpreter interpreter(graph);
    interpreter.run(private_copy(graph, eager.before), [&](std::size_t i, Slots& slots) {
      if (!content_is_arbitrary(graph.nodes[i]))
        for_each_value(graph.nodes[i].results, [&](ValueId v) { expected[v] = slots.get(v).clone(); });
    });
  }
  std::string first_far, first_different;
  GeneratorScope generator(graph, eager.generator_before);
  run([&](const Plan& plan, Executor& executor, std::size_t call, Slots& slots) {
    if (!first_far.empty()) return;
    for (ValueId v : executor.made_by(call)) {
      const auto other = expected.find(v);
      if (other == expected.end() || !same_value(plan.graph.values[std::size_t(v)], graph.values[std::size_t(v)])) continue;
      const auto g = gap(slots.get(v), other->second);
      if (g > 0 && first_different.empty()) first_different = describe_call(plan, call);
      if (g > far && first_far.empty()) first_far = fmt::format("{} (off by {:g} of its largest element)", describe_call(plan, call), g);
    }
  });
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
  GeneratorScope generator(graph, eager.generator_before);
  const auto inputs = private_copy(graph, eager.before);
  std::string geometry, first_node;
  GradientKeeper gradients(graph);
  Interpreter interpreter(graph);
  try {
    interpreter.run(inputs, [&](std::size_t i, Slots& slots) {
      const auto& n = graph.nodes[i];
      if (i + 1 == graph.update_begin()) gradients.keep(slots);
      if (geometry.empty()) geometry = geometry_fault(graph, n, slots, inputs);
      if (first_node.empty() && std::size_t(n.id) < hashes.size() && hashes[n.id] != 0 && !content_is_arbitrary(n) &&
          content_hash(graph, n, slots) != hashes[n.id])
        first_node = describe(n);
    });
  } catch (const std::exception& e) {
    return failed("capture check: " + join(missing, "the graph does not run: " + sentence_of(e)));
  }
  auto difference =
      bit_difference(outcome_of(eager, graph), outcome_of(
                                                   graph, inputs, [&](ValueId v) { return interpreter.value(v); }, gradients.gradients()));
  if (difference.empty()) difference = geometry;
  if (difference.empty() && !generator_stands(graph, eager.generator_after))
    difference = "the random generator ends elsewhere than eager's";
  if (difference.empty()) return {true, "", false, 0};
  if (!first_node.empty()) difference = join(difference, "the first node that differs from the recording is " + first_node);
  return failed("capture check: " + join(missing, difference));
}

namespace {

Verdict judge(const Graph& graph, const EagerStep& eager, const Outcome& found, const std::vector<at::Tensor>& gradients,
              const RunAll& run) {
  if (bit_difference(outcome_of(eager, graph), found).empty()) return {true, "", false, 0};
  const auto worst = error_ratio(graph, eager, gradients, perturbations_for(graph), found);
  Verdict verdict{.passed = worst.ratio <= 1, .sentence = "", .with_reference = true, .max_error_ratio = worst.ratio};
  if (!verdict.passed)
    verdict.sentence =
        fmt::format("generation check: {} is {:.3g} times farther from the reference in double than allowed; the first wrong node is {}",
                    worst.where, worst.ratio, first_wrong_call(graph, run, eager));
  return verdict;
}

constexpr const char* generator_moved = "generation check: the plan leaves the random generator elsewhere than eager";

/// What a link has made, put where the whole graph has it. Copies: the memory is used again.
void collect(const Graph& graph, Executor& executor, GradientKeeper& keeper, Delivered& out) {
  auto take = [&](ValueId v, at::Tensor& place) {
    if (v >= 0) place = executor.value(v).clone();
  };
  take(graph.loss, out.loss);
  take(graph.grad_norm, out.grad_norm);
  for (std::size_t i = 0; i < out.outputs.size(); i++) take(graph.outputs[i], out.outputs[i]);
  for (std::size_t i = 0; i < out.kept.size(); i++) {
    take(graph.gradients[i].value, out.kept[i]);
    if (keeper.gradients()[i].defined()) out.gradients[i] = keeper.gradients()[i];
  }
}

}  // namespace

Verdict check_generation(const Graph& graph, const Plan& plan, Executor& executor, const EagerStep& eager) {
  GradientKeeper gradients(plan.graph);
  const auto inputs = private_copy(plan.graph, eager.before);
  Outcome found;
  {
    GeneratorScope generator(graph, eager.generator_before);
    executor.run(inputs, [&](std::size_t call, Slots& slots) {
      if (call + 1 == executor.index().update_begin) gradients.keep(slots);
    });
    auto value = [&](ValueId v) { return v < 0 ? at::Tensor() : executor.value(v).clone(); };
    found = outcome_of(plan.graph, inputs, value, gradients.gradients());
    if (!generator_stands(graph, eager.generator_after)) return failed(generator_moved);
  }
  executor.end();
  return judge(graph, eager, found, gradients.gradients(), [&](const Observe& observe) {
    executor.run(private_copy(plan.graph, eager.before), [&](std::size_t call, Slots& slots) { observe(plan, executor, call, slots); });
    executor.end();
  });
}

Verdict check_generation(const Graph& graph, Chain& chain, const EagerStep& eager) {
  const auto inputs = private_copy(graph, eager.before);
  Delivered out;
  out.outputs.resize(graph.outputs.size());
  out.gradients.resize(graph.gradients.size());
  out.kept.resize(graph.gradients.size());
  {
    GeneratorScope generator(graph, eager.generator_before);
    auto held = chain.nothing_held();
    for (std::size_t i = 0; i < chain.size(); i++) {
      const auto& part = chain[i].plan->graph;
      GradientKeeper keeper(part);
      chain.run(i, inputs, held, [&](std::size_t call, Slots& slots) {
        if (call + 1 == chain.executor(i).index().update_begin) keeper.keep(slots);
      });
      collect(part, chain.executor(i), keeper, out);
    }
    if (!generator_stands(graph, eager.generator_after)) return failed(generator_moved);
  }
  chain.end();
  return judge(graph, eager, outcome_of(graph, inputs, out), out.gradients, [&](const Observe& observe) {
    const auto again = private_copy(graph, eager.before);
    auto held = chain.nothing_held();
    for (std::size_t i = 0; i < chain.size(); i++)
      chain.run(i, again, held, [&](std::size_t call, Slots& slots) { observe(*chain[i].plan, chain.executor(i), call, slots); });
    chain.end();
  });
}

}  // namespace tandem
