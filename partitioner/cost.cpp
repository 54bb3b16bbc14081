#include "partitioner/cost.h"

#include "autograd/op.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace tandem {
namespace {

double elements(const Value& v) {
  double n = 1;
  for (std::int64_t size : v.sizes) n *= static_cast<double>(size);
  return n;
}

std::vector<const Value*> values_of(const Graph& g, const std::vector<Argument>& list) {
  std::vector<const Value*> out;
  for_each_value(list, [&](ValueId v) { out.push_back(&g.values[v]); });
  return out;
}

double largest(const std::vector<const Value*>& values) {
  double n = 0;
  for (const Value* v : values) n = std::max(n, elements(*v));
  return n;
}

bool has_size(const Value& v, double k) {
  return std::any_of(v.sizes.begin(), v.sizes.end(), [k](std::int64_t size) { return static_cast<double>(size) == k; });
}

/// Of the matrix product of `a` and `b` into `r`: [n, k] [k, m] -> [n, m] has |a||b||r| = (nkm)^2, or nkm times that of the batch. 0 where the sizes
/// are not those of a product.
double multiply_adds(const Value& a, const Value& b, const Value& r) {
  if (elements(r) == 0) return 0;
  double batch = 1;
  if (a.sizes.size() > 2 && b.sizes.size() > 2)
    for (std::size_t d = 0; d + 2 < r.sizes.size(); ++d) batch *= static_cast<double>(r.sizes[d]);
  const double k = std::round(std::sqrt(elements(a) * elements(b) / elements(r) / batch));
  const bool fits = elements(a) * elements(b) == k * k * elements(r) * batch && has_size(a, k) && has_size(b, k);
  return fits ? k * elements(r) : 0;
}

double contraction(const std::vector<const Value*>& args, const std::vector<const Value*>& results) {
  double most = largest(results);
  for (const Value* r : results)
    for (std::size_t i = 0; i < args.size(); ++i)
      for (std::size_t j = i + 1; j < args.size(); ++j) most = std::max(most, multiply_adds(*args[i], *args[j], *r));
  return most;
}

/// Each element of the output takes a filter. Operands: input, filters; or in the backward the output's gradient, input, filters.
double convolution(const std::vector<const Value*>& args, const std::vector<const Value*>& results) {
  std::vector<const Value*> images;
  for (const Value* v : args)
    if (v->sizes.size() > 2) images.push_back(v);
  if (images.size() < 2 || results.empty()) return largest(results);
  const Value& filters = *images.back();
  const Value& output = images.size() > 2 ? *images.front() : *results.front();
  return elements(output) * elements(filters) / std::max<double>(1, static_cast<double>(filters.sizes[0]));
}

double operations(const Graph& g, const Node& n, const OpRow& row) {
  const auto args = values_of(g, n.args), results = values_of(g, n.results);
  switch (row.kind) {
    case Kind::contraction: return row.flops * contraction(args, results);
    case Kind::convolution: return row.flops * convolution(args, results);
    case Kind::pointwise:
    case Kind::gather:
    case Kind::copy:
    case Kind::factory:
    case Kind::random: return row.flops * largest(results);
    case Kind::view: return 0;
    default: return row.flops * std::max(largest(args), largest(results));
  }
}

double seconds(double arithmetic, double bytes) { return std::max(arithmetic, bytes / rates::bytes); }

}  // namespace

std::int64_t touched_bytes(const Value& v) {
  Value dense = v;
  for (std::size_t d = 0; d < v.sizes.size(); ++d)
    if (v.strides[d] == 0 && v.sizes[d] > 1) dense.sizes[d] = 1;
  return bytes_of(dense);
}

double arithmetic_seconds(const Graph& g, const Node& n) {
  const OpRow* row = find_op(n.op);
  if (!row) return 0;
  const bool library = row->kind == Kind::contraction || row->kind == Kind::convolution;
  return operations(g, n, *row) / (library ? rates::contraction_flops : rates::loop_flops);
}

double library_seconds(const Graph& g, const Node& n) {
  const OpRow* row = find_op(n.op);
  double written = 0, read = 0;
  for_each_value(n.results, [&](ValueId v) { written += static_cast<double>(touched_bytes(g.values[v])); });
  for_each_value(n.args, [&](ValueId v) {
    const auto bytes = static_cast<double>(touched_bytes(g.values[v]));
    read += row && row->kind == Kind::gather ? std::min(bytes, written) : bytes;  // of a table only what is looked up
  });
  if (row && row->kind == Kind::view) written = read = 0;
  return rates::library_call + seconds(arithmetic_seconds(g, n), read + written);
}

GroupCosts::GroupCosts(const Graph& g) : g_(g), place_(g.values.size()) {
  std::vector<std::vector<ValueId>> on_storage(g.storages.size());  // one value per place; few on a storage
  for (std::size_t i = 0; i < g.values.size(); ++i) {
    const Value& v = g.values[i];
    auto& places = on_storage[v.storage];
    const auto found = std::find_if(places.begin(), places.end(), [&](ValueId other) {
      const Value& o = g.values[other];
      return o.offset == v.offset && o.sizes == v.sizes && o.strides == v.strides;
    });
    place_[i] = found == places.end() ? static_cast<ValueId>(i) : *found;
    if (found == places.end()) places.push_back(static_cast<ValueId>(i));
  }
}

double GroupCosts::memory_seconds(ValueId v) const { return static_cast<double>(touched_bytes(g_.values[v])) / rates::bytes; }

Work GroupCosts::of(const Group& group, const std::vector<const Node*>& nodes, const std::vector<char>& absent) const {
  Work work;
  if (group.kind == Group::Kind::view || group.kind == Group::Kind::once) return work;
  if (group.kind == Group::Kind::library) {
    for (const Node* n : nodes) work.call += library_seconds(g_, *n);
    return work;
  }
  work.call = group.joined ? 0 : rates::kernel_call;
  std::unordered_set<ValueId> read, written;
  for (const Node* n : nodes) {
    work.arithmetic += arithmetic_seconds(g_, *n);
    for_each_value(n->args, [&](ValueId v) {
      if (absent[g_.values[v].storage] || written.count(place_[v])) return;  // still in a register
      if (read.insert(place_[v]).second) work.memory += memory_seconds(v);
    });
    for_each_value(n->results, [&](ValueId v) {
      if (!absent[g_.values[v].storage] && written.insert(place_[v]).second) work.memory += memory_seconds(v);
    });
  }
  return work;
}

GroupCosts::Names GroupCosts::names_of(const std::vector<const Node*>& nodes) const {
  Names names;
  for (const Node* n : nodes) for_each_value(n->args, [&](ValueId v) { ++names[place_[v]]; });
  return names;
}

Work GroupCosts::share_of(const std::vector<const Node*>& nodes, const Names& names_of_kernel, const std::vector<char>& absent) const {
  Work work;
  const Names own = names_of(nodes);
  std::unordered_set<ValueId> read, made;
  for (const Node* n : nodes) {
    work.arithmetic += arithmetic_seconds(g_, *n);
    for_each_value(n->args, [&](ValueId v) {
      if (absent[g_.values[v].storage] || made.count(place_[v]) || names_of_kernel.at(place_[v]) > own.at(place_[v])) return;
      if (read.insert(place_[v]).second) work.memory += memory_seconds(v);
    });
    for_each_value(n->results, [&](ValueId v) {
      if (made.insert(place_[v]).second) work.memory += absent[g_.values[v].storage] ? -memory_seconds(v) : memory_seconds(v);
    });
  }
  return work;
}

}  // namespace tandem
