// Small models, and a step held against the same step written as a plain eager loop.
#pragma once

#include "tests/support/bugbank.h"

#include <cmath>
#include <functional>

namespace tandem::test {

using Loss = std::function<Inputs(const at::Tensor& x, const at::Tensor& y)>;
using Toy = Trainer<Loss>;
using MakeToy = std::function<Toy()>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

inline std::unique_ptr<torch::optim::Optimizer> momentum_sgd(std::vector<at::Tensor> p) { return sgd(std::move(p), 0.05, 0.9); }

/// Linear, batch norm, ReLU, dropout, linear.
struct MlpNet : torch::nn::Module {
  MlpNet() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(drop(torch::relu(norm(first(x.to(at::kFloat)))))); }
  torch::nn::Linear first{6, 8}, last{8, 4};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Dropout drop{0.25};
};

/// One pre-norm causal self-attention block with a residual connection and a head, on [rows, 3, 4].
struct AttentionNet : torch::nn::Module {
  AttentionNet() {
    register_module("norm", norm);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("head", head);
    mask = register_buffer("mask", torch::ones({3, 3}).tril().eq(0));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv(norm(x)).chunk(3, -1);
    const auto scores = parts[0].matmul(parts[1].transpose(1, 2)) / 2.0;
    const auto weights = torch::dropout(torch::softmax(scores.masked_fill(mask, -INFINITY), -1), 0.2, is_training());
    return head(x + out(weights.matmul(parts[2])));
  }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({4})};
  torch::nn::Linear qkv{4, 12}, out{4, 4}, head{4, 5};
  at::Tensor mask;
};

/// Makes a toy of a net and a loss that is called with the net, x and y.
template <class Net, class F>
Toy make_toy(const MakeOptimizer& optimizer, F loss) {
  torch::manual_seed(11);
  auto net = std::make_shared<Net>();
  auto parameters = net->parameters();
  return {net, optimizer(std::move(parameters)), [n = net.get(), loss](const at::Tensor& x, const at::Tensor& y) -> Inputs {
            return detail::as_list(loss(*n, x, y));
          }};
}

/// Cross entropy of the MLP; its scores are the further output.
inline Toy mlp(const MakeOptimizer& optimizer = momentum_sgd) {
  return make_toy<MlpNet>(optimizer, [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    const auto scores = net.forward(x);
    return std::tuple(torch::cross_entropy_loss(scores, y.to(at::kLong)), scores);
  });
}

inline Toy attention(const MakeOptimizer& optimizer = momentum_sgd) {
  return make_toy<AttentionNet>(optimizer, [](AttentionNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(net.forward(x).flatten(0, 1), y.flatten());
  });
}

/// The MLP with another loss, which is called with the net, x and y.
template <class F>
MakeToy mlp_with(F loss, const MakeOptimizer& optimizer = momentum_sgd) {
  return [=] { return make_toy<MlpNet>(optimizer, loss); };
}

/// Normal numbers that do not move the default generator.
inline at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) { return torch::randn(sizes, at::detail::createCPUGenerator(seed)); }
inline at::Tensor labels(at::IntArrayRef sizes, std::int64_t classes, std::uint64_t seed) {
  return torch::randint(0, classes, sizes, at::detail::createCPUGenerator(seed), at::kLong);
}
inline Inputs mlp_batch(std::uint64_t seed, std::int64_t rows = 5) { return {normal({rows, 6}, seed), labels({rows}, 4, seed)}; }
inline Inputs attention_batch(std::uint64_t seed) { return {normal({2, 3, 4}, seed), labels({2, 3}, 5, seed)}; }

/// A user's eager step with what Options can ask for, written with LibTorch's own functions.
class EagerLoop {
 public:
  EagerLoop(Toy toy, Options options) : toy_(std::move(toy)), options_(std::move(options)) {}

  struct Result {
    Inputs returned;
    std::optional<double> grad_norm;
    bool updated = false;
  };
  Result step(const Inputs& in) {
    auto& optimizer = *toy_.optimizer;
    Result r;
    if (dynamic_cast<torch::optim::LBFGS*>(&optimizer)) {
      optimizer.step([&] {
        const auto returned = forward_backward(in);
        if (r.returned.empty()) r.returned = returned;
        return returned[0];
      });
      r.updated = true;
      drop();
      return r;
    }
    r.returned = forward_backward(in);
    if (++micro_ == options_.accumulate) update(r);
    return r;
  }
  void update(Result& r) {
    const auto parameters = toy_.optimizer->parameters();
    if (options_.clip_grad_norm) r.grad_norm = torch::nn::utils::clip_grad_norm_(parameters, *options_.clip_grad_norm, options_.clip_norm_type);
    if (options_.clip_grad_value) torch::nn::utils::clip_grad_value_(parameters, *options_.clip_grad_value);
    toy_.optimizer->step();
    r.updated = true;
    micro_ = 0;
    drop();
  }
  Toy& toy() { return toy_; }

 private:
  Inputs forward_backward(const Inputs& in) {
    if (micro_ == 0) toy_.optimizer->zero_grad(options_.zero_grad_to_none);
    auto returned = toy_.loss(in.at(0), in.at(1));
    returned[0].backward();
    for (auto& t : returned) t = t.detach();
    return returned;
  }
  void drop() {
    if (options_.zero_grad_to_none && !options_.keep_grads) toy_.optimizer->zero_grad(true);
  }

  Toy toy_;
  Options options_;
  std::int64_t micro_ = 0;
};

