#include "trainers/optimizers.h"

#include "autograd/support/error.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <initializer_list>
#include <tuple>
#include <typeinfo>
#include <unordered_map>
#include <utility>

namespace tandem {
namespace {

namespace optim = torch::optim;

/// What a parameter's state entry is just before that parameter's update.
struct Progress {
  bool exists = false;
  std::int64_t step = 0;
};

class NumberList {
 public:
  explicit NumberList(std::vector<double>& values) : values_(&values) {}
  NumberList(const char* prefix, std::vector<Number>& numbers) : numbers_(&numbers), prefix_(prefix) {}
  void begin(std::size_t param) { param_ = param; }
  void add(const char* quantity, double value) {
    if (values_) return values_->push_back(value);
    numbers_->push_back({prefix_ + std::string(quantity) + "[" + std::to_string(param_) + "]", value});
  }

 private:
  std::vector<double>* values_ = nullptr;
  std::vector<Number>* numbers_ = nullptr;
  const char* prefix_ = "";
  std::size_t param_ = 0;
};

/// Stops the compiler from contracting a product with the sum around it (one rounding): eager's code rounds twice.
double rounded(double product) {
  volatile double kept = product;
  return kept;
}

std::string flags(std::initializer_list<std::pair<const char*, bool>> list) {
  std::string out;
  for (auto& [name, on] : list)
    if (on) out += (out.empty() ? "" : ",") + std::string(name);
  return out;
}

// One struct per optimizer: the options that branch, exactly as eager tests them (`momentum != 0` here, `momentum > 0` there); whether
// step() makes a missing state entry; the numbers of one parameter's update; the tensors of an entry.

struct SgdRule {
  using Class = optim::SGD;
  using Options = optim::SGDOptions;
  using State = optim::SGDParamState;
  static constexpr const char *name = "SGD", *prefix = "sgd.";

  static std::string branches(const Options& o) {
    return flags({{"weight_decay", o.weight_decay() != 0}, {"momentum", o.momentum() != 0}, {"nesterov", o.nesterov()}});
  }
  static bool makes_state(const Options& o) { return o.momentum() != 0; }
  static void numbers(const Options& o, const Progress& before, NumberList& out) {
    if (o.weight_decay() != 0) out.add("weight_decay", o.weight_decay());
    if (o.momentum() != 0) {
      if (before.exists) {  // otherwise the buffer starts as a copy of the gradient
        out.add("momentum", o.momentum());
        out.add("one_minus_dampening", 1 - o.dampening());
      }
      if (o.nesterov()) out.add("nesterov_momentum", o.momentum());
    }
    out.add("minus_lr", -1 * o.lr());
  }
  template <class F>
  static void tensors(const State& s, F&& f) {
    f("momentum_buffer", s.momentum_buffer());
  }
};

template <class O>
std::string moment_branches(const O& o) {
  return flags({{"weight_decay", o.weight_decay() != 0}, {"amsgrad", o.amsgrad()}});
}

template <class O>
void moment_numbers(const O& o, const Progress& before, NumberList& out) {
  const auto [beta1, beta2] = o.betas();
  const auto step = static_cast<double>(before.step + 1);
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  out.add("beta1", beta1);
  out.add("one_minus_beta1", 1 - beta1);
  out.add("beta2", beta2);
  out.add("one_minus_beta2", 1 - beta2);
  out.add("sqrt_bias_correction2", std::sqrt(correction2));
  out.add("eps", o.eps());
  out.add("minus_step_size", -(o.lr() / correction1));
}

template <class S, class F>
void moment_tensors(const S& s, F&& f) {
  f("exp_avg", s.exp_avg());
  f("exp_avg_sq", s.exp_avg_sq());
  f("max_exp_avg_sq", s.max_exp_avg_sq());
}

struct AdamRule {
  using Class = optim::Adam;
  using Options = optim::AdamOptions;
  using State = optim::AdamParamState;
  static constexpr const char *name = "Adam", *prefix = "adam.";

