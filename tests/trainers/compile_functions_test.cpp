// Many functions through compile(): value, gradients, generator as eager's, and a plan that runs.
#include "tests/trainers/compile_scenario.h"

namespace tandem {
namespace {

using test::Inputs;
using test::leaf;
using test::normal;

using Body = std::function<at::Tensor(const Inputs&)>;

/// One type for all, so that compile() is instantiated once.
struct Function {
  Body body;
  at::Tensor operator()(const at::Tensor& a) { return body({a}); }
  at::Tensor operator()(const at::Tensor& a, const at::Tensor& b) { return body({a, b}); }
  at::Tensor operator()(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) { return body({a, b, c}); }
};

struct Case {
  std::string name;
  Body body;
  Inputs inputs;
};

const auto places = [] { return torch::arange(5, at::kLong); };

std::vector<Case> cases() {
  return {
      {"linear+gelu",
       [](const Inputs& in) { return torch::gelu(torch::linear(in[0], in[1], in[2])); },
       {leaf({5, 6}, 1), leaf({4, 6}, 2), leaf({4}, 3)}},
      {"softmax", [](const Inputs& in) { return torch::softmax(in[0] * 2, -1); }, {leaf({5, 6}, 1)}},
      {"log_softmax nll", [](const Inputs& in) { return torch::nll_loss(torch::log_softmax(in[0], 1), places() % 6); }, {leaf({5, 6}, 1)}},
      {"layer_norm",
       [](const Inputs& in) { return torch::layer_norm(in[0], {6}, in[1], in[2]); },
       {leaf({5, 6}, 1), leaf({6}, 2), leaf({6}, 3)}},
      {"group_norm",
       [](const Inputs& in) { return torch::group_norm(in[0], 2, in[1], in[2]); },
       {leaf({3, 4, 5}, 1), leaf({4}, 2), leaf({4}, 3)}},
      {"conv2d",
       [](const Inputs& in) { return torch::relu(torch::conv2d(in[0], in[1], in[2], 1, 1)); },
       {leaf({2, 3, 6, 6}, 1), leaf({4, 3, 3, 3}, 2), leaf({4}, 3)}},
      {"conv1d", [](const Inputs& in) { return torch::conv1d(in[0], in[1]); }, {leaf({2, 3, 6}, 1), leaf({4, 3, 3}, 2)}},
      {"convT", [](const Inputs& in) { return torch::conv_transpose2d(in[0], in[1]); }, {leaf({2, 3, 4, 4}, 1), leaf({3, 2, 3, 3}, 2)}},
      {"maxpool", [](const Inputs& in) { return torch::max_pool2d(in[0], 2).tanh(); }, {leaf({2, 3, 6, 6}, 1)}},
      {"avgpool", [](const Inputs& in) { return torch::avg_pool2d(in[0], 2).tanh(); }, {leaf({2, 3, 6, 6}, 1)}},
      {"dropout", [](const Inputs& in) { return torch::dropout(in[0] * in[0], 0.4, true); }, {leaf({5, 6}, 1)}},
      {"cat chunk",
       [](const Inputs& in) {
         auto p = (in[0] * 2).chunk(2, 1);
         return torch::cat({p[1], in[1], p[0]}, 1);
       },
       {leaf({5, 6}, 1), leaf({5, 2}, 2)}},
      {"cat output saved",
       [](const Inputs& in) {
         auto a = in[0].relu();
         auto c = torch::cat({a, in[1]}, 1);
         return c.exp();
       },
       {leaf({5, 6}, 1), leaf({5, 2}, 2)}},
      {"index_select",
       [](const Inputs& in) {
         return in[0].index_select(0, torch::tensor({0, 2, 2}, at::kLong));
       },
       {leaf({5, 6}, 1)}},
      {"gather",
       [](const Inputs& in) {
         return in[0].gather(1, torch::zeros({5, 2}, at::kLong));
       },
       {leaf({5, 6}, 1)}},
      {"masked_fill", [](const Inputs& in) { return in[0].masked_fill(in[0] > 0, 0.5); }, {leaf({5, 6}, 1)}},
      {"where",
       [](const Inputs& in) { return torch::where(in[0] > in[1], in[0] * in[1], in[0] + in[1]); },
       {leaf({5, 6}, 1), leaf({5, 6}, 2)}},
      {"cumsum", [](const Inputs& in) { return in[0].cumsum(1); }, {leaf({5, 6}, 1)}},
      {"matmul3", [](const Inputs& in) { return in[0].matmul(in[1].transpose(1, 2)); }, {leaf({2, 3, 4}, 1), leaf({2, 5, 4}, 2)}},
      {"bmm softmax",
       [](const Inputs& in) { return torch::softmax(in[0].bmm(in[1].transpose(1, 2)), -1).bmm(in[2]); },
       {leaf({2, 3, 4}, 1), leaf({2, 5, 4}, 2), leaf({2, 5, 4}, 3)}},
      {"sdpa",
       [](const Inputs& in) { return at::scaled_dot_product_attention(in[0], in[1], in[2]); },
       {leaf({2, 2, 3, 4}, 1), leaf({2, 2, 5, 4}, 2), leaf({2, 2, 5, 4}, 3)}},
      {"var std", [](const Inputs& in) { return in[0].var(1) + in[0].std(0).sum(); }, {leaf({5, 6}, 1)}},
      {"norm", [](const Inputs& in) { return in[0] / in[0].norm(2, 1, true); }, {leaf({5, 6}, 1)}},
      {"einsum",
       [](const Inputs& in) {
         return torch::einsum("bi,bj->bij", {in[0], in[1]});
       },
       {leaf({5, 6}, 1), leaf({5, 3}, 2)}},
      {"pad",
       [](const Inputs& in) {
         return torch::constant_pad_nd(in[0], {1, 2}) * 3;
       },
       {leaf({5, 6}, 1)}},
      {"expand",
       [](const Inputs& in) {
         return in[0].unsqueeze(1).expand({5, 3, 6}) * 2;
       },
       {leaf({5, 6}, 1)}},
      {"broadcast", [](const Inputs& in) { return in[0] * in[1] + in[1]; }, {leaf({5, 6}, 1), leaf({6}, 2)}},
      {"permuted output", [](const Inputs& in) { return (in[0] * 2).t(); }, {leaf({5, 6}, 1)}},
      {"sum", [](const Inputs& in) { return in[0].sum(); }, {leaf({5, 6}, 1)}},
      {"identity-like view grads", [](const Inputs& in) { return (in[0] + in[1]).view({-1}) + 0; }, {leaf({5, 6}, 1), leaf({5, 6}, 2)}},
      {"add", [](const Inputs& in) { return in[0] + in[1]; }, {leaf({5, 6}, 1), leaf({5, 6}, 2)}},
      {"sub view",
       [](const Inputs& in) {
         return in[0] - in[1].view({5, 6});
       },
       {leaf({5, 6}, 1), leaf({30}, 2)}},
      {"inplace",
       [](const Inputs& in) {
         auto y = in[0] * 2;
         y.add_(1).mul_(in[0]);
         y.narrow(0, 1, 2).relu_();
         return y;
       },
       {leaf({5, 6}, 1)}},
      {"copy_slices",
       [](const Inputs& in) {
         auto z = torch::zeros({5, 6});
         z.narrow(0, 0, 2).copy_(in[0].narrow(0, 0, 2));
         z.select(1, 3).add_(in[1]);
         return z * 2;
       },
       {leaf({5, 6}, 1), leaf({5}, 2)}},
      {"lstm_cell",
       [](const Inputs& in) {
         auto g = (in[0].mm(in[2].t()) + in[1]).chunk(4, 1);
         return torch::sigmoid(g[0]) * torch::tanh(g[1]) + g[2].sigmoid() * g[3];
       },
       {leaf({3, 4}, 1), leaf({3, 8}, 2), leaf({8, 4}, 3)}},
      {"double", [](const Inputs& in) { return (in[0].to(at::kDouble) * 2).tanh().to(at::kFloat); }, {leaf({5, 6}, 1)}},
      {"bf16", [](const Inputs& in) { return in[0].to(at::kBFloat16).relu() * 2; }, {leaf({5, 6}, 1)}},
      {"complex", [](const Inputs& in) { return torch::view_as_real(torch::fft_fft(in[0])); }, {leaf({5, 6}, 1)}},
      {"sort", [](const Inputs& in) { return std::get<0>(in[0].sort(1)) * 2; }, {leaf({5, 6}, 1)}},
      {"topk", [](const Inputs& in) { return std::get<0>(in[0].topk(2, 1)) * 2; }, {leaf({5, 6}, 1)}},
      {"logsumexp", [](const Inputs& in) { return torch::logsumexp(in[0], 1); }, {leaf({5, 6}, 1)}},
      {"batch_norm",
       [](const Inputs& in) { return torch::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false); },
       {leaf({5, 6}, 1), leaf({6}, 2), leaf({6}, 3)}},
      {"embedding",
       [](const Inputs& in) {
         return torch::embedding(in[0], torch::tensor({1, 1, 0, 3}, at::kLong));
       },
       {leaf({5, 6}, 1)}},
      {"flatten noncontig", [](const Inputs& in) { return in[0].transpose(0, 1).reshape({30}) * 2; }, {leaf({5, 6}, 1)}},
      {"pow sqrt", [](const Inputs& in) { return (in[0].pow(2) + 1).sqrt().log(); }, {leaf({5, 6}, 1)}},
      {"zero size", [](const Inputs& in) { return in[0].narrow(0, 0, 0) * 2; }, {leaf({5, 6}, 1)}},
      {"scalar", [](const Inputs& in) { return in[0] * 2; }, {leaf({}, 1)}},
      {"unused input", [](const Inputs& in) { return in[0] * 2 + in[1].detach(); }, {leaf({5, 6}, 1), leaf({5, 6}, 2)}},
      {"cross entropy", [](const Inputs& in) { return torch::cross_entropy_loss(in[0], places() % 6); }, {leaf({5, 6}, 1)}},
      {"mse", [](const Inputs& in) { return torch::mse_loss(in[0], in[1]); }, {leaf({5, 6}, 1), leaf({5, 6}, 2)}},
      {"smooth_l1 bce",
       [](const Inputs& in) {
         return torch::binary_cross_entropy_with_logits(in[0], in[1].sigmoid()) + torch::smooth_l1_loss(in[0], in[1]);
       },
       {leaf({5, 6}, 1), leaf({5, 6}, 2)}},
      {"upsample",
       [](const Inputs& in) {
         return torch::upsample_nearest2d(in[0], at::IntArrayRef{4, 4}) * 2;
       },
       {leaf({2, 3, 2, 2}, 1)}},
      {"repeat flip roll",
       [](const Inputs& in) {
         return in[0].repeat({2, 1}).flip({0}).roll(1, 1) * 2;
       },
       {leaf({5, 6}, 1)}},
      {"tril", [](const Inputs& in) { return in[0].tril() * in[0].triu(); }, {leaf({5, 5}, 1)}},
      {"cdist", [](const Inputs& in) { return torch::cdist(in[0], in[1]); }, {leaf({5, 6}, 1), leaf({4, 6}, 2)}},
      {"random",
       [](const Inputs& in) {
         return in[0] * torch::rand({5, 6}) + torch::randn({6});
       },
       {leaf({5, 6}, 1)}},
      {"max dim", [](const Inputs& in) { return in[0].amax(1) + std::get<0>(in[0].min(1)); }, {leaf({5, 6}, 1)}},
      {"chain of 40",
       [](const Inputs& in) {
         auto y = in[0];
         for (int i = 0; i < 40; i++) y = (y * 1.01 + in[0]).tanh();
         return y;
       },
       {leaf({64, 64}, 1)}},
      {"deep mlp",
       [](const Inputs& in) {
         auto y = in[0];
         for (int i = 0; i < 8; i++) y = torch::gelu(y.mm(in[1])) + y;
         return y;
       },
       {leaf({16, 32}, 1), leaf({32, 32}, 2)}},
  };
}

class CompileFunctions : public testing::TestWithParam<Case> {};

TEST_P(CompileFunctions, AsInEager) {
  const auto& c = GetParam();
  test::tell(Function{c.body}, c.inputs, [](auto& f, const Inputs& in) -> Inputs {
    const auto y = in.size() == 1 ? f(in[0]) : in.size() == 2 ? f(in[0], in[1]) : f(in[0], in[1], in[2]);
    (y * normal(y.sizes(), 9).to(y.scalar_type())).sum().backward();
    Inputs all{y.detach()};
    for (const auto& t : in) all.push_back(t.grad());
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(All, CompileFunctions, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace tandem
