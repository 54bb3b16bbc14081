// build/bench/demo: trains two small networks on hand-written digits, each eager and compiled from one seed, and compares the two runs.
#include "bench/support/demo_summary.h"
#include "bench/support/digits.h"
#include "bench/support/statistics.h"

#include <fmt/format.h>
#include <tandem/tandem.h>
#include <torch/torch.h>
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
namespace bench = tandem::bench;
using torch::Tensor;

constexpr int failed = 1, wrong_use = 2;
constexpr std::uint64_t seed = 7;
constexpr std::int64_t batch = 64;

// --- The models, as any program writes them ----------------------------------------------------------------------------------------------

nn::Sequential make_mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(64, 128), nn::ReLU(), nn::Dropout(0.2), nn::Linear(128, 128), nn::ReLU(),
                        nn::Dropout(0.2), nn::Linear(128, 10));
}

class SmallCnnImpl : public nn::Module {
 public:
  SmallCnnImpl() {
    conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1).bias(false)));
    norm1_ = register_module("norm1", nn::BatchNorm2d(16));
    conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1).bias(false)));
    norm2_ = register_module("norm2", nn::BatchNorm2d(32));
    linear_ = register_module("linear", nn::Linear(32 * 2 * 2, 10));
  }

  Tensor forward(const Tensor& x) {
    Tensor h = torch::max_pool2d(torch::relu(norm1_(conv1_(x))), 2);
    h = torch::max_pool2d(torch::relu(norm2_(conv2_(h))), 2);
    return linear_(h.flatten(1));
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  nn::Linear linear_{nullptr};
};
TORCH_MODULE(SmallCnn);

// --- Data --------------------------------------------------------------------------------------------------------------------------------

struct Split {
  Tensor train_x, train_y, test_x, test_y;
};

Split load_split(const std::string& path) {
  const bench::Digits digits = bench::load_digits(path);
  const Tensor x = (digits.images / 16).unsqueeze(1);
  torch::manual_seed(seed);
  const std::int64_t n = x.size(0), train = n * 4 / 5;
  const Tensor order = torch::randperm(n);
  const Tensor first = order.slice(0, 0, train), rest = order.slice(0, train, n);
  return {x.index_select(0, first), digits.labels.index_select(0, first), x.index_select(0, rest), digits.labels.index_select(0, rest)};
}

// --- Training ----------------------------------------------------------------------------------------------------------------------------

/// One line that is redrawn on a terminal, else a line every few epochs.
class Progress {
 public:
  Progress(std::string name, std::int64_t epochs) : name_(std::move(name)), epochs_(epochs), terminal_(isatty(STDOUT_FILENO) == 1) {}

  void show(std::int64_t done, double loss, double accuracy) {
    const std::string figures = fmt::format("epoch {}/{}, loss {:.4f}, test accuracy {:.1f} %", done, epochs_, loss, 100 * accuracy);
    if (terminal_) {
      constexpr std::int64_t width = 30;
      const std::int64_t full = width * done / epochs_;
      fmt::print("\r{} [{:=>{}}{:>{}}] {}{}", name_, "", full, "", width - full, figures, done == epochs_ ? "\n" : "");
    } else if (done == epochs_ || done % std::max<std::int64_t>(1, epochs_ / 5) == 0) {
      fmt::print("{}: {}\n", name_, figures);
    }
    std::fflush(stdout);
  }

 private:
  std::string name_;
  std::int64_t epochs_;
  bool terminal_;
};

struct StepOutcome {
  Tensor loss;
  bool compiled = false;
};

/// One of the two runs of a model.
struct Learner {
  nn::Module& net;
  std::function<Tensor(const Tensor&)> predict;
  std::function<StepOutcome(const Tensor&, const Tensor&)> step;
  bench::RunLog log;
};

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double test_accuracy(Learner& learner, const Split& data) {
  const torch::NoGradGuard no_grad;
  learner.net.eval();
  return learner.predict(data.test_x).argmax(1).eq(data.test_y).to(torch::kDouble).mean().item<double>();
}

