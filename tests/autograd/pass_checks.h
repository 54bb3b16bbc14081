// A graph before and after one pass, verified both times.
#pragma once

#include "autograd/verify.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::test {

/// A graph that ends in `loss`, checked before it is used.
inline Graph finish(GraphMaker& m, ValueId loss) {
  m.g.loss = loss;
  EXPECT_EQ(verify(m.g), "");
  return m.g;
}

inline std::string after(Graph (*pass)(const Graph&), const Graph& g) {
  const Graph out = pass(g);
  EXPECT_EQ(verify(out), "");
  return ops(out);
}

inline ValueId mul(GraphMaker& m, ValueId a, ValueId b) { return m.make("aten::mul.Tensor", {tensor(a), tensor(b)}, {4}); }

}  // namespace tandem::test
