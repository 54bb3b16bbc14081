#include "bench/support/digits.h"

#include "autograd/support/error.h"

#include <ATen/ops/bincount.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tandem::bench {
namespace {

std::string line_of(const std::string& pixel, std::size_t pixels, const std::string& label) {
  std::string text;
  for (std::size_t i = 0; i < pixels; ++i) text += pixel + ",";
  return text + label + "\n";
}

/// A file that lives as long as the test's object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("tandem_digits_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".csv")) {
    std::ofstream(path_) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string error_of(const std::string& path) {
  try {
    load_digits(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Digits, HasAllImagesAsFloatsAndLabelsAsIntegers) {
  const Digits d = load_digits(digits_path());
  EXPECT_EQ(d.images.sizes(), (std::vector<std::int64_t>{1797, 8, 8}));
  EXPECT_EQ(d.images.scalar_type(), at::kFloat);
  EXPECT_EQ(d.labels.sizes(), std::vector<std::int64_t>{1797});
  EXPECT_EQ(d.labels.scalar_type(), at::kLong);
}

TEST(Digits, UsesTheWholeRangeOfPixelValues) {
  const Digits d = load_digits(digits_path());
  EXPECT_EQ(d.images.min().item<float>(), 0);
  EXPECT_EQ(d.images.max().item<float>(), 16);
  EXPECT_EQ(d.images.sum().item<double>(), 561718);
}

TEST(Digits, HasTheKnownNumberOfImagesOfEachDigit) {
  const at::Tensor counts = at::bincount(load_digits(digits_path()).labels);
  const std::vector<std::int64_t> expected{178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
  ASSERT_EQ(counts.numel(), 10);
  for (std::int64_t digit = 0; digit < 10; ++digit) EXPECT_EQ(counts[digit].item<std::int64_t>(), expected[digit]) << "digit " << digit;
}

TEST(Digits, KeepsTheOrderOfPixelsAndLabels) {
  const Digits d = load_digits(digits_path());
  EXPECT_EQ(d.images[0][0][2].item<float>(), 5);
  EXPECT_EQ(d.images[0][1][2].item<float>(), 13);
  EXPECT_EQ(d.images[1][0][3].item<float>(), 12);
  EXPECT_EQ(d.labels[0].item<std::int64_t>(), 0);
  EXPECT_EQ(d.labels[1].item<std::int64_t>(), 1);
}

TEST(Digits, ReadsAFileWithoutAFinalNewline) {
  std::string text = line_of("3", 64, "7");
  text.pop_back();
  const TemporaryFile file(text);
  EXPECT_EQ(load_digits(file.path()).labels[0].item<std::int64_t>(), 7);
}

TEST(Digits, AMissingFileIsNamedWithTheSystemsReason) {
  EXPECT_EQ(error_of("/no/such/digits.csv"),
            "load_digits: expected a readable file, found '/no/such/digits.csv': No such file or directory");
}

TEST(Digits, ALineThatEndsEarlyIsNamed) {
  const TemporaryFile file(line_of("1", 64, "2") + line_of("1", 63, "2"));
  EXPECT_EQ(error_of(file.path()), "load_digits: expected 64 pixels and a label, found 64 fields in line 2 of '" + file.path() + "'");
}

TEST(Digits, APixelOutsideTheRangeIsNamed) {
  const TemporaryFile file(line_of("17", 64, "2"));
  EXPECT_EQ(error_of(file.path()), "load_digits: expected a whole number from 0 to 16, found '17' in line 1 of '" + file.path() + "'");
}

TEST(Digits, ALabelThatIsNoNumberIsNamed) {
  const TemporaryFile file(line_of("1", 64, "seven"));
  EXPECT_EQ(error_of(file.path()), "load_digits: expected a whole number from 0 to 9, found 'seven' in line 1 of '" + file.path() + "'");
}

TEST(Digits, AnEmptyFileIsAnError) {
  const TemporaryFile file("");
  EXPECT_EQ(error_of(file.path()), "load_digits: expected lines of 64 pixels and a label, found an empty file '" + file.path() + "'");
}

}  // namespace
}  // namespace tandem::bench
