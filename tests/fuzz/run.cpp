#include "tests/fuzz/run.h"

#include "tests/fuzz/compare.h"
#include "tests/support/state_equal.h"

#include <torch/utils.h>

#include <cstring>
#include <functional>
#include <stdexcept>

namespace tandem::fuzz {
namespace {

using Setter = std::function<void(Options&, double)>;

const std::map<std::string, Setter>& switches() {
  static const std::map<std::string, Setter> all{{"fold", [](Options& o, double v) { o.fold = v != 0; }},
                                                 {"cse", [](Options& o, double v) { o.cse = v != 0; }},
                                                 {"dce", [](Options& o, double v) { o.dce = v != 0; }},
                                                 {"decompose", [](Options& o, double v) { o.decompose = v != 0; }},
                                                 {"skip_views", [](Options& o, double v) { o.skip_views = v != 0; }},
                                                 {"partition", [](Options& o, double v) { o.partition = v != 0; }},
                                                 {"fuse", [](Options& o, double v) { o.fuse = v != 0; }},
                                                 {"fuse_update", [](Options& o, double v) { o.fuse_update = v != 0; }},
                                                 {"blas", [](Options& o, double v) { o.blas = v != 0; }},
                                                 {"arena", [](Options& o, double v) { o.arena = v != 0; }}};
  return all;
}

const std::map<std::string, Setter>& meanings() {
  static const std::map<std::string, Setter> all{{"clip_grad_norm", [](Options& o, double v) { o.clip_grad_norm = v; }},
                                                 {"clip_norm_type", [](Options& o, double v) { o.clip_norm_type = v; }},
                                                 {"clip_grad_value", [](Options& o, double v) { o.clip_grad_value = v; }},
                                                 {"accumulate", [](Options& o, double v) { o.accumulate = std::int64_t(v); }},
                                                 {"keep_grads", [](Options& o, double v) { o.keep_grads = v != 0; }},
                                                 {"zero_grad_to_none", [](Options& o, double v) { o.zero_grad_to_none = v != 0; }},
                                                 {"shadow_every", [](Options& o, double v) { o.shadow_every = std::int64_t(v); }}};
  return all;
}

std::string text_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error ? error->what_without_backtrace() : e.what();
}

class Lockstep {
 public:
  Lockstep(const Program& program, bool exact)
      : program_(program), exact_(exact), options_(options_of(program)), eager_(make_training(program), options_),
        plan_(make_training(program)),
        step_(*plan_.model, *plan_.optimizer, Loss{plan_.model.get()}, exact ? without_kernels(options_) : options_) {
    torch::manual_seed(program.seed);
  }

  Run run() {
    Run result;
    for (std::size_t i = 0; i < program_.steps.size() && result.finding.kind.empty(); i++) {
      result.finding = one_step(i);
      if (!result.finding.sentence.empty())
        result.finding.sentence = fmt::format("step {}{}: {}", i + 1, exact_ ? " (exact)" : "", result.finding.sentence);
    }
    const auto report = step_.report();
    result.compiled_steps = report.compiled_steps;
    result.active = report.compiled_steps > 0;
    for (const auto& p : report.plans) {
      if (p.steps == 0) continue;
      result.nodes = std::max(result.nodes, p.nodes_forward + p.nodes_backward + p.nodes_update);
      result.kernels = std::max(result.kernels, p.kernels);
    }
    for (const auto& s : program_.statements) result.ops.push_back(s.op);
    for (const auto& e : report.events) {
      if (result.finding.kind.empty() && e.kind == "check-failed") result.finding = {"check", e.sentence};
      if (result.finding.kind.empty() && e.kind == "retired") result.finding = {"retired", e.sentence};
      if (result.finding.kind.empty() && e.sentence.find("internal error") != std::string::npos) result.finding = {"internal", e.sentence};
    }
    if (!result.active) result.reason = report.reason;
    return result;
  }

