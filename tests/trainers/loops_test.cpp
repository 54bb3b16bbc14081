// Training loops as users write them, of some dozens of steps: everything that they leave is what eager leaves.
#include "tests/trainers/program.h"

#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <tuple>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
namespace optim = torch::optim;
using at::Tensor;

struct Classifier : nn::Module {
  Classifier() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) {
    auto h = torch::gelu(norm(first(x)));
    if (!skip_second) h = h + torch::dropout(torch::relu(second(h)), drop, is_training());
    return last(h);
  }
  nn::Linear first{10, 16}, second{16, 16}, last{16, 4};
  nn::LayerNorm norm{nn::LayerNormOptions({16})};
  double drop = 0.1;
  bool skip_second = false;
};

Tensor images(std::int64_t rows = 8) { return torch::randn({rows, 10}); }
Tensor classes(std::int64_t rows = 8) { return torch::randint(4, {rows}, at::kLong); }

template <class Net>
auto cross_entropy_of(const std::shared_ptr<Net>& net) {
  return [net](const Tensor& x, const Tensor& y) { return F::cross_entropy(net->forward(x), y); };
}

/// zero_grad, backward and update of a loss, as one body.
template <class Loss>
auto body_of(optim::Optimizer& optimizer, Loss loss) {
  return [&optimizer, loss ](const auto&... in) requires std::is_invocable_v<const Loss&, decltype(in)...> {
    optimizer.zero_grad();
    auto l = loss(in...);
    l.backward();
    optimizer.step();
    return l;
  };
}

/// to += (from - to) * weight, outside autograd.
void average(nn::Module& to, nn::Module& from, double weight) {
  const at::NoGradGuard no_grad;
  auto a = to.parameters(), b = from.parameters();
  for (std::size_t i = 0; i < a.size(); i++) a[i].lerp_(b[i], weight);
}

struct Vae : nn::Module {
  Vae() {
    register_module("encode", encode);
    register_module("mean", mean);
    register_module("logvar", logvar);
    register_module("decode", decode);
  }
  Tensor loss(const Tensor& x, double beta) {
    const auto h = torch::relu(encode(x));
    const auto m = mean(h), l = logvar(h);
    const auto z = m + torch::randn_like(l) * (0.5 * l).exp();
    const auto kl = -0.5 * torch::sum(1 + l - m.pow(2) - l.exp());
    return F::binary_cross_entropy(torch::sigmoid(decode(z)), x, F::BinaryCrossEntropyFuncOptions().reduction(torch::kSum)) + beta * kl;
  }
  nn::Linear encode{12, 16}, mean{16, 3}, logvar{16, 3}, decode{3, 12};
};

TEST(Loops, AVaeWithAnAnnealedTermAndASmallerLastBatch) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<Vae>();
        optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-3));
        double beta = 0;
        auto step = p.step(net, optimizer, [&](const Tensor& x) { return net->loss(x, beta); });
        for (int i = 0; i < 40; i++) {
          beta = std::min(1.0, i / 20.0);
          p.note_all(step({torch::rand({i % 10 == 9 ? 5 : 8, 12})}));
        }
        p.note_state(*net, optimizer);
      },
      {30});
}

struct Critic : nn::Module {
  Critic() {
    register_module("first", first);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) { return last(F::leaky_relu(first(x))).squeeze(1); }
  nn::Linear first{6, 16}, last{16, 1};
};
struct Generator : nn::Module {
  Generator() {
    register_module("first", first);
    register_module("last", last);
  }
  Tensor forward(const Tensor& z) { return last(torch::tanh(first(z))); }
  nn::Linear first{4, 16}, last{16, 6};
};

TEST(Loops, AGanThatUsesOneFakeForBothSides) {
  expect_as_eager(
      [](Program& p) {
        auto g = std::make_shared<Generator>();
        auto d = std::make_shared<Critic>();
        optim::Adam for_g(g->parameters(), optim::AdamOptions(2e-3).betas({0.5, 0.999})), for_d(d->parameters(), optim::AdamOptions(2e-3));
        auto body = p.body([&](const Tensor& real) {
          for_d.zero_grad();
          const auto labels = torch::empty(real.size(0)).uniform_(0.8, 1.0);
          auto on_real = F::binary_cross_entropy_with_logits(d->forward(real), labels);
          on_real.backward();
          const auto fake = g->forward(torch::randn({real.size(0), 4}));
          auto on_fake = F::softplus(d->forward(fake.detach())).mean();
          on_fake.backward();
          for_d.step();
          for_g.zero_grad();
          auto fooled = F::softplus(-d->forward(fake)).mean();
          fooled.backward();
          for_g.step();
          return std::make_tuple(on_real + on_fake, fooled);
        });
        for (int i = 0; i < 40; i++) p.note_all(body({torch::randn({8, 6}) + 2}));
        p.note_state(*g, for_g);
        p.note_state(*d, for_d);
      },
      {32});
}

