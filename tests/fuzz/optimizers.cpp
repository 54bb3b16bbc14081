#include "tests/fuzz/model.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <stdexcept>

namespace tandem::fuzz {
namespace {

namespace optim = torch::optim;
using Hyper = std::map<std::string, double>;

struct OptimizerKind {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<at::Tensor>, const Hyper&)> make;
  std::function<Hyper(Random&)> options;
};

double get(const Hyper& h, const char* name, double otherwise) {
  const auto at = h.find(name);
  return at == h.end() ? otherwise : at->second;
}

template <class Class, class Options>
std::unique_ptr<optim::Optimizer> make_adam(std::vector<at::Tensor> p, const Hyper& h) {
  Options o(get(h, "lr", 0.01));
  o.betas({get(h, "beta1", 0.9), get(h, "beta2", 0.999)}).eps(get(h, "eps", 1e-8)).weight_decay(get(h, "weight_decay", 0));
  return std::make_unique<Class>(std::move(p), o.amsgrad(get(h, "amsgrad", 0) != 0));
}

std::unique_ptr<optim::Optimizer> make_sgd(std::vector<at::Tensor> p, const Hyper& h) {
  optim::SGDOptions o(get(h, "lr", 0.01));
  o.momentum(get(h, "momentum", 0)).dampening(get(h, "dampening", 0)).weight_decay(get(h, "weight_decay", 0));
  return std::make_unique<optim::SGD>(std::move(p), o.nesterov(get(h, "nesterov", 0) != 0));
}

std::unique_ptr<optim::Optimizer> make_rmsprop(std::vector<at::Tensor> p, const Hyper& h) {
  optim::RMSpropOptions o(get(h, "lr", 0.01));
  o.alpha(get(h, "alpha", 0.99)).eps(get(h, "eps", 1e-8)).weight_decay(get(h, "weight_decay", 0)).momentum(get(h, "momentum", 0));
  return std::make_unique<optim::RMSprop>(std::move(p), o.centered(get(h, "centered", 0) != 0));
}

std::unique_ptr<optim::Optimizer> make_adagrad(std::vector<at::Tensor> p, const Hyper& h) {
  optim::AdagradOptions o(get(h, "lr", 0.01));
  o.lr_decay(get(h, "lr_decay", 0)).weight_decay(get(h, "weight_decay", 0));
  return std::make_unique<optim::Adagrad>(std::move(p), o.initial_accumulator_value(get(h, "initial", 0)).eps(get(h, "eps", 1e-10)));
}

void maybe(Hyper& h, Random& r, const char* name, double value) {
  if (r.chance(0.35)) h[name] = value;
}

Hyper adam_options(Random& r) {
  Hyper h{{"lr", r.chance(0.5) ? 0.01 : 0.003}};
  maybe(h, r, "beta1", 0.7);
  maybe(h, r, "beta2", 0.95);
  maybe(h, r, "eps", 1e-3);
  maybe(h, r, "weight_decay", 0.02);
  maybe(h, r, "amsgrad", 1);
  return h;
}

Hyper sgd_options(Random& r) {
  Hyper h{{"lr", r.chance(0.5) ? 0.02 : 0.005}};
  maybe(h, r, "weight_decay", 0.05);
  maybe(h, r, "momentum", 0.9);
  if (!h.count("momentum")) return h;
  maybe(h, r, "nesterov", 1);
  if (!h.count("nesterov")) maybe(h, r, "dampening", 0.25);
  return h;
}

Hyper rmsprop_options(Random& r) {
  Hyper h{{"lr", 0.005}};
  maybe(h, r, "alpha", 0.9);
  maybe(h, r, "eps", 1e-4);
  maybe(h, r, "weight_decay", 0.02);
  maybe(h, r, "momentum", 0.8);
  maybe(h, r, "centered", 1);
  return h;
}

Hyper adagrad_options(Random& r) {
  Hyper h{{"lr", 0.02}};
  maybe(h, r, "lr_decay", 0.1);
  maybe(h, r, "weight_decay", 0.02);
  maybe(h, r, "initial", 0.1);
  return h;
}

const OptimizerKind kinds[] = {{"SGD", make_sgd, sgd_options},
                               {"Adam", make_adam<optim::Adam, optim::AdamOptions>, adam_options},
                               {"AdamW", make_adam<optim::AdamW, optim::AdamWOptions>, adam_options},
                               {"RMSprop", make_rmsprop, rmsprop_options},
                               {"Adagrad", make_adagrad, adagrad_options}};

const OptimizerKind& kind_of(const std::string& name) {
  for (const auto& k : kinds)
    if (name == k.name) return k;
  throw std::invalid_argument("expected an optimizer that programs have, found '" + name + "'");
}

}  // namespace

std::vector<std::string> optimizer_classes() {
  std::vector<std::string> names;
  for (const auto& k : kinds) names.push_back(k.name);
  return names;
}

std::map<std::string, double> random_hyper(const std::string& optimizer, Random& r) { return kind_of(optimizer).options(r); }

Training make_training(const Program& p, std::optional<Judge> judge) {
  Training t;
  t.model = std::make_shared<Model>(p, std::move(judge));
  t.optimizer = kind_of(p.optimizer).make(t.model->parameters(), p.hyper);
  return t;
}

void set_lr(optim::Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(lr);
}

}  // namespace tandem::fuzz
