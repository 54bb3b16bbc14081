// The rules of the layers: includes point one way, and what is known of an op stands in the op table.
#include "tests/support/source_files.h"

#include <map>
#include <optional>
#include <regex>
#include <set>

namespace tandem {
namespace {

int rank_of(const std::string& path) {
  const auto& names = layer_names();
  const auto folder = path.substr(0, path.find('/'));
  const auto at = std::find(names.begin(), names.end(), folder);
  return at == names.end() ? -1 : static_cast<int>(at - names.begin());
}

/// The path in `#include "path"`, if the line is one.
std::optional<std::string> quoted_include(const std::string& line) {
  const auto hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line.compare(hash, 8, "#include") != 0) return std::nullopt;
  const auto open = line.find('"', hash);
  if (open == std::string::npos) return std::nullopt;
  return line.substr(open + 1, line.find('"', open + 1) - open - 1);
}

/// What is wrong with an include of a layer's file; empty when nothing is.
std::string wrong_include(const std::string& file, const std::string& include) {
  if (include.find("..") != std::string::npos) return "goes up a folder";
  if (include.rfind("tandem/", 0) == 0) return rank_of(file) == rank_of("trainers/") ? "" : "a layer must not know the public interface";
  if (rank_of(include) < 0) return "does not start with a layer's folder";
  return rank_of(include) <= rank_of(file) ? "" : "points to a higher layer";
}

/// Op names in code; comments may name ops.
bool names_an_op(const std::string& line) { return line.substr(0, line.find("//")).find("\"aten::") != std::string::npos; }

/// The types that a file defines outside classes and unnamed namespaces, each with its namespace.
std::vector<std::string> types_of(const std::vector<std::string>& lines) {
  static const std::regex opens("^namespace ?([\\w:]*) \\{$"), closes("^\\}  // namespace.*"),
      defines("^(struct|class|union|enum class|enum) ([\\w:]+)( .*)?$");
  std::vector<std::string> spaces, found;
  for (const auto& line : lines) {
    std::smatch m;
    if (std::regex_match(line, m, opens)) spaces.push_back(m[1]);
    if (std::regex_match(line, closes) && !spaces.empty()) spaces.pop_back();
    const bool only_declares = line.find('{') == std::string::npos && ends_with(line, ";");
    if (!std::regex_match(line, m, defines) || only_declares || std::count(spaces.begin(), spaces.end(), "")) continue;
    std::string name;
    for (const auto& space : spaces) name += space + "::";
    found.push_back(name + m[2].str());
  }
  return found;
}

TEST(LayersTest, IncludesPointToTheSameOrALowerLayer) {
  const auto files = source_files(layer_names());
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const auto include = quoted_include(file.lines[i]);
      if (!include) continue;
      EXPECT_EQ(wrong_include(file.path, *include), "") << file.path << ":" << i + 1 << " " << *include;
    }
  }
}

TEST(LayersTest, AnIncludeOfAHigherLayerIsFound) {
  EXPECT_EQ(wrong_include("autograd/passes/fold.cpp", "autograd/graph.h"), "");
  EXPECT_EQ(wrong_include("trainers/train_step.cpp", "autograd/graph.h"), "");
  EXPECT_NE(wrong_include("autograd/passes/fold.cpp", "partitioner/partition.h"), "");
  EXPECT_NE(wrong_include("runtime/plan.cpp", "tandem/tandem.h"), "");
  EXPECT_NE(wrong_include("runtime/plan.cpp", "plan.h"), "");
  EXPECT_NE(wrong_include("runtime/plan.cpp", "runtime/../trainers/optimizers.h"), "");
  EXPECT_EQ(quoted_include("  #include \"autograd/graph.h\"  // why"), "autograd/graph.h");
  EXPECT_EQ(quoted_include("#include <vector>"), std::nullopt);
}

TEST(LayersTest, ATypesNameStandsForOneType) {
  // Two types of one name link without a word, and then the functions of one of them are run on the other, as far as they are not inlined.
  std::map<std::string, std::string> places;
  for (const auto& file : source_files(layer_names()))
    for (const auto& name : types_of(file.lines)) {
      if (name == "tandem::Error") continue;  // the installed header stands alone and has it too, behind one guard
      const auto [place, fresh] = places.emplace(name, file.path);
      EXPECT_TRUE(fresh) << name << " is defined in " << place->second << " and in " << file.path;
    }
  EXPECT_TRUE(places.count("tandem::Graph"));
}

TEST(LayersTest, TypesAreFoundWithTheirNamespaces) {
  const auto found =
      types_of({"namespace tandem {", "struct Later;", "struct One {", "  struct Inner {};", "};", "namespace {", "struct Hidden {};",
                "}  // namespace", "namespace jit {", "class Two final : public One {", "enum class Three { a };", "}  // namespace jit",
                "struct One::Impl {};", "struct Four {};", "}  // namespace tandem"});
  EXPECT_EQ(found,
            (std::vector<std::string>{"tandem::One", "tandem::jit::Two", "tandem::jit::Three", "tandem::One::Impl", "tandem::Four"}));
}

TEST(LayersTest, TestsAndBenchmarksIncludeFromTheRoot) {
  const auto files = source_files({"tests", "bench"});
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    for (const auto& line : file.lines) {
      const auto include = quoted_include(line);
      if (!include) continue;
      EXPECT_EQ(include->find(".."), std::string::npos) << file.path << " " << *include;
    }
  }
}

TEST(LayersTest, OpNamesStandInTheOpTableOnly) {
  // decompose and movement write primitive nodes, so they must name them; the emitter makes their constants.
  const std::set<std::string> exempt{"autograd/ops.def", "autograd/passes/decompose.cpp", "autograd/passes/movement.cpp",
                                     "autograd/passes/emitter.cpp"};
  for (const auto& file : source_files(layer_names())) {
    if (exempt.count(file.path)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_FALSE(names_an_op(file.lines[i])) << file.path << ":" << i + 1 << file.lines[i];
  }
}

TEST(LayersTest, AnOpNameInCodeIsFound) {
  EXPECT_TRUE(names_an_op("  if (node.op == \"aten::add.Tensor\") return;"));
  EXPECT_FALSE(names_an_op("  std::string op;  // e.g. \"aten::add.Tensor\""));
}

}  // namespace
}  // namespace tandem
