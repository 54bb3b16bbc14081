// Sides of the cut: a unit on the sink's side runs again, a storage on the sink's side is needed on the backward's side.
//   source -> unit      the unit's time: cut when it runs again (no limit where it may not)
//   unit -> storage     the storage's price: cut when it is needed though its unit does not run again, so it is saved
//   storage -> unit     no limit: a unit that runs again needs what it reads
//   storage -> sink     no limit: the backward reads it
#include "partitioner/cut.h"

#include "partitioner/max_flow.h"

#include <cmath>

namespace tandem {
namespace {

using Capacity = MaxFlow::Capacity;

constexpr double ticks_per_second = 1e12;

Capacity ticks(double seconds) { return std::llround(seconds * ticks_per_second); }

/// Calls visit(storage) for each storage that is needed on the backward's side, if the units for which again(unit) is true run again.
template <class Again, class Visit>
void walk_needed(const Activations& a, Again&& again, Visit&& visit) {
  std::vector<char> seen(a.wanted.size(), false), done(a.units.size(), false);
  std::vector<StorageId> queue;
  auto need = [&](StorageId s) {
    if (!seen[s]) queue.push_back(s);
    seen[s] = true;
  };
  for (std::size_t s = 0; s < a.wanted.size(); ++s)
    if (a.wanted[s] && !a.kept[s]) need(static_cast<StorageId>(s));
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::int32_t unit = a.unit_of[queue[i]];
    visit(queue[i], unit);
    if (done[unit] || !again(unit)) continue;
    done[unit] = true;
    for (StorageId s : a.units[unit].reads) need(s);
  }
}

}  // namespace

Choice cheapest(const Graph& g, const Activations& a, const std::vector<double>& seconds, double seconds_per_byte) {
  const auto first_storage = static_cast<MaxFlow::Vertex>(2 + a.units.size());
  constexpr MaxFlow::Vertex source = 0, sink = 1;
  auto of_unit = [](std::int32_t u) { return static_cast<MaxFlow::Vertex>(2 + u); };
  auto of_storage = [&](StorageId s) { return first_storage + s; };
  auto price = [&](StorageId s) { return ticks(seconds_per_byte * static_cast<double>(g.storages[s].bytes)); };

  Capacity no_limit = 1;
  for (double t : seconds) no_limit += ticks(t);
  for (std::size_t s = 0; s < g.storages.size(); ++s)
    if (a.unit_of[s] >= 0) no_limit += price(static_cast<StorageId>(s));

  MaxFlow flow(2 + a.units.size() + g.storages.size());
  Choice linked(a.units.size(), false);
  auto may_run = [&](std::int32_t u) { return !a.units[u].pinned; };
  walk_needed(a, may_run, [&](StorageId s, std::int32_t u) {
    flow.edge(of_unit(u), of_storage(s), price(s));
    if (a.wanted[s]) flow.edge(of_storage(s), sink, no_limit);
    if (linked[u]) return;
    linked[u] = true;
    flow.edge(source, of_unit(u), may_run(u) ? ticks(seconds[u]) : no_limit);
    if (may_run(u))
      for (StorageId input : a.units[u].reads) flow.edge(of_storage(input), of_unit(u), no_limit);
  });
  flow.run(source, sink);

  const std::vector<char> saves = flow.source_side();
  Choice again(a.units.size(), false);
  auto runs = [&](std::int32_t u) { return may_run(u) && !saves[of_unit(u)]; };
  walk_needed(a, runs, [&](StorageId, std::int32_t u) { again[u] = runs(u); });
  return again;
}

Choice needed_only(const Activations& a, const Choice& choice) {
  Choice needed(a.units.size(), false);
  auto again = [&](std::int32_t u) { return choice[u] != 0; };
  walk_needed(a, again, [&](StorageId, std::int32_t u) { needed[u] = choice[u]; });
  return needed;
}

std::vector<StorageId> saved_under(const Activations& a, const Choice& choice) {
  std::vector<char> saved(a.wanted.size(), false);
  auto again = [&](std::int32_t u) { return choice[u] != 0; };
  walk_needed(a, again, [&](StorageId s, std::int32_t u) { saved[s] = !choice[u]; });
  std::vector<StorageId> list;
  for (std::size_t s = 0; s < saved.size(); ++s)
    if (saved[s]) list.push_back(static_cast<StorageId>(s));
  return list;
}

}  // namespace tandem
