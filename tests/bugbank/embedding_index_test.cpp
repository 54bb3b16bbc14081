// Embedding, index, scatter.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;

auto embedding_trainer(F::EmbeddingFuncOptions options) {
  return [=] {
    auto module = bag();
    const auto weight = module->register_parameter("weight", torch::ones({4, 2}));
    return Trainer{module, sgd({weight}, 0.1), [=](const at::Tensor& ids) { return F::embedding(ids, weight, options).sum(); }};
  };
}

void expect_row_gradients(const F::EmbeddingFuncOptions& options, const std::vector<double>& rows) {
  Twins twins(embedding_trainer(options));
  const auto ids = torch::tensor({1, 1, 0, 3}, at::kLong);
  ASSERT_TRUE(twins.warm_up(ids)) << twins.report().to_string();
  std::vector<double> elements;
  for (const double row : rows) elements.insert(elements.end(), 2, row);
  for (int s = 0; s < 2; s++) {
    twins.compiled_step(ids);
    EXPECT_EQ(far(twins.gradient("weight"), elements), "");
  }
  twins.compiled_step(torch::tensor({2, 2, 2, 0}, at::kLong));
}

TEST(BugBank, EMB_1_RepeatedIdsAndAPaddingId) { expect_row_gradients(F::EmbeddingFuncOptions().padding_idx(0), {0, 2, 0, 1}); }

TEST(BugBank, EMB_1_APaddingIdFromTheEnd) { expect_row_gradients(F::EmbeddingFuncOptions().padding_idx(-4), {0, 2, 0, 1}); }

TEST(BugBank, EMB_1_FrequencyScaling) { expect_row_gradients(F::EmbeddingFuncOptions().scale_grad_by_freq(true), {1, 1, 0, 1}); }

/// `good` until a plan runs, each of `bad` (which must throw and leave what eager leaves), then `good` again.
template <class Make>
void expect_bad_ids_to_throw(Make make, const at::Tensor& good, const std::vector<at::Tensor>& bad) {
  for (const auto& b : bad) {
    Twins fresh(make);
    EXPECT_FALSE(fresh.step(b).error.empty());
  }
  Twins twins(make);
  twins.warm_up(good);
  twins.step(good);
  for (const auto& b : bad) {
    const auto before = twins.parameter("weight").clone();
    EXPECT_FALSE(twins.step(b).error.empty());
    EXPECT_EQ(difference(twins.parameter("weight"), before), "");
    twins.step(good);
  }
}

template <class Use>
auto weight_trainer(Use use) {
  return [=] {
    torch::manual_seed(2);
    auto module = bag();
    const auto weight = module->register_parameter("weight", torch::randn({4, 4}));
    return Trainer{module, sgd({weight}, 0.1, 0.9), [=](const at::Tensor& ids) { return use(weight, ids); }};
  };
}

at::Tensor ids(std::vector<std::int64_t> values) { return torch::tensor(values); }

TEST(BugBank, EMB_2_EmbeddingThrowsForABadId) {
  expect_bad_ids_to_throw(weight_trainer([](const at::Tensor& w, const at::Tensor& i) { return torch::embedding(w, i).sum(); }),
                          ids({1, 0, 3}), {ids({1, -1, 3}), ids({1, 0, 4})});
}

TEST(BugBank, EMB_2_IndexSelectThrowsForABadId) {
  expect_bad_ids_to_throw(weight_trainer([](const at::Tensor& w, const at::Tensor& i) { return w.index_select(0, i).sum(); }),
                          ids({1, 0, 3}), {ids({1, -1, 3}), ids({1, 0, 4})});
}

TEST(BugBank, EMB_2_GatherThrowsForABadId) {
  expect_bad_ids_to_throw(weight_trainer([](const at::Tensor& w, const at::Tensor& i) { return w.gather(0, i.unsqueeze(1)).sum(); }),
                          ids({1, 0, 3}), {ids({1, -1, 3}), ids({1, 0, 4})});
}

TEST(BugBank, EMB_2_AClassLabelOutOfRangeThrows) {
  expect_bad_ids_to_throw(weight_trainer([](const at::Tensor& w, const at::Tensor& i) { return torch::cross_entropy_loss(w, i); }),
                          ids({1, 0, 3, 2}), {ids({1, -1, 3, 2}), ids({1, 0, 4, 2})});
}

TEST(BugBank, IDX_1_SliceScatterKeepsTheRestOfTheGradient) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(6)), y = module->register_parameter("y", torch::ones(3));
    return Trainer{module, sgd({x, y}, 0.1), [=] { return torch::slice_scatter(x, y, 0, 1, 4).sum(); }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  twins.compiled_step();
  EXPECT_EQ(far(twins.gradient("x"), {1, 0, 0, 0, 1, 1}), "");
  EXPECT_EQ(far(twins.gradient("y"), {1, 1, 1}), "");
}

TEST(BugBank, IDX_1_DiagonalScatterKeepsTheRestOfTheGradient) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("X", torch::ones({3, 3})), s = module->register_parameter("s", torch::ones(3));
    return Trainer{module, sgd({x, s}, 0.1), [=] { return torch::diagonal_scatter(x, s).sum(); }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  twins.compiled_step();
  EXPECT_EQ(far(twins.gradient("X"), {0, 1, 1, 1, 0, 1, 1, 1, 0}), "");
  EXPECT_EQ(far(twins.gradient("s"), {1, 1, 1}), "");
}

}  // namespace
}  // namespace tandem::test
