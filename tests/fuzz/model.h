// A program as a module with an optimizer and a loss, ready to be trained.
#pragma once

#include "tests/fuzz/layers.h"
#include "tests/fuzz/program.h"

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace tandem::fuzz {

using Values = std::map<std::string, at::Tensor>;

/// What a value was in the program's own run.
struct Native {
  at::ScalarType dtype;
  bool own_memory = true;  // shares none with what it was made of
};
using Natives = std::map<std::string, Native>;

/// A run that judges others: in double, with the random numbers and dtypes of `native`, or in the program's dtypes. Each result and each number from
/// outside is off by a random rounding, `noise` times its dtype's.
struct Judge {
  bool in_double = true;
  double noise = 0;
  std::uint64_t seed = 1;
  Natives native = {};
};

class Model : public torch::nn::Module {
 public:
  /// Without statements yet: they are given to evaluate(), or are those of the program that forward() is told to run.
  explicit Model(const Program& program, std::optional<Judge> judge = {});
  /// Ends the cycles that LibTorch makes: after x.mul_(x) x holds its history, which has saved x.
  ~Model() override;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void declare(const Outside&);
  void add(const Layer&);
  /// What the batch of step `index` holds, one tensor for each declared input.
  Tensors batch(std::size_t index, std::int64_t size) const;
  void begin(const Tensors& inputs);
  /// Runs one statement on the values so far. Throws what the op throws.
  void evaluate(const Statement&);
  /// The same for a statement without names yet: names its results after `next`, which moves on.
  void evaluate(Statement&, std::int64_t& next);
  /// The whole program: loss, then outputs.
  Tensors forward(const Tensors& inputs);

  /// The tensor off by random roundings of its own dtype, as this judge does it.
  at::Tensor disturbed(const at::Tensor& t, at::ScalarType native);
  const Values& values() const { return values_; }
  /// Of all values of the latest evaluation.
  const Natives& natives() const { return natives_; }
  const Program& program() const { return program_; }

 private:
  Tensors call(const Statement&, Tensors& operands);
  Tensors call(const Statement&, Tensors& operands, bool natively);  // in the dtypes of the program's own run
  void keep(const Statement&, Tensors results, const Tensors& operands);
  void disturb(const Statement&, at::Tensor& result, const std::string& name, const Tensors& operands);
  bool in_double() const { return judge_ && judge_->in_double; }
  at::Tensor fresh(const Outside&, std::uint64_t seed, std::int64_t batch) const;
  at::ScalarType dtype_here(at::ScalarType) const;

  Program program_;
  std::optional<Judge> judge_;
  at::Generator noise_;
  std::map<std::string, MadeLayer> made_;
  Values outside_, values_;
  Natives natives_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> written_;  // results that are an operand, with a history of their own
  std::int64_t batch_ = 0;
};

struct Training {
  std::shared_ptr<Model> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};
/// The same at each call, without shared tensors. Moves the default generator.
Training make_training(const Program&, std::optional<Judge> judge = {});
/// The classes that programs can have, and options of each that make sense.
std::vector<std::string> optimizer_classes();
std::map<std::string, double> random_hyper(const std::string& optimizer, Random&);

/// Sets the learning rate of all groups.
void set_lr(torch::optim::Optimizer&, double lr);

/// A statement whose op draws random numbers.
bool draws(const Statement&);

}  // namespace tandem::fuzz
