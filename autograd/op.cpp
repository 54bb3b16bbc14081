#include "autograd/op.h"

#include <iterator>
#include <unordered_map>

namespace tandem {
namespace {

constexpr OpRow rows[] = {
#define TANDEM_OP(name, kind, flops, writes, aliases, formula) {name, Kind::kind, flops, writes, aliases, formula},
#include "autograd/ops.def"
#undef TANDEM_OP
};

using Index = std::unordered_map<std::string_view, const OpRow*>;

Index make_index() {
  Index index;
  index.reserve(std::size(rows));
  for (const OpRow& row : rows) index.emplace(row.name, &row);
  return index;
}

}  // namespace

const OpRow* find_op(std::string_view name) {
  static const Index index = make_index();
  auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

OpTable op_table() { return {std::begin(rows), std::end(rows)}; }

bool may_throw(Kind kind) { return kind == Kind::gather || kind == Kind::scatter || kind == Kind::loss; }

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::view: return "view";
    case Kind::pointwise: return "pointwise";
    case Kind::reduction: return "reduction";
    case Kind::softmax: return "softmax";
    case Kind::normalization: return "normalization";
    case Kind::contraction: return "contraction";
    case Kind::convolution: return "convolution";
    case Kind::pooling: return "pooling";
    case Kind::gather: return "gather";
    case Kind::scatter: return "scatter";
    case Kind::copy: return "copy";
    case Kind::factory: return "factory";
    case Kind::random: return "random";
    case Kind::loss: return "loss";
    case Kind::ragged: return "ragged";
  }
  return "unknown";
}

}  // namespace tandem
