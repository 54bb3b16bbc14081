#include "partitioner/nest.h"

#include "autograd/op.h"
#include "autograd/signature.h"
#include "autograd/text.h"
#include "partitioner/compute_dtype.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

/// The sentence of a node that is no loop.
struct NoLoop {
  std::string why;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw NoLoop{fmt::format(format, std::forward<Args>(args)...)};
}

/// Whether no two elements share memory.
bool is_injective(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1) dims.emplace_back(strides[d], sizes[d]);
  std::sort(dims.begin(), dims.end());
  std::int64_t last = 0;  // farthest element so far
  for (const auto& [stride, size] : dims) {
    if (stride <= last) return false;
    last += stride * (size - 1);
  }
  return true;
}

class Builder {
 public:
  Builder(const Graph& g, const Node& n) : g_(g), n_(n) {}

  Nest run() && {
    check_node();
    std::string why;
    auto formula = formula_of(g_, n_, &why);
    if (!formula) refuse("{}", why);
    nest_.formula = std::move(*formula);
    if (nest_.formula.has(Term::matmul)) refuse("{} is a matrix product", describe(n_));
    check_values();
    const auto compute = compute_dtype(g_, n_, nest_.formula, &why);
    if (!compute) refuse("{}", why);
    nest_.compute = *compute;
    check_extents();
    find_space();
    find_reduced();
    for (ValueId v : nest_.formula.operands) nest_.operands.push_back({v, broadcast(value(v))});
    for (std::size_t k = 0; k < n_.results.size(); ++k) nest_.results.push_back(result(k));
    check_memory();
    drop_single_dims();
    drop_trivial_reductions();
    return std::move(nest_);
  }

 private:
  const Value& value(ValueId v) const { return g_.values[static_cast<std::size_t>(v)]; }
  ValueId result_value(std::size_t k) const { return nest_.formula.results[k] < 0 ? -1 : n_.results[k].values[0]; }

  void check_node() const {
    const OpRow* row = find_op(n_.op);
    if (!row) refuse("{} is unknown to the op table", describe(n_));
    if (n_.effects != Effects{} || row->kind == Kind::random) refuse("{} has effects beyond its results", describe(n_));
    if (may_throw(row->kind)) refuse("{} may throw for the values of its operands", describe(n_));
    if (row->kind == Kind::view) refuse("{} is a view", describe(n_));
  }

  void check_value(ValueId id) const {
    const Value& v = value(id);
    if (!g_.storage_of(id).device.is_cpu()) refuse("{} uses %{} on {}", describe(n_), id, g_.storage_of(id).device.str());
    if (v.conj || v.neg || v.zero) refuse("{} uses %{}, which is lazily conjugated, negated or zero", describe(n_), id);
    for (std::int64_t size : v.sizes)
      if (size == 0) refuse("{} uses %{}, which is empty", describe(n_), id);
  }

  void check_values() {
    for (ValueId v : nest_.formula.operands) check_value(v);
    std::vector<StorageId> made;
    for (std::size_t k = 0; k < n_.results.size(); ++k) {
      const Argument& a = n_.results[k];
      const bool is_tensor = a.kind == Argument::Kind::tensor && a.values.size() == 1;
      if (!is_tensor) refuse("result {} of {} is no tensor", k, describe(n_));
      if (a.values[0] < 0) continue;
      if (nest_.formula.results[k] < 0) refuse("the formula of {} does not give result {}", describe(n_), k);
      check_value(a.values[0]);
      const StorageId s = value(a.values[0]).storage;
      const bool written = std::binary_search(n_.writes.begin(), n_.writes.end(), s);
      bool read = false;
      for_each_value(n_.args, [&](ValueId v) { read |= value(v).storage == s; });
      if (!written && (read || g_.storages[static_cast<std::size_t>(s)].role != Role::internal))
        refuse("result {} of {} lies on memory that existed before", k, describe(n_));
      if (std::count(made.begin(), made.end(), s)) refuse("two results of {} share s{}", describe(n_), s);
      made.push_back(s);
    }
    if (made.empty()) refuse("{} has no result", describe(n_));
    for (StorageId s : n_.writes)
      if (!std::count(made.begin(), made.end(), s)) refuse("{} writes s{}, which is not among its results", describe(n_), s);
  }

