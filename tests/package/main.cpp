// Trains three steps and says whether the loss fell.
#include <tandem/tandem.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

int main() {
  torch::nn::Linear model(2, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  tandem::TrainStep step(model, optimizer, [&](at::Tensor x, at::Tensor y) { return (model->forward(x) - y).square().mean(); });

  const at::Tensor x = at::ones({4, 2}), y = at::ones({4, 1}) * 3;
  const double first = step(x, y).loss.item<double>();
  step(x, y);
  const double last = step(x, y).loss.item<double>();
  std::printf("tandem %s: loss %.4f, then %.4f after %lld steps\n", tandem::version(), first, last, static_cast<long long>(step.report().steps));
  return last < first && step.report().steps == 3 ? 0 : 1;
}
