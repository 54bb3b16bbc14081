#include "partitioner/cluster.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem {
namespace {

const Value& value_of(const Graph& g, ValueId v) { return g.values[static_cast<std::size_t>(v)]; }

bool same_place(const Touch& a, const Touch& b) {
  return a.storage == b.storage && a.offset == b.offset && a.dtype == b.dtype && a.strides == b.strides;
}

Touch touch(const Graph& g, const Access& a) {
  const Value& v = value_of(g, a.value);
  Touch t;
  t.storage = v.storage;
  t.offset = v.offset;
  t.dtype = v.dtype;
  t.strides = a.strides;
  t.bytes = bytes_of(v);
  return t;
}

void add(std::vector<Touch>& list, const Touch& t) {
  for (Touch& known : list) {
    if (!same_place(known, t)) continue;
    known.made |= t.made;
    known.written |= t.written;
    known.total |= t.total;
    known.read |= t.read;
    return;
  }
  list.push_back(t);
}

std::vector<Touch> touches_of(const Graph& g, const ClusterNode& n) {
  std::vector<Touch> list;
  for (const Access& a : n.nest.operands) {
    Touch t = touch(g, a);
    t.read = true;
    add(list, t);
  }
  for (std::size_t k = 0; k < n.nest.results.size(); ++k) {
    const Access& a = n.nest.results[k];
    if (a.value < 0) continue;
    Touch t = touch(g, a);
    t.written = true;
    t.made = !std::binary_search(n.node->writes.begin(), n.node->writes.end(), t.storage);
    t.total = n.total[k];
    add(list, t);
  }
  return list;
}

/// What a node names without reading it, an out= argument say, has no place in the loop: nobody in the cluster may write it but the node itself.
bool names_what_is_written(const Graph& g, const Cluster& by, const std::vector<Touch>& touches) {
  for (const auto& n : by.nodes) {
    bool wrong = false;
    for_each_value(n->node->args, [&](ValueId v) {
      const StorageId s = value_of(g, v).storage;
      const auto is = [&](const Touch& t) { return t.storage == s && t.written; };
      const auto has = [&](const Access& a) { return a.value >= 0 && value_of(g, a.value).storage == s; };
      const bool in_loop = std::any_of(n->nest.operands.begin(), n->nest.operands.end(), has) ||
                           std::any_of(n->nest.results.begin(), n->nest.results.end(), has);
      wrong |= !in_loop && std::any_of(touches.begin(), touches.end(), is);
    });
    if (wrong) return true;
  }
  return false;
}

/// One geometry per storage that is written; nobody reads a total.
bool places_fit(const std::vector<Touch>& touches) {
  for (const Touch& t : touches) {
    if (!t.written) continue;
    if (t.total && t.read) return false;
    for (const Touch& other : touches)
      if (other.storage == t.storage && !same_place(other, t)) return false;
  }
  return true;
}

/// The cluster with its loop in these sizes.
std::optional<Cluster> refit(const Graph& g, const Cluster& c, const std::vector<std::int64_t>& sizes) {
  if (c.sizes() == sizes) return c;
  Cluster out;
  for (const auto& n : c.nodes) {
    auto nest = refit(n->nest, sizes);
    if (!nest) return std::nullopt;
    ClusterNode fitted{n->node, n->position, std::move(*nest), n->has_rows, n->total};
    if (n->has_rows) out.row = fitted.nest.reduced;
    for (const Touch& t : touches_of(g, fitted)) add(out.touches, t);
    out.nodes.push_back(std::make_shared<const ClusterNode>(std::move(fitted)));
  }
  return out;
}

std::optional<Cluster> joined(const Graph& g, const Cluster& a, const Cluster& b) {
  if (!a.row.empty() && !b.row.empty() && a.row != b.row) return std::nullopt;
  Cluster c;
  c.touches = a.touches;
  for (const Touch& t : b.touches) add(c.touches, t);
  if (!places_fit(c.touches)) return std::nullopt;
  if (names_what_is_written(g, a, b.touches) || names_what_is_written(g, b, a.touches)) return std::nullopt;
  c.row = a.row.empty() ? b.row : a.row;
  c.nodes.reserve(a.nodes.size() + b.nodes.size());
  std::merge(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), std::back_inserter(c.nodes),
             [](const auto& x, const auto& y) { return x->position < y->position; });
  return c;
}

}  // namespace

std::optional<ClusterNode> cluster_node(const Graph& g, const Node& node, std::int32_t position) {
  auto nest = nest_of(g, node);
  if (!nest) return std::nullopt;
  ClusterNode n{&node, position, std::move(*nest), false, {}};
  const Formula& f = n.nest.formula;
  const std::vector<Extent> extents = extents_of(f);
  bool reads_own = false;
  for (std::size_t i = 0; i < f.steps.size(); ++i)
    for (std::int32_t from : {f.steps[i].a, f.steps[i].b, f.steps[i].c})
      reads_own |= from >= 0 && extents[i] == Extent::element && extents[static_cast<std::size_t>(from)] == Extent::row;
  const auto& reduced = n.nest.reduced;
  const bool innermost = std::is_sorted(reduced.begin(), reduced.end()), all = innermost && !reduced.empty() && reduced.front();
  if (n.nest.has_rows()) {
    n.has_rows = innermost && (!all || reads_own);
    if (!n.has_rows && (reads_own || n.nest.has_columns())) return std::nullopt;
  }
  for (std::size_t k = 0; k < f.results.size(); ++k) {
    const Extent e = f.results[k] < 0 ? Extent::element : extents[static_cast<std::size_t>(f.results[k])];
    n.total.push_back(e == Extent::column || (e == Extent::row && !n.has_rows));
  }
  return n;
}

Cluster cluster_of(const Graph& g, ClusterNode node) {
  Cluster c;
  c.touches = touches_of(g, node);
  if (node.has_rows) c.row = node.nest.reduced;
  c.nodes.push_back(std::make_shared<const ClusterNode>(std::move(node)));
  return c;
}

std::int64_t Cluster::bytes() const {
  std::int64_t sum = 0;
  for (const Touch& t : touches) sum += t.bytes;
  return sum;
}

std::optional<Cluster> merged(const Graph& g, const Cluster& a, const Cluster& b) {
  const Nest &x = a.nodes.front()->nest, &y = b.nodes.front()->nest;
  if (x.compute != y.compute || a.nodes.size() + b.nodes.size() > most_nodes || x.elements() != y.elements()) return std::nullopt;
  if (x.sizes == y.sizes) return joined(g, a, b);
  if (const auto fit = refit(g, b, x.sizes)) return joined(g, a, *fit);
  if (const auto fit = refit(g, a, y.sizes)) return joined(g, *fit, b);
  return std::nullopt;
}

}  // namespace tandem
