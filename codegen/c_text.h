// Pieces of C for instructions of a loop.
#pragma once

#include "codegen/loop.h"

#include <string>

namespace tandem {

const char* c_type(c10::ScalarType);

/// The number in the compute dtype, exact: a hexadecimal float, an infinity or a NaN.
std::string c_number(double value, c10::ScalarType compute);

/// The value of a step or convert whose operands are the variables v<a>, v<b>, v<c>.
std::string c_value(const Instruction&, c10::ScalarType compute);

/// Whether the term is a call of the C library, for which no vector code is made.
bool is_library_call(Term);

/// The variable `value` of the compute dtype as an element of memory.
std::string c_element(const std::string& value, c10::ScalarType to);

/// Lines of C at the current depth; braces move it.
class CText {
 public:
  void line(const std::string& text) {
    if (text[0] == '}') --depth_;
    out_.append(text[0] == '#' ? 0 : static_cast<std::size_t>(2 * depth_), ' ').append(text).append(1, '\n');
    if (text.back() == '{') ++depth_;
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_;
  int depth_ = 0;
};

}  // namespace tandem
