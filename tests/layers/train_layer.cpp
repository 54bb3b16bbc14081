#include "tests/layers/train_layer.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

namespace tandem::test {
namespace {

/// The loss of a batch of any number of tensors.
struct AnyLoss {
  std::function<Inputs(const Inputs&)> loss;
  template <class... T>
  Inputs operator()(const T&... in) const {
    return loss({in...});
  }
};

std::string versions_of(torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  std::string text;
  for (const auto& [name, tensor] : train_state(module, optimizer).tensors)
    text += fmt::format("{} {}\n", name, tensor.defined() ? std::int64_t(tensor._version()) : -1);
  return text;
}

bool is_product(const std::string& op) {
  static const std::set<std::string> products{"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot"};
  return products.count(op) > 0;
}

/// What runs in forward and backward, read from the report's list of calls.
struct Calls {
  std::int64_t nodes_in_kernels = 0;
  std::set<std::string> kernels, library;
  bool products = false;

  void add_kernel(const std::string& text) {  // "kernel k1 k2 (op op and 3 more, nodes 1 to 9, forward)"
    std::istringstream names(text.substr(7, text.find(" (") - 7)),
        ops(text.substr(text.find('(') + 1, text.find(',') - text.find('(') - 1));
    for (std::string word; names >> word;) kernels.insert(word);
    for (std::string word; ops >> word;) {
      std::int64_t more = 0;
      if (word != "and") {
        nodes_in_kernels++;
      } else if (ops >> more >> word) {
        nodes_in_kernels += more;
      }
    }
  }
  void add_library(const std::string& text) {  // "node 7 (aten::convolution, ...)"
    const auto at = text.find("::");
    const auto op = text.substr(at + 2, text.find_first_of(" ,).", at + 2) - at - 2);
    if (is_product(op))
      products = true;
    else
      library.insert(op);
  }
};

Calls calls_of(const PlanReport& plan) {
  Calls out;
  for (const auto& call : plan.nodes) {
    if (call.side == "update") continue;
    if (call.node.rfind("kernel ", 0) == 0)
      out.add_kernel(call.node);
    else
      out.add_library(call.node);
  }
  return out;
}

LayerRow row_of(const Report& report) {
  if (!report.active) return {"eager", "", report.reason};
  const auto& plan = *std::find_if(report.plans.begin(), report.plans.end(), [](const PlanReport& p) { return p.active; });
  const auto calls = calls_of(plan);
  LayerRow row;
  row.verdict = calls.library.empty() ? "fused" : "library calls";
  row.kernels = fmt::format("{} of {} in {}", calls.nodes_in_kernels, plan.nodes_forward + plan.nodes_backward, calls.kernels.size());
  for (const auto& op : calls.library) row.library += (row.library.empty() ? "" : ", ") + op;
  if (calls.products) row.library += row.library.empty() ? "matrix products" : ", matrix products";
  return row;
}

auto trainer_of(const LayerCase& layer, bool odd) {
  torch::manual_seed(5);
  const auto model = model_of(layer, odd);
  return Trainer{model.module, momentum_sgd(model.module->parameters()), AnyLoss{[model](const Inputs& in) {
                   const auto results = model.forward(in);
                   Inputs out{loss_of(results)};
                   out.insert(out.end(), results.begin(), results.end());
                   return out;
                 }}};
}

}  // namespace

LayerCases all_layers() {
  LayerCases out;
  for (const auto& part : {linear_cases(), convolution_cases(), norm_cases(), pooling_cases(), padding_cases(), recurrent_cases(),
                           attention_cases(), activation_cases(), loss_cases(), embedding_cases(), dropout_cases()})
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::vector<LayerVariant> layer_variants() {
  std::vector<LayerVariant> out;
  for (const auto& c : all_layers()) {
    out.push_back({c, false});
    out.push_back({c, true});
  }
  return out;
}

std::string name_of_variant(const testing::TestParamInfo<LayerVariant>& info) {
  std::string name;
  for (char c : info.param.layer.layer)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name + (info.param.odd ? "_odd" : "_small");
}

void PrintTo(const LayerVariant& v, std::ostream* out) { *out << v.layer.layer << (v.odd ? ", odd shape" : ""); }

bool is_expected(const std::string& parts, const std::string& reason) {
  std::istringstream list(parts);
  for (std::string part; std::getline(list, part, '|');)
    if (reason.find(part) != std::string::npos) return true;
  return false;
}

at::Tensor loss_of(const Inputs& results) {
  if (results.size() == 1 && results[0].dim() == 0) return results[0].clone();
  at::Tensor sum;
  for (const auto& r : results) {
    if (!r.is_floating_point()) continue;
    const auto term = (r.sin() + r * r * 0.5).mean();
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

Layer model_of(const LayerCase& layer, bool odd) {
  const auto inner = odd && layer.make_odd ? layer.make_odd() : layer.make();
  auto module = bag();
  module->register_module("layer", inner.module);
  const auto first = (odd ? layer.odd : layer.small)(1).at(0);
  if (!first.is_floating_point()) return {module, inner.forward};
  auto scale = module->register_parameter("scale", torch::rand(first.sizes().slice(1)) + 0.5);
  return {module, [forward = inner.forward, scale](const Inputs& in) {
            auto scaled = in;
            scaled[0] = in[0] * scale;
            return forward(scaled);
          }};
}

LayerRow train(const LayerCase& layer, bool odd) {
  Twins twins([&] { return trainer_of(layer, odd); });
  const auto& batch = odd ? layer.odd : layer.small;
  int compiled = 0;
  for (std::uint64_t s = 1; s <= 7; s++) {
    const auto outcome = twins.step_each(batch(s), batch(s));
    EXPECT_EQ(outcome.error, "");
    compiled += outcome.compiled;
    std::vector<std::string> versions;
    twins.for_both([&](torch::nn::Module& m, torch::optim::Optimizer& o) { versions.push_back(versions_of(m, o)); });
    EXPECT_EQ(versions[0], versions[1]) << "version counters after step " << s;
  }
  const auto report = twins.report();
  if (layer.eager.empty()) {
    EXPECT_GE(compiled, 3) << report.to_string();
    EXPECT_TRUE(report.active) << report.to_string();
  } else {
    EXPECT_EQ(compiled, 0);
    EXPECT_TRUE(is_expected(layer.eager, report.reason)) << "stays eager for another reason: " << report.reason;
  }
  return row_of(report);
}

}  // namespace tandem::test
