// Calls of ops as text: one token per argument of the schema.
//   x[3,4]   float tensor of the dtype under test; p[..] positive, f[..] far from zero, t[..] tiny, h[..] huge, k[..] all equal, u[..] in (0, 1), i5[..] int64 in [0, 5), w[..] whole numbers of the dtype
//            under test, m[..] bool, c[..] complex; after the letters perhaps a dtype of its own: x:float64[3]
//            after the sizes how it lies in memory: ' last two dims swapped, * first dim expanded from one row, / every second column, offset
//   {x[2] none x[3]}  list of tensors
//   0.5  -2  true  none  [1,-1]  [true,false]  "tanh"  float64        anything else, read as the schema says; a number for a tensor is a wrapped one
//   dtype    the dtype under test;  $2  result 2 of the call before "=>"
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>
#include <vector>

namespace tandem::test {

enum class Fill { plain, edges };  // edges: NaN, infinities, zeros, denormals, large numbers

struct Setting {
  c10::ScalarType dtype = c10::ScalarType::Float;
  Fill fill = Fill::plain;
  bool swapped = false;  // tensors of two dims or more have their last two dims swapped in memory
};

/// The arguments of one call. Equal texts and settings give equal tensors. Throws std::runtime_error for a text that does not fit the schema.
std::vector<c10::IValue> parse_call(const c10::FunctionSchema& schema, std::string_view text, const Setting& setting);

}  // namespace tandem::test