  static std::string branches(const Options& o) { return moment_branches(o); }
  static bool makes_state(const Options&) { return true; }
  static void numbers(const Options& o, const Progress& before, NumberList& out) {
    if (o.weight_decay() != 0) out.add("weight_decay", o.weight_decay());
    moment_numbers(o, before, out);
  }
  template <class F>
  static void tensors(const State& s, F&& f) {
    moment_tensors(s, f);
  }
};

struct AdamWRule {
  using Class = optim::AdamW;
  using Options = optim::AdamWOptions;
  using State = optim::AdamWParamState;
  static constexpr const char *name = "AdamW", *prefix = "adamw.";

  static std::string branches(const Options& o) { return moment_branches(o); }
  static bool makes_state(const Options&) { return true; }
  static void numbers(const Options& o, const Progress& before, NumberList& out) {
    if (o.weight_decay() != 0) out.add("decay_factor", 1 - rounded(o.lr() * o.weight_decay()));
    moment_numbers(o, before, out);
  }
  template <class F>
  static void tensors(const State& s, F&& f) {
    moment_tensors(s, f);
  }
};

struct RmspropRule {
  using Class = optim::RMSprop;
  using Options = optim::RMSpropOptions;
  using State = optim::RMSpropParamState;
  static constexpr const char *name = "RMSprop", *prefix = "rmsprop.";

  static std::string branches(const Options& o) {
    return flags({{"weight_decay", o.weight_decay() != 0}, {"momentum", o.momentum() > 0}, {"centered", o.centered()}});
  }
  static bool makes_state(const Options&) { return true; }
  static void numbers(const Options& o, const Progress&, NumberList& out) {
    if (o.weight_decay() != 0) out.add("weight_decay", o.weight_decay());
    out.add("alpha", o.alpha());
    out.add("one_minus_alpha", 1 - o.alpha());
    if (o.centered()) {
      out.add("centered_alpha", o.alpha());
      out.add("centered_one_minus_alpha", 1 - o.alpha());
    }
    out.add("eps", o.eps());
    if (o.momentum() > 0) out.add("momentum", o.momentum());
    out.add("minus_lr", -o.lr());
  }
  template <class F>
  static void tensors(const State& s, F&& f) {
    f("square_avg", s.square_avg());
    f("momentum_buffer", s.momentum_buffer());
    f("grad_avg", s.grad_avg());
  }
};

struct AdagradRule {
  using Class = optim::Adagrad;
  using Options = optim::AdagradOptions;
  using State = optim::AdagradParamState;
  static constexpr const char *name = "Adagrad", *prefix = "adagrad.";

  static std::string branches(const Options& o) { return flags({{"weight_decay", o.weight_decay() != 0}}); }
  static bool makes_state(const Options&) { return false; }  // its constructor does; step() throws without
  static void numbers(const Options& o, const Progress& before, NumberList& out) {
    if (o.weight_decay() != 0) out.add("weight_decay", o.weight_decay());
    out.add("one", 1.0);
    out.add("eps", o.eps());
    out.add("minus_decayed_lr", -(o.lr() / (1 + rounded(static_cast<double>(before.step) * o.lr_decay()))));
  }
  template <class F>
  static void tensors(const State& s, F&& f) {
    f("sum", s.sum());
  }
};

template <class Rule>
class Formula final : public OptimizerFormula {
  using Options = typename Rule::Options;
  using State = typename Rule::State;
  static constexpr bool counts = requires(State & s) { s.step(); };