TEST(Loops, AWassersteinCriticWithAGradientPenalty) {
  expect_as_eager(
      [](Program& p) {
        auto g = std::make_shared<Generator>();
        auto d = std::make_shared<Critic>();
        optim::Adam for_g(g->parameters(), optim::AdamOptions(1e-3));
        optim::RMSprop for_d(d->parameters(), optim::RMSpropOptions(1e-3));
        auto critic = p.body([&](const Tensor& real) {
          for_d.zero_grad();
          Tensor fake;
          {
            const at::NoGradGuard no_grad;
            fake = g->forward(torch::randn({real.size(0), 4}));
          }
          const auto weight = torch::rand({real.size(0), 1});
          const auto between = (weight * real + (1 - weight) * fake).requires_grad_(true);
          const auto out = d->forward(between);
          const auto slope = torch::autograd::grad({out}, {between}, {torch::ones_like(out)}, true, /*create_graph=*/true)[0];
          auto loss = d->forward(fake).mean() - d->forward(real).mean() + 10 * (slope.norm(2, 1) - 1).pow(2).mean();
          loss.backward();
          for_d.step();
          return loss;
        });
        auto generator = p.body(body_of(for_g, [&](const Tensor& z) { return -d->forward(g->forward(z)).mean(); }));
        for (int i = 0; i < 45; i++) {
          p.note_all(critic({torch::randn({8, 6})}));
          if (i % 3 == 2) p.note_all(generator({torch::randn({8, 4})}));
        }
        p.note_state(*g, for_g);
        p.note_state(*d, for_d);
      },
      {36, 9});
}

TEST(Loops, ATeacherThatIsAnAverageOfItsStudent) {
  expect_as_eager(
      [](Program& p) {
        auto student = std::make_shared<Classifier>(), teacher = std::make_shared<Classifier>();
        teacher->eval();
        average(*teacher, *student, 1);
        optim::SGD optimizer(student->parameters(), optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4).nesterov(true));
        double temperature = 4;
        auto step = p.step(student, optimizer, [&](const Tensor& x, const Tensor& y) {
          Tensor wanted;
          {
            const at::NoGradGuard no_grad;
            wanted = torch::softmax(teacher->forward(x) / temperature, 1);
          }
          const auto scores = student->forward(x);
          const auto follow =
              F::kl_div(torch::log_softmax(scores / temperature, 1), wanted, F::KLDivFuncOptions().reduction(torch::kBatchMean));
          return std::make_tuple(0.7 * follow * temperature * temperature + 0.3 * F::cross_entropy(scores, y),
                                 (scores.argmax(1) == y).sum());
        });
        for (int i = 0; i < 40; i++, temperature -= 0.05) {
          p.note_all(step({images(), classes()}));
          average(*teacher, *student, 0.1);
        }
        p.note_state(*student, optimizer);
        p.note_state(*teacher);
      },
      {34});
}

TEST(Loops, MixupWithLayersThatAreSkippedByACoin) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<Classifier>();
        optim::Adam optimizer(net->parameters(), optim::AdamOptions(3e-3));
        double lambda = 0;
        const auto smooth = F::CrossEntropyFuncOptions().label_smoothing(0.1);
        auto step = p.step(net, optimizer, [&](const Tensor& x, const Tensor& y) {
          const auto other = torch::randperm(x.size(0));
          const auto scores = net->forward(lambda * x + (1 - lambda) * x.index_select(0, other));
          return lambda * F::cross_entropy(scores, y, smooth) + (1 - lambda) * F::cross_entropy(scores, y.index({other}), smooth);
        });
        for (int i = 0; i < 40; i++) {
          lambda = 0.01 * double(p.number(100));
          net->skip_second = p.coin(0.4);
          net->drop = 0.5 - 0.01 * i;
          p.note_all(step({images(), classes()}));
        }
        p.note_state(*net, optimizer);
      },
      {28});
}

TEST(Loops, AContrastiveLossWithAQueueThatIsWrittenInPlace) {
  expect_as_eager(
      [](Program& p) {
        auto net = bag();
        auto queue = net->register_buffer("queue", F::normalize(torch::randn({24, 8})));
        nn::Linear query(10, 8), key(10, 8);
        net->register_module("query", query);
        net->register_module("key", key);
        for (auto& t : key->parameters()) t.requires_grad_(false);
        optim::SGD optimizer(query->parameters(), optim::SGDOptions(0.1).momentum(0.9));
        std::int64_t at = 0;
        auto step = p.step(net, optimizer, [&](const Tensor& a, const Tensor& b) {
          average(*key, *query, 0.01);
          const auto q = F::normalize(query(a)), k = F::normalize(key(b)).detach();
          const auto scores = torch::cat({(q * k).sum(1, true), q.mm(queue.t().clone())}, 1) / 0.2;
          queue.narrow(0, at, 8).copy_(k);
          at = (at + 8) % 24;
          return F::cross_entropy(scores, torch::zeros({8}, at::kLong));
        });
        for (int i = 0; i < 40; i++) p.note_all(step({images(), images()}));
        p.note_state(*net, optimizer);
      },
      {28});
}

