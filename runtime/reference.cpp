#include "runtime/reference.h"

#include "autograd/interpret.h"
#include "autograd/key.h"
#include "autograd/op.h"
#include "autograd/text.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr double single_rounding = 0x1p-24, double_rounding = 0x1p-53;  // half an ulp at 1

bool low(c10::ScalarType t) { return t == c10::ScalarType::Float || t == c10::ScalarType::Half || t == c10::ScalarType::BFloat16; }

double rounding_of(c10::ScalarType t) { return t == c10::ScalarType::Double ? double_rounding : single_rounding; }

/// The same graph with every floating value in double; dtype arguments follow.
Graph in_double(const Graph& graph) {
  auto g = graph;
  for (auto& v : g.values)
    if (low(v.dtype)) v.dtype = c10::ScalarType::Double;
  for (auto& n : g.nodes) {
    const auto schema = handle_of(n).schema();
    for (std::size_t i = 0; i < n.args.size(); i++) {
      auto type = schema.arguments()[i].real_type();
      if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
      auto* number = std::get_if<std::int64_t>(&n.args[i].constant);
      if (type->kind() == c10::TypeKind::ScalarTypeType && number && low(c10::ScalarType(*number)))
        *number = std::int64_t(c10::ScalarType::Double);
    }
  }
  return g;
}

/// The whole storage as one flat tensor of the dtype of its values.
at::Tensor flat(const Graph& graph, StorageId id, const c10::Storage& storage) {
  Value v;
  for (const auto& w : graph.values)
    if (w.storage == id) {
      v.dtype = w.dtype;
      break;
    }
  v.storage = id;
  v.sizes = {std::int64_t(storage.nbytes() / c10::elementSize(v.dtype))};
  v.strides = {1};
  return make_tensor(v, storage);
}

/// Without the dims along which all elements are one: an expanded tensor cannot be written.
at::Tensor each_once(at::Tensor t) {
  for (std::int64_t d = 0; d < t.dim(); d++)
    if (t.stride(d) == 0 && t.size(d) > 1) t = t.narrow(d, 0, 1);
  return t;
}

class LockStep {
 public:
  /// `sample` 0: nothing is perturbed; others seed the perturbation.
  LockStep(const Graph& graph, const Graph& exact, const EagerStep& eager, int sample)
      : graph_(graph), exact_graph_(exact), native_(graph), exact_(exact), sample_(sample),
        generator_(at::detail::createCPUGenerator(std::uint64_t(sample))) {
    native_inputs_ = private_copy(graph, eager.before);
    exact_inputs_ = native_inputs_;
    for (std::size_t s = 0; s < graph.storages.size(); s++) {
      auto& b = exact_inputs_.storages[s];
      if (graph.storages[s].role == Role::internal || !b.storage) continue;
      auto whole = flat(graph, StorageId(s), b.storage);
      const bool widen = low(whole.scalar_type());
      if (widen) b.shift *= std::int64_t(sizeof(double) / whole.itemsize());
      const auto rounding = rounding_of(whole.scalar_type());
      whole = widen ? whole.to(at::kDouble) : whole.clone();
      perturb(whole, rounding);
      b.storage = whole.storage();
    }
  }

  void run(const std::vector<at::Tensor>& gradients) {
    native_.begin(native_inputs_);
    exact_.begin(exact_inputs_);
    const auto begin = graph_.update_begin(), end = graph_.nodes.size();
    auto at = [&](std::size_t i) {
      if (i == begin) begin_update(begin < end ? gradients : std::vector<at::Tensor>());
    };
    at(0);
    for (std::size_t i = 0; i < end; i++) {
      if (graph_.nodes[i].effects.random) drawn_from_ = generator_state();
      native_.step(i);
      step_exact(i);
      at(i + 1);  // a gradient that the update does not read goes now
      native_.release_after(i);
      exact_.release_after(i);
    }
  }

