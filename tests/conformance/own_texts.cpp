// Texts for rows whose arguments depend on each other in ways that no schema tells.
#include "tests/conformance/samples.h"

namespace tandem::test {
namespace {

struct OwnTexts {
  std::string_view op;
  std::vector<std::string> texts;
};

const std::vector<OwnTexts>& table() {
  static const std::vector<OwnTexts> rows = {
      // views
      {"aten::transpose.int", {"x[3,4,5] 0 2", "x[2,0] 0 1", "x[3,4] -1 -2"}},
      {"aten::permute", {"x[3,4,5] [2,0,1]", "x[] []"}},
      {"aten::view", {"x[4,6] [2,12]", "x[4,6] [-1]", "x[] [1,1]", "x[0,3] [3,0]"}},
      {"aten::view.dtype", {"x[4,6] int16", "x[4,6] dtype"}},
      {"aten::_unsafe_view", {"x[4,6] [2,12]", "x[0,3] [3,0]"}},
      {"aten::_reshape_alias", {"x[4,6] [2,12] [12,1]"}},
      {"aten::expand", {"x[4,1,3] [2,4,5,3] false", "x[] [3] false", "x[1] [0] false"}},
      {"aten::slice.Tensor", {"x[7,5] 0 1 6 2", "x[7,5] 1 none none 1", "x[7,5] 1 -2 9 1", "x[7,5] 0 5 2 1"}},
      {"aten::select.int", {"x[4,5] 1 -2", "x[4] 0 3"}},
      {"aten::squeeze", {"x[1,3,1]", "x[3]", "x[1]"}},
      {"aten::squeeze.dim", {"x[1,3,1] 2", "x[1,3,1] 1", "x[1,3,1] -3"}},
      {"aten::squeeze.dims", {"x[1,3,1] [0,2]", "x[1,3,1] [1]"}},
      {"aten::split.Tensor", {"x[7,3] 3 0", "x[7,3] 3 1"}},
      {"aten::split_with_sizes", {"x[7,3] [2,4,1] 0", "x[2,5] [0,5] 1"}},
      {"aten::diagonal", {"x[4,5] 1 0 1", "x[4,5]", "x[3,4,5] -1 0 2"}},
      {"aten::unfold", {"x[9,3] 0 4 2", "x[9] 0 9 1"}},
      {"aten::as_strided", {"x[4,6] [2,3] [6,1] 1", "x[12] [3,4] [1,3] none"}},
      {"aten::view_as_real", {"c[3,4]", "c[]"}},
      {"aten::view_as_complex", {"x[3,2]", "x[2]"}},
      // row-local chains and statistics
      {"aten::native_layer_norm",
       {"x[14,14] [14] x[14] x[14] 1e-5", "x[4,5,24] [24] none x[24] 1e-5", "x[4,5,24] [5,24] x[5,24] none 1e-3",
        "x[3,1] [1] x[1] x[1] 1e-5", "x[17,33] [33] none none 0.0", "x[2,1000] [1000] x[1000] x[1000] 1e-5",
        "f[16,33] [33] x[33] x[33] 1e-5", "t[16,33] [33] x[33] x[33] 1e-5", "h[16,33] [33] x[33] x[33] 1e-5", "x[0,3] [3] x[3] x[3] 1e-5"}},
      {"aten::native_layer_norm_backward",
       {"x[14,14] x[14,14] [14] x[14,1] p[14,1] x[14] x[14] [true,true,true]",
        "x[4,5,24] x[4,5,24] [24] x[4,5,1] p[4,5,1] none none [true,false,false]",
        "x[4,5,24] x[4,5,24] [5,24] x[4,1,1] p[4,1,1] x[5,24] x[5,24] [false,true,true]",
        "x[17,33] x[17,33] [33] x[17,1] p[17,1] x[33] none [true,true,false]",
        "x[300,7] x[300,7] [7] x[300,1] p[300,1] x[7] x[7] [true,true,true]"}},
      {"aten::native_group_norm", {"x[2,6,5] x[6] x[6] 2 6 5 3 1e-5", "x[2,6,5] none none 2 6 5 2 1e-5"}},
      {"aten::native_group_norm_backward",
       {"x[2,6,5] x[2,6,5] x[2,3] p[2,3] x[6] 2 6 5 3 [true,true,true]",
        "x[2,6,5] x[2,6,5] x[2,3] p[2,3] none 2 6 5 3 [true,false,false]"}},
      {"aten::native_batch_norm",
       {"x[5,3,7] x[3] x[3] x[3] p[3] true 0.1 1e-5", "x[5,3] none none none none true 0.1 1e-5",
        "x[5,3,7] x[3] x[3] x[3] p[3] false 0.1 1e-5"}},
      {"aten::native_batch_norm_backward",
       {"x[5,3,7] x[5,3,7] x[3] x[3] p[3] x[3] p[3] true 1e-5 [true,true,true]",
        "x[5,3,7] x[5,3,7] none x[3] p[3] none none false 1e-5 [true,false,false]"}},
      // matrix products
      {"aten::mm", {"x[14,14] x[14,14]", "x[3,5] x[5,7]", "x[1,1] x[1,1]", "x[0,5] x[5,2]", "x[3,0] x[0,2]", "x[33,17] x[17,65]"}},
      {"aten::addmm",
       {"x[7] x[3,5] x[5,7] 1 1", "x[3,7] x[3,5] x[5,7] 0.5 2", "x[3,7] x[3,5] x[5,7] 0 1", "x[3,1] x[3,5] x[5,7] 1 1",
        "x[] x[3,5] x[5,7] 1 1", "x[7] x[0,5] x[5,7] 1 1", "x[7] x[3,0] x[0,7] 1 1"}},
      {"aten::bmm", {"x[2,3,5] x[2,5,7]", "x[1,1,1] x[1,1,1]", "x[0,3,5] x[0,5,7]", "x[2,3,0] x[2,0,7]"}},
      {"aten::baddbmm", {"x[2,3,7] x[2,3,5] x[2,5,7] 1 1", "x[7] x[2,3,5] x[2,5,7] 0.5 2", "x[2,3,7] x[2,3,5] x[2,5,7] 0 1"}},
      {"aten::mv", {"x[3,5] x[5]", "x[3,0] x[0]"}},
      {"aten::dot", {"x[9] x[9]", "x[0] x[0]", "x[9]/ x[9]"}},
      {"aten::linear", {"x[2,3,5] x[7,5] x[7]", "x[3,5] x[7,5] none", "x[5] x[7,5] x[7]"}},
      {"aten::matmul", {"x[3,5] x[5]", "x[2,3,5] x[5,7]", "x[5] x[5]", "x[2,1,3,5] x[4,5,2]"}},
      // convolution, recurrent layers, pooling
      {"aten::convolution",
       {"x[2,3,8,8] x[4,3,3,3] x[4] [1,1] [1,1] [1,1] false [0,0] 1", "x[2,4,9] x[6,2,3] none [2] [1] [2] false [0] 2",
        "x[2,3,5,5] x[3,4,3,3] x[4] [2,2] [1,1] [1,1] true [1,1] 1",
        "x[1,2,4,4,4] x[2,1,2,2,2] x[2] [1,1,1] [0,0,0] [1,1,1] false [0,0,0] 2",
        "x[0,3,8,8] x[4,3,3,3] x[4] [1,1] [1,1] [1,1] false [0,0] 1"}},
      {"aten::convolution_backward",
       {"x[2,4,8,8] x[2,3,8,8] x[4,3,3,3] [4] [1,1] [1,1] [1,1] false [0,0] 1 [true,true,true]",
        "x[2,4,8,8] x[2,3,8,8] x[4,3,3,3] none [1,1] [1,1] [1,1] false [0,0] 1 [false,true,false]",
        "x[2,4,10,10] x[2,3,5,5] x[3,4,3,3] [4] [2,2] [1,1] [1,1] true [1,1] 1 [true,true,true]"}},
      {"aten::mkldnn_rnn_layer_backward",
       {"aten::mkldnn_rnn_layer x[4,2,3] x[20,3] x[20,5] x[20] x[20] x[1,2,5] x[1,2,5] false [] 2 5 1 true false false true => "
        "x[4,2,3] x[20,3] x[20,5] x[20] x[20] x[1,2,5] x[1,2,5] $0 $1 $2 x[4,2,5] x[1,2,5] x[1,2,5] false 2 5 1 true true false [] false "
        "$3"}},
      {"aten::max_pool2d_with_indices", {"x[2,3,7,7] [3,3] [2,2] [1,1] [1,1] true", "x[3,4,4] [2,2] [] [0,0] [1,1] false"}},
      {"aten::max_pool2d_with_indices_backward", {"x[2,3,3,3] x[2,3,7,7] [3,3] [2,2] [0,0] [1,1] false i49[2,3,3,3]"}},
      {"aten::avg_pool2d", {"x[2,3,7,7] [3,3] [2,2] [1,1] true false none", "x[3,4,4] [2,2] [] [0,0] false true 3"}},
      {"aten::avg_pool2d_backward", {"x[2,3,3,3] x[2,3,7,7] [3,3] [2,2] [0,0] false true none"}},
      {"aten::_adaptive_avg_pool2d", {"x[2,3,7,5] [3,2]"}},
      {"aten::_adaptive_avg_pool2d_backward", {"x[2,3,3,2] x[2,3,7,5]"}},
      // reads and writes at computed positions
      {"aten::embedding", {"x[5,3] i5[2,4]", "x[5,3] i5[] 1 true false", "x[5,3] i5[0]", "x[5,3] i5:int32[7]"}},
      {"aten::gather", {"x[4,5] 1 i5[4,3]", "x[4] 0 i4[]", "x[4,5] 0 i4[0,5]"}},
      {"aten::index.Tensor", {"x[4,5] {i4[3]}", "x[4,5] {none i5[2,2]}", "x[4,5] {i4[3] i5[3]}"}},
      {"aten::index_select", {"x[4,5] 1 i5[7]", "x[4,5] 0 i4[0]"}},
      {"aten::embedding_dense_backward", {"x[2,4,3] i5[2,4] 5 -1 false", "x[2,4,3] i5[2,4] 5 1 true"}},
      {"aten::scatter_add", {"x[4,5] 1 i5[4,7] x[4,7]", "x[4] 0 i4[0] x[0]"}},
      {"aten::index_add", {"x[4,5] 1 i5[7] x[4,7] 1", "x[4,5] 0 i4[2] x[2,5] -0.5"}},
      {"aten::index_put_", {"x[4,5] {i4[6]} x[6,5] true", "x[4,5] {none i5[1]} x[4,1] false", "x[4,5] {m[4,5]} x[] false"}},
      {"aten::_index_put_impl_", {"x[4,5] {i4[6]} x[6,5] true false", "x[4,5] {i4[1] i5[1]} x[1] false true"}},
      // moves
      {"aten::copy_",
       {"x[14,14] x[14,14]", "x[4,7] x[7]", "x[4,7] x[]", "x[4,7] x:float64[4,7]", "x[9] w:int64[9]", "x[9] m[9]", "x[0] x[0]",
        "x[4,7]' x[4,7]", "x:bfloat16[9] x[9]", "w:int64[9] w:float32[9]"}},
      {"aten::_to_copy",
       {"x[14,14] float32", "x[14,14] float64", "x[14,14] bfloat16", "w[9] int64", "x[14,14] bool", "x[5,7] none none none none false 0",
        "x[0] float64", "x[] float64", "m[9] dtype", "w:int64[9] dtype"}},
      {"aten::cat",
       {"{x[2,3] x[4,3]} 0", "{x[2,3] x[2,1] x[2,0]} 1", "{x[0] x[2,3]} 0", "{x[3]}", "{x[14] x:float64[9]} 0", "{x[7,17] x[7,33]} -1"}},
      {"aten::stack", {"{x[2,3] x[2,3]} 1", "{x[] x[]} 0", "{x[9] x[9] x[9]} -1"}},
      {"aten::constant_pad_nd", {"x[3,5] [1,2] 0", "x[3,5] [1,2,0,3] 0.5", "x[3,5] [-1,2,1,-1] nan"}},
      {"aten::slice_backward", {"x[3,5] [7,5] 0 1 6 2", "x[7,2] [7,5] 1 3 5 1", "x[7,5] [7,5] 0 0 9223372036854775807 1"}},
      {"aten::select_backward", {"x[4] [4,5] 1 -2", "x[] [3] 0 1"}},
      {"aten::slice_scatter", {"x[7,5] x[3,5] 0 1 6 2", "x[7,5] x[7,5] 1"}},
      {"aten::select_scatter", {"x[4,5] x[4] 1 -2"}},
      {"aten::diagonal_scatter", {"x[4,5] x[4] 1 0 1", "x[4,5] x[4]"}},
      {"aten::repeat", {"x[3,5] [2,1]", "x[] [3]", "x[3] [2,2]", "x[3] [0]"}},
      // made out of numbers
      {"aten::empty.memory_format", {"[3,5] dtype", "[] dtype", "[0] dtype"}},
      {"aten::empty_strided", {"[3,5] [1,3] dtype"}},
      {"aten::new_empty_strided", {"x[4] [3,5] [1,3]"}},
      {"aten::zeros", {"[3,5] dtype", "[] bool", "[0] dtype", "[4] int64"}},
      {"aten::new_zeros", {"x[4] [3,5]", "x[4] [] float64"}},
      {"aten::ones", {"[3,5] dtype", "[] bool", "[0] dtype", "[4] int64"}},
      {"aten::full", {"[3,5] 0.1 dtype", "[] nan dtype", "[3] -0.0 dtype", "[0] 1 dtype", "[4] 3 int64", "[3] true"}},
      {"aten::full_like", {"x[3,5] 0.1", "x[3,5] 1e-41", "x[4] true bool", "w:int64[3] 7"}},
      {"aten::scalar_tensor", {"0.1 dtype", "nan dtype", "3 int64"}},
      {"aten::arange", {"5 dtype", "5", "5.5"}},
      {"aten::arange.start", {"1 5 dtype", "0.5 5.5"}},
      {"aten::arange.start_step", {"1 9 2 dtype", "0.5 5.5 0.3"}},
      {"aten::eye", {"3 dtype", "0 dtype"}},
      {"aten::linspace", {"0.5 2.5 9 dtype", "0 1 1 dtype", "0 1 0 dtype"}},
      // random numbers
      {"aten::bernoulli_.Tensor", {"x[5,7] u[5,7]"}},
      {"aten::bernoulli", {"u[5,7]", "u[]"}},
      {"aten::native_dropout", {"x[5,7] 0.3 true", "x[5,7] 0.3 false", "x[33] 0.0 true", "x[33] 1.0 true"}},
      {"aten::randn", {"[5,7] dtype", "[] dtype", "[0] dtype"}},
      {"aten::rand", {"[5,7] dtype", "[] dtype"}},
      {"aten::normal_", {"x[5,7] 0.5 2.0", "x[17] 0.0 1.0"}},
      // lengths that are no guess
      {"aten::_pack_padded_sequence", {"aten::full [3] 4 int64 => x[4,3,2] $0 false", "aten::full [2] 3 int64 => x[2,5,4] $0 true"}},
      // losses
      {"aten::nll_loss_forward",
       {"x[4,5] i5[4] none 1 -100", "x[4,5] i5[4] p[5] 0 2", "x[4,5] i5[4] p[5] 2 -100", "x[5] i5[] none 1 -100"}},
      {"aten::nll_loss_backward",
       {"x[] x[4,5] i5[4] none 1 -100 p[]", "x[4] x[4,5] i5[4] p[5] 0 2 p[]", "x[] x[4,5] i5[4] p[5] 2 -100 p[]"}},
      {"aten::nll_loss2d_forward", {"x[2,5,3,3] i5[2,3,3] none 1 -100", "x[2,5,3,3] i5[2,3,3] p[5] 0 2"}},
      {"aten::nll_loss2d_backward", {"x[] x[2,5,3,3] i5[2,3,3] none 1 -100 p[]", "x[2,3,3] x[2,5,3,3] i5[2,3,3] p[5] 0 2 p[]"}},
      {"aten::binary_cross_entropy", {"u[4,7] u[4,7]", "u[4,7] u[4,7] p[7] 0", "u[] u[] none 2"}},
      {"aten::binary_cross_entropy_backward", {"x[] u[4,7] u[4,7]", "x[4,7] u[4,7] u[4,7] p[7] 0"}},
  };
  return rows;
}

}  // namespace

std::vector<std::string> own_texts(std::string_view op) {
  for (const OwnTexts& row : table())
    if (row.op == op) return row.texts;
  return {};
}

}  // namespace tandem::test
