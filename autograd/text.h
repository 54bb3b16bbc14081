// Text form of a Graph: print(parse(t)) == t.
#pragma once

#include "autograd/graph.h"

#include <string>
#include <string_view>

namespace tandem {

std::string print(const Graph&);
std::string print(const Graph&, const Node&);  // one line, without the newline

/// Throws Error "text line L: expected X, found Y" for anything that print() would not write. Allocation is bounded by the text's length.
Graph parse_graph(std::string_view text);

const char* dtype_name(c10::ScalarType);                        // "float32"
bool parse_dtype(std::string_view name, c10::ScalarType& out);  // false when unknown

std::string in_quotes(std::string_view bytes);  // in quotes, on one line, in ASCII; any byte survives
bool is_op_char(char);                          // an op name of these alone is written without quotes

}  // namespace tandem