  Outcome native() { return outcome(graph_, native_inputs_, native_, native_gradients_); }
  Outcome exact() { return outcome(exact_graph_, exact_inputs_, exact_, exact_gradients_); }

 private:
  static Outcome outcome(const Graph& graph, const RunInputs& inputs, Interpreter& run, const std::vector<at::Tensor>& gradients) {
    return outcome_of(
        graph, inputs, [&](ValueId v) { return run.value(v); }, gradients);
  }

  void begin_update(const std::vector<at::Tensor>& gradients) {
    for (std::size_t i = 0; i < graph_.gradients.size(); i++) {
      const auto v = graph_.gradients[i].before;
      native_gradients_.push_back(v < 0 ? at::Tensor() : native_.value(v).clone());
      exact_gradients_.push_back(v < 0 ? at::Tensor() : exact_.value(v).clone());
      if (v < 0 || i >= gradients.size() || !gradients[i].defined() || native_.value(v)._is_zerotensor()) continue;
      native_.value(v).copy_(gradients[i]);
      exact_.value(v).copy_(gradients[i]);
    }
  }

  void perturb(at::Tensor t, double rounding) {
    if (sample_ == 0 || !t.is_floating_point() || t.numel() == 0 || t._is_zerotensor() || t.is_meta()) return;  // the latter: no data
    t = each_once(t);
    // In double the numbers around 1 are as far apart as the noise is wide, which would round most of it away; and eager is its own reference there.
    if (rounding == double_rounding) rounding *= 4;
    const auto noise = at::rand({t.numel()}, generator_, at::TensorOptions().dtype(at::kDouble)).view(t.sizes());
    t.mul_(noise.mul(2 * rounding).add(1 - rounding));
  }

  /// Takes what the native run has for everything that node `i` made or wrote.
  void take(std::size_t i) {
    for (auto s : graph_.nodes[i].writes) {
      ValueId any = -1;
      for_each_value(graph_.nodes[i].args, [&](ValueId v) {
        if (graph_.values[v].storage == s) any = v;
      });
      if (any >= 0) exact_.value(any).copy_(native_.value(any));
    }
    for_each_value(graph_.nodes[i].results, [&](ValueId v) {
      if (exact_.slots().has_storage(graph_.values[v].storage)) {
        exact_.value(v).copy_(native_.value(v));
        return;
      }
      const auto& made = native_.value(v);
      auto t = at::empty_strided(made.sizes(), made.strides(), made.options().dtype(exact_graph_.values[v].dtype));
      exact_.slots().set(v, t.copy_(made));
    });
  }

  void step_exact(std::size_t i) {
    const auto& n = graph_.nodes[i];
    const auto* row = find_op(n.op);
    if (n.effects.random) return draw_again(i);
    const bool of_bits = reinterprets(n);
    if (of_bits || !ran_in_double(i)) step_rounded(i);
    give_memory(n);
    if (row && row->kind == Kind::view && !of_bits) return;  // of memory that has been seen to
    for_each_value(n.results, [&](ValueId v) {
      if (!c10::isFloatingType(graph_.values[v].dtype) && !c10::isComplexType(graph_.values[v].dtype))
        each_once(exact_.value(v)).copy_(each_once(native_.value(v)));
      else if (!of_bits)
        perturb(exact_.value(v), rounding_of(graph_.values[v].dtype));
    });
  }

  /// Zero tensors have no memory, and a cast of one in double would be no tensor of the CPU.
  void give_memory(const Node& n) {
    for_each_value(n.results, [&](ValueId v) {
      const auto zero = exact_.value(v);
      if (!zero._is_zerotensor()) return;
      exact_.slots().release(graph_.values[v].storage);
      exact_.slots().set(v, at::zeros(zero.sizes(), zero.options()));
    });
  }

