// Small programs, recorded, checked against eager bit for bit, planned and run again: one kind of trap each.
#include "tests/support/recorded.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

using torch::indexing::Slice;
namespace F = torch::nn::functional;
namespace nn = torch::nn;

at::Tensor leaf(std::vector<std::int64_t> sizes) { return torch::randn(sizes).requires_grad_(true); }

struct Case {
  std::string name;
  std::function<Program()> make;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"DropoutInPlaceAndBernoulli",
       [] {
         auto w = leaf({4, 8});
         auto x = torch::randn({3, 4});
         return Program{{w}, [=] {
                          auto h = x.matmul(w);
                          torch::dropout_(h, 0.3, true);
                          return (h * torch::empty_like(h).bernoulli_(0.5)).pow(2).sum();
                        }};
       }},
      {"BatchNormWritesItsStatistics",
       [] {
         nn::BatchNorm1d b(4);
         auto w = leaf({4, 4});
         auto x = torch::randn({6, 4});
         return Program{{w, b->weight, b->bias},
                        [=]() mutable { return b(x.matmul(w)).pow(3).sum(); },
                        {b->running_mean, b->running_var, b->num_batches_tracked}};
       }},
      {"StatisticsAreReadAfterTwoWrites",
       [] {
         nn::BatchNorm1d b(4);
         auto w = leaf({4, 4});
         auto x = torch::randn({6, 4});
         return Program{{w},
                        [=]() mutable { return b(b(x.matmul(w)) + 1).pow(3).sum() + (w * b->running_mean).sum(); },
                        {b->running_mean, b->running_var, b->num_batches_tracked}};
       }},
      {"InPlaceOnViewsOfAnIntermediate",
       [] {
         auto p = leaf({4, 6});
         auto x = torch::randn({3, 4});
         return Program{{p}, [=] {
                          auto h = x.matmul(p).relu_() * 1;
                          h.slice(1, 0, 6, 2).add_(1).mul_(3);
                          h.select(0, 1).zero_();
                          auto q = h.view({6, 3}).t();
                          auto u = h.unsqueeze(0);
                          u.squeeze_(0);
                          q = q + u.view({3, 6});
                          return (q * q).sum();
                        }};
       }},
      {"IndexPutAccumulateMaskedFillWhere",
       [] {
         auto p = leaf({5, 4});
         auto ix = torch::tensor({0, 2, 2}, torch::kLong);
         return Program{{p}, [=] {
                          auto h = p * 1;
                          h.index_put_({ix}, torch::ones({3, 4}) * 2, true);
                          h = h.masked_fill(h > 1.5, torch::scalar_tensor(0.25));
                          h = torch::where(h > 0, h, 0.1);
                          return (h.index({ix}) * h.index({Slice(0, 3)})).sum();
                        }};
       }},
      {"ScalarsOfAllKinds",
       [] {
         auto p = leaf({5});
         return Program{{p}, [=] {
                          return ((p * 0.5).abs().pow(2.0) / 1.5 + 2.0 / (p.abs() + 1) + torch::add(p, p, 0.1) + F::leaky_relu(p) +
                                  F::elu(p) + torch::full({5}, 1.0) + 3 - p)
                              .sum();
                        }};
       }},
      {"RandomOpsOfManyKinds",
       [] {
         auto w = leaf({2, 4, 3, 3});
         return Program{{w}, [=] {
                          return torch::rrelu(w, 0.1, 0.3, true).sum() + torch::feature_dropout(w, 0.5, true).sum() +
                                 torch::alpha_dropout(w, 0.3, true).sum() + (w * torch::randn_like(w)).sum() +
                                 w.index_select(0, torch::randperm(2)).select(0, 0).sum();
                        }};
       }},
      {"CatStackSplitUnbindChunk",
       [] {
         auto w = leaf({4, 6});
         return Program{{w}, [=] {
                          auto s = w.split(2, 1);
                          auto u = w.unbind(0);
                          auto h = torch::cat({s[0], s[2], u[1].unsqueeze(1).expand({6, 2}).slice(0, 0, 4)}, 1);
                          return (torch::stack({h, h * 2}, 0) * 1.5).pow(2).sum() + u[3].sum() + w.chunk(2, 0)[1].sum();
                        }};
       }},
      {"CastsToDoubleAndBfloat16",
       [] {
         auto w = leaf({4, 4});
         auto x = torch::randn({3, 4});
         return Program{{w}, [=] {
                          auto h = x.to(torch::kDouble).matmul(w.to(torch::kDouble));
                          return (h.to(torch::kFloat) + h.to(torch::kBFloat16)).sum();
                        }};
       }},
      {"SecondDerivatives",
       [] {
         auto w = leaf({4, 4});
         auto x0 = torch::randn({3, 4});
         return Program{{w}, [=] {
                          auto x = x0.detach().requires_grad_(true);
                          auto u = x.matmul(w).tanh().sum();
                          auto g = torch::autograd::grad({u}, {x}, {}, true, true)[0];
                          return g.pow(2).sum() + u;
                        }};
       }},
      {"MovingAverageUnderNoGrad",
       [] {
         auto w = leaf({4});
         auto e = torch::zeros({4});
         return Program{{w}, [=]() mutable {
                          w.data().clamp_(-1, 1);
                          {
                            torch::NoGradGuard g;
                            e.mul_(0.9).add_(w, 0.1);
                          }
                          return (w * e).pow(2).sum();
                        }};
       }},
      {"OutVariantAndResize",
       [] {
         auto w = leaf({4});
         return Program{{w}, [=] {
                          auto t = torch::empty({0});
                          {
                            torch::NoGradGuard g;
                            torch::add_out(t, w, w);
                            t.resize_({2, 2});
                            t.add_(1);
                          }
                          return (w * t.flatten()).sum();
                        }};
       }},
      {"SetDataInsideTheStep",
       [] {
         auto w = leaf({4});
         return Program{{w}, [=] {
                          auto t = torch::zeros({4});
                          t.set_data(torch::ones({4}) * 3);
                          return (w * t).pow(2).sum();
                        }};
       }},
      {"AsStridedExpandUnfoldPad",
       [] {
         auto w = leaf({4, 4});
         return Program{{w}, [=] {
                          auto a = w.as_strided({3, 3}, {4, 1}, 1);
                          return (a * w.diagonal().slice(0, 0, 3).expand({3, 3})).sum() +
                                 F::pad(w, F::PadFuncOptions({1, 1, 2, 0})).pow(2).sum() + w.unfold(0, 2, 1).sum();
                        }};
       }},
      {"ComplexAndConjugateViews",
       [] {
         auto w = leaf({8});
         return Program{{w}, [=] {
                          auto z = torch::complex(w, w * 2);
                          auto y = z.conj() * torch::complex(w * w, w);
                          return torch::real(y).pow(2).sum() + torch::imag(z.conj()).pow(2).sum();
                        }};
       }},
      {"LstmModule",
       [] {
         nn::LSTM m(nn::LSTMOptions(4, 5));
         auto x = torch::randn({3, 2, 4});
         return Program{m->parameters(), [=]() mutable { return std::get<0>(m->forward(x)).pow(2).sum(); }};
       }},
      {"AttentionWithDropout",
       [] {
         auto q = leaf({2, 2, 4, 8});
         return Program{{q}, [=] { return at::scaled_dot_product_attention(q, q * 2, q, {}, 0.1, true).pow(2).sum(); }};
       }},
      {"ConvolutionPoolGroupNormInterpolate",
       [] {
         nn::Conv2d c(nn::Conv2dOptions(3, 4, 3).padding(1));
         nn::GroupNorm g(nn::GroupNormOptions(2, 4));
         auto x = torch::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
         return Program{
             {c->weight, c->bias}, [=]() mutable {
               auto h = F::max_pool2d(g(c(x)), F::MaxPool2dFuncOptions(2));
               return F::interpolate(
                          h,
                          F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kBilinear).align_corners(false))
                   .pow(2)
                   .sum();
             }};
       }},
      {"EmbeddingBagScatterGather",
       [] {
         nn::EmbeddingBag m(10, 3);
         auto ix = torch::tensor({1, 2, 2, 3}, torch::kLong), of = torch::tensor({0, 2}, torch::kLong);
         auto w = leaf({4, 3});
         auto at_rows = torch::tensor({0, 2, 1, 1}, torch::kLong);
         return Program{{m->weight, w}, [=]() mutable {
                          auto z = torch::zeros({4, 3}).index_add(0, at_rows, w);
                          z = z.scatter_add(0, at_rows.unsqueeze(1).expand({4, 3}), w * 2);
                          return m(ix, of).pow(2).sum() + z.gather(0, at_rows.unsqueeze(1)).pow(2).sum();
                        }};
       }},
      {"LossesOfManyKinds",
       [] {
         auto w = leaf({4, 4});
         auto y = torch::rand({4, 4});
         return Program{{w}, [=] {
                          return F::binary_cross_entropy_with_logits(w, y) + F::kl_div(w.log_softmax(1), y) + F::huber_loss(w, y) +
                                 w.norm() + w.std(1).sum() + torch::logsumexp(w, 1).sum() + w.cumsum(1).mean() +
                                 F::cosine_similarity(w, y).sum() + F::mse_loss(w, y) + F::smooth_l1_loss(w, y) + F::gelu(w).sum() +
                                 F::softplus(w).sum() + F::silu(w).sum();
                        }};
       }},
      {"TwoDropoutsOfOneTensorDiffer",
       [] {
         auto w = leaf({50});
         return Program{{w}, [=] { return (torch::dropout(w, 0.5, true) * torch::dropout(w, 0.5, true)).sum(); }};
       }},
      {"UserBackwardInsideTheLoss",
       [] {
         auto w = leaf({4});
         return Program{{w}, [=] {
                          (w * 2).pow(2).sum().backward();
                          return (w * 3).pow(2).sum();
                        }};
       }},
  };
  return all;
}

class Programs : public testing::TestWithParam<Case> {};

TEST_P(Programs, GraphAndPlanEqualEager) {
  torch::manual_seed(5);
  EXPECT_EQ(fault_of(GetParam().make()), "");
}

TEST_P(Programs, DecomposedPlanStaysWithinTheBound) {
  torch::manual_seed(6);
  PlanSwitches switches;
  switches.passes.decompose = true;
  EXPECT_EQ(fault_of(GetParam().make(), switches), "");
}

TEST_P(Programs, PlanWithoutPassesAndWithViewsCalledEqualsEager) {
  torch::manual_seed(7);
  EXPECT_EQ(fault_of(GetParam().make(), {{false, false, false, false, false}, {false, false, false, false}, {}}), "");
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::test
