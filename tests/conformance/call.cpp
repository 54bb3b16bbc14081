#include "tests/conformance/call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <string>

namespace tandem::test {

c10::OperatorHandle handle_of(std::string_view op) {
  const auto dot = op.find('.');
  const std::string name(op.substr(0, dot)), overload(dot == op.npos ? "" : op.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
}

Values call(const c10::OperatorHandle& op, Values arguments) {
  at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(&arguments);
  return arguments;
}

Values with_tensors(const Values& values, const std::function<at::Tensor(const at::Tensor&)>& f) {
  const auto replaced = [&](const at::Tensor& t) { return t.defined() ? f(t) : t; };
  Values out;
  for (const c10::IValue& v : values) {
    if (v.isTensor()) {
      out.emplace_back(replaced(v.toTensor()));
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(replaced(t));
      out.emplace_back(list);
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector()) list.push_back(t ? std::optional(replaced(*t)) : t);
      out.emplace_back(list);
    } else {
      out.push_back(v);
    }
  }
  return out;
}

std::vector<at::Tensor> tensors_in(const Values& values) {
  std::vector<at::Tensor> all;
  for (const c10::IValue& v : values) {
    if (v.isTensor()) all.push_back(v.toTensor());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector()) all.push_back(t);
    if (v.isOptionalTensorList())
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
        if (t) all.push_back(*t);
  }
  return all;
}

at::Tensor copy_of(const at::Tensor& t) {
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) return t;
  const auto bytes = static_cast<std::int64_t>(t.storage().nbytes());
  at::Tensor copy = at::empty({bytes}, at::kByte);
  if (bytes > 0) std::memcpy(copy.mutable_data_ptr(), t.storage().data(), static_cast<std::size_t>(bytes));
  return at::empty({0}, t.options()).set_(copy.storage(), t.storage_offset(), t.sizes(), t.strides());
}

}  // namespace tandem::test