inline TrainState state_of(const Toy& toy) {
  if (!dynamic_cast<const torch::optim::LBFGS*>(toy.optimizer.get())) return train_state(*toy.module, *toy.optimizer);
  TrainState out;
  for (const auto& item : toy.module->named_parameters()) out.tensors.emplace_back(item.key(), item.value());
  return out;
}

/// Version counters of everything that lasts: what an old graph's backward would notice.
inline std::string versions(const TrainState& state) {
  std::string text;
  for (const auto& [name, tensor] : state.tensors) text += fmt::format("{} {}\n", name, tensor.defined() ? std::int64_t(tensor._version()) : -1);
  return text;
}

/// Empty when all elements are within the tolerance.
inline std::string far_apart(const TrainState& found, const TrainState& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.tensors.size(); i++) {
    const auto &a = found.tensors.at(i).second, &b = expected.tensors[i].second;
    if (a.defined() != b.defined()) return expected.tensors[i].first + " is defined on one side only";
    if (!a.defined() || a.numel() == 0) continue;
    const double gap = (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
    if (!(gap <= tolerance)) return fmt::format("{} is off by {:g}", expected.tensors[i].first, gap);
  }
  return "";
}

/// A TrainStep and the EagerLoop of the same toy, step by step, each on its own copy of the inputs and from the same place of the generator.
/// After each step everything that they leave must be the same.
class Lockstep {
 public:
  explicit Lockstep(const MakeToy& make, Options options = watched(), double tolerance = 0)
      : plan_(make()), eager_(make(), options), step_(plan_.module, *plan_.optimizer, plan_.loss, options), tolerance_(tolerance) {}

  Outcome step_each(const Inputs& mine, const Inputs& eagers) {
    const auto generator = generator_state();
    EagerLoop::Result eager;
    const Outcome expected = Outcome::of([&](Outcome& o) {
      eager = eager_.step(eagers);
      o.returned = eager.returned;
    });
    set_generator_state(generator);
    const Outcome found = Outcome::of([&](Outcome& o) {
      last_ = step_.run(mine);
      o.returned = {last_.loss};
      o.returned.insert(o.returned.end(), last_.outputs.begin(), last_.outputs.end());
      o.compiled = last_.compiled;
    });
    SCOPED_TRACE(fmt::format("step {} ({})", ++steps_, found.compiled ? "compiled" : "eager"));
    compare(found, expected);
    if (found.error.empty()) {
      EXPECT_EQ(last_.updated, eager.updated);
      EXPECT_EQ(last_.grad_norm.defined(), eager.grad_norm.has_value());
      if (last_.grad_norm.defined() && eager.grad_norm) EXPECT_EQ(last_.grad_norm.item<double>(), *eager.grad_norm);
    }
    return found;
  }
  Outcome step(const Inputs& in) {
    Inputs mine, eagers;
    for (const auto& t : in) {
      mine.push_back(t.clone());
      eagers.push_back(t.clone());
    }
    return step_each(mine, eagers);
  }
  void steps(int n, const std::function<Inputs(std::uint64_t)>& batch) {
    for (int i = 0; i < n; i++) step(batch(std::uint64_t(steps_) + 1));
  }
  /// Steps until a plan runs, six at most; a test that needs one fails here.
  void activate(const std::function<Inputs(std::uint64_t)>& batch) {
    for (int i = 0; i < 6; i++)
      if (step(batch(std::uint64_t(steps_) + 1)).compiled) return;
    ADD_FAILURE() << "no plan became active: " << report().to_string();
  }

  template <class F>
  void for_both(F&& f) {
    f(plan_);
    f(eager_.toy());
  }
  TrainStep& tandem() { return step_; }
  Toy& plan_side() { return plan_; }
  EagerLoop& eager_side() { return eager_; }
  const StepResult& last() const { return last_; }
  Report report() const { return step_.report(); }
  void compare_state() {
    const auto found = state_of(plan_), expected = state_of(eager_.toy());
    if (tolerance_ > 0) {
      EXPECT_EQ(far_apart(found, expected, tolerance_), "");
      return;
    }
    EXPECT_EQ(difference(found, expected), "");
    EXPECT_EQ(difference(gradients(*plan_.module), gradients(*eager_.toy().module)), "");
    EXPECT_EQ(versions(found), versions(expected));
  }

 private:
  void compare(const Outcome& found, const Outcome& expected) {
    EXPECT_EQ(found.error, expected.error);
    EXPECT_EQ(found.type, expected.type);
    EXPECT_EQ(difference(found.generator, expected.generator), "") << "the generator's position";
    ASSERT_EQ(found.returned.size(), expected.returned.size());
    for (std::size_t i = 0; tolerance_ == 0 && i < expected.returned.size(); i++)
      EXPECT_EQ(difference(found.returned[i], expected.returned[i]), "") << "returned tensor " << i;
    compare_state();
  }

  Toy plan_;
  EagerLoop eager_;
  TrainStep step_;
  StepResult last_;
  double tolerance_;
  int steps_ = 0;
};

/// Whether the reason or an event of the report reads so.
inline bool says(const Report& report, const std::string& part) {
  if (report.reason.find(part) != std::string::npos) return true;
  for (const auto& e : report.events)
    if (e.sentence.find(part) != std::string::npos) return true;
  return false;
}
inline std::int64_t events(const Report& report, const std::string& kind) {
  std::int64_t n = 0;
  for (const auto& e : report.events) n += e.kind == kind;
  return n;
}
inline std::int64_t active_plans(const Report& report) {
  std::int64_t n = 0;
  for (const auto& p : report.plans) n += p.active;
  return n;
}

}  // namespace tandem::test
