// Every switch of Options that changes how a plan is made leaves the values alone.
#include "tests/support/lockstep.h"

#include <algorithm>

namespace tandem::test {
namespace {

struct Switch {
  const char* name;
  void (*set)(Options&);
};
const Switch exact[] = {
    {"defaults", [](Options&) {}},
    {"fold_off", [](Options& o) { o.fold = false; }},
    {"cse_off", [](Options& o) { o.cse = false; }},
    {"dce_off", [](Options& o) { o.dce = false; }},
    {"skip_views_off", [](Options& o) { o.skip_views = false; }},
    {"passes_off", [](Options& o) { o.fold = o.cse = o.dce = o.skip_views = false; }},
    {"partition_off", [](Options& o) { o.partition = false; }},
    {"fuse_off", [](Options& o) { o.fuse = false; }},
    {"fuse_update_off", [](Options& o) { o.fuse_update = false; }},
    {"jit_off", [](Options& o) { o.jit = false; }},
    {"blas_off", [](Options& o) { o.blas = false; }},
    {"arena_off", [](Options& o) { o.arena = false; }},
    {"all_but_kernels_off",
     [](Options& o) { o.fold = o.cse = o.dce = o.skip_views = o.partition = o.fuse_update = o.jit = o.blas = o.arena = false; }},
    {"all_off",
     [](Options& o) { o.fold = o.cse = o.dce = o.skip_views = o.partition = o.fuse = o.fuse_update = o.jit = o.blas = o.arena = false; }},
    {"gradients_dropped", [](Options& o) { o.keep_grads = false; }},
    {"gradients_zeroed_in_place", [](Options& o) { o.zero_grad_to_none = false; }},
};
void PrintTo(const Switch& s, std::ostream* out) { *out << s.name; }

class SwitchTest : public testing::TestWithParam<Switch> {
 protected:
  Options options() const {
    Options o = watched();
    GetParam().set(o);
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(Options, SwitchTest, testing::ValuesIn(exact), [](const auto& info) { return info.param.name; });

TEST_P(SwitchTest, AnMlpTrainsAsEagerBitForBit) {
  Lockstep l([] { return mlp(); }, options());
  l.steps(8, [](auto seed) { return mlp_batch(seed); });
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_GE(l.report().compiled_steps, 4);
}

TEST_P(SwitchTest, AnAttentionBlockTrainsAsEagerBitForBit) {
  Lockstep l([] { return attention(); }, options());
  l.steps(8, attention_batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_GE(l.report().compiled_steps, 4);
}

void expect_within_the_bound(const Report& r) {
  EXPECT_TRUE(r.active) << r.to_string();
  ASSERT_FALSE(r.plans.empty());
  EXPECT_LE(r.plans.back().max_error_ratio, 1);
}

TEST(Decompose, AnMlpStaysWithinTheBoundOfTheCheck) {
  Options o = watched();
  o.decompose = true;
  Lockstep l([] { return mlp(); }, o, 1e-5);
  l.steps(8, [](auto seed) { return mlp_batch(seed); });
  expect_within_the_bound(l.report());
}

TEST(Decompose, AnAttentionBlockStaysWithinTheBoundOfTheCheck) {
  Options o = watched();
  o.decompose = true;
  Lockstep l([] { return attention(); }, o, 1e-5);
  l.steps(8, attention_batch);
  expect_within_the_bound(l.report());
}

TEST(Decompose, MakesMoreNodesThanWereRecorded) {
  Options o = watched();
  Lockstep whole([] { return attention(); }, o);
  whole.activate(attention_batch);
  o.decompose = true;
  Lockstep split([] { return attention(); }, o, 1e-5);
  split.activate(attention_batch);
  EXPECT_GT(split.report().plans.back().nodes_backward, whole.report().plans.back().nodes_backward);
}

TEST(Switches, ViewsAreCountedAsSkippedOnlyWhenTheyAre) {
  Options o = watched();
  Lockstep on([] { return attention(); }, o);
  on.activate(attention_batch);
  EXPECT_GT(on.report().plans.back().nodes_skipped, 0);
  o.skip_views = false;
  Lockstep off([] { return attention(); }, o);
  off.activate(attention_batch);
  EXPECT_EQ(off.report().plans.back().nodes_skipped, 0);
}

TEST(Switches, NothingIsFoldedWithoutFold) {
  // The range depends on nothing, so it is the same in each step.
  const auto make = mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    return (net.forward(x) * torch::arange(4, at::TensorOptions(at::kFloat))).square().mean();
  });
  Options o = watched();
  Lockstep on(make, o);
  on.activate([](auto seed) { return mlp_batch(seed); });
  EXPECT_GT(on.report().plans.back().nodes_folded, 0);
  o.fold = false;
  Lockstep off(make, o);
  off.activate([](auto seed) { return mlp_batch(seed); });
  EXPECT_EQ(off.report().plans.back().nodes_folded, 0);
}

TEST(Switches, WithoutCompileNothingIsRecorded) {
  Options o = watched();
  o.compile = false;
  Lockstep l([] { return mlp(); }, o);
  l.steps(4, [](auto seed) { return mlp_batch(seed); });
  const auto r = l.report();
  EXPECT_FALSE(r.active);
  EXPECT_NE(r.reason.find("compile is off"), std::string::npos) << r.reason;
  EXPECT_EQ(r.eager_steps, 4);
  EXPECT_EQ(events(r, "recorded"), 0);
}

TEST(Switches, ThePlanThatWasUsedLeastRecentlyGoesFirst) {
  Options o = watched();
  o.max_plans = 2;
  Lockstep l([] { return mlp([](auto p) { return sgd(std::move(p), 0.05); }); }, o);
  for (std::int64_t rows : {5, 6, 7}) l.activate([rows](auto seed) { return mlp_batch(seed, rows); });
  const auto r = l.report();
  ASSERT_EQ(events(r, "evicted"), 1);
  EXPECT_TRUE(says(r, "float32 [5, 6]")) << r.to_string();
  EXPECT_EQ(active_plans(r), 2);
  EXPECT_TRUE(l.step(mlp_batch(1, 6)).compiled);
  EXPECT_FALSE(l.step(mlp_batch(1, 5)).compiled);
}

TEST(Switches, MoreShapesInTurnThanPlansAreKeptAreNotRecordedForEver) {
  Options o = watched();
  o.max_plans = 3;
  Lockstep l([] { return mlp(); }, o);
  for (std::uint64_t i = 0; i < 60; i++) l.step(mlp_batch(i, 2 + std::int64_t(i % 5)));
  const auto before = l.report();
  std::string pattern;
  for (std::uint64_t i = 0; i < 5; i++) pattern += l.step(mlp_batch(i, 2 + std::int64_t(i % 5))).compiled ? 'c' : 'e';
  EXPECT_EQ(std::count(pattern.begin(), pattern.end(), 'c'), 3) << pattern;
  EXPECT_EQ(events(l.report(), "recorded"), events(before, "recorded"));
  for (std::uint64_t i = 0; i < 5 && l.report().active; i++) l.step(mlp_batch(i, 2 + std::int64_t(i % 5)));
  EXPECT_NE(l.report().reason.find("than Options::max_plans keeps"), std::string::npos) << l.report().reason;
}

}  // namespace
}  // namespace tandem::test
