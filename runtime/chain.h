// A step as one plan or several that run one after another (see autograd/segment.h), and what they hand to each other.
#pragma once

#include "autograd/segment.h"
#include "runtime/execute.h"

#include <memory>
#include <vector>

namespace tandem {

class Chain {
 public:
  /// A storage that goes from part to part and its place in a list that the caller keeps for each run of the chain.
  struct Carry {
    StorageId storage = -1;
    std::size_t place = 0;
  };
  struct Link {
    std::unique_ptr<Plan> plan;  // its address stays: the executor points to it
    std::unique_ptr<Executor> executor;
    std::vector<Carry> takes, hands_on;
    std::size_t first_handed = 0;  // position of the first of hands_on in plan->graph.outputs
    RunInputs bound;
  };

  /// Plans, compiles and prepares each part. `outputs`: how many outputs the whole graph has, alive values included.
  Chain(std::vector<Segment> segments, std::size_t outputs, const PlanSwitches& switches, const jit::Settings& jit);

  using Held = std::vector<c10::Storage>;  // the carried storages of one run
  Held nothing_held() const { return Held(carried_); }

  /// Runs one part: binds `outside` (by the ids of the whole graph), takes from `held`, and puts there what it hands on.
  void run(std::size_t link, const RunInputs& outside, Held& held, const Executor::Probe& probe = {});

  /// What a link threw at, after it has. Generated kernels do not throw, so it is one node; nullptr where no call failed.
  const Node* failed_node(std::size_t link) const;
  /// Whether that says something of the plan: no call failed, or an op that never does for what a caller does.
  bool failed_by_itself(std::size_t link) const;
  /// f(node, whether it ran) of the first `links` links, after `failed` has thrown.
  template <class F>
  void for_each_node(std::size_t links, std::size_t failed, F&& f) const;
  /// By how much a version counter has moved then, where the whole moves it `by`: a write counts once its op is through.
  std::uint32_t bumps_before(std::size_t links, std::size_t failed, Role role, std::int32_t index, std::uint32_t by) const;

  std::size_t size() const { return links_.size(); }
  const Link& operator[](std::size_t i) const { return links_[i]; }
  Executor& executor(std::size_t i) { return *links_[i].executor; }
  std::int64_t carried_bytes() const { return carried_bytes_; }
  void end();  // of a run of the whole chain

 private:
  std::vector<Link> links_;
  std::size_t carried_ = 0;
  std::int64_t carried_bytes_ = 0;
};

template <class F>
void Chain::for_each_node(std::size_t links, std::size_t failed, F&& f) const {
  for (std::size_t i = 0; i < links; i++) {
    const auto& link = links_[i];
    const auto& calls = link.executor->index().nodes;
    const auto at = i == failed ? link.executor->failed_call() : -1;
    for (std::size_t k = 0; k < calls.size(); k++)
      for (auto n : calls[k]) f(link.plan->graph.nodes[n], i < failed || (i == failed && std::int64_t(k) < at));
  }
}

}  // namespace tandem