  /// A view of bits, which numbers in double do not have.
  bool reinterprets(const Node& n) const {
    const auto* row = find_op(n.op);
    if (!row || row->kind != Kind::view) return false;
    auto from = c10::ScalarType::Undefined, to = from;
    for_each_value(n.args, [&](ValueId v) { from = from == c10::ScalarType::Undefined ? graph_.values[v].dtype : from; });
    for_each_value(n.results, [&](ValueId v) { to = graph_.values[v].dtype; });
    return from != to && !c10::isComplexType(from) && !c10::isComplexType(to);
  }

  /// Draws what the native run has drawn, on operands of its own: what they are off by goes on into the result. Where the op refuses them (a
  /// probability rounded above one), and for what is not floating, it takes the native results.
  void draw_again(std::size_t i) {
    try {
      const GeneratorScope again(drawn_from_);
      step_rounded(i);
    } catch (const std::exception&) {
      return take(i);
    }
    for_each_value(graph_.nodes[i].results, [&](ValueId v) {
      if (!c10::isFloatingType(graph_.values[v].dtype)) each_once(exact_.value(v)).copy_(each_once(native_.value(v)));
    });
  }

  /// Runs node `i` in double. False where it has no kernel for that, or one whose results are of another kind: with the default dtype, say.
  bool ran_in_double(std::size_t i) {
    try {
      exact_.step(i);
    } catch (const std::exception&) {
      return false;
    }
    bool same = true;
    for_each_value(graph_.nodes[i].results, [&](ValueId v) {
      const auto& found = exact_.value(v);
      same &= found.sizes() == native_.value(v).sizes() && found.scalar_type() == exact_graph_.values[v].dtype &&
              found.device() == native_.value(v).device();
    });
    return same;
  }

  /// Runs node `i` in the recorded dtypes on the exact run's values: its own rounding is then not part of the reference, that of its operands is.
  void step_rounded(std::size_t i) {
    const auto& n = graph_.nodes[i];
    Slots rounded(graph_);
    std::vector<StorageId> operands;
    for_each_value(n.args, [&](ValueId v) {
      rounded.set(v, exact_.value(v).to(graph_.values[v].dtype));
      operands.push_back(graph_.values[v].storage);
    });
    torch::jit::Stack stack;
    {
      ReplayScope below;
      NodeCall(graph_, n).run(rounded, native_inputs_.scalars, stack);
    }
    for (auto s : n.writes)
      for_each_value(n.args, [&](ValueId v) {
        if (graph_.values[v].storage == s) exact_.value(v).copy_(rounded.get(v));
      });
    for_each_value(n.results, [&](ValueId v) {
      const auto s = graph_.values[v].storage;
      const bool same_memory = std::count(operands.begin(), operands.end(), s);
      if (same_memory && !reinterprets(n)) return;
      if (!same_memory) exact_.slots().release(s);
      exact_.slots().set(v, rounded.get(v).to(exact_graph_.values[v].dtype));
    });
  }

  const Graph& graph_;
  const Graph& exact_graph_;
  Interpreter native_, exact_;
  RunInputs native_inputs_, exact_inputs_;
  std::vector<at::Tensor> native_gradients_, exact_gradients_;
  int sample_;
  at::Generator generator_;
  at::Tensor drawn_from_;  // state of the default generator before the latest draw
};

}  // namespace

ReferenceRun run_reference(const Graph& graph, const EagerStep& eager, const std::vector<at::Tensor>& gradients, int perturbations) {
  ReferenceRun out;
  const auto exact = in_double(graph);
  for (int k = 0; k <= perturbations; k++) {
    GeneratorScope generator(graph, eager.generator_before);
    LockStep run(graph, exact, eager, k);
    run.run(gradients);
    if (k == 0) {
      out.native = run.native();
      out.exact = run.exact();
    } else {
      out.perturbed.push_back(run.exact());
    }
  }
  return out;
}

