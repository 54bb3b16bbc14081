// Walks the nodes in order with the current version of each storage. Broken ids are found first, so that the walk may index freely.
#include "autograd/verify.h"

#include "autograd/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

namespace tandem {

namespace {

using Int = std::int64_t;

class Verifier {
 public:
  explicit Verifier(const Graph& g) : g_(g) {}

  std::string run() && {
    check_ids();
    check_geometry();
    if (!broken_.empty()) return broken_;
    start();
    for (std::size_t i = 0; i < g_.nodes.size() && broken_.empty(); ++i) step(g_.nodes[i]);
    if (broken_.empty()) check_ends();
    return broken_;
  }

 private:
  static constexpr std::int32_t unborn = -1;

  struct State {
    std::int32_t version = unborn;
    Side born_on = Side::forward;  // the side of the first node that returns it, also while that is still to come
    bool returned = false;         // whether any node returns it
    bool folded = false;           // made by a folded node
  };

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (broken_.empty()) broken_ = fmt::format(format, std::forward<Args>(args)...);
  }

  // ---- [ids] ----

  template <class T>
  static bool in(Int id, const std::vector<T>& list) {
    return id >= 0 && id < static_cast<Int>(list.size());
  }

  void check_value_id(ValueId v, const char* what) {
    if (v != -1 && !in(v, g_.values)) fail("[ids] {} names value %{}, there are {} values", what, v, g_.values.size());
  }

  void check_ids() {
    for (std::size_t i = 0; i < g_.values.size(); ++i)
      if (!in(g_.values[i].storage, g_.storages))
        fail("[ids] value %{} names storage s{}, there are {} storages", i, g_.values[i].storage, g_.storages.size());
    std::unordered_set<NodeId> seen;
    for (auto& n : g_.nodes) {
      if (!seen.insert(n.id).second) fail("[ids] two nodes have the number {}, the second is {}", n.id, describe(n));
      check_ids(n);
    }
    check_value_id(g_.loss, "the loss");
    for (ValueId v : g_.outputs) check_value_id(v, "an output");
    for (auto& x : g_.gradients) {
      check_value_id(x.value, "a gradient");
      check_value_id(x.before, "a gradient before the update");
    }
    check_value_id(g_.grad_norm, "the norm of the gradients");
  }

  void check_ids(const Node& n) {
    for (auto* list : {&n.args, &n.results})
      for (auto& a : *list) {
        if (a.kind == Argument::Kind::tensor && a.values.size() != 1)
          fail("[ids] {} has a tensor argument that names {} values instead of one", describe(n), a.values.size());
        if (a.kind == Argument::Kind::constant && !a.values.empty()) fail("[ids] {} has a constant that names a value", describe(n));
        if (a.scalar != -1 && (a.kind != Argument::Kind::constant || !in(a.scalar, g_.scalars)))
          fail("[ids] {} names scalar ${}, there are {} scalars", describe(n), a.scalar, g_.scalars.size());
        for (ValueId v : a.values)
          if (v != -1 && !in(v, g_.values)) fail("[ids] {} names value %{}, there are {} values", describe(n), v, g_.values.size());
      }
    for (StorageId s : n.writes)
      if (!in(s, g_.storages)) fail("[ids] {} writes storage s{}, there are {} storages", describe(n), s, g_.storages.size());
  }

  // ---- [geometry] ----

  void check_geometry() {
    if (!broken_.empty()) return;
    for (std::size_t i = 0; i < g_.values.size(); ++i)
      if (g_.values[i].version < 0) fail("[version] value %{} has version {} of s{}", i, g_.values[i].version, g_.values[i].storage);
    for (std::size_t i = 0; i < g_.storages.size(); ++i)
      if (g_.storages[i].bytes < 0) fail("[geometry] storage s{} has {} bytes", i, g_.storages[i].bytes);
    for (std::size_t i = 0; i < g_.values.size(); ++i)
      if (const char* wrong = wrong_geometry(g_.values[i]))
        fail("[geometry] value %{}, {} with strides [{}] and offset {}, {} (s{} has {} bytes)", i, describe(g_.values[i]),
             fmt::join(g_.values[i].strides, ", "), g_.values[i].offset, wrong, g_.values[i].storage,
             g_.storage_of(static_cast<ValueId>(i)).bytes);
  }

  const char* wrong_geometry(const Value& v) const {
    auto negative = [](Int x) { return x < 0; };
    if (v.dtype >= c10::ScalarType::Undefined || v.dtype < c10::ScalarType{}) return "has no dtype";
    if (v.sizes.size() != v.strides.size()) return "has a stride too many or too few";
    if (v.offset < 0 || std::any_of(v.sizes.begin(), v.sizes.end(), negative) || std::any_of(v.strides.begin(), v.strides.end(), negative))
      return "has a negative size, stride or offset";
    if (std::find(v.sizes.begin(), v.sizes.end(), 0) != v.sizes.end()) return nullptr;  // touches nothing
    Int last = v.offset, step = 0;                                                      // the last element
    bool overflow = false;
    for (std::size_t d = 0; d < v.sizes.size(); ++d)
      overflow |= __builtin_mul_overflow(v.sizes[d] - 1, v.strides[d], &step) || __builtin_add_overflow(last, step, &last);
    overflow |= __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, static_cast<Int>(c10::elementSize(v.dtype)), &last);
    return overflow || last > g_.storages[v.storage].bytes ? "does not lie inside its storage" : nullptr;
  }