/// The seed fixes the order of the images and the dropout masks, so both runs see the same ones.
void train_epoch(Learner& learner, const Split& data, std::int64_t epoch) {
  torch::manual_seed(seed + 1 + static_cast<std::uint64_t>(epoch));
  learner.net.train();
  std::vector<Tensor> losses;
  for (const Tensor& rows : torch::randperm(data.train_x.size(0)).split(batch)) {
    const Tensor x = data.train_x.index_select(0, rows), y = data.train_y.index_select(0, rows);
    StepOutcome outcome;
    const double ms = milliseconds([&] { outcome = learner.step(x, y); });
    learner.log.steps.push_back({x.size(0), ms, 0, outcome.compiled});
    losses.push_back(std::move(outcome.loss));
  }
  const std::size_t first = learner.log.steps.size() - losses.size();
  for (std::size_t i = 0; i < losses.size(); ++i) learner.log.steps[first + i].loss = losses[i].item<double>();
  learner.log.test_accuracy = test_accuracy(learner, data);
}

double largest_difference(nn::Module& a, nn::Module& b) {
  const torch::NoGradGuard no_grad;
  double largest = 0;
  const auto compare = [&](const std::vector<Tensor>& left, const std::vector<Tensor>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      largest = bench::larger(largest, (left[i] - right[i]).abs().max().item<double>());
    }
  };
  compare(a.parameters(), b.parameters());
  compare(a.buffers(), b.buffers());
  return largest;
}

/// The eager step of most C++ training programs.
template <class Net>
Tensor eager_step(Net& net, optim::Optimizer& optimizer, const Tensor& x, const Tensor& y) {
  optimizer.zero_grad();
  Tensor loss = nn::functional::cross_entropy(net->forward(x), y);
  loss.backward();
  optimizer.step();
  return loss.detach();
}

template <class Net>
tandem::TrainStep compiled_step(Net& net, optim::Optimizer& optimizer) {
  return tandem::TrainStep(net, optimizer,
                           [net](const Tensor& x, const Tensor& y) mutable { return nn::functional::cross_entropy(net->forward(x), y); });
}

/// First steps of fresh networks in turn. The very first one is LibTorch's own start (threads, kernels' first use) and is not counted.
template <class Net, class Optimizer, class OptimizerOptions>
void measure_first_steps(const std::function<Net()>& make, const OptimizerOptions& options, const Split& data, bench::Comparison& result) {
  const Tensor x = data.train_x.slice(0, 0, batch), y = data.train_y.slice(0, 0, batch);
  std::vector<double> eager, compiled;
  for (int round = 0; round < 9; ++round) {
    Net net = make();
    Optimizer optimizer(net->parameters(), options);
    const bool is_eager = round % 2 == 0;
    const double ms = milliseconds([&] { is_eager ? (void)eager_step(net, optimizer, x, y) : (void)compiled_step(net, optimizer)(x, y); });
    if (round > 0) (is_eager ? eager : compiled).push_back(ms);
  }
  result.eager_first_ms = bench::median(eager);
  result.compiled_first_ms = bench::median(compiled);
}