struct SpectralNorm : nn::Module {
  SpectralNorm() {
    weight = register_parameter("weight", torch::randn({6, 10}));
    u = register_buffer("u", F::normalize(torch::randn(6), F::NormalizeFuncOptions().dim(0)));
  }
  Tensor forward(const Tensor& x) {
    const auto unit = F::NormalizeFuncOptions().dim(0);
    Tensor v;
    {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 2; i++) {
        v = F::normalize(torch::mv(weight.t(), u), unit);
        u.copy_(F::normalize(torch::mv(weight, v), unit));
      }
    }
    return F::linear(x, weight / torch::dot(u.clone(), torch::mv(weight, v.clone())));
  }
  Tensor weight, u;
};

TEST(Loops, PowerIterationsThatWriteABufferInACompiledModule) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<SpectralNorm>();
        optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.05));
        auto f = p.forward(net);
        for (int i = 0; i < 40; i++) {
          optimizer.zero_grad();
          auto loss = f(images()).pow(2).mean();
          loss.backward();
          optimizer.step();
          p.note("loss", loss);
        }
        p.note_state(*net, optimizer);
      },
      {34});
}

TEST(Loops, ACheckpointIsLoadedInTheMiddle) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<Classifier>();
        optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-2));
        auto step = p.step(net, optimizer, cross_entropy_of(net));
        auto body = p.body(body_of(optimizer, cross_entropy_of(net)));
        std::stringstream model, state;
        for (int i = 0; i < 48; i++) {
          p.note_all((i / 8 % 2 ? body : step)({images(), classes()}));
          if (i % 8 == 7) optimizer.zero_grad();
          if (i == 12) {
            torch::save(net, model);
            torch::save(optimizer, state);
          }
          if (i == 28) {
            torch::load(net, model);
            torch::load(optimizer, state);
          }
        }
        p.note_state(*net, optimizer);
      },
      {12, 18});
}

TEST(Loops, LayersAreFrozenGroupsAreAddedAndRatesFollowASchedule) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<Classifier>();
        std::vector<optim::OptimizerParamGroup> groups;
        groups.emplace_back(net->first->parameters(), std::make_unique<optim::SGDOptions>(0.01));
        groups.emplace_back(net->second->parameters(), std::make_unique<optim::SGDOptions>(optim::SGDOptions(0.1).momentum(0.9)));
        optim::SGD optimizer(std::move(groups), optim::SGDOptions(0.1));
        optim::StepLR schedule(optimizer, 7, 0.5);
        auto step = p.step(net, optimizer, cross_entropy_of(net));
        auto body = p.body(body_of(optimizer, cross_entropy_of(net)));
        for (int i = 0; i < 60; i++) {
          for (auto& t : net->first->parameters()) t.requires_grad_(i < 20 || i >= 40);
          if (i == 30)
            optimizer.add_param_group(optim::OptimizerParamGroup(net->last->parameters(), std::make_unique<optim::SGDOptions>(0.02)));
          p.note_all((i % 2 ? body : step)({images(), classes()}));
          if (i > 5) schedule.step();
        }
        p.note_state(*net, optimizer);
      },
      {14, 10});
}

TEST(Loops, GradientsThatTheBodyAccumulatesOverThreeCalls) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<Classifier>();
        optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-3));
        int micro = 0;
        auto body = p.body([&](const Tensor& x, const Tensor& y) {
          auto loss = F::cross_entropy(net->forward(x), y) / 3;
          loss.backward();
          if (++micro % 3 == 0) {
            nn::utils::clip_grad_value_(net->parameters(), 0.05);
            optimizer.step();
            optimizer.zero_grad();
          }
          return loss;
        });
        for (int i = 0; i < 48; i++) p.note_all(body({images(), classes()}));
        p.note_state(*net, optimizer);
      },
      {34});
}

TEST(Loops, SharpnessAwareMinimisationWithTwoBackwards) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<Classifier>();
        optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.05).momentum(0.9));
        auto body = p.body([&](const Tensor& x, const Tensor& y) {
          optimizer.zero_grad();
          auto loss = F::cross_entropy(net->forward(x), y);
          loss.backward();
          std::vector<Tensor> norms, moved;
          for (const auto& t : net->parameters()) norms.push_back(t.grad().norm());
          const auto scale = 0.05 / (torch::stack(norms).norm() + 1e-12);
          for (const auto& t : net->parameters()) moved.push_back(t.grad() * scale);
          auto move = [&](double by) {
            const at::NoGradGuard no_grad;
            auto all = net->parameters();
            for (std::size_t i = 0; i < all.size(); i++) all[i].add_(moved[i], by);
          };
          move(1);
          optimizer.zero_grad();
          F::cross_entropy(net->forward(x), y).backward();
          move(-1);
          optimizer.step();
          return loss;
        });
        for (int i = 0; i < 40; i++) p.note_all(body({images(), classes()}));
        p.note_state(*net, optimizer);
      },
      {34});
}

}  // namespace
}  // namespace tandem::test
