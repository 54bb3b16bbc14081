// Every layer of torch::nn is trained in compiled steps that leave what eager leaves, and the README's table of them is true.
#include "tests/layers/train_layer.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace tandem::test {
namespace {

/// The rows of this run, in the order of the cases.
std::vector<std::pair<std::string, LayerRow>>& rows() {
  static std::vector<std::pair<std::string, LayerRow>> rows;
  return rows;
}

std::string line_of(const std::string& layer, const LayerRow& row) {
  return fmt::format("| {} | {} | {} | {} |\n", layer, row.verdict, row.kernels, row.library);
}

/// Layer and verdict of each row between the markers in the README; empty where it has none.
std::map<std::string, std::string> told() {
  std::map<std::string, std::string> out;
  std::ifstream readme(TANDEM_SOURCE_DIR "/README.md");
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "<!-- layers:begin -->") inside = true;
    if (line == "<!-- layers:end -->") inside = false;
    if (!inside || line.rfind("| ", 0) != 0) continue;
    std::istringstream cells(line.substr(2));
    std::string layer, verdict;
    std::getline(cells, layer, '|');
    std::getline(cells, verdict, '|');
    layer.pop_back();
    if (layer != "layer" && layer != "---") out[layer] = verdict.substr(1, verdict.size() - 2);
  }
  return out;
}

/// With TANDEM_LAYERS_TABLE=path the rows of this run are written there.
class Table : public testing::Environment {
 public:
  void TearDown() override {
    const char* path = std::getenv("TANDEM_LAYERS_TABLE");
    if (!path) return;
    std::ofstream out(path);
    out << "| layer | step | nodes in kernels | calls of LibTorch; why eager |\n| --- | --- | --- | --- |\n";
    for (const auto& [layer, row] : rows()) out << line_of(layer, row);
    EXPECT_TRUE(out.good()) << path;
  }
};
const auto* const table = testing::AddGlobalTestEnvironment(new Table);

class LayerTest : public testing::TestWithParam<LayerVariant> {};

TEST_P(LayerTest, TrainsAsEager) {
  const auto& [layer, odd] = GetParam();
  const auto row = train(layer, odd);
  if (odd) return;
  rows().emplace_back(layer.layer, row);
  if (const auto table = told(); with_kernels() && !table.empty()) {
    EXPECT_EQ(table.count(layer.layer), 1u) << "the README's table lacks " << line_of(layer.layer, row);
    if (table.count(layer.layer)) {
      EXPECT_EQ(table.at(layer.layer), row.verdict) << "the README's table says otherwise: " << line_of(layer.layer, row);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(TrainStep, LayerTest, testing::ValuesIn(layer_variants()), name_of_variant);

TEST(LayersTable, ListsNoLayerThatIsNotTrained) {
  auto table = told();
  for (const auto& c : all_layers()) table.erase(c.layer);
  for (const auto& [layer, verdict] : table) ADD_FAILURE() << "the README's table lists " << layer << ", which no test trains";
}

}  // namespace
}  // namespace tandem::test