template <class Net, class Optimizer, class OptimizerOptions>
bench::Comparison train_both(const std::string& name, const std::function<Net()>& make, const OptimizerOptions& options, const Split& data,
                             std::int64_t epochs) {
  bench::Comparison result;
  measure_first_steps<Net, Optimizer>(make, options, data, result);
  const auto fresh = [&] {
    torch::manual_seed(seed);
    return make();
  };
  Net eager_net = fresh();
  Optimizer eager_optimizer(eager_net->parameters(), options);
  Learner eager{*eager_net,
                [&](const Tensor& x) { return eager_net->forward(x); },
                [&](const Tensor& x, const Tensor& y) {
                  return StepOutcome{eager_step(eager_net, eager_optimizer, x, y), false};
                },
                {}};

  Net net = fresh();
  Optimizer optimizer(net->parameters(), options);
  tandem::TrainStep step = compiled_step(net, optimizer);
  Learner compiled{*net,
                   [&](const Tensor& x) { return net->forward(x); },
                   [&](const Tensor& x, const Tensor& y) {
                     tandem::StepResult result = step(x, y);
                     return StepOutcome{std::move(result.loss), result.compiled};
                   },
                   {}};

  Progress progress(name, epochs);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    // Epoch by epoch in turn, each one first every second time: a drift of the machine meets both.
    Learner& first = epoch % 2 == 0 ? eager : compiled;
    Learner& second = epoch % 2 == 0 ? compiled : eager;
    train_epoch(first, data, epoch);
    train_epoch(second, data, epoch);
    progress.show(epoch + 1, compiled.log.steps.back().loss, compiled.log.test_accuracy);
  }
  result.eager = std::move(eager.log);
  result.compiled = std::move(compiled.log);
  result.parameter_difference = largest_difference(*eager_net, *net);
  result.report = step.report();
  return result;
}

// --- Output ------------------------------------------------------------------------------------------------------------------------------

std::string page_path(const std::string& pattern, const std::string& model) {
  const std::filesystem::path path(pattern);
  return (path.parent_path() / (path.stem().string() + "-" + model + path.extension().string())).string();
}

/// Prints the table, writes the page; whether the run is as it should be.
bool finish(const std::string& model, const std::string& title, bench::Comparison result, const std::string& page_pattern) {
  fmt::print("\n{}\n{}", title, bench::summary_table(result));
  bench::add_curves(result);
  const std::string page = page_path(page_pattern, model);
  result.report.write_html(page);
  fmt::print("  page                    {}\n\n", page);
  const std::string fault = bench::fault_of(result);
  std::fflush(stdout);
  if (!fault.empty()) fmt::print(stderr, "demo: {}: {}\n", model, fault);
  return fault.empty();
}

bool run(const Split& data, std::int64_t epochs, const std::string& page_pattern) {
  const std::int64_t n = data.train_x.size(0);
  fmt::print("{} images to train, {} to test; {} epochs of {} steps (the last one of {} images)\n\n", n, data.test_x.size(0), epochs,
             (n + batch - 1) / batch, (n - 1) % batch + 1);
  const auto mlp = train_both<nn::Sequential, optim::Adam>("mlp", make_mlp, optim::AdamOptions(1e-3), data, epochs);
  const bool mlp_good = finish("mlp", "mlp: Linear 64-128-128-10, ReLU, dropout 0.2; Adam, lr 0.001", mlp, page_pattern);
  const auto cnn = train_both<SmallCnn, optim::SGD>(
      "cnn", [] { return SmallCnn(); }, optim::SGDOptions(0.05).momentum(0.9), data, epochs);
  const bool cnn_good =
      finish("cnn", "cnn: Conv 1-16-32, batch norm, ReLU, max pool, Linear; SGD, lr 0.05, momentum 0.9", cnn, page_pattern);
  return mlp_good && cnn_good;
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t epochs = 10;
  int threads = 1;
  std::string data = bench::digits_path(), page = "demo-report.html";
  CLI::App app("Trains two small networks on hand-written digits, eager and compiled, and compares the two.");
  app.add_option("--epochs", epochs, "epochs of each run (10); at least 4, for the last batch of an epoch needs that many to be compiled")
      ->check(CLI::Range(4, 100000));
  app.add_option("--threads", threads, "threads of LibTorch (1)")->check(CLI::PositiveNumber);
  app.add_option("--data", data, "digits as lines of 64 pixels and a label (the project's own file)");
  app.add_option("--report", page, "HTML page to write; the model's name is put before the extension (demo-report.html)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong_use;
  }
  at::set_num_threads(threads);
  Split split;
  try {
    split = load_split(data);
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "demo: {}\n", error.what());
    return wrong_use;
  }
  try {
    return run(split, epochs, page) ? 0 : failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "demo: {}\n", error.what());
    return failed;
  }
}
