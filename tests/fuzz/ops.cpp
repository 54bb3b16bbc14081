#include "tests/fuzz/ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <map>
#include <optional>

namespace tandem::fuzz {
namespace {

using c10::TypeKind;

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

/// ATen's own cores trust their callers: with arguments that do not fit together they read anywhere. The layers and the ops around them lead there.
bool is_unchecked(const std::string& name, const OpRow* row) {
  const bool checked = row && (row->kind == Kind::pointwise || row->kind == Kind::copy || row->kind == Kind::random);
  return !checked && (has(name, "backward") || has(name, "native_"));
}

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == TypeKind::ListType) return type.castRaw<c10::ListType>()->getElementType()->kind() == TypeKind::TensorType;
  return type.kind() == TypeKind::TensorType;
}

bool can_be_written(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::OptionalType: return can_be_written(*type.castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ListType: return can_be_written(*type.castRaw<c10::ListType>()->getElementType());
    case TypeKind::TensorType:
    case TypeKind::NumberType:
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::StringType: return true;
    default: return false;
  }
}

std::optional<Callable> as_callable(const c10::OperatorHandle& handle, const OpRow* row) {
  const auto& schema = handle.schema();
  Callable c{schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name(), &schema, row, false};
  if (schema.returns().empty() || schema.is_vararg() || is_unchecked(c.name, row)) return {};
  for (const auto& r : schema.returns())
    if (!holds_tensors(*r.type())) return {};
  bool has_size = false, has_stride = false;
  for (std::size_t i = 0; i < schema.arguments().size(); i++) {
    const auto& a = schema.arguments()[i];
    const bool writes = a.alias_info() && a.alias_info()->isWrite();
    if (writes && (i > 0 || a.kwarg_only())) return {};  // an out= argument
    c.writes |= writes;
    if (!a.default_value() && !can_be_written(*a.type())) return {};
    has_size |= a.name() == "size";
    has_stride |= a.name() == "stride";
  }
  if (has_size && has_stride) return {};  // as_strided and its kin reach anywhere
  return c;
}

std::vector<Callable> find_rows(Kind kind) {
  std::vector<Callable> out;
  for (const auto& row : op_table()) {
    if (row.kind != kind || row.formula == "arbitrary") continue;
    const std::string name(row.name);
    const auto dot = name.find('.');
    const auto handle =
        c10::Dispatcher::singleton().findSchema({name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (!handle) continue;
    if (auto c = as_callable(*handle, &row)) out.push_back(std::move(*c));
  }
  return out;
}

std::vector<Callable> find_others() {
  std::vector<Callable> out;
  auto names = c10::Dispatcher::singleton().getAllOpNames();
  std::sort(names.begin(), names.end(),
            [](auto& a, auto& b) { return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name); });
  for (const auto& n : names) {
    if (n.name.rfind("aten::", 0) != 0 || n.name.rfind("aten::_", 0) == 0) continue;
    // Memory that nobody has written, or no math on tensors that models call.
    const auto unfit = {"empty", "resize", "::set_", "fbgemm", "mkldnn", "cudnn", "miopen", "quant", "sparse", "fft", "requires_grad"};
    if (std::any_of(unfit.begin(), unfit.end(), [&](auto part) { return has(n.name, part); })) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(n);
    if (!handle || handle->hasTag(at::Tag::dynamic_output_shape) || handle->hasTag(at::Tag::data_dependent_output)) continue;
    if (!handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !handle->hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU))
      continue;
    auto c = as_callable(*handle, nullptr);
    if (c && !find_op(c->name)) out.push_back(std::move(*c));
  }
  return out;
}

}  // namespace

const std::vector<Callable>& rows_of(Kind kind) {
  static std::map<Kind, std::vector<Callable>> known;
  const auto at = known.find(kind);
  return at != known.end() ? at->second : known.emplace(kind, find_rows(kind)).first->second;
}

const std::vector<Callable>& other_ops() {
  static const std::vector<Callable> all = find_others();
  return all;
}

Callable callable(const std::string& name) {
  const auto dot = name.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                                     dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
  return *as_callable(handle, find_op(name));
}

}  // namespace tandem::fuzz
