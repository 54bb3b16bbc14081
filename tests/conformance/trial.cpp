#include "tests/conformance/trial.h"

#include "autograd/capture.h"
#include "autograd/formula.h"
#include "autograd/interpret.h"
#include "autograd/verify.h"
#include "runtime/execute.h"
#include "runtime/outcome.h"
#include "tests/conformance/judge.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>

namespace tandem::test {
namespace {

/// What one run leaves for one sample: the op's results, then its tensor arguments as they are afterwards.
using Left = std::vector<at::Tensor>;

class Trial {
 public:
  Trial(const OpRow& row, const std::vector<Sample>& samples)
      : row_(row), samples_(samples), op_(handle_of(row.name)), generator_(generator_state()) {}

  TrialReport run() {
    report_.samples = samples_.size();
    record();
    if (!report_.faults.empty()) return report_;
    depends_on_place_ = depends_on_place();
    compare("interpreted", interpreted(), false);
    PlanSwitches exact;
    exact.partition.fuse = exact.partition.fuse_update = false;
    compare("planned without kernels", planned(exact), false);
    compare("planned", planned({}), true);
    return report_;
  }

 private:
  static std::vector<at::Tensor> own_tensors(const Values& arguments) {
    auto all = tensors_in(arguments);
    std::erase_if(all, [](const at::Tensor& t) { return !t.defined() || t.unsafeGetTensorImpl()->is_wrapped_number(); });
    return all;
  }

  void fault(const std::string& sentence) { report_.faults.push_back(sentence); }

  void record() {
    if (auto why = claim_key(); !why.empty()) throw std::runtime_error(why);
    std::vector<Values> arguments;
    std::vector<KnownTensor> known;
    for (const Sample& s : samples_) {
      arguments.push_back(with_tensors(s.arguments, copy_of));
      first_input_.push_back(known.size());
      for (const auto& t : own_tensors(arguments.back()))
        known.push_back({Role::input, static_cast<std::int32_t>(known.size()), fmt::format("x{}", known.size()), t});
      for (const auto& t : own_tensors(s.arguments)) masters_.push_back(t);
    }
    GeneratorScope same_numbers(generator_);
    Recorder recorder(known, /*audit=*/true);
    std::vector<Values> results;
    {
      ListenScope listen(recorder);
      for (const Values& a : arguments) results.push_back(call(op_, a));
    }
    for (std::size_t k = 0; k < samples_.size(); ++k) {
      Left left = tensors_in(results[k]);
      outputs_.push_back(left.size());
      for (std::size_t r = 0; r < left.size(); ++r)
        recorder.graph().outputs.push_back(recorder.value_of(left[r], fmt::format("{}: result {}", samples_[k].about, r)));
      for (const auto& t : own_tensors(arguments[k])) left.push_back(t);
      eager_.push_back(std::move(left));
    }
    Recording recording = recorder.finish();
    graph_ = std::move(recording.graph);
    if (!recording.refusal.empty()) return fault("recording refuses: " + recording.refusal);
    if (auto broken = verify(graph_); !broken.empty()) return fault("recorded graph: " + broken);
    if (graph_.nodes.size() != samples_.size()) fault(fmt::format("expected {} nodes, found {}", samples_.size(), graph_.nodes.size()));
    for (const Storage& s : graph_.storages)
      if (s.role != Role::input && s.role != Role::internal) fault("recorded an outside tensor that is no input: " + s.name);
  }

  /// Fresh copies of every input; `inputs` gets their tensors.
  RunInputs bind(std::vector<at::Tensor>& inputs, std::size_t storages) const {
    RunInputs in;
    in.storages.resize(storages);
    for (const auto& m : masters_) inputs.push_back(copy_of(m));
    for (std::size_t s = 0; s < graph_.storages.size(); ++s)
      if (graph_.storages[s].role == Role::input)
        in.storages[s].storage = inputs[static_cast<std::size_t>(graph_.storages[s].index)].storage();
    return in;
  }

  template <class F>
  std::vector<Left> collect(const std::vector<ValueId>& outputs, const std::vector<at::Tensor>& inputs, F&& value) const {
    std::vector<Left> all;
    std::size_t next = 0;
    for (std::size_t k = 0; k < samples_.size(); ++k) {
      Left& left = all.emplace_back();
      for (std::size_t r = 0; r < outputs_[k]; ++r) {
        const at::Tensor t = value(outputs[next++]);
        left.push_back(t.defined() ? t.clone() : t);
        if (t.defined() && t.strides() != left.back().strides()) left.back() = copy_of(t);
      }
      const std::size_t end = k + 1 < samples_.size() ? first_input_[k + 1] : inputs.size();
      for (std::size_t i = first_input_[k]; i < end; ++i) left.push_back(inputs[i]);
    }
    return all;
  }