  void check_extents() {
    extents_ = extents_of(nest_.formula);
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const Step& s = nest_.formula.steps[i];
      if (extents_[i] == Extent::column && s.term == Term::column_sum) continue;
      for (std::int32_t from : {s.a, s.b, s.c})
        if (from >= 0 && extents_[static_cast<std::size_t>(from)] == Extent::column && extents_[i] != Extent::column)
          refuse("{} uses a column sum inside its loop", describe(n_));
    }
  }

  Extent extent_of_result(std::size_t k) const {
    const Extent e = extents_[static_cast<std::size_t>(nest_.formula.results[k])];
    return e == Extent::uniform ? Extent::element : e;
  }

  /// Broadcasting from the right over the operands and the results that have all elements.
  void find_space() {
    std::vector<const Value*> shapes;
    for (ValueId v : nest_.formula.operands) shapes.push_back(&value(v));
    for (std::size_t k = 0; k < n_.results.size(); ++k)
      if (result_value(k) >= 0 && extent_of_result(k) == Extent::element) shapes.push_back(&value(result_value(k)));
    std::size_t dims = 0;
    for (const Value* v : shapes) dims = std::max(dims, v->sizes.size());
    nest_.sizes.assign(dims, 1);
    for (const Value* v : shapes)
      for (std::size_t d = dims - v->sizes.size(), i = 0; d < dims; ++d, ++i) {
        if (v->sizes[i] == 1 || v->sizes[i] == nest_.sizes[d]) continue;
        if (nest_.sizes[d] != 1) refuse("the operands of {} do not broadcast", describe(n_));
        nest_.sizes[d] = v->sizes[i];
      }
  }

  void reduce(std::int64_t dim) {
    const auto dims = static_cast<std::int64_t>(nest_.sizes.size());
    if (dims == 0) return;
    if (dim < -dims || dim >= dims) refuse("{} names dim {} of {}", describe(n_), dim, dims);
    nest_.reduced[static_cast<std::size_t>(dim < 0 ? dim + dims : dim)] = true;
  }

  /// By what the schema calls its arguments.
  void find_reduced() {
    nest_.reduced.assign(nest_.sizes.size(), false);
    const auto& steps = nest_.formula.steps;
    if (std::none_of(steps.begin(), steps.end(), [](const Step& s) { return is_reduction(s.term) || s.term == Term::count; })) return;
    const Argument* shape = argument_of(n_, "normalized_shape");
    const Argument* dim = argument_of(n_, "dim");
    if (auto* list = shape ? std::get_if<std::vector<std::int64_t>>(&shape->constant) : nullptr) {
      for (std::size_t k = 1; k <= list->size(); ++k) reduce(-static_cast<std::int64_t>(k));
    } else if (auto* one = dim ? std::get_if<std::int64_t>(&dim->constant) : nullptr) {
      reduce(*one);
    } else {
      auto* dims = dim ? std::get_if<std::vector<std::int64_t>>(&dim->constant) : nullptr;
      if (!dims || dims->empty()) nest_.reduced.assign(nest_.sizes.size(), true);
      if (dims) std::for_each(dims->begin(), dims->end(), [&](std::int64_t d) { reduce(d); });
    }
  }

  std::vector<std::int64_t> broadcast(const Value& v) const {
    std::vector<std::int64_t> strides(nest_.sizes.size(), 0);
    for (std::size_t d = strides.size() - v.sizes.size(), i = 0; d < strides.size(); ++d, ++i)
      if (v.sizes[i] != 1) strides[d] = v.strides[i];
    return strides;
  }

  Access result(std::size_t k) const {
    const ValueId id = result_value(k);
    if (id < 0) return {};
    const Value& v = value(id);
    const Extent extent = extent_of_result(k);
    const auto kept = [&](std::size_t d) { return extent == Extent::element || nest_.reduced[d] == (extent == Extent::column); };
    const std::size_t dims = nest_.sizes.size();
    std::vector<std::size_t> from;  // dim of the space per dim of the result
    if (v.sizes.size() == dims)
      for (std::size_t d = 0; d < dims; ++d) from.push_back(d);
    else
      for (std::size_t d = 0; d < dims; ++d)
        if (kept(d)) from.push_back(d);
    bool fits = from.size() == v.sizes.size();
    std::vector<std::int64_t> strides(dims, 0);
    for (std::size_t i = 0; fits && i < from.size(); ++i) {
      fits = v.sizes[i] == (kept(from[i]) ? nest_.sizes[from[i]] : 1);
      if (v.sizes[i] != 1) strides[from[i]] = v.strides[i];
    }
    if (!fits) refuse("result {} of {} is {}, which does not fit its loop", k, describe(n_), describe(v));
    return {id, strides};
  }

  void check_memory() const {
    for (const Access& r : nest_.results) {
      if (r.value < 0) continue;
      const Value& v = value(r.value);
      if (!is_injective(v.sizes, v.strides)) refuse("elements of %{}, a result of {}, overlap", r.value, describe(n_));
      for (const Access& o : nest_.operands) {
        const Value& read = value(o.value);
        if (read.storage == v.storage && (read.offset != v.offset || o.strides != r.strides || read.dtype != v.dtype))
          refuse("{} writes s{} and reads it in another geometry", describe(n_), v.storage);
      }
    }
  }

  void drop_single_dims() {
    const std::vector<std::int64_t> sizes = nest_.sizes;
    const auto drop = [&](auto& list) {
      std::size_t kept = 0;
      for (std::size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d] != 1) list[kept++] = list[d];
      list.resize(kept);
    };
    drop(nest_.sizes);
    drop(nest_.reduced);
    for (Access& a : nest_.operands) drop(a.strides);
    for (Access& a : nest_.results)
      if (a.value >= 0) drop(a.strides);
  }

  /// A reduction over one element is that element.
  void drop_trivial_reductions() {
    const bool no_row = std::none_of(nest_.reduced.begin(), nest_.reduced.end(), [](bool r) { return r; });
    const bool no_column = std::all_of(nest_.reduced.begin(), nest_.reduced.end(), [](bool r) { return r; });
    std::vector<std::int32_t> now;
    for (Step& s : nest_.formula.steps) {
      for (std::int32_t* from : {&s.a, &s.b, &s.c})
        if (*from >= 0) *from = now[static_cast<std::size_t>(*from)];
      const bool trivial = is_reduction(s.term) && (s.term == Term::column_sum ? no_column : no_row);
      now.push_back(trivial ? s.a : static_cast<std::int32_t>(now.size()));
    }
    for (std::int32_t& r : nest_.formula.results)
      if (r >= 0) r = now[static_cast<std::size_t>(r)];
    drop_unused_steps();
  }

  void drop_unused_steps() {
    Formula& f = nest_.formula;
    std::vector<char> used(f.steps.size(), false);
    for (std::int32_t r : f.results)
      if (r >= 0) used[static_cast<std::size_t>(r)] = true;
    for (std::size_t i = f.steps.size(); i-- > 0;)
      for (std::int32_t from : {f.steps[i].a, f.steps[i].b, f.steps[i].c})
        if (used[i] && from >= 0) used[static_cast<std::size_t>(from)] = true;
    std::vector<std::int32_t> now(f.steps.size(), -1);
    std::vector<Step> steps;
    for (std::size_t i = 0; i < f.steps.size(); ++i) {
      if (!used[i]) continue;
      Step s = f.steps[i];
      for (std::int32_t* from : {&s.a, &s.b, &s.c})
        if (*from >= 0) *from = now[static_cast<std::size_t>(*from)];
      now[i] = static_cast<std::int32_t>(steps.size());
      steps.push_back(s);
    }
    for (std::int32_t& r : f.results)
      if (r >= 0) r = now[static_cast<std::size_t>(r)];
    f.steps = std::move(steps);
  }

  const Graph& g_;
  const Node& n_;
  Nest nest_;
  std::vector<Extent> extents_;  // per step
};

}  // namespace

std::vector<Extent> extents_of(const Formula& f) {
  std::vector<Extent> extents;
  for (const Step& s : f.steps) {
    Extent e = s.term == Term::operand ? Extent::element : Extent::uniform;
    for (std::int32_t from : {s.a, s.b, s.c}) {
      const Extent other = from < 0 ? Extent::uniform : extents[static_cast<std::size_t>(from)];
      if (e == Extent::uniform) e = other;
      if (other != e && other != Extent::uniform) e = Extent::element;
    }
    if (is_reduction(s.term)) e = s.term == Term::column_sum ? Extent::column : Extent::row;
    extents.push_back(e);
  }
  return extents;
}

std::int64_t Nest::elements() const {
  std::int64_t n = 1;
  for (std::int64_t size : sizes) n *= size;
  return n;
}

std::optional<Nest> nest_of(const Graph& graph, const Node& node, std::string* why) {
  try {
    return Builder(graph, node).run();
  } catch (const NoLoop& n) {
    if (why) *why = n.why;
    return std::nullopt;
  }
}

}  // namespace tandem
