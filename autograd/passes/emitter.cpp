#include "autograd/passes/emitter.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tandem {
namespace {

/// Whether the elements fill a block of memory without gaps or overlap; sizes are above 1, so the order of the dims is in the strides.
bool is_dense(const Value& v) {
  std::vector<std::size_t> dims(v.sizes.size());
  std::iota(dims.begin(), dims.end(), std::size_t{0});
  std::sort(dims.begin(), dims.end(), [&](std::size_t a, std::size_t b) { return v.strides[a] < v.strides[b]; });
  std::int64_t expected = 1;
  for (std::size_t d : dims) {
    if (v.strides[d] != expected) return false;
    expected *= v.sizes[d];
  }
  return true;
}

}  // namespace

Argument use(ValueId value) {
  Argument a;
  a.kind = Argument::Kind::tensor;
  a.values = {value};
  return a;
}

const char* overwriting_op() { return "aten::zero_"; }

Argument arg(Constant constant) {
  Argument a;
  a.constant = std::move(constant);
  return a;
}

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  return strides;
}

Emitter::Emitter(const Graph& g) : out_(g) {
  out_.nodes.clear();
  for (const Node& n : g.nodes) next_ = std::max(next_, n.id + 1);
}

Node& Emitter::push(std::string op, std::vector<Argument> args) {
  Node& n = out_.nodes.emplace_back();
  n.id = next_++;
  n.op = std::move(op);
  n.args = std::move(args);
  n.side = origin_->side;
  n.stream = origin_->stream;
  n.ran_for = origin_->ran_for;
  return n;
}

ValueId Emitter::emit(std::string op, std::vector<Argument> args, Value geometry) {
  Storage storage;
  storage.device = device_;
  storage.bytes = bytes_of(geometry);
  geometry.storage = static_cast<StorageId>(out_.storages.size());
  geometry.version = 0;
  geometry.offset = 0;
  out_.storages.push_back(std::move(storage));
  out_.values.push_back(std::move(geometry));
  const auto made = static_cast<ValueId>(out_.values.size() - 1);
  push(std::move(op), std::move(args)).results = {use(made)};
  return made;
}

ValueId Emitter::scalar_tensor(double number, ValueId like) {
  Value geometry;
  geometry.dtype = out_.values[static_cast<std::size_t>(like)].dtype;
  // (s, dtype, layout, device, pin_memory)
  const auto dtype = static_cast<std::int64_t>(geometry.dtype);
  return emit("aten::scalar_tensor", {arg(number), arg(dtype), arg(None{}), arg(device_), arg(None{})}, std::move(geometry));
}

void Emitter::finish(std::string op, std::vector<Argument> args) {
  Node& n = push(std::move(op), std::move(args));
  n.results = origin_->results;
  n.writes = origin_->writes;
  n.created = origin_->created;
}

Graph Emitter::take(std::string made_by) && {
  out_.made_by = std::move(made_by);
  return std::move(out_);
}

ValueId Emitter::tensor(const Node& n, std::size_t i) const {
  if (i >= n.args.size() || n.args[i].kind != Argument::Kind::tensor || n.args[i].values.size() != 1) return -1;
  return n.args[i].values.front();
}

ValueId Emitter::result(const Node& n) const {
  if (n.results.size() != 1 || n.results.front().kind != Argument::Kind::tensor || n.results.front().values.size() != 1) return -1;
  return n.results.front().values.front();
}

bool Emitter::plain(ValueId id) const {
  if (id < 0) return false;
  const Value& v = out_.values[static_cast<std::size_t>(id)];
  if (v.dtype != c10::ScalarType::Float && v.dtype != c10::ScalarType::Double) return false;
  if (v.conj || v.neg || v.zero || out_.storage_of(id).device != device_ || elements(id) == 0) return false;
  const bool no_ones = std::none_of(v.sizes.begin(), v.sizes.end(), [](std::int64_t size) { return size == 1; });
  return contiguous(id) || (no_ones && is_dense(v));
}

bool Emitter::contiguous(ValueId id) const {
  const Value& v = out_.values[static_cast<std::size_t>(id)];
  return v.strides == contiguous_strides(v.sizes);
}

bool Emitter::alike(ValueId a, ValueId b) const {
  const Value &x = out_.values[static_cast<std::size_t>(a)], &y = out_.values[static_cast<std::size_t>(b)];
  return x.sizes == y.sizes && x.strides == y.strides && x.dtype == y.dtype;
}

bool Emitter::is_number_of(ValueId v, ValueId of) const {
  const Value& x = out_.values[static_cast<std::size_t>(v)];
  return x.sizes.empty() && x.dtype == out_.values[static_cast<std::size_t>(of)].dtype;
}

std::int64_t Emitter::elements(ValueId v) const {
  const Value& x = out_.values[static_cast<std::size_t>(v)];
  return std::accumulate(x.sizes.begin(), x.sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace tandem
