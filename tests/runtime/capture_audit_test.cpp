// What a recording refuses, and what it knows of autograd.
#include "tests/support/recorded.h"

#include <gtest/gtest.h>
#include <torch/library.h>

#include <thread>

namespace tandem::test {
namespace {

/// Writes its argument though its schema says that it only reads.
at::Tensor lying_op(const at::Tensor& x) {
  x.mutable_data_ptr<float>()[0] += 1;
  return x.clone();
}

TORCH_LIBRARY(tandem_test, m) { m.def("lying(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(tandem_test, CPU, m) { m.impl("lying", lying_op); }

at::Tensor call_lying_op(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tandem_test::lying", "").typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

std::string refusal_of(const std::function<at::Tensor(const at::Tensor&)>& loss) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] { return loss(w); }};
  return record(p).recording.refusal;
}

TEST(CaptureAudit, AWriteThatTheSchemaHidesIsNamed) {
  auto buffer = torch::zeros({4});
  const auto refusal = refusal_of([=](const at::Tensor& w) {
    (void)(buffer + 1);
    return (w * call_lying_op(buffer)).sum();
  });
  EXPECT_NE(refusal.find("tandem_test::lying"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("ops.def"), std::string::npos) << refusal;
}

TEST(CaptureAudit, ARawWriteBetweenOpsIsNamed) {
  const auto refusal = refusal_of([](const at::Tensor& w) {
    auto z = w.detach() * 2;
    z.mutable_data_ptr<float>()[1] = 3;
    return (w * z).sum();
  });
  EXPECT_NE(refusal.find("changed outside the recorded ops"), std::string::npos) << refusal;
}

TEST(CaptureAudit, MemoryThatTheHostFillsIsACapturedTensor) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] {
              auto z = torch::zeros({4});
              z.mutable_data_ptr<float>()[1] = 3;
              return (w * z).sum();
            }};
  const auto recording = record(p).recording;
  EXPECT_EQ(recording.refusal, "");
  ASSERT_EQ(recording.captured.size(), 1u) << print(recording.graph);
  EXPECT_TRUE(is_host_made(recording.graph.nodes.front())) << print(recording.graph);
  EXPECT_NE(host_read(recording.graph).find("fills the memory of a tensor on the host"), std::string::npos);
}

TEST(CaptureAudit, AGeneratorMovedByHandIsNamed) {
  const auto refusal = refusal_of([](const at::Tensor& w) {
    torch::manual_seed(100);
    return torch::dropout(w, 0.5, true).sum();
  });
  EXPECT_NE(refusal.find("generator"), std::string::npos) << refusal;
}

TEST(CaptureAudit, AHostReadIsNamed) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] { return w.sum() * w.abs().max().item<float>(); }};
  const auto recording = record(p).recording;
  EXPECT_EQ(recording.refusal, "");
  EXPECT_NE(host_read(recording.graph).find("_local_scalar_dense"), std::string::npos) << print(recording.graph);
}

TEST(CaptureAudit, SizesThatDependOnValuesAreHostReads) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] { return w.index({w > 0}).sum(); }};
  const auto recording = record(p).recording;
  EXPECT_EQ(recording.refusal, "");
  EXPECT_NE(host_read(recording.graph).find("sizes"), std::string::npos) << print(recording.graph);
}

TEST(CaptureAudit, AValueFromAnotherThreadIsAnotherTensorInEachStep) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] {
              at::Tensor other;
              std::thread([&] { other = w.detach() * 3; }).join();
              return (w * other).sum();
            }};
  auto first = record(p), second = record(p);
  EXPECT_NE(replaced(first.recording, second.recording).find("another thread"), std::string::npos)
      << replaced(first.recording, second.recording);
}

TEST(CaptureAudit, AnActivationThatIsKeptIsNamed) {
  auto w = torch::ones({4}).requires_grad_(true);
  auto kept = std::make_shared<std::vector<at::Tensor>>();
  Program p{{w}, [=] {
              kept->push_back(w.tanh());
              return kept->back().sum();
            }};
  auto r = record(p);
  EXPECT_NE(escaped(r.recording, {}).find("aten::tanh"), std::string::npos) << escaped(r.recording, {});
}

TEST(CaptureAudit, NothingIsSeenOutsideAStep) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] { return (w * 2).sum(); }};
  const auto nodes = record(p).recording.graph.nodes.size();
  (w * 2).sum();
  EXPECT_EQ(record(p).recording.graph.nodes.size(), nodes);
}

TEST(CaptureMarks, BackwardNodesKnowTheAutogradNodeTheyRanFor) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] { return (w.sin() * 2).sum(); }};
  const auto graph = record(p).recording.graph;
  bool sin_made = false, sin_ran = false;
  for (const auto& n : graph.nodes) {
    for (const auto& c : n.created) sin_made |= n.side == Side::forward && c.rfind("SinBackward0", 0) == 0;
    sin_ran |= n.side == Side::backward && n.ran_for.rfind("SinBackward0", 0) == 0;
  }
  EXPECT_TRUE(sin_made) << print(graph);
  EXPECT_TRUE(sin_ran) << print(graph);
}

TEST(CaptureMarks, TwoRecordingsOfOneStepAreEqual) {
  auto w = torch::ones({4}).requires_grad_(true);
  Program p{{w}, [=] { return torch::dropout(w.sin() * 2, 0.5, true).sum(); }};
  EXPECT_EQ(first_difference(record(p).recording.graph, record(p).recording.graph), "");
}

TEST(CaptureMarks, AnotherConstantIsADifference) {
  auto w = torch::ones({4}).requires_grad_(true);
  auto factor = std::make_shared<double>(2);
  Program p{{w}, [=] { return (w * *factor).sum(); }};
  auto first = record(p);
  *factor = 3;
  EXPECT_NE(first_difference(first.recording.graph, record(p).recording.graph).find("aten::mul"), std::string::npos);
}

}  // namespace
}  // namespace tandem::test
