// Each row of the op table on its samples: recorded, interpreted, planned with and without kernels, against ATen and against float64.
#include "tests/conformance/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace tandem {
namespace {

class Conformance : public testing::TestWithParam<const OpRow*> {};

TEST_P(Conformance, Holds) {
  const OpRow& row = *GetParam();
  const auto samples = test::samples_of(row);
  ASSERT_FALSE(samples.empty()) << "no sample covers " << row.name << ": its schema is not enough, give it texts of its own";
  const auto report = test::try_out(row, samples);
  RecordProperty("samples", static_cast<int>(report.samples));
  RecordProperty("samples_in_kernels", static_cast<int>(report.in_kernels));
  RecordProperty("kernels", static_cast<int>(report.kernels));
  for (const auto& fault : report.faults) ADD_FAILURE() << fault;
}

std::vector<const OpRow*> rows() {
  std::vector<const OpRow*> all;
  for (const OpRow& row : op_table()) all.push_back(&row);
  return all;
}

std::string name_of_row(const testing::TestParamInfo<const OpRow*>& info) {
  std::string name(info.param->name.substr(info.param->name.find("::") + 2));
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Row, Conformance, testing::ValuesIn(rows()), name_of_row);

}  // namespace
}  // namespace tandem
