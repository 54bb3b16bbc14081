#include "partitioner/candidates.h"

#include "partitioner/cost.h"
#include "partitioner/cut.h"
#include "partitioner/fuse.h"
#include "partitioner/nest.h"
#include "partitioner/split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace tandem {
namespace {

constexpr int rounds = 3;
constexpr int sweep_steps = 20;
constexpr double cheapest_byte = 1.0 / 64 / rates::bytes;  // seconds per byte; each step of the sweep doubles it
constexpr double slowest = 1.01;                           // of the fastest candidate's time
constexpr double inside_loop = 0.25;                       // share of its library call that a loop's node costs beside others

double fastest_of(const std::vector<Candidate>& list, std::int64_t bound) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& c : list)
    if (c.figures.peak_bytes <= bound) fastest = std::min(fastest, c.figures.seconds);
  return fastest;
}

class Sweep {
 public:
  Sweep(const Graph& g, const Activations& a, const PartitionSwitches& switches) : g_(g), a_(a), switches_(switches) {}

  std::vector<Candidate> run() && {
    const Choice none(a_.units.size(), false);
    add(none, unfused(g_, switches_));
    if (switches_.fuse) add_fused(none, g_);
    seen_.insert(none);
    if (switches_.recompute) {
      sweep_rounds();
      fill_gap();
    }
    return std::move(list_);
  }

 private:
  void add(const Choice& choice, std::vector<Group> groups, const Graph* graph = nullptr) {
    Candidate c;
    c.choice = choice;
    for (StorageId s : saved_under(a_, choice)) c.saved_bytes += g_.storages[s].bytes;
    c.figures = evaluate(graph ? *graph : g_, groups);
    c.groups = std::move(groups);
    list_.push_back(std::move(c));
  }

  void add_once(const Choice& choice) {
    if (!seen_.insert(choice).second) return;
    const Recomputation again = run_again(g_, a_, choice);
    if (switches_.fuse)
      add_fused(choice, again.graph);
    else
      add(choice, unfused(again.graph, switches_), &again.graph);
  }

  /// As fused; and with kernels split until they fit within eager's peak, and within that of the same nodes one by one.
  void add_fused(const Choice& choice, const Graph& graph) {
    add(choice, fuse(graph, switches_), &graph);
    const std::int64_t bound = list_.front().figures.peak_bytes;
    const std::int64_t own = std::min(bound, evaluate(graph, unfused(graph, switches_)).peak_bytes);
    for (const std::int64_t limit : {bound, own}) {
      if (list_.back().figures.peak_bytes <= limit) continue;
      if (list_.back().figures.seconds > slowest * fastest_of(list_, bound)) return;  // it gets no faster
      add(choice, split_to_fit(graph, list_.back().groups, limit, switches_), &graph);
    }
  }

  void sweep_rounds() {
    std::vector<double> seconds = first_prices();
    for (int round = 0; round < rounds; ++round) {
      const std::size_t before = list_.size();
      double price = cheapest_byte;
      for (int step = 0; step < sweep_steps; ++step, price *= 2) add_once(cheapest(g_, a_, seconds, price));
      if (list_.size() == before || !switches_.fuse) return;
      reprice(seconds, list_[best_of(list_, list_.front().figures.peak_bytes)]);
    }
  }

  /// Equal layers change sides at the same price of memory, so the sweep has gaps. Towards the next lower peak, as many further units run again as
  /// the time allows; earlier ones first, what they made would have been kept longest.
  void fill_gap() {
    const std::int64_t bound = list_.front().figures.peak_bytes;
    const Candidate best = list_[best_of(list_, bound)];
    const Candidate* next = nullptr;
    for (const Candidate& c : list_)
      if (c.figures.peak_bytes < best.figures.peak_bytes && (!next || c.figures.seconds < next->figures.seconds)) next = &c;
    if (!next) return;
    std::vector<std::size_t> more;
    for (std::size_t u = 0; u < a_.units.size(); ++u)
      if (next->choice[u] && !best.choice[u]) more.push_back(u);
    const double limit = slowest * fastest_of(list_, bound);
    std::size_t fits = 0, too_slow = more.size();
    while (too_slow > fits + 1) {
      const std::size_t middle = (fits + too_slow) / 2;
      Choice choice = best.choice;
      for (std::size_t i = 0; i < middle; ++i) choice[more[i]] = true;
      const std::size_t before = list_.size();
      add_once(needed_only(a_, choice));
      const bool is_fast = std::any_of(list_.begin() + static_cast<std::ptrdiff_t>(before), list_.end(),
                                       [&](const Candidate& c) { return c.figures.peak_bytes <= bound && c.figures.seconds <= limit; });
      (is_fast ? fits : too_slow) = middle;
    }
  }

