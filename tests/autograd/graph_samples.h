// Graphs in text form for the tests of the graph itself.
#pragma once

#include <string_view>

namespace tandem::test {

/// y = x w^T, loss = sum(y); SGD with a run-time learning rate. %9 is a folded constant.
inline constexpr std::string_view small_step = R"(tandem graph 1
made_by "capture"
storage s0 parameter 0 "fc.weight" cpu 12
%0 = s0@0 float32 [1, 3] [3, 1] +0
%1 = s0@0 float32 [3, 1] [1, 3] +0
n0 forward (%1) = aten::t(%0) {made "TBackward0#0"}
storage s1 input 0 "x" cpu 24
%2 = s1@0 float32 [2, 3] [3, 1] +0
storage s2 internal cpu 8
%3 = s2@0 float32 [2, 1] [1, 1] +0
n1 forward (%3) = aten::mm(%2, %1) {made "MmBackward0#1"}
storage s3 internal cpu 4
%4 = s3@0 float32 [] [] +0
n2 forward (%4) = aten::sum(%3, none) {made "SumBackward0#2"}
storage s4 internal cpu 4
%5 = s4@0 float32 [] [] +0
n3 backward (%5) = aten::ones_like(%4, none, none, none, none, 1)
%6 = s4@0 float32 [2, 1] [0, 0] +0
n4 backward (%6) = aten::expand(%5, [2, 1], false) {for "SumBackward0#2"}
%7 = s1@0 float32 [3, 2] [1, 3] +0
n5 backward (%7) = aten::t(%2) {for "MmBackward0#1"}
storage s5 internal cpu 12
%8 = s5@0 float32 [3, 1] [1, 1] +0
n6 backward (%8) = aten::mm(%7, %6) {for "MmBackward0#1"}
storage s6 internal cpu 12
%9 = s6@0 float32 [3] [1] +0
n7 backward (%9) = aten::full([3], 2.0) {folded}
%10 = s5@0 float32 [1, 3] [1, 1] +0
n8 backward (%10) = aten::t(%8) {for "TBackward0#0"}
%11 = s5@1 float32 [1, 3] [1, 1] +0
n9 update (%11) = aten::mul_.Tensor(%10, %9) {writes s5}
scalar $0 "sgd.lr[0]" -0.1
%12 = s0@1 float32 [1, 3] [3, 1] +0
n10 update (%12) = aten::add_.Tensor(%0, %11, $0=-0.1) {writes s0}
loss %4
output undefined
output %3
gradient 0 "fc.weight" %11 before %10
norm %4
)";

/// Every kind of line, mark and constant. It holds no sensible step, only what the text form must carry.
inline constexpr std::string_view every_form = R"(tandem graph 1
made_by "a \"pass\"\n\\ \x00\xff"
n7 forward () = aten::zeros()
storage s0 input 3 "x \xc3\xa9" cuda:1 2560
%0 = s0@0 float32 [32, 20] [20, 1] +0
storage s1 internal 2 "" meta 0
%1 = s1@4 complex128 [] [] +7 conj neg zero
n3 forward (%1, 4, {%0, undefined}) = "an op"(undefined, {}, {undefined}, none, true, false) {random}
scalar $0 "adam.beta1[0]" 0.9
scalar $1 "" -inf
n-4 backward (none) = aten::x(0, -9223372036854775808, 9223372036854775807, wrapped 3, wrapped $0=0.5, $1=none)
%2 = s1@0 bfloat16 [0] [1] +0 neg
n5 update ({%2}) = aten::y.Tensor_(1.0, -0.0, 1e-05, 5e-324, 1.7976931348623157e+308, 1e+22, inf, -inf, nan, -nan)
n6 update (%0) = aten::z(nan(0x0000000000001), -nan(0xfffffffffffff), complex(1.0, -nan), "a, b) \"", device(cpu), device(cuda:0))
storage s2 optimizer_state 1 "fc.weight.exp_avg" cpu 80
storage s3 internal cpu 8192
n8 update () = aten::w([1, -2], [0.1, nan], [true, false], int[], float[], bool[]) {writes s2 s3; random; for "A#4"}
n9 update () = aten::v() {writes s1; random; collective; opaque; folded; stream 1; workspace 64; for "A#4"; made "B#3" "C"}
scalar $2 "unused" 2.0
storage s4 gradient 0 "g" cpu 4
storage s5 buffer 0 "b" cpu:0 4
storage s6 captured 0 "c" cuda 4
%3 = s6@0 float8_e5m2 [1, 1] [1, 1] +0
loss %0
output %1
output undefined
gradient 0 "fc.weight" %2 before %1
gradient -1 "" undefined
norm %3
)";

}  // namespace tandem::test