 public:
  explicit Formula(optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  std::string name() const override { return Rule::name; }

  // "Adam(weight_decay: 110 - =0)": the first parameter has two of three tensors, the second no entry yet, the third is the first again.
  std::string variant() const override {
    std::string out = Rule::name;
    std::unordered_map<const void*, std::size_t> first;
    for (auto& group : std::as_const(optimizer_).param_groups()) {
      out += "(" + (group.has_options() ? Rule::branches(options_of(group)) : "no options") + ":";
      for (auto& p : group.params()) {
        auto [at, is_new] = first.emplace(p.unsafeGetTensorImpl(), first.size());
        out += is_new ? " " + entry_variant(at->first) : " =" + std::to_string(at->second);
      }
      out += ")";
    }
    return out;
  }

  std::vector<Number> numbers(const std::vector<bool>& has_grad) const override {
    std::vector<Number> out;
    fill(has_grad, NumberList(Rule::prefix, out));
    return out;
  }
  void values(const std::vector<bool>& has_grad, std::vector<double>& out) const override { fill(has_grad, NumberList(out)); }

 private:
  void fill(const std::vector<bool>& has_grad, NumberList out) const {
    std::unordered_map<const void*, Progress> progress;
    for_each_updated(has_grad, [&](std::size_t i, const optim::OptimizerParamGroup& group, const void* key) {
      auto [at, is_new] = progress.try_emplace(key);
      if (is_new) at->second = progress_of(key);
      auto& options = options_of(group);
      out.begin(i);
      Rule::numbers(options, at->second, out);
      at->second.exists |= Rule::makes_state(options);
      ++at->second.step;
    });
  }

 public:
  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> out;
    std::unordered_map<const void*, bool> seen;
    std::int32_t i = 0;
    for (auto& group : std::as_const(optimizer_).param_groups())
      for (auto& p : group.params()) {
        auto* entry = entry_of(p.unsafeGetTensorImpl());
        if (entry && seen.emplace(p.unsafeGetTensorImpl(), true).second)
          Rule::tensors(*entry, [&](const char* name, const at::Tensor& t) {
            if (t.defined()) out.push_back({i, name, t});
          });
        ++i;
      }
    return out;
  }

  void advance(const std::vector<bool>& has_grad, std::size_t params) override {
    if constexpr (counts) {
      std::size_t done = 0;
      for_each_updated(has_grad, [&](std::size_t i, const optim::OptimizerParamGroup&, const void* key) {
        if (done++ >= params) return;
        auto* entry = entry_of(key);
        if (!entry)
          throw InternalError("a state entry of " + name() + " was expected for parameter " + std::to_string(i) + ", none was found");
        entry->step(entry->step() + 1);
      });
    }
  }

 private:
  static const Options& options_of(const optim::OptimizerParamGroup& group) { return static_cast<const Options&>(group.options()); }

  State* entry_of(const void* key) const {
    auto at = optimizer_.state().find(const_cast<void*>(key));
    return at == optimizer_.state().end() ? nullptr : static_cast<State*>(at->second.get());
  }

  Progress progress_of(const void* key) const {
    auto* entry = entry_of(key);
    if constexpr (counts) return {entry != nullptr, entry ? entry->step() : 0};
    return {entry != nullptr, 0};
  }

  std::string entry_variant(const void* key) const {
    auto* entry = entry_of(key);
    if (!entry) return "-";
    std::string bits;
    Rule::tensors(*entry, [&](const char*, const at::Tensor& t) { bits += t.defined() ? '1' : '0'; });
    return bits;
  }

  template <class F>
  void for_each_updated(const std::vector<bool>& has_grad, F&& f) const {
    std::size_t expected = 0;  // not Optimizer::size(), which prints a warning
    for (auto& group : std::as_const(optimizer_).param_groups()) expected += group.params().size();
    if (has_grad.size() != expected)
      throw InternalError("gradient flags for " + std::to_string(expected) + " parameters of " + name() + " were expected, " +
                          std::to_string(has_grad.size()) + " were found");
    std::size_t i = 0;
    for (auto& group : std::as_const(optimizer_).param_groups())
      for (auto& p : group.params()) {
        if (has_grad[i]) f(i, group, p.unsafeGetTensorImpl());
        ++i;
      }
  }

  optim::Optimizer& optimizer_;
};

template <class... Rule>
std::unique_ptr<OptimizerFormula> first_exact_match(optim::Optimizer& optimizer) {
  std::unique_ptr<OptimizerFormula> found;
  ((typeid(optimizer) == typeid(typename Rule::Class) && (found = std::make_unique<Formula<Rule>>(optimizer))) || ...);
  return found;
}

}  // namespace

std::unique_ptr<OptimizerFormula> OptimizerFormula::recognise(optim::Optimizer& optimizer) {
  return first_exact_match<SgdRule, AdamRule, AdamWRule, RmspropRule, AdagradRule>(optimizer);
}

}  // namespace tandem