  std::vector<Left> interpreted() const {
    Interpreter interpreter(graph_);
    std::vector<at::Tensor> inputs;
    const RunInputs in = bind(inputs, graph_.storages.size());
    GeneratorScope same_numbers(generator_);
    interpreter.run(in);
    return collect(graph_.outputs, inputs, [&](ValueId v) { return interpreter.value(v); });
  }

  std::vector<Left> planned(const PlanSwitches& switches) {
    const Plan plan = make_plan(graph_, switches);
    Executor executor(plan);
    executor.poison(true);
    std::vector<at::Tensor> inputs;
    const RunInputs in = bind(inputs, plan.graph.storages.size());
    GeneratorScope same_numbers(generator_);
    executor.run(in);
    in_kernels_.clear();
    for (std::size_t c = 0; c < plan.program.calls.size(); ++c)
      if (plan.program.calls[c].kind == Call::Kind::kernel)
        for (const Launch& l : plan.program.calls[c].launches) in_kernels_.insert(l.nodes.begin(), l.nodes.end());
    report_.kernels = plan.program.kernels.size();
    return collect(plan.graph.outputs, inputs, [&](ValueId v) { return executor.value(v); });
  }

  /// The same call on tensors changed in a way that keeps their logical order; floating dtypes asked for become `dtype`. Empty where the op does not
  /// take it.
  Left called(std::size_t k, const std::function<at::Tensor(const at::Tensor&)>& change, std::optional<c10::ScalarType> dtype = {},
              bool single = false) const {
    Values arguments = with_tensors(samples_[k].arguments, change);
    const auto& parameters = op_.schema().arguments();
    for (std::size_t i = 0; dtype && i < arguments.size(); ++i) {
      // Eager's float32 kernels round numbers first.
      if (single && parameters[i].type()->kind() == c10::TypeKind::NumberType && arguments[i].isDouble())
        arguments[i] = static_cast<double>(static_cast<float>(arguments[i].toDouble()));
      if (parameters[i].real_type()->str().find("ScalarType") != std::string::npos && arguments[i].isInt() &&
          c10::isFloatingType(static_cast<c10::ScalarType>(arguments[i].toInt())))
        arguments[i] = static_cast<std::int64_t>(*dtype);
    }
    try {
      Left left = tensors_in(call(op_, arguments));
      for (const auto& t : own_tensors(arguments)) left.push_back(t);
      return left;
    } catch (const std::exception&) {
      return {};
    }
  }

  static at::Tensor in_double(const at::Tensor& t) { return t.is_floating_point() ? t.to(at::kDouble, false, true) : copy_of(t); }
  static at::Tensor in_float(const at::Tensor& t) { return t.is_floating_point() ? t.to(at::kFloat, false, true) : copy_of(t); }

  /// Every second element of a larger tensor: ATen's vector code does not take it.
  static at::Tensor spread(const at::Tensor& t) {
    if (t.dim() == 0 || t.unsafeGetTensorImpl()->is_wrapped_number()) return copy_of(t);
    auto sizes = t.sizes().vec();
    sizes.push_back(2);
    return at::zeros(sizes, t.options()).select(-1, 0).copy_(t);
  }

  /// What is needed to judge rounded results: numbers in float64, and eager's own errors. Those of float64 are the ones of float32, scaled.
  void measure(std::size_t k, std::vector<Judged>& all) const {
    const auto inputs = own_tensors(samples_[k].arguments);
    const bool doubles = std::none_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.scalar_type() == at::kFloat; });
    const auto rounded = [](const at::Tensor& t) { return in_double(in_float(t)); };
    const Left wide = doubles ? called(k, rounded, at::kDouble, true) : called(k, in_double, at::kDouble, true);
    const Left narrow = doubles ? called(k, in_float, at::kFloat) : eager_[k];
    for (std::size_t r = 0; r < all.size() && r < wide.size() && r < narrow.size(); ++r) {
      if (!wide[r].defined() || !narrow[r].defined()) continue;
      all[r].own = own_error(narrow[r], wide[r]);
      if (!doubles) all[r].reference = wide[r];
      all[r].single = !doubles;
      if (doubles) all[r].own = {all[r].own.absolute * 0x1p-29, all[r].own.relative * 0x1p-29};
    }
  }

  Rule rule_of(const Formula& f) const {
    // ATen's vector code fuses a multiply and an add where its code for single elements does not; its square root is not always the nearest number.
    static const std::set<Term> rounded = {Term::exp,  Term::log, Term::log1p, Term::expm1,   Term::sin,        Term::cos, Term::sqrt,
                                           Term::tanh, Term::erf, Term::pow,   Term::row_sum, Term::column_sum, Term::fma};
    const bool exact = std::all_of(f.steps.begin(), f.steps.end(), [&](const Step& s) { return !rounded.count(s.term); });
    return exact && !depends_on_place_ ? Rule::numbers : Rule::rounded;
  }

