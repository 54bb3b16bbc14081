// What a loop that keeps losses and outputs pins.
#include "bench/support/counting_allocator.h"
#include "tests/support/bugbank.h"

#include <algorithm>

namespace tandem::test {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// Two layers with an activation of 64 KiB. `seen` gets a weak handle on it whenever the loss function runs.
struct Network {
  torch::nn::Sequential model{torch::nn::Linear(8, 256), torch::nn::Tanh(), torch::nn::Linear(256, 4)};
  torch::optim::Adam optimizer{model->parameters(), torch::optim::AdamOptions(1e-3)};
  std::shared_ptr<std::vector<WeakStorage>> seen = std::make_shared<std::vector<WeakStorage>>();

  auto loss() {
    return [model = model, seen = seen](const at::Tensor& x) mutable {
      const auto h = model[0]->as<torch::nn::Linear>()->forward(x).tanh();
      seen->push_back(h.storage().getWeakStorageImpl());
      const auto y = model[2]->as<torch::nn::Linear>()->forward(h);
      return std::make_pair(y.pow(2).mean(), y);
    };
  }
};

std::int64_t alive(const std::vector<WeakStorage>& handles) {
  return std::count_if(handles.begin(), handles.end(), [](const WeakStorage& h) { return !h.expired(); });
}

TEST(BugBank, MEM_1_KeptLossesOfEagerStepsKeepNoActivation) {
  torch::manual_seed(1);
  Network net;
  TrainStep step(net.model, net.optimizer, net.loss(), Options{.compile = false});
  const auto x = torch::randn({64, 8});
  at::Tensor total = torch::zeros({});
  std::vector<at::Tensor> losses;
  for (int s = 0; s < 5; s++) {
    losses.push_back(step(x).loss);
    total = total + losses.back();
  }
  EXPECT_EQ(net.seen->size(), 5u);
  EXPECT_EQ(alive(*net.seen), 0);
}

TEST(BugBank, MEM_1_RecordingAndCompilingKeepNoActivation) {
  torch::manual_seed(1);
  Network net;
  TrainStep step(net.model, net.optimizer, net.loss(), Options{.shadow_every = 4});
  const auto x = torch::randn({64, 8});
  at::Tensor total = torch::zeros({});
  std::vector<at::Tensor> losses;
  for (int s = 0; s < 20; s++) {
    losses.push_back(step(x).loss);
    total = total + losses.back();
    EXPECT_EQ(alive(*net.seen), 0) << "after step " << s + 1;
  }
  EXPECT_GT(step.report().compiled_steps, 0);
  EXPECT_GT(step.report().shadow_steps, 0);
}

/// A plan that runs, on a process whose allocations are counted.
struct Compiled {
  bench::CountingAllocator& counter = bench::CountingAllocator::install();
  Network net;
  TrainStep step;
  at::Tensor x = torch::randn({64, 8});

  Compiled() : step(net.model, net.optimizer, net.loss(), Options{.shadow_every = 1000}) {
    for (int s = 0; s < 6; s++) step(x);
    EXPECT_TRUE(step(x).compiled) << step.report().to_string();
  }
};

TEST(BugBank, MEM_1_FiveKeptLossesCostTheirOwnBytes) {
  torch::manual_seed(1);
  Compiled c;
  std::vector<at::Tensor> losses;
  const auto before = c.counter.live_bytes();
  for (int s = 0; s < 5; s++) {
    auto result = c.step(c.x);
    EXPECT_TRUE(result.compiled);
    losses.push_back(result.loss);
  }
  EXPECT_LE(c.counter.live_bytes() - before, 5 * std::int64_t(sizeof(float)));
  losses.clear();
  EXPECT_LE(c.counter.live_bytes(), before + std::int64_t(sizeof(float)));  // one more is kept, to be handed out again
}

TEST(BugBank, MEM_1_KeptOutputsCostTheirOwnBytesAndStayAsTheyAre) {
  torch::manual_seed(1);
  Compiled c;
  std::vector<at::Tensor> outputs, copies;
  for (int s = 0; s < 2; s++) c.step(c.x);
  const auto before = c.counter.live_bytes();
  for (int s = 0; s < 5; s++) {
    auto result = c.step(c.x);
    EXPECT_TRUE(result.compiled);
    outputs.push_back(result.outputs.at(0));
    copies.push_back(result.outputs.at(0).clone());
  }
  EXPECT_LE(c.counter.live_bytes() - before, 2 * 5 * std::int64_t(64 * 4 * sizeof(float)));
  for (int s = 0; s < 3; s++) c.step(c.x);
  for (std::size_t i = 0; i < outputs.size(); i++) {
    EXPECT_EQ(difference(outputs[i], copies[i]), "");
    EXPECT_EQ(outputs[i].storage().nbytes(), 64 * 4 * sizeof(float));
  }
  EXPECT_NE(difference(outputs[0], outputs[1]), "") << "every step has an output of its own";
}

TEST(BugBank, MEM_1_AThousandStepsLeaveNothingBehind) {
  torch::manual_seed(1);
  Compiled c;
  const auto before = c.counter.live_bytes();
  for (int s = 0; s < 1000; s++) c.step(c.x);
  EXPECT_LE(c.counter.live_bytes(), before);
}

TEST(BugBank, MEM_1_AStepOutlivedByItsLoss) {
  torch::manual_seed(1);
  at::Tensor loss, copy;
  {
    Compiled c;
    loss = c.step(c.x).loss;
    copy = loss.clone();
  }
  EXPECT_EQ(difference(loss, copy), "");
  EXPECT_EQ(loss.storage().nbytes(), sizeof(float));
}

}  // namespace
}  // namespace tandem::test