 private:
  /// Takes any number of tensors.
  struct Loss {
    Model* model;
    template <class... T>
    Tensors operator()(const T&... in) const {
      return model->forward({in...});
    }
  };
  static Options without_kernels(Options o) {
    o.fuse = o.decompose = false;
    return o;
  }

  Finding one_step(std::size_t index) {
    const auto& step = program_.steps[index];
    for (auto* t : {&eager_.training(), &plan_}) {
      if (step.lr) set_lr(*t->optimizer, *step.lr);
      t->model->train(step.training);
    }
    const auto mine = plan_.model->batch(index, step.batch), eagers = eager_.training().model->batch(index, step.batch);
    const auto generator = test::generator_state();
    const Snapshot before(eager_, step, eagers);
    Left expected, found;
    try {
      const auto returned = eager_.step(eagers);
      expected = all_of(eager_.training(), returned, eagers);
    } catch (const std::exception& e) {
      return {"invalid", text_of(e)};
    }
    const auto generator_after = test::generator_state();
    test::set_generator_state(generator);
    try {
      const auto r = step_.run(mine);
      Tensors returned{r.loss};
      returned.insert(returned.end(), r.outputs.begin(), r.outputs.end());
      found = all_of(plan_, returned, mine);
    } catch (const std::exception& e) {
      return {"crash", text_of(e)};
    }
    if (!same(test::generator_state(), generator_after)) return {"wrong", "the generator is elsewhere"};
    try {
      if (auto apart = judge(found, expected, before); !apart.empty()) return {"wrong", apart};
    } catch (const std::exception& e) {
      return {"judge", text_of(e)};
    }
    test::set_generator_state(generator_after);
    if (!exact_) follow();
    return {};
  }

  std::string judge(const Left& found, const Left& expected, const Snapshot& before) {
    if (exact_) return bits_apart(found, expected);
    const auto native = eager_.training().model->natives();
    return values_apart(found, expected, [&](Judge judge) {
      judge.native = native;
      return before.repeat(program_, options_, judge);
    });
  }

  static bool same(const at::Tensor& a, const at::Tensor& b) {
    return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }

  /// Rounding grows from step to step: each one is judged from a common start. Moves no version counter.
  void follow() {
    const auto to = state_of(plan_), from = state_of(eager_.training());
    for (std::size_t i = 0; i < to.tensors.size(); i++) {
      const auto &t = to.tensors[i].second, &f = from.tensors[i].second;
      if (t.defined() && f.defined() && !t._is_zerotensor() && !f._is_zerotensor() && t.is_non_overlapping_and_dense() &&
          t.strides() == f.strides() && t.numel() > 0)
        std::memcpy(t.unsafeGetTensorImpl()->mutable_data(), f.const_data_ptr(), t.nbytes());
    }
  }

  Program program_;
  bool exact_;
  Options options_;
  EagerSide eager_;
  Training plan_;
  TrainStep step_;
};

}  // namespace

Options options_of(const Program& program) {
  Options options;
  options.shadow_every = 1000;
  for (const auto& [name, v] : program.options) {
    const auto meaning = meanings().find(name), toggle = switches().find(name);
    if (meaning != meanings().end())
      meaning->second(options, v);
    else if (toggle != switches().end())
      toggle->second(options, v);
    else
      throw std::invalid_argument("expected an option that programs have, found '" + name + "'");
  }
  return options;
}

std::vector<std::string> switch_names() {
  std::vector<std::string> names;
  for (const auto& [name, set] : switches()) names.push_back(name);
  return names;
}

Run run(const Program& program, bool exact) {
  std::optional<Lockstep> lockstep;
  try {
    lockstep.emplace(program, exact);
  } catch (const std::exception& e) {
    Run invalid;
    invalid.finding = {"invalid", text_of(e)};
    return invalid;
  }
  return lockstep->run();
}

}  // namespace tandem::fuzz
