// Workloads on vectors and images: two classifiers, a residual network, a differential equation with second derivatives.
#include "bench/support/workload_builders.h"

#include <torch/torch.h>

namespace tandem::bench {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using torch::Tensor;

Tensor normal(at::IntArrayRef sizes) { return torch::randn(sizes); }
Tensor classes(std::int64_t count, std::int64_t batch) { return torch::randint(count, {batch}, torch::kLong); }

/// Calls a Sequential and compares with class labels.
auto classify(nn::Sequential net) {
  return [net](Tensor x, Tensor y) mutable { return nn::functional::cross_entropy(net->forward(x), y); };
}

class ResidualImpl : public nn::Module {
 public:
  ResidualImpl(std::int64_t in, std::int64_t out, std::int64_t stride) {
    conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    norm1_ = register_module("norm1", nn::BatchNorm2d(out));
    conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1).bias(false)));
    norm2_ = register_module("norm2", nn::BatchNorm2d(out));
    if (stride != 1 || in != out) {
      shortcut_ = register_module("shortcut", nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)));
      shortcut_norm_ = register_module("shortcut_norm", nn::BatchNorm2d(out));
    }
  }

  Tensor forward(const Tensor& x) {
    Tensor h = torch::relu(norm1_(conv1_(x)));
    h = norm2_(conv2_(h));
    return torch::relu(h + (shortcut_ ? shortcut_norm_(shortcut_(x)) : x));
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, shortcut_{nullptr};
  nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr}, shortcut_norm_{nullptr};
};
TORCH_MODULE(Residual);

/// Burgers' equation u_t + u u_x = 0.1 u_xx at the points x = (t, x), plus a data term. Needs derivatives of u by its input, twice.
Tensor burgers_loss(nn::Sequential& net, const Tensor& points, const Tensor& target) {
  const Tensor x = points.detach().requires_grad_(true);
  const Tensor u = net->forward(x);
  const Tensor first = torch::autograd::grad({u.sum()}, {x}, {}, true, true)[0];
  const Tensor u_t = first.select(1, 1), u_x = first.select(1, 0);
  const Tensor u_xx = torch::autograd::grad({u_x.sum()}, {x}, {}, true, true)[0].select(1, 0);
  const Tensor residual = u_t - 0.1 * u_xx + u.select(1, 0) * u_x;
  return residual.square().mean() + (u - target).square().mean();
}

}  // namespace

Workload mlp_tiny() {
  nn::Sequential net;
  net->push_back(nn::Linear(20, 64));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(64, 64));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(64, 5));

  Workload w;
  w.module = net.ptr();
  w.loss = classify(net);
  w.batch = 32;
  w.small_batch = 24;
  w.data = [](std::int64_t batch) {
    Tensor x = normal({batch, 20});
    return std::pair(x, classes(5, batch));
  };
  w.make_optimizer = [](std::vector<Tensor> params) { return std::make_unique<optim::Adam>(std::move(params), optim::AdamOptions(1e-3)); };
  return w;
}

Workload mlp_mnist() {
  nn::Sequential net;
  net->push_back(nn::Linear(784, 512));
  net->push_back(nn::ReLU());
  net->push_back(nn::Dropout(0.2));
  net->push_back(nn::Linear(512, 512));
  net->push_back(nn::ReLU());
  net->push_back(nn::Dropout(0.2));
  net->push_back(nn::Linear(512, 10));

  Workload w;
  w.module = net.ptr();
  w.loss = classify(net);
  w.batch = 128;
  w.small_batch = 96;
  w.data = [](std::int64_t batch) {
    Tensor x = normal({batch, 784});
    return std::pair(x, classes(10, batch));
  };
  w.make_optimizer = [](std::vector<Tensor> params) {
    return std::make_unique<optim::SGD>(std::move(params), optim::SGDOptions(0.01).momentum(0.9));
  };
  return w;
}

Workload resnet_cifar() {
  nn::Sequential net;
  net->push_back(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)));
  net->push_back(nn::BatchNorm2d(16));
  net->push_back(nn::ReLU());
  net->push_back(Residual(16, 16, 1));
  net->push_back(Residual(16, 32, 2));
  net->push_back(Residual(32, 64, 2));
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(64, 10));

  Workload w;
  w.module = net.ptr();
  w.loss = classify(net);
  w.batch = 32;
  w.small_batch = 24;
  w.data = [](std::int64_t batch) {
    Tensor x = normal({batch, 3, 32, 32});
    return std::pair(x, classes(10, batch));
  };
  w.make_optimizer = [](std::vector<Tensor> params) {
    return std::make_unique<optim::SGD>(std::move(params), optim::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4));
  };
  return w;
}

Workload pinn() {
  nn::Sequential net;
  net->push_back(nn::Linear(2, 64));
  net->push_back(nn::Tanh());
  net->push_back(nn::Linear(64, 64));
  net->push_back(nn::Tanh());
  net->push_back(nn::Linear(64, 64));
  net->push_back(nn::Tanh());
  net->push_back(nn::Linear(64, 1));

  Workload w;
  w.module = net.ptr();
  w.loss = [net](Tensor x, Tensor y) mutable { return burgers_loss(net, x, y); };
  w.batch = 1024;
  w.small_batch = 768;
  w.data = [](std::int64_t batch) {
    Tensor x = torch::rand({batch, 2});
    return std::pair(x, torch::rand({batch, 1}));
  };
  w.make_optimizer = [](std::vector<Tensor> params) { return std::make_unique<optim::Adam>(std::move(params), optim::AdamOptions(1e-3)); };
  return w;
}

}  // namespace tandem::bench