namespace {
/// A few samples of one element's error may all be small by chance, so an element's bound is the largest error in its neighbourhood, where values
/// are of one scale, times a factor that grows where there are few neighbours: with m samples all are below 1/c of one more with
/// probability of about (0.8/c)^m times the m-th moment. A perturbed run rounds each result once, a long sum rounds at every step: where eager's
/// own error is larger over the whole tensor, that is the scale.
at::Tensor running_bound(const at::Tensor& exact, const at::Tensor& eager_error, const std::vector<at::Tensor>& spreads, double rounding) {
  constexpr std::int64_t window = 31;
  auto largest = eager_error;
  for (const auto& s : spreads) largest = largest.maximum(s);
  const auto n = largest.numel();
  if (n == 0) return largest;
  const auto clean = largest.nan_to_num(HUGE_VAL, HUGE_VAL, HUGE_VAL);
  const auto near = n <= window ? clean.max().expand_as(largest)
                                : at::max_pool1d(clean.reshape({1, 1, n}), window, 1, window / 2).reshape(largest.sizes());
  const auto rms = [](const at::Tensor& t) { return t.nan_to_num(0, 0, 0).square().mean().sqrt().item<double>(); };
  const double one = rms(spreads.front()), eagers = rms(eager_error);
  const double scale = rounding != double_rounding && one > 0 ? std::max(1.0, eagers / one) : 1.0;
  const double factor = scale * (4 + 32.0 / double(std::int64_t(spreads.size() + 1) * std::min(n, window)));
  return exact.abs() * (2 * rounding) + near * factor;
}

/// In double; a zero tensor gets memory.
at::Tensor widened(const at::Tensor& t) {
  return t._is_zerotensor() ? at::zeros(t.sizes(), t.options().dtype(at::kDouble)) : t.to(at::kDouble);
}
}  // namespace

ErrorRatio error_ratio(const ReferenceRun& reference, const Outcome& found) {
  ErrorRatio worst;
  auto see = [&](double ratio, const std::string& where) {
    if (ratio > worst.ratio || std::isnan(ratio)) worst = {std::isnan(ratio) ? HUGE_VAL : ratio, where};
  };
  for (std::size_t i = 0; i < found.size(); i++) {
    const auto &native = reference.native[i].tensor, &plan = found[i].tensor;
    if (bit_equal(native, plan)) continue;
    if (!native.defined() || !plan.defined() || native.sizes() != plan.sizes() ||
        !(low(native.scalar_type()) || native.scalar_type() == at::kDouble) || native.scalar_type() != plan.scalar_type()) {
      see(HUGE_VAL, found[i].name);
      continue;
    }
    const auto exact = widened(reference.exact[i].tensor), eager = widened(native), mine = widened(plan);
    std::vector<at::Tensor> spreads;
    for (const auto& p : reference.perturbed) spreads.push_back((widened(p[i].tensor) - exact).abs());
    const auto eager_error = (eager - exact).abs();
    const auto allowed = eager_error * 2 + running_bound(exact, eager_error, spreads, rounding_of(native.scalar_type())) + 1e-45;
    // Where eager itself is not finite the plan must be the same; elsewhere the bound decides.
    const auto same = mine.eq(eager).logical_or(mine.isnan().logical_and(eager.isnan()));
    const auto ratio = ((mine - exact).abs() / allowed).where(eager.isfinite(), same.logical_not().to(at::kDouble) * 1e300);
    see(ratio.max().item<double>(), found[i].name);
  }
  return worst;
}

ErrorRatio error_ratio(const Graph& graph, const EagerStep& eager, const std::vector<at::Tensor>& gradients, int perturbations,
                       const Outcome& found) {
  constexpr double nearly = 16;
  constexpr int more = 5;
  const auto worst = error_ratio(run_reference(graph, eager, gradients, perturbations), found);
  if (worst.ratio <= 1 || worst.ratio > nearly) return worst;
  return error_ratio(run_reference(graph, eager, gradients, more * perturbations), found);
}

}  // namespace tandem
