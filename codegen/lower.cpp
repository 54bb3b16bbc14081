#include "codegen/lower.h"

#include "autograd/support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace tandem {
namespace {

using Is = Instruction::Kind;
using Dims = std::vector<bool>;

[[noreturn]] void fail(const Node& node, std::string_view what) {
  throw InternalError(fmt::format("{} in the kernel of {}", what, describe(node)));
}

bool any(const Dims& d) { return std::find(d.begin(), d.end(), true) != d.end(); }

Dims unite(Dims a, const Dims& b) {
  for (std::size_t d = 0; d < a.size(); ++d) a[d] = a[d] || b[d];
  return a;
}

bool meet(const Dims& a, const Dims& b) {
  for (std::size_t d = 0; d < a.size(); ++d)
    if (a[d] && b[d]) return true;
  return false;
}

Dims moving(const std::vector<std::int64_t>& strides) {
  Dims out;
  for (std::int64_t s : strides) out.push_back(s != 0);
  return out;
}

/// Memory as the loop sees it: versions of one storage at the same place are one parameter.
struct Place {
  StorageId storage;
  std::int64_t offset;
  c10::ScalarType dtype;
  std::vector<std::int64_t> strides;
  auto tie() const { return std::tie(storage, offset, dtype, strides); }
  bool operator<(const Place& o) const { return tie() < o.tie(); }
};

/// Dims of size 1 have no dim in a nest; a space of one element gets one here, so that it is a flat loop like any other.
std::vector<std::int64_t> strides_of(const Access& a) { return a.strides.empty() ? std::vector<std::int64_t>{1} : a.strides; }

class Lowering {
 public:
  Lowering(const Graph& graph, const std::vector<Member>& members, const ReadOutside& read_outside)
      : graph_(graph), members_(members), read_outside_(read_outside) {}

  Lowered run() {
    const Nest& first = members_.at(0).nest;
    space_.sizes = first.sizes;
    if (space_.sizes.empty()) space_.sizes = {1};
    out_.loop.compute = first.compute;
    for (const Member& m : members_) add(m);
    store_results();
    choose_row();
    drop_unused();
    std::int64_t elements = 1;
    for (std::int64_t s : space_.sizes) elements *= s;
    collapse(out_.loop, space_);
    out_.units = elements / out_.loop.row_elements();
    out_.chunks = chunks_of(out_.loop, out_.units);
    if (const std::string wrong = fault_of(out_.loop); !wrong.empty()) fail(*members_.back().node, wrong);
    return std::move(out_);
  }

 private:
  std::vector<Instruction>& code() { return out_.loop.code; }

  /// What is known of an instruction beyond the loop: the dims in which its value differs, and the reductions that it comes from.
  struct Fact {
    Dims varies;
    std::vector<Dims> reduced;
  };

  std::int32_t emit(Instruction n, const Node& node) {
    const auto same = std::find(code().begin(), code().end(), n);
    if (same != code().end()) return static_cast<std::int32_t>(same - code().begin());
    facts_.push_back(fact_of(n, node));
    code().push_back(std::move(n));
    return static_cast<std::int32_t>(code().size() - 1);
  }

  Fact fact_of(const Instruction& n, const Node& node) {
    Fact f{Dims(space_.sizes.size(), false), {}};
    if (n.kind == Is::load) f.varies = moving(out_.loop.parameters[static_cast<std::size_t>(n.index)].strides);
    for (std::int32_t o : {n.a, n.b, n.c}) {
      if (o < 0) continue;
      const Fact& from = facts_[static_cast<std::size_t>(o)];
      f.varies = unite(f.varies, from.varies);
      f.reduced.insert(f.reduced.end(), from.reduced.begin(), from.reduced.end());
    }
    if (n.kind == Is::total) {
      for (const Dims& d : f.reduced) must_be_row(d, node);  // a reduction of a reduction
      for (std::size_t d = 0; d < n.over.size(); ++d) f.varies[d] = !n.over[d];
      f.reduced = {n.over};
    }
    for (const Dims& d : f.reduced)
      if (n.kind != Is::total && (meet(d, f.varies) || d != f.reduced[0])) must_be_row(d, node);
    return f;
  }

