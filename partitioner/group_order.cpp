#include "partitioner/group_order.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace tandem {
namespace {

class Scheduler {
 public:
  Scheduler(const std::vector<Unordered>& groups, const Dependencies& d, const std::vector<Part>& parts, bool kernels_first)
      : groups_(groups), parts_(parts), kernels_first_(kernels_first), waits_(groups.size(), 0), readers_(groups.size()) {
    std::vector<std::size_t> group_of(parts.size());
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (std::int32_t i : groups[g].members) group_of[static_cast<std::size_t>(i)] = g;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::set<std::size_t> before;
      for (std::int32_t i : groups[g].members)
        for (std::int32_t b : d.before[static_cast<std::size_t>(i)]) before.insert(group_of[static_cast<std::size_t>(b)]);
      before.erase(g);
      waits_[g] = before.size();
      for (std::size_t b : before) readers_[b].push_back(g);
    }
  }

  std::vector<Ordered> run() && {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (waits_[g] == 0) make_ready(g);
    while (!early_.empty() || !fresh_.empty() || !ripe_.empty()) {
      if (const auto g = next_joined()) {
        emit(*g, true);
        continue;
      }
      if (!early_.empty()) {
        emit(early_.begin()->second, false);
        continue;
      }
      ripe_.merge(fresh_);  // a new run of kernels may begin: all that are ready now are independent
      const std::size_t g = ripe_.begin()->second;
      emit(g, false);
      in_run_ = groups_[g].is_kernel;
    }
    return std::move(out_);
  }

 private:
  using Queue = std::set<std::pair<std::int32_t, std::size_t>>;  // by the last member

  Part part(std::size_t g) const { return parts_[static_cast<std::size_t>(groups_[g].members.front())]; }
  bool is_early(std::size_t g) const { return !groups_[g].is_kernel && (part(g) == Part::view || part(g) == Part::absent); }

  void make_ready(std::size_t g) { (is_early(g) ? early_ : fresh_).emplace(groups_[g].members.back(), g); }

  /// A kernel that was ready when the run of kernels began.
  std::optional<std::size_t> next_joined() const {
    if (!in_run_) return std::nullopt;
    for (const auto& [last, g] : ripe_) {
      if (groups_[g].is_kernel && (kernels_first_ || fresh_.empty() || last < fresh_.begin()->first)) return g;
      if (!kernels_first_) return std::nullopt;
    }
    return std::nullopt;
  }

  void emit(std::size_t g, bool joined) {
    const std::pair entry(groups_[g].members.back(), g);
    for (Queue* q : {&early_, &fresh_, &ripe_}) q->erase(entry);
    in_run_ = joined;
    out_.push_back({g, joined});
    for (std::size_t reader : readers_[g])
      if (--waits_[reader] == 0) make_ready(reader);
  }

  const std::vector<Unordered>& groups_;
  const std::vector<Part>& parts_;
  bool kernels_first_;
  std::vector<std::size_t> waits_;                 // per group: how many groups it still waits for
  std::vector<std::vector<std::size_t>> readers_;  // per group: those that wait for it
  Queue early_;                                    // ready: views, and what runs once
  Queue ripe_;                                     // ready since before the present run of kernels began
  Queue fresh_;                                    // ready since then
  bool in_run_ = false;
  std::vector<Ordered> out_;
};

}  // namespace

std::vector<Ordered> in_order(const std::vector<Unordered>& groups, const Dependencies& dependencies, const std::vector<Part>& parts,
                              bool kernels_first) {
  return Scheduler(groups, dependencies, parts, kernels_first).run();
}

}  // namespace tandem
