// Groups as text, and what must hold of any grouping.
#pragma once

#include "autograd/verify.h"
#include "partitioner/fuse.h"
#include "partitioner/nest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace tandem::test {

/// With what the forward leaves to later sides.
inline Partition partition_with(const Graph& g, std::vector<Group> groups) {
  Partition p;
  p.groups = std::move(groups);
  std::vector<char> known(g.storages.size(), false), made(g.storages.size(), false), read(g.storages.size(), false);
  for (const Node& n : g.nodes) {
    if (n.side != Side::forward)
      for_each_value(n.args, [&](ValueId v) { read[static_cast<std::size_t>(g.values[static_cast<std::size_t>(v)].storage)] = true; });
    for_each_value(n.results, [&](ValueId v) {
      const auto s = static_cast<std::size_t>(g.values[static_cast<std::size_t>(v)].storage);
      if (!known[s]) made[s] = g.storages[s].role == Role::internal && n.side == Side::forward && !n.folded;
      known[s] = true;
    });
  }
  for (std::size_t s = 0; s < made.size(); ++s)
    if (made[s] && read[s]) {
      p.saved.push_back(static_cast<StorageId>(s));
      p.saved_bytes += g.storages[s].bytes;
    }
  return p;
}

inline const Node& node_of(const Graph& g, NodeId id) {
  for (const Node& n : g.nodes)
    if (n.id == id) return n;
  throw std::out_of_range("node");
}

/// Fused, and checked against everything that is known of any grouping.
inline std::vector<Group> fused(const Graph& g, const PartitionSwitches& switches = {}) {
  EXPECT_EQ(verify(g), "");
  const std::vector<Group> groups = fuse(g, switches);
  EXPECT_EQ(validate(g, partition_with(g, groups)), "");
  for (const Group& group : groups) {
    if (group.kind != Group::Kind::kernel) continue;
    std::vector<const Node*> nodes;
    for (NodeId id : group.nodes) nodes.push_back(&node_of(g, id));
    std::string why;
    EXPECT_TRUE(nests_of(g, nodes, &why)) << why;
  }
  return groups;
}

/// "exp+tanh; mm; &neg": kernels with their ops, joined ones after '&', library calls as they are, views in brackets, what runs once in braces.
inline std::string text(const Graph& g, const std::vector<Group>& groups) {
  std::string out;
  for (const Group& group : groups) {
    std::string ops;
    for (NodeId id : group.nodes) {
      const std::string& op = node_of(g, id).op;
      const std::string name = op.substr(op.find("::") + 2);
      ops += (ops.empty() ? "" : "+") + name.substr(0, name.find('.'));
    }
    const bool view = group.kind == Group::Kind::view, once = group.kind == Group::Kind::once, library = group.kind == Group::Kind::library;
    ops = view ? "[" + ops + "]" : once ? "{" + ops + "}" : library ? "!" + ops : ops;
    out += (out.empty() ? "" : "; ") + std::string(group.joined ? "&" : "") + ops;
  }
  return out;
}

inline std::string fused_text(const Graph& g, const PartitionSwitches& switches = {}) { return text(g, fused(g, switches)); }

}  // namespace tandem::test