  void must_be_row(const Dims& d, const Node& node) {
    if (any(space_.row) && space_.row != d) fail(node, "expected row reductions over the same dims, found others");
    space_.row = d;
  }

  // ---- values ----

  Place place_of(const Access& a) const {
    const Value& v = graph_.values[static_cast<std::size_t>(a.value)];
    return {v.storage, v.offset, v.dtype, strides_of(a)};
  }

  std::int32_t parameter(const Place& place, ValueId value) {
    const auto [at, fresh] = parameters_.try_emplace(place, static_cast<std::int32_t>(out_.operands.size()));
    if (fresh) {
      LoopParameter p;
      p.dtype = place.dtype;
      p.strides = place.strides;
      out_.loop.parameters.push_back(p);
      out_.operands.push_back(value);
    }
    return at->second;
  }

  std::int32_t read(const Access& a, const Node& node) {
    const Value& v = graph_.values[static_cast<std::size_t>(a.value)];
    const Place place = place_of(a);
    if (const auto known = contents_.find({place, v.version}); known != contents_.end()) {
      for (const Dims& d : facts_[static_cast<std::size_t>(known->second)].reduced) must_be_row(d, node);
      return known->second;
    }
    if (const auto made = made_.find(v.storage); made != made_.end() && made->second <= v.version)
      fail(node, fmt::format("expected %{} to be read as it is written, found another geometry", a.value));
    Instruction load;
    load.kind = Is::load;
    load.index = parameter(place, a.value);
    out_.loop.parameters[static_cast<std::size_t>(load.index)].read = true;
    const std::int32_t made = emit(load, node);
    contents_[{place, v.version}] = made;
    return made;
  }

  std::int32_t number(double value, const Node& node) {
    Instruction n;
    n.value = value;
    return emit(n, node);
  }

  std::int32_t argument(const Node& node, std::int32_t index) {
    const Argument& a = node.args.at(static_cast<std::size_t>(index));
    if (a.scalar >= 0) {
      auto at = std::find(out_.scalars.begin(), out_.scalars.end(), a.scalar);
      if (at == out_.scalars.end()) at = out_.scalars.insert(at, a.scalar);
      Instruction n;
      n.kind = Is::scalar;
      n.index = static_cast<std::int32_t>(at - out_.scalars.begin());
      return emit(n, node);
    }
    if (auto* b = std::get_if<bool>(&a.constant)) return number(*b, node);
    if (auto* i = std::get_if<std::int64_t>(&a.constant)) return number(static_cast<double>(*i), node);
    if (auto* d = std::get_if<double>(&a.constant)) return number(*d, node);
    fail(node, fmt::format("expected argument {} to be a number", index));
  }

  /// A result is rounded to its dtype before another member reads it.
  std::int32_t rounded(std::int32_t from, c10::ScalarType dtype, const Node& node) {
    const Instruction& n = code()[static_cast<std::size_t>(from)];
    if (dtype == out_.loop.compute || dtype == c10::ScalarType::Double) return from;
    if (n.kind == Is::load && out_.loop.parameters[static_cast<std::size_t>(n.index)].dtype == dtype) return from;
    if (n.kind == Is::convert && n.dtype == dtype) return from;
    if (dtype == c10::ScalarType::Bool && n.kind == Is::step && is_truth(n.term)) return from;
    Instruction c;
    c.kind = Is::convert;
    c.a = from;
    c.dtype = dtype;
    return emit(c, node);
  }

  static bool is_truth(Term t) { return (t >= Term::lt && t <= Term::logical_or) || t == Term::is_nan || t == Term::logical_not; }

  // ---- members ----