  /// Whether eager's own bits depend on where an element lies: its vector code rounds in another order than its code for single elements.
  bool depends_on_place() const {
    if (row_.kind != Kind::pointwise) return false;
    for (std::size_t k = 0; k < samples_.size(); ++k) {
      const Left single = of_single_elements(k);
      for (std::size_t r = 0; r < std::min(outputs_[k], single.size()); ++r) {
        const Judged j{eager_[k][r], at::empty_like(eager_[k][r]).copy_(single[r]), {}, {}, {}, false, 0};
        if (!difference(j, Rule::numbers).empty()) return true;
      }
    }
    return false;
  }

  /// ATen's code for single elements, and its vector code, for the same numbers.
  Left of_single_elements(std::size_t k) const { return called(k, spread); }
  Left of_vectors(std::size_t k) const {
    if (row_.kind != Kind::pointwise || eager_[k].empty() || !eager_[k][0].defined()) return {};
    const at::Tensor& result = eager_[k][0];
    const std::int64_t n = result.numel();
    const auto padded = [&](const at::Tensor& t) {
      if (t.dim() == 0) return copy_of(t);
      at::Tensor line = at::zeros({(n / 64 + 1) * 64}, t.options());
      line.slice(0, 0, n).copy_(t.expand(result.sizes()).reshape({n}));
      return line;
    };
    Left left = called(k, padded);
    for (at::Tensor& t : left)
      if (t.defined() && t.dim() == 1) t = t.slice(0, 0, n).reshape(result.sizes());
    return left;
  }

  static double magnitude_of(const Left& left) {
    double largest = 0;
    for (const auto& t : left) {
      if (!t.defined() || !t.is_floating_point() || t.numel() == 0) continue;
      const at::Tensor flat = t.to(at::kDouble).contiguous();
      const double* p = flat.const_data_ptr<double>();
      for (std::int64_t i = 0; i < flat.numel(); ++i)
        if (std::isfinite(p[i])) largest = std::max(largest, std::fabs(p[i]));
    }
    return largest;
  }

  void compare(const std::string& what, const std::vector<Left>& found, bool with_kernels) {
    bool holds = false, may_be_kernel = false;
    for (std::size_t k = 0; k < samples_.size(); ++k) {
      const bool kernel = with_kernels && in_kernels_.count(graph_.nodes[k].id);
      const auto formula = formula_of(graph_, graph_.nodes[k]);
      report_.in_kernels += kernel;
      holds |= formula.has_value();
      may_be_kernel |= formula && !formula->has(Term::matmul) && !formula->has(Term::arbitrary);
      if (with_kernels && !kernel && samples_[k].plain && formula && !formula->has(Term::matmul) && !formula->has(Term::arbitrary))
        fault(samples_[k].about + ": the row has a formula, but no kernel was generated");
      if (formula && formula->has(Term::arbitrary)) continue;
      const Rule rule = kernel ? rule_of(*formula) : Rule::bits;
      const bool sums =
          kernel && std::any_of(formula->steps.begin(), formula->steps.end(), [](const Step& s) { return is_reduction(s.term); });
      std::vector<Judged> all;
      for (std::size_t r = 0; r < eager_[k].size(); ++r)
        all.push_back({eager_[k][r], found[k][r], {}, {}, {}, false, sums ? magnitude_of(eager_[k]) : 0});
      if (rule == Rule::rounded) measure(k, all);
      if (kernel) {
        // Kernels follow the vector code: it is what makes most elements.
        const Left vectors = of_vectors(k), other = vectors.empty() ? of_single_elements(k) : vectors;
        for (std::size_t r = 0; r < std::min(all.size(), other.size()); ++r) all[r].other = other[r];
      }
      for (std::size_t r = 0; r < all.size(); ++r) {
        const auto d = difference(all[r], rule);
        const bool result = r < outputs_[k];
        if (!d.empty())
          fault(fmt::format("{}, {}: {} {} {}", samples_[k].about, what, result ? "result" : "argument", result ? r : r - outputs_[k], d));
      }
    }
    if (!with_kernels) return;
    if (!row_.formula.empty() && !holds) fault(fmt::format("{}: its formula holds for none of the samples", row_.name));
    if (may_be_kernel && report_.in_kernels == 0) fault(fmt::format("{}: no sample became part of a kernel", row_.name));
  }

  const OpRow& row_;
  const std::vector<Sample>& samples_;
  c10::OperatorHandle op_;
  at::Tensor generator_;
  Graph graph_;
  std::vector<Left> eager_;
  std::vector<at::Tensor> masters_;       // inputs of all samples, as they are before a run
  std::vector<std::size_t> first_input_;  // per sample
  std::vector<std::size_t> outputs_;      // per sample, how many results
  std::set<NodeId> in_kernels_;
  bool depends_on_place_ = false;
  TrialReport report_;
};

}  // namespace

TrialReport try_out(const OpRow& row, const std::vector<Sample>& samples) {
  try {
    return Trial(row, samples).run();
  } catch (const std::exception& e) {
    TrialReport report;
    report.faults.push_back(fmt::format("{} throws: {}", row.name, e.what()));
    return report;
  }
}

}  // namespace tandem::test