  // ---- the walk ----

  void start() {
    states_.resize(g_.storages.size());
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (g_.storages[i].role != Role::internal) states_[i].version = 0;
    for (auto& n : g_.nodes)
      for_each_value(n.results, [&](ValueId v) {
        State& s = state_of(v);
        if (!s.returned) s.born_on = n.side;
        s.returned = true;
      });
  }

  State& state_of(ValueId v) { return states_[g_.values[v].storage]; }

  void step(const Node& n) {
    check_side(n);
    check_folded(n);
    for_each_value(n.args, [&](ValueId v) { read(n, v); });
    write(n);
    for_each_value(n.results, [&](ValueId v) { result(n, v); });
  }

  void check_side(const Node& n) {
    if (updating_ && n.side != Side::update) fail("[side] {} comes after a node of the update", describe(n));
    updating_ = n.side == Side::update;
  }

  void check_folded(const Node& n) {
    if (!n.folded) return;
    if (n.effects != Effects{}) fail("[effects] {} is folded though it is random, collective or opaque", describe(n));
    if (!n.writes.empty()) fail("[effects] {} is folded though it writes s{}", describe(n), n.writes[0]);
    for (auto& a : n.args)
      if (a.scalar >= 0) fail("[effects] {} is folded though it reads the run-time scalar ${}", describe(n), a.scalar);
  }

  void read(const Node& n, ValueId id) {
    const Value& v = g_.values[id];
    State& s = state_of(id);
    if (n.side == Side::forward && s.version == unborn && s.returned && s.born_on != Side::forward)
      fail("[side] {} reads %{}, which only a node of the {} makes", describe(n), id, name_of(s.born_on));
    if (s.version == unborn)
      fail("[producer] {} reads %{} of the internal storage s{}, which no node returned before", describe(n), id, v.storage);
    if (v.version != s.version)
      fail("[version] {} reads %{} at version {} of s{}, which is at version {} here", describe(n), id, v.version, v.storage, s.version);
    if (n.folded && !s.folded) fail("[effects] {} is folded though it reads %{}, which no folded node makes", describe(n), id);
  }

  void write(const Node& n) {
    for (std::size_t i = 0; i < n.writes.size(); ++i) {
      StorageId id = n.writes[i];
      State& s = states_[id];
      if (i > 0 && n.writes[i - 1] >= id) fail("[version] {} lists s{} after s{}, not sorted and unique", describe(n), id, n.writes[i - 1]);
      if (s.version == unborn) fail("[producer] {} writes the internal storage s{}, which no node returned before", describe(n), id);
      if (s.folded) fail("[effects] {} writes s{}, which a folded node made", describe(n), id);
      ++s.version;
    }
  }

  void result(const Node& n, ValueId id) {
    const Value& v = g_.values[id];
    State& s = state_of(id);
    if (s.version == unborn) {
      s.version = 0;
      s.folded = n.folded;
    }
    if (v.version != s.version)
      fail("[version] {} returns %{} at version {} of s{}, which is at version {} then", describe(n), id, v.version, v.storage, s.version);
    if (n.folded && !s.folded) fail("[effects] {} is folded though it returns %{}, whose storage is not its own", describe(n), id);
  }

  // ---- [outputs] ----

  /// A value that is named after the last node: it must exist, `last` at the last version of its storage.
  void check_end(ValueId id, bool last, const char* what) {
    if (id == -1) return;
    const Value& v = g_.values[id];
    const State& s = state_of(id);
    if (s.version == unborn)
      fail("[producer] {} is %{} of the internal storage s{}, which no node returns", what, id, v.storage);
    else if (v.version > s.version)
      fail("[version] {} is %{} at version {} of s{}, whose versions end at {}", what, id, v.version, v.storage, s.version);
    else if (last && v.version != s.version)
      fail("[outputs] {} is %{} at version {} of s{}, whose last version is {}", what, id, v.version, v.storage, s.version);
  }

  void check_ends() {
    check_end(g_.loss, true, "the loss");
    auto one = [](Int size) { return size == 1; };
    if (g_.loss != -1 && !std::all_of(g_.values[g_.loss].sizes.begin(), g_.values[g_.loss].sizes.end(), one))
      fail("[outputs] the loss is %{}, {}, expected one element", g_.loss, describe(g_.values[g_.loss]));
    for (ValueId v : g_.outputs) check_end(v, true, "an output");
    for (auto& x : g_.gradients) {
      check_end(x.value, true, "a gradient");
      check_end(x.before, false, "a gradient before the update");
    }
    check_end(g_.grad_norm, false, "the norm of the gradients");
  }

  const Graph& g_;
  std::vector<State> states_;
  bool updating_ = false;
  std::string broken_;
};

}  // namespace

std::string verify(const Graph& g) { return Verifier(g).run(); }

}  // namespace tandem