  void add(const Member& m) {
    const Nest& nest = m.nest;
    if (nest.sizes != members_[0].nest.sizes || nest.compute != out_.loop.compute) fail(*m.node, "expected equal sizes and compute dtypes");
    std::vector<std::int32_t> made(nest.formula.steps.size(), -1);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = step(m, i, made);
    for (std::size_t r = 0; r < nest.results.size(); ++r) {
      const std::int32_t s = nest.formula.results[r];
      if (s < 0 || nest.results[r].value < 0) continue;
      result(m, nest.results[r], made[static_cast<std::size_t>(s)],
             nest.formula.steps[static_cast<std::size_t>(s)].term == Term::arbitrary);
    }
  }

  std::int32_t step(const Member& m, std::size_t i, const std::vector<std::int32_t>& made) {
    const Step& s = m.nest.formula.steps[i];
    auto of = [&](std::int32_t k) { return k < 0 ? -1 : made[static_cast<std::size_t>(k)]; };
    switch (s.term) {
      case Term::operand: return read(m.nest.operands.at(static_cast<std::size_t>(s.index)), *m.node);
      case Term::number: return number(s.value, *m.node);
      case Term::argument: return argument(*m.node, s.index);
      case Term::arbitrary: return number(0, *m.node);
      case Term::count: {
        std::int64_t n = 1;
        for (std::size_t d = 0; d < m.nest.sizes.size(); ++d)
          if (m.nest.reduced[d]) n *= m.nest.sizes[d];
        return number(static_cast<double>(n), *m.node);
      }
      default: break;
    }
    if (is_reduction(s.term)) return reduction(m, s.term, of(s.a));
    if (operands_of(s.term) < 0) fail(*m.node, fmt::format("expected arithmetic, found {}", name_of(s.term)));
    Instruction n;
    n.kind = Is::step;
    n.term = s.term;
    n.a = of(s.a);
    n.b = of(s.b);
    n.c = of(s.c);
    return emit(n, *m.node);
  }

  /// A total until the row is chosen.
  std::int32_t reduction(const Member& m, Term term, std::int32_t of) {
    Instruction n;
    n.kind = Is::total;
    n.term = term == Term::column_sum ? Term::row_sum : term;
    n.a = of;
    for (std::size_t d = 0; d < m.nest.sizes.size(); ++d) n.over.push_back(m.nest.reduced[d] != (term == Term::column_sum));
    if (!any(n.over)) return of;  // over dims of size 1
    return emit(n, *m.node);
  }

  void result(const Member& m, const Access& access, std::int32_t from, bool arbitrary) {
    const Value& v = graph_.values[static_cast<std::size_t>(access.value)];
    from = rounded(from, v.dtype, *m.node);
    const Place place = place_of(access);
    for (const Dims& d : facts_[static_cast<std::size_t>(from)].reduced)
      if (meet(d, moving(access.strides))) must_be_row(d, *m.node);
    contents_[{place, v.version}] = from;
    auto [made, fresh] = made_.try_emplace(v.storage, v.version);
    if (!fresh) made->second = std::min(made->second, v.version);
    auto at = std::find_if(written_.begin(), written_.end(), [&](const Written& w) { return !(w.place < place) && !(place < w.place); });
    if (at == written_.end()) at = written_.insert(at, {place, -1, -1, 0, false});
    *at = {place, access.value, from, v.version, arbitrary};
  }

  void store_results() {
    for (const Written& w : written_) {
      if (w.arbitrary || !read_outside_(w.place.storage, w.version)) continue;
      const Node& node = *members_.back().node;
      for (const auto& [other, number] : parameters_)
        if (other.storage == w.place.storage && (other < w.place || w.place < other))
          fail(node, fmt::format("expected one geometry on storage s{}, which is written, found another", w.place.storage));
      Instruction store;
      store.kind = Is::store;
      store.index = parameter(w.place, w.value);
      store.a = w.from;
      out_.operands[static_cast<std::size_t>(store.index)] = w.value;
      out_.loop.parameters[static_cast<std::size_t>(store.index)].written = true;
      emit(store, node);
    }
  }

  // ---- the row ----

