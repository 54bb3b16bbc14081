#include "tests/fuzz/random_program.h"

#include "tests/fuzz/compare.h"
#include "tests/fuzz/draft.h"
#include "tests/fuzz/edit.h"
#include "tests/fuzz/run.h"

#include <ATen/TensorOperators.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>

namespace tandem::fuzz {
namespace {

constexpr std::int64_t batch = 7;  // a prime that no other size is made of

struct Share {
  double weight;
  Kind kind;
};
constexpr Share shares[] = {{30, Kind::pointwise}, {15, Kind::view},   {12, Kind::reduction}, {6, Kind::softmax}, {8, Kind::contraction},
                            {4, Kind::gather},     {3, Kind::scatter}, {8, Kind::copy},       {2, Kind::factory}, {4, Kind::random},
                            {1, Kind::loss},       {1, Kind::pooling}, {1, Kind::convolution}};

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : r_(seed) {
    p_.seed = seed;
    model_ = std::make_unique<Model>(p_);
  }

  Program make() {
    declare_first();
    const auto statements = r_.between(4, 14);
    for (int tries = 0; tries < 400 && std::int64_t(p_.statements.size()) < statements; tries++) attempt();
    add_losses();
    choose_rest();
    return tidy(std::move(p_));
  }

 private:
  void declare_first() {
    static const std::vector<std::int64_t> lengths{1, 2, 3, 4, 4, 5, 6, 8};
    const auto shape = [&](bool batched) {
      std::vector<std::int64_t> s;
      if (batched) s.push_back(batch);
      for (auto d = r_.between(batched ? 0 : 1, r_.chance(0.2) ? 3 : 2); d > 0; d--) s.push_back(r_.chance(0.01) ? 0 : r_.pick(lengths));
      return s;
    };
    auto source = source_now();
    Draft d(source);
    const auto type = [&] { return r_.chance(0.85) ? at::kFloat : r_.chance(0.5) ? at::kDouble : at::kBFloat16; };
    d.fresh(Outside::Role::input, type(), shape(true));
    if (r_.chance(0.3)) d.fresh(Outside::Role::input, r_.chance(0.3) ? at::kLong : type(), shape(r_.chance(0.8)));
    d.fresh(Outside::Role::parameter, type(), r_.chance(0.1) ? std::vector<std::int64_t>{} : shape(false));
    if (r_.chance(0.7)) d.fresh(Outside::Role::parameter, type(), shape(false));
    if (r_.chance(0.4)) d.fresh(Outside::Role::buffer, type(), shape(false));
    next_name_ = source.next_name;
    take(d, source);
  }

  Source source_now() { return {r_, *model_, names_, next_name_, inputs_, batch}; }

  void take(const Draft& d, const Source& source) {
    for (const auto& o : d.outside) {
      p_.outside.push_back(o);
      names_.push_back(o.name);
    }
    p_.layers.insert(p_.layers.end(), d.layers.begin(), d.layers.end());
    for (const auto& s : d.before) add(s);
    inputs_ = source.inputs;
  }
  void add(const Statement& s) {
    p_.statements.push_back(s);
    for (const auto& n : s.results) names_.push_back(n);
  }

  const Callable& pick_op() {
    double total = 0;
    for (const auto& s : shares) total += s.weight;
    double at = double(r_.below(1000)) / 1000 * total;
    for (const auto& s : shares) {
      at -= s.weight;
      if (at < 0 && !rows_of(s.kind).empty()) return r_.pick(rows_of(s.kind));
    }
    return r_.pick(rows_of(Kind::pointwise));
  }

  /// One statement more, or none when what was drawn makes no sense.
  void attempt() {
    auto source = source_now();
    Draft d(source);
    std::optional<Statement> s;
    bool writes = false;
    if (r_.chance(0.1)) {
      s = d.layer(r_.pick(layer_kinds()));
    } else {
      const auto& op = r_.chance(0.12) ? r_.pick(other_ops()) : pick_op();
      s = d.call(op);
      writes = op.writes;
      if (s && writes) s->no_grad = s->arguments[0].text[0] == 'b' || r_.chance(0.1);
    }
    next_name_ = source.next_name;
    if (!s) return;
    const bool good = evaluate(*s);
    if (good) {
      take(d, source);
      add(*s);
    } else if (writes) {
      start_again();
    }
  }

  bool evaluate(Statement& s) {
    try {
      model_->evaluate(s, next_name_);
      while (!s.results.empty() && !model_->values().at(s.results.back()).defined()) s.results.pop_back();
      if (s.results.empty() || s.results.size() > 8) return false;
      return std::all_of(s.results.begin(), s.results.end(), [&](auto& name) { return sane(model_->values().at(name)); });
    } catch (const std::exception&) {
      return false;
    }
  }

  bool sane(const at::Tensor& t) {
    if (!t.defined() || t.layout() != at::kStrided || !t.device().is_cpu() || t.numel() > 3000 || t.dim() > 5 || t.is_complex())
      return false;
    name_of(t.scalar_type());
    if (!t.is_floating_point() || t.numel() == 0) return true;
    const double largest = t.detach().abs().max().item<double>();
    return largest <= 100 || (std::isfinite(largest) && r_.chance(0.05)) || r_.chance(0.01);
  }

  /// After a call that may have written and was not kept.
  void start_again() {
    model_ = std::make_unique<Model>(p_);
    for (const auto& s : p_.statements) model_->evaluate(s);
  }

