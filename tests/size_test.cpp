// Small rooms: a file that outgrows its bound is split by what it does.
#include "tests/support/source_files.h"

namespace tandem {
namespace {

/// Most lines that a file may have; -1: no bound (a table of rows grows with what it lists).
int bound_of(const std::string& path) {
  if (ends_with(path, ".def")) return -1;
  return ends_with(path, ".h") ? 200 : 400;
}

TEST(SizeTest, FilesStayWithinTheirBounds) {
  auto folders = layer_names();
  folders.insert(folders.end(), {"tests", "bench"});
  const auto files = source_files(folders);
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    const int bound = bound_of(file.path);
    if (bound < 0) continue;
    EXPECT_LE(file.lines.size(), static_cast<std::size_t>(bound)) << file.path;
  }
}

TEST(SizeTest, EachKindOfFileHasItsBound) {
  EXPECT_EQ(bound_of("autograd/ops.def"), -1);
  EXPECT_EQ(bound_of("trainers/include/tandem/tandem.h"), 200);
  EXPECT_EQ(bound_of("autograd/graph.h"), 200);
  EXPECT_EQ(bound_of("tests/autograd/graph_test.cpp"), 400);
}

}  // namespace
}  // namespace tandem
