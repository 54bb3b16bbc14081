// Ops that only put tensors into parts of another become memory and copies into views of it: a generated kernel writes its result where it belongs,
// and nothing is left to call. Copies that a library call would make inside become nodes.
#include "autograd/op.h"
#include "autograd/pass.h"
#include "autograd/passes/emitter.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace tandem {
namespace {

constexpr std::size_t most_pieces = 4;  // each is a kernel of its own

/// One source and the part of the result that it fills.
struct Piece {
  ValueId from;
  Value part;  // geometry inside the result
};
struct Layout {
  std::vector<Piece> pieces;
  std::optional<double> rest;  // what the other elements are; nullopt: there are none
};

class Reader {
 public:
  Reader(const Graph& g, const Node& n) : g_(g), n_(n), result(g.values[n.results.front().values.front()]) {}

  std::int64_t integer(std::size_t i) const { return std::get<std::int64_t>(n_.args[i].constant); }
  const std::vector<ValueId>& tensors(std::size_t i) const { return n_.args[i].values; }
  const Value& value(ValueId v) const { return g_.values[v]; }
  std::size_t dim(std::size_t i, std::size_t rank) const {
    const auto d = integer(i);
    return std::size_t(d < 0 ? d + std::int64_t(rank) : d);
  }
  Value narrow(std::size_t d, std::int64_t start, std::int64_t length, std::int64_t step = 1) const {
    Value part = result;
    part.offset += start * part.strides[d];
    part.sizes[d] = length;
    part.strides[d] *= step;
    return part;
  }
  Value select(std::size_t d, std::int64_t index) const {
    Value part = narrow(d, index, 1);
    part.sizes.erase(part.sizes.begin() + std::ptrdiff_t(d));
    part.strides.erase(part.strides.begin() + std::ptrdiff_t(d));
    return part;
  }

 private:
  const Graph& g_;
  const Node& n_;

 public:
  const Value& result;
};

Layout cat(const Reader& r) {
  Layout out;
  const auto d = r.dim(1, r.result.sizes.size());
  std::int64_t start = 0;
  for (ValueId v : r.tensors(0)) {
    if (r.value(v).sizes == std::vector<std::int64_t>{0}) continue;  // an old form of "nothing"
    const auto length = r.value(v).sizes[d];
    if (length > 0) out.pieces.push_back({v, r.narrow(d, start, length)});
    start += length;
  }
  return out;
}

Layout stack(const Reader& r) {
  Layout out;
  const auto d = r.dim(1, r.result.sizes.size());
  for (ValueId v : r.tensors(0)) out.pieces.push_back({v, r.select(d, std::int64_t(out.pieces.size()))});
  return out;
}

Layout select_backward(const Reader& r) {  // (grad, input_sizes, dim, index)
  const auto d = r.dim(2, r.result.sizes.size());
  const auto index = r.integer(3) < 0 ? r.integer(3) + r.result.sizes[d] : r.integer(3);
  return {{{r.tensors(0)[0], r.select(d, index)}}, 0.0};
}

Layout slice_backward(const Reader& r) {  // (grad, input_sizes, dim, start, end, step)
  const auto d = r.dim(2, r.result.sizes.size());
  const auto size = r.result.sizes[d], step = r.integer(5);
  const auto place = [&](std::int64_t i, std::int64_t least) { return std::clamp<std::int64_t>(i < 0 ? i + size : i, least, size); };
  const auto start = place(r.integer(3), 0), end = place(r.integer(4), start);
  return {{{r.tensors(0)[0], r.narrow(d, start, (end - start + step - 1) / step, step)}}, 0.0};
}

using Rule = Layout (*)(const Reader&);
const std::unordered_map<std::string_view, Rule>& rules() {
  static const std::unordered_map<std::string_view, Rule> table = {
      {"aten::cat", cat},
      {"aten::stack", stack},
      {"aten::select_backward", select_backward},
      {"aten::slice_backward", slice_backward},
  };
  return table;
}

bool plain(const Value& v, c10::ScalarType dtype) {
  return v.dtype == dtype && !v.conj && !v.neg && !v.zero && std::find(v.sizes.begin(), v.sizes.end(), 0) == v.sizes.end();
}

std::optional<Layout> layout_of(const Graph& g, const Node& n) {
  const auto rule = rules().find(n.op);
  if (rule == rules().end() || n.effects != Effects{} || !n.writes.empty() || n.results.size() != 1) return std::nullopt;
  const ValueId v = n.results.front().values.front();
  const auto dtype = g.values[v].dtype;
  if ((dtype != c10::ScalarType::Float && dtype != c10::ScalarType::Double) || !plain(g.values[v], dtype)) return std::nullopt;
  if (g.storage_of(v).device.type() != c10::DeviceType::CPU || g.storage_of(v).role != Role::internal) return std::nullopt;
  auto layout = rule->second(Reader(g, n));
  if (layout.pieces.empty() || layout.pieces.size() > most_pieces) return std::nullopt;
  for (const Piece& p : layout.pieces)
    if (!plain(g.values[p.from], dtype) || g.values[p.from].sizes != p.part.sizes) return std::nullopt;
  return layout;
}

class Rewriter {
 public:
  explicit Rewriter(const Graph& g) : out_(g) {
    out_.made_by = "movement";
    out_.nodes.clear();
    for (const Node& n : g.nodes) next_ = std::max(next_, n.id + 1);
  }

