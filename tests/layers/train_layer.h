// Trains one layer by TrainStep and by an eager loop, in lockstep.
#pragma once

#include "tests/layers/layer_case.h"

#include <string>

namespace tandem::test {

/// A layer in one of its two shapes, for parametrised tests.
struct LayerVariant {
  LayerCase layer;
  bool odd = false;
};
LayerCases all_layers();
std::vector<LayerVariant> layer_variants();
std::string name_of_variant(const testing::TestParamInfo<LayerVariant>& info);
void PrintTo(const LayerVariant& variant, std::ostream* out);

/// What became of a layer's step: a row of the table. `verdict` does not depend on the machine.
struct LayerRow {
  std::string verdict;  // "fused", "partly fused", "library calls" or "eager"
  std::string kernels;  // how many of its nodes are in how many kernels
  std::string library;  // ops that LibTorch runs, or why the step stays eager
};

/// Whether the reason has one of the parts, which '|' separates.
bool is_expected(const std::string& parts, const std::string& reason);

/// Seven steps, of which at least three must be compiled unless the case says that it stays eager. All must leave what eager leaves.
LayerRow train(const LayerCase& layer, bool odd);

/// The model of a case: the layer, and a parameter that scales its first input where that is of floating point, so that the input's gradient counts.
Layer model_of(const LayerCase& layer, bool odd);

/// One number of all results, which no symmetry makes constant.
at::Tensor loss_of(const Inputs& results);

}  // namespace tandem::test