  /// A node that can be in a loop is expected to be fused with what reads it.
  std::vector<double> first_prices() const {
    std::vector<double> seconds(a_.units.size(), 0);
    for (std::size_t u = 0; u < a_.units.size(); ++u)
      for (std::size_t i : a_.units[u].nodes) {
        const Node& n = g_.nodes[i];
        const double alone = library_seconds(g_, n);
        const auto nest = switches_.fuse && !a_.units[u].pinned ? nest_of(g_, n) : std::nullopt;
        const bool loop = nest && !nest->has_rows() && !nest->has_columns();
        seconds[u] += loop ? inside_loop * (alone - rates::library_call) : alone;
      }
    return seconds;
  }

  /// What each unit that runs again in the candidate adds to the groups in which its copies are.
  void reprice(std::vector<double>& seconds, const Candidate& c) const {
    const Recomputation again = run_again(g_, a_, c.choice);
    const Graph& g = again.graph;
    const std::vector<char> absent = lifetimes(g, c.groups).absent;
    const auto members = members_of(g, c.groups);
    const GroupCosts costs(g);
    std::unordered_map<NodeId, NodeId> original_of;
    for (const Recomputed& r : again.nodes) original_of[r.as] = r.node;
    std::unordered_map<NodeId, std::size_t> unit_of;
    for (std::size_t u = 0; u < a_.units.size(); ++u)
      for (std::size_t i : a_.units[u].nodes) unit_of[g_.nodes[i].id] = u;

    for (std::size_t u = 0; u < a_.units.size(); ++u)
      if (c.choice[u]) seconds[u] = 0;
    for (std::size_t i = 0; i < c.groups.size(); ++i) {
      std::map<std::size_t, std::vector<const Node*>> copies;  // by unit
      for (const Node* n : members[i])
        if (const auto found = original_of.find(n->id); found != original_of.end()) copies[unit_of.at(found->second)].push_back(n);
      if (copies.empty()) continue;
      const Work with = costs.of(c.groups[i], members[i], absent);
      const GroupCosts::Names names = costs.names_of(members[i]);
      for (const auto& [u, nodes] : copies) {
        Work without = with;
        if (nodes.size() == members[i].size()) {
          without = Work();
        } else {
          const Work share = costs.share_of(nodes, names, absent);
          without.arithmetic -= share.arithmetic;
          without.memory -= share.memory;
        }
        seconds[u] += std::max(0.0, with.seconds() - without.seconds());
      }
    }
  }

  const Graph& g_;
  const Activations& a_;
  const PartitionSwitches& switches_;
  std::set<Choice> seen_;
  std::vector<Candidate> list_;
};

}  // namespace

std::vector<Candidate> candidates(const Graph& g, const Activations& a, const PartitionSwitches& switches) {
  return Sweep(g, a, switches).run();
}

std::size_t best_of(const std::vector<Candidate>& list, std::int64_t bound) {
  const double fastest = fastest_of(list, bound);
  auto rank = [&](std::size_t i) { return std::tuple(list[i].figures.peak_bytes, list[i].saved_bytes, i); };
  std::size_t best = list.size();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Figures& f = list[i].figures;
    if (f.seconds > slowest * fastest) continue;  // above the bound is none the best: the fastest within it has a lower peak
    if (best == list.size() || rank(i) < rank(best)) best = i;
  }
  return best;
}

}  // namespace tandem