  void keep(const Node& n) { out_.nodes.push_back(n); }

  void split(const Node& n, const Layout& layout) {
    const ValueId result = n.results.front().values.front();
    const Value whole = out_.values[result];
    const auto steps = std::int32_t(layout.pieces.size());
    for (Value& v : out_.values)
      if (v.storage == whole.storage) v.version += steps;
    const auto dtype = arg(std::int64_t(whole.dtype)), device = arg(out_.storages[whole.storage].device);
    Value base = whole;
    base.version = 0;
    const bool filled = layout.rest.has_value();
    // The storage is the recorded one, strides included, so the memory is described by its strides.
    std::vector<Argument> args{arg(whole.sizes), arg(whole.strides), dtype, arg(None{}), device, arg(None{})};
    const ValueId memory = add(base);
    push(n, "aten::empty_strided", std::move(args), memory);
    std::int32_t version = 0;
    if (filled) {
      // A fill is a write: the pieces come one version later.
      for (Value& v : out_.values)
        if (v.storage == whole.storage && v.version > 0) v.version += 1;
      base.version = ++version;
      const ValueId blank = add(base);
      push(n, "aten::fill_.Scalar", {use(memory), arg(*layout.rest)}, blank).writes = {whole.storage};
    }
    for (const Piece& p : layout.pieces) {
      Value before = p.part, after = p.part;
      before.version = version;
      after.version = ++version;
      const ValueId target = add(before), written = add(after);
      push(n, "aten::copy_", {use(target), use(p.from), arg(false)}, written).writes = {whole.storage};
    }
    Node& last = out_.nodes.back();
    last.created = n.created;
    last.id = n.id;
  }

  /// BLAS takes no expanded matrix, so LibTorch copies one in each call: the copy is a node of its own, which can be folded or planned.
  void keep_with_dense_operands(Node n) {
    for (Argument& a : n.args)
      for (ValueId& v : a.values)
        if (v >= 0 && is_expanded_matrix(out_.values[v])) v = dense_copy(n, v);
    out_.nodes.push_back(std::move(n));
  }

  Graph take() && { return std::move(out_); }

 private:
  static bool is_expanded_matrix(const Value& v) {
    return v.sizes.size() == 2 && (v.dtype == c10::ScalarType::Float || v.dtype == c10::ScalarType::Double) && !v.conj && !v.neg &&
           !v.zero && v.sizes[0] > 0 && v.sizes[1] > 0 && ((v.sizes[0] > 1 && v.strides[0] == 0) || (v.sizes[1] > 1 && v.strides[1] == 0));
  }

  ValueId dense_copy(const Node& reader, ValueId of) {
    Value v = out_.values[of];
    Storage storage;
    storage.device = out_.storage_of(of).device;
    storage.bytes = bytes_of(v);
    v.storage = static_cast<StorageId>(out_.storages.size());
    v.version = 0;
    v.offset = 0;
    v.strides = {v.sizes[1], 1};
    out_.storages.push_back(std::move(storage));
    const ValueId made = add(std::move(v));
    push(reader, "aten::clone", {use(of), arg(std::int64_t{0})}, made);  // memory format 0: contiguous
    return made;
  }

  ValueId add(Value v) {
    out_.values.push_back(std::move(v));
    return ValueId(out_.values.size() - 1);
  }
  Node& push(const Node& origin, std::string op, std::vector<Argument> args, ValueId result) {
    Node n;
    n.id = next_++;
    n.op = std::move(op);
    n.args = std::move(args);
    n.results = {use(result)};
    n.side = origin.side;
    n.stream = origin.stream;
    n.ran_for = origin.ran_for;
    out_.nodes.push_back(std::move(n));
    return out_.nodes.back();
  }

  Graph out_;
  NodeId next_ = 0;
};

}  // namespace

Graph movement(const Graph& g) {
  Rewriter rewriter(g);
  for (const Node& n : g.nodes) {
    const auto layout = layout_of(g, n);
    const OpRow* row = find_op(n.op);
    if (layout)
      rewriter.split(n, *layout);
    else if (row && row->kind == Kind::contraction && n.effects == Effects{} && n.writes.empty())
      rewriter.keep_with_dense_operands(n);
    else
      rewriter.keep(n);
  }
  return std::move(rewriter).take();
}

}  // namespace tandem