  /// Reductions over innermost dims run inside a unit, without partial sums, even where nothing of the row needs them.
  void choose_row() {
    if (space_.row.empty()) space_.row.assign(space_.sizes.size(), false);
    for (const Instruction& n : code()) {
      if (any(space_.row) || n.kind != Is::total) continue;
      const bool trailing = std::is_sorted(n.over.begin(), n.over.end());
      if (trailing && !n.over[0]) space_.row = n.over;
    }
    for (Instruction& n : code()) {
      if (n.kind != Is::total || n.over != space_.row || !any(space_.row)) continue;
      n.kind = Is::step;
      n.over.clear();
    }
  }

  void drop_unused() {
    std::vector<Instruction> kept;
    std::vector<bool> used(code().size(), false), touched(out_.operands.size(), false), scalar(out_.scalars.size(), false);
    for (std::size_t i = code().size(); i-- > 0;) {
      const Instruction& n = code()[i];
      if (n.kind == Is::store) used[i] = true;
      if (!used[i]) continue;
      for (std::int32_t o : {n.a, n.b, n.c})
        if (o >= 0) used[static_cast<std::size_t>(o)] = true;
      if (n.kind == Is::load || n.kind == Is::store) touched[static_cast<std::size_t>(n.index)] = true;
      if (n.kind == Is::scalar) scalar[static_cast<std::size_t>(n.index)] = true;
    }
    for (std::size_t p = 0; p < touched.size(); ++p) out_.loop.parameters[p].read = false;
    const auto parameters = keep(touched, out_.loop.parameters, out_.operands), scalars = keep(scalar, out_.scalars);
    out_.loop.scalars = static_cast<std::int32_t>(out_.scalars.size());
    std::vector<std::int32_t> number(code().size(), -1);
    for (std::size_t i = 0; i < code().size(); ++i) {
      if (!used[i]) continue;
      Instruction n = code()[i];
      for (std::int32_t* o : {&n.a, &n.b, &n.c})
        if (*o >= 0) *o = number[static_cast<std::size_t>(*o)];
      if (n.kind == Is::load || n.kind == Is::store) n.index = parameters[static_cast<std::size_t>(n.index)];
      if (n.kind == Is::scalar) n.index = scalars[static_cast<std::size_t>(n.index)];
      if (n.kind == Is::load) out_.loop.parameters[static_cast<std::size_t>(n.index)].read = true;
      number[i] = static_cast<std::int32_t>(kept.size());
      kept.push_back(std::move(n));
    }
    code() = std::move(kept);
  }

  /// Drops the elements of the lists that are not in use; the new number of each.
  template <class... List>
  static std::vector<std::int32_t> keep(const std::vector<bool>& use, List&... lists) {
    std::vector<std::int32_t> number(use.size(), -1);
    std::int32_t next = 0;
    for (std::size_t i = 0; i < use.size(); ++i)
      if (use[i]) number[i] = next++;
    auto shrink = [&](auto& list) {
      std::size_t to = 0;
      for (std::size_t i = 0; i < use.size(); ++i) {
        if (!use[i]) continue;
        if (to != i) list[to] = std::move(list[i]);
        ++to;
      }
      list.resize(to);
    };
    (shrink(lists), ...);
    return number;
  }

  struct Written {
    Place place;
    ValueId value;
    std::int32_t from, version;
    bool arbitrary;
  };

  const Graph& graph_;
  const std::vector<Member>& members_;
  const ReadOutside& read_outside_;
  Lowered out_;
  Space space_;
  std::vector<Fact> facts_;
  std::map<Place, std::int32_t> parameters_;
  std::map<std::pair<Place, std::int32_t>, std::int32_t> contents_;  // by version
  std::map<StorageId, std::int32_t> made_;                           // the first version that a member makes
  std::vector<Written> written_;                                     // in order of the first write, with the last value
};

}  // namespace

Lowered lower(const Graph& graph, const std::vector<Member>& members, const ReadOutside& read_outside) {
  return Lowering(graph, members, read_outside).run();
}

}  // namespace tandem
