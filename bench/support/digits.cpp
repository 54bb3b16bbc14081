#include "bench/support/digits.h"

#include "autograd/support/error.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

namespace tandem::bench {
namespace {

constexpr std::int64_t side = 8, pixels = side * side;
constexpr int white = 16, classes = 10;

/// A field that must be a whole number from 0 to `highest`.
int number(std::string_view field, int highest, const std::string& path, std::size_t line) {
  int value = -1;
  const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (code != std::errc() || end != field.data() + field.size() || value < 0 || value > highest) {
    throw Error(
        fmt::format("load_digits: expected a whole number from 0 to {}, found '{}' in line {} of '{}'", highest, field, line, path));
  }
  return value;
}

void parse_line(std::string_view text, const std::string& path, std::size_t line, std::vector<float>& images,
                std::vector<std::int64_t>& labels) {
  const auto fields = std::count(text.begin(), text.end(), ',') + 1;
  if (fields != pixels + 1) {
    throw Error(fmt::format("load_digits: expected 64 pixels and a label, found {} fields in line {} of '{}'", fields, line, path));
  }
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::size_t comma = text.find(',');
    images.push_back(static_cast<float>(number(text.substr(0, comma), white, path, line)));
    text.remove_prefix(comma + 1);
  }
  labels.push_back(number(text, classes - 1, path, line));
}

}  // namespace

std::string digits_path() { return TANDEM_DATA_DIR "/digits.csv"; }

Digits load_digits(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) throw Error(fmt::format("load_digits: expected a readable file, found '{}': {}", path, std::strerror(errno)));
  std::vector<float> images;
  std::vector<std::int64_t> labels;
  std::size_t line = 0;
  for (std::string text; std::getline(file, text);) {
    ++line;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    parse_line(text, path, line, images, labels);
  }
  if (labels.empty()) throw Error(fmt::format("load_digits: expected lines of 64 pixels and a label, found an empty file '{}'", path));
  const auto n = static_cast<std::int64_t>(labels.size());
  Digits digits{at::empty({n, side, side}, at::kFloat), at::empty({n}, at::kLong)};
  std::copy(images.begin(), images.end(), digits.images.data_ptr<float>());
  std::copy(labels.begin(), labels.end(), digits.labels.data_ptr<std::int64_t>());
  return digits;
}

}  // namespace tandem::bench
