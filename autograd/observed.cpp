#include "autograd/observed.h"

#include <ATen/core/List.h>
#include <torch/csrc/autograd/function.h>

namespace tandem {

std::string full_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

Constant number_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble: return t.const_data_ptr<double>()[0];
    case at::kLong: return t.const_data_ptr<std::int64_t>()[0];
    case at::kBool: return t.const_data_ptr<bool>()[0];
    case at::kComplexDouble: return t.const_data_ptr<c10::complex<double>>()[0];
    default: return None{};
  }
}

bool to_constant(const c10::IValue& v, Constant& out) {
  if (v.isNone())
    out = None{};
  else if (v.isBool())
    out = v.toBool();
  else if (v.isInt())
    out = v.toInt();
  else if (v.isDouble())
    out = v.toDouble();
  else if (v.isComplexDouble())
    out = v.toComplexDouble();
  else if (v.isString())
    out = std::string(v.toStringRef());
  else if (v.isDevice())
    out = v.toDevice();
  else if (v.isIntList())
    out = v.toIntVector();
  else if (v.isDoubleList())
    out = v.toDoubleVector();
  else if (v.isBoolList()) {
    std::vector<bool> list;
    for (bool b : v.toBoolList()) list.push_back(b);
    out = std::move(list);
  } else
    return false;
  return true;
}

std::string autograd_name(torch::autograd::Node& node, std::int64_t first) {
  const auto number = node.sequence_nr();
  const bool accumulates = number == std::uint64_t(-1);
  return accumulates ? node.name() : node.name() + "#" + std::to_string(std::int64_t(number) - first);
}

}  // namespace tandem