  void add_losses() {
    std::vector<std::string> candidates;
    for (const auto& name : names_) {
      const auto& t = model_->values().at(name);
      if (name[0] == 'v' && t.defined() && t.is_floating_point() && t.requires_grad() && t.numel() > 0) candidates.push_back(name);
    }
    if (candidates.empty()) return;
    for (auto n = r_.between(1, 3); n > 0; n--) {
      const auto last = std::int64_t(candidates.size()) - 1;
      const auto name = candidates[std::size_t(r_.chance(0.5) ? last - r_.below(std::min<std::int64_t>(3, last + 1)) : r_.below(last + 1))];
      reduce_to_loss(name);
    }
    for (const auto& name : names_)
      if (name[0] == 'v' && r_.chance(0.08) && p_.outputs.size() < 3) p_.outputs.push_back(name);
  }

  void reduce_to_loss(const std::string& name) {
    const auto t = model_->values().at(name);
    Statement s;
    s.arguments = {named(name)};
    auto source = source_now();
    Draft d(source);
    const auto way = r_.below(5);
    if (way == 0) {
      s.op = "aten::mse_loss";
      s.arguments.push_back(named(d.fresh(Outside::Role::input, t.scalar_type(), t.sizes())));
    } else if (way == 1 && t.dim() == 2 && t.size(1) > 1) {
      s.op = "aten::cross_entropy_loss";
      s.arguments.push_back(named(d.fresh(Outside::Role::input, at::kLong, {t.size(0)}, t.size(1))));
    } else {
      s.op = way == 2 ? "aten::sum" : "aten::mean";
      s.arguments.push_back(t.scalar_type() == at::kBFloat16 && r_.chance(0.5) ? type(at::kFloat) : nothing());
    }
    next_name_ = source.next_name;
    if (!evaluate(s)) return;
    take(d, source);
    add(s);
    p_.losses.push_back(s.results[0]);
  }

  void choose_rest() {
    const auto maybe = [&](const char* name, double v, double p) {
      if (r_.chance(p)) p_.options[name] = v;
    };
    maybe("keep_grads", 1, 0.7);
    maybe("zero_grad_to_none", 0, 0.1);
    maybe("clip_grad_norm", 0.5, 0.1);
    maybe("clip_grad_value", 0.01, 0.05);
    maybe("accumulate", 2, 0.06);
    p_.optimizer = r_.pick(optimizer_classes());
    p_.hyper = random_hyper(p_.optimizer, r_);
    for (int i = 0; i < (p_.options.count("accumulate") ? 9 : 6); i++) p_.steps.push_back({batch, {}, true});
    if (r_.chance(0.3)) p_.steps.back().lr = 0.004;
    if (r_.chance(0.2)) p_.steps.insert(p_.steps.end(), 4, {5, {}, true});
    if (r_.chance(0.1)) p_.steps.insert(p_.steps.end(), 4, {batch, {}, false});
    if (r_.chance(0.3)) p_.steps.push_back({batch, {}, true});
  }

  Random r_;
  Program p_;
  std::unique_ptr<Model> model_;
  std::vector<std::string> names_;
  std::int64_t next_name_ = 0, inputs_ = 0;
};

/// Another batch size where that does not work, and without statements that make autograd throw.
std::optional<Program> repaired(Program p) {
  for (int tries = 0; tries < 12; tries++) {
    if (p.losses.empty()) return {};
    const auto fault = fault_of(p);
    if (fault.empty()) return p;
    const auto other = std::find_if(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.batch != batch; });
    if (other != p.steps.end()) {
      std::erase_if(p.steps, [](const Step& s) { return s.batch != batch; });
      continue;
    }
    auto i = std::ptrdiff_t(p.statements.size()) - 1;
    while (i >= 0 && (p.statements[std::size_t(i)].op.find("::") == std::string::npos || !callable(p.statements[std::size_t(i)].op).writes))
      i--;
    if (i < 0) return {};
    p = bypassed(p, std::size_t(i));
  }
  return {};
}

}  // namespace

std::string fault_of(const Program& p) {
  try {
    std::vector<Left> first;
    for (int again = 0; again < 2; again++) {
      EagerSide side(make_training(p), options_of(p));
      torch::manual_seed(p.seed);
      for (std::size_t i = 0; i < p.steps.size(); i++) {
        side.training().model->train(p.steps[i].training);
        const auto inputs = side.training().model->batch(i, p.steps[i].batch);
        const auto left = all_of(side.training(), side.step(inputs), inputs);
        if (!std::isfinite(left.tensors[0].second.item<double>()) && p.seed % 32 != 0) return "the loss is not finite";
        if (again == 0)
          first.push_back(left.copy());
        else if (auto apart = bits_apart(left, first[i]); !apart.empty() && apart.find("version") == std::string::npos)
          return "eager is not deterministic: " + apart;
      }
    }
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

Program random_program(std::uint64_t seed) {
  for (std::uint64_t variant = 0;; variant++) {
    try {
      if (auto p = repaired(Maker(seed + (variant << 32)).make())) return *p;
    } catch (const c10::Error&) {  // asking for the history of a view that was written may throw late
    }
  }
}

void random_switches(Program& p, Random& r) {
  const Options standard;
  for (const auto& name : switch_names())
    if (r.chance(0.2)) p.options[name] = name == "decompose" ? 1 : 0;
}

}  // namespace tandem::fuzz
