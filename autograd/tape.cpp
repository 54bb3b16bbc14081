#include "autograd/tape.h"

#include "autograd/node_call.h"
#include "autograd/slots.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

Tape::Arg prepare(const Argument& a, const c10::Argument& schema, std::int32_t number) {
  using Is = Tape::Is;
  Tape::Arg out;
  out.argument = &a;
  out.number = number;
  if (a.kind == Argument::Kind::tensor) {
    out.is = Is::tensor;
  } else if (a.kind == Argument::Kind::tensors) {
    const auto type = schema.type();
    const bool optional =
        type->kind() == c10::TypeKind::ListType && type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::OptionalType;
    out.is = optional ? Is::optional_tensors : Is::tensors;
  } else if (number >= 0) {
    out.is = a.wrapped ? Is::wrapped : Is::number;
  } else if (a.wrapped) {
    out.is = Is::wrapped_constant;
  } else if (std::holds_alternative<None>(a.constant)) {
    out.is = Is::none;
  } else if (auto* b = std::get_if<bool>(&a.constant)) {
    out.is = Is::flag;
    out.whole = *b;
  } else if (auto* i = std::get_if<std::int64_t>(&a.constant)) {
    out.is = Is::whole;
    out.whole = *i;
  } else {
    out.is = Is::other;
  }
  return out;
}

Tape::Result prepare_result(const Argument& r, std::size_t k, const c10::FunctionSchema& schema) {
  Tape::Result out;
  out.argument = &r;
  out.is = r.kind == Argument::Kind::tensors ? Tape::Is::tensors : r.kind == Argument::Kind::tensor ? Tape::Is::tensor : Tape::Is::none;
  const auto* alias = schema.returns()[k].alias_info();
  if (!alias || !alias->isWrite() || out.is != Tape::Is::tensor) return out;
  for (std::size_t i = 0; i < schema.arguments().size(); i++) {
    const auto* other = schema.arguments()[i].alias_info();
    if (other && other->isWrite() && other->beforeSets() == alias->beforeSets()) out.returned = std::int32_t(i);
  }
  return out;
}

bool same_argument(const Graph& g, const Argument& a, const Graph& h, const Argument& b, bool number) {
  if (a.kind != b.kind || a.wrapped != b.wrapped || a.values != b.values) return false;
  if (number ? is_integral(a) != is_integral(b) : !same(a.constant, b.constant)) return false;
  for (auto v : a.values) {
    if (v < 0) continue;
    const auto i = std::size_t(v);
    if (!(g.values[i] == h.values[i]) || !(g.storage_of(v).role == h.storage_of(v).role) || g.storage_of(v).index != h.storage_of(v).index)
      return false;
  }
  return true;
}

}  // namespace

std::size_t Tape::parts_before(std::size_t position) const {
  return std::size_t(std::count_if(parts_.parts.begin(), parts_.parts.end(), [&](const Parts::Part& p) { return p.end <= position; }));
}

Tape::Tape(const Recording& recorded, std::size_t length, Parts parts)
    : recorded_(&recorded), length_(length), parts_(std::move(parts)), numbers_(numbers_of(recorded.graph)) {
  const auto& g = recorded.graph;
  std::size_t next = 0;
  for (std::size_t n = 0; n < g.nodes.size(); n++) {
    const auto& node = g.nodes[n];
    Call call{handle_of(node), {}, {}, node.effects.random, node.effects.host_read, -1, std::int32_t(next)};
    const auto& schema = call.op.schema();
    for (std::size_t i = 0; i < node.args.size(); i++) {
      const bool number = next < numbers_.size() && numbers_[next] == NumberPlace{std::int32_t(n), std::int32_t(i)};
      call.args.push_back(prepare(node.args[i], schema.arguments()[i], number ? std::int32_t(next++) : -1));
    }
    for (std::size_t k = 0; k < node.results.size(); k++) call.results.push_back(prepare_result(node.results[k], k, schema));
    calls_.push_back(std::move(call));
  }
  for (const auto& r : recorded.returned) calls_[r.node].results[std::size_t(r.result)].returned = r.argument;
  for (std::size_t i = 0; i < parts_.stops.size(); i++) {
    calls_[parts_.stops[i]].stop = std::int32_t(i);
    auto& delivered = delivered_.emplace_back(g.storages.size(), false);
    for (const auto& a : recorded.alive)
      if (a.node == parts_.stops[i])
        for (auto v : a.values) delivered[std::size_t(g.values[std::size_t(v)].storage)] = true;
  }
  for (const auto& p : numbers_) {
    const auto& a = g.nodes[std::size_t(p.node)].args[std::size_t(p.arg)];
    values_.push_back(value_of(a));
    free_.push_back(a.scalar);
  }
  written_.assign(g.storages.size(), false);
  for (const auto& n : g.nodes)
    for (auto s : n.writes) written_[std::size_t(s)] = true;
  for (const auto& v : g.values)
    shapes_.push_back({keys_of(v, g.storages[std::size_t(v.storage)].device), c10::scalarTypeToTypeMeta(v.dtype)});
}

std::size_t common_calls(const Tape& a, const Tape& b) {
  const auto& x = a.graph();
  const auto& y = b.graph();
  const auto most = std::min(x.nodes.size(), y.nodes.size());
  for (std::size_t n = 0; n < most; n++) {
    const auto &p = a.calls()[n], &q = b.calls()[n];
    const auto &mine = x.nodes[n], &other = y.nodes[n];
    if (!(p.op == q.op) || mine.args.size() != other.args.size() || mine.results.size() != other.results.size()) return n;
    for (std::size_t i = 0; i < p.args.size(); i++)
      if (p.args[i].is != q.args[i].is || !same_argument(x, mine.args[i], y, other.args[i], p.args[i].number >= 0)) return n;
    for (std::size_t k = 0; k < p.results.size(); k++)
      if (!same_argument(x, mine.results[k], y, other.results[k], false)) return n;
  }
  return most;
}

}  // namespace tandem
