// The op table against the dispatcher of the LibTorch in use.
#include "autograd/op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tandem {
namespace {

std::optional<c10::OperatorHandle> handle_of(std::string_view name) {
  const auto dot = name.find('.');
  const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchema({std::string(name.substr(0, dot)), overload});
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  std::stringstream in{std::string(list)};
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

bool is_tensor(const c10::Argument& a) {
  const c10::TypePtr type = a.type();
  const c10::TypePtr inner = type->kind() == c10::TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
  return inner->kind() == c10::TypeKind::TensorType;
}

const c10::Argument* find_argument(const c10::FunctionSchema& schema, const std::string& name) {
  for (const c10::Argument& a : schema.arguments())
    if (a.name() == name) return &a;
  return nullptr;
}

bool writes_something(const c10::FunctionSchema& schema) {
  for (const c10::Argument& a : schema.arguments())
    if (a.alias_info() && a.alias_info()->isWrite()) return true;
  return false;
}

/// Whether the first result, by schema, shares the memory of the first tensor argument without a write. A list's alias set is that of its
/// elements.
bool first_result_is_view(const c10::FunctionSchema& schema) {
  if (schema.returns().empty() || writes_something(schema)) return false;
  for (const c10::Argument& a : schema.arguments()) {
    if (!is_tensor(a)) continue;
    const c10::AliasInfo* in = a.alias_info();
    const c10::AliasInfo* out = schema.returns().front().alias_info();
    if (!in || !out) return false;
    if (out->containedTypes().size() == 1 && out->beforeSets().empty()) out = &out->containedTypes().front();
    for (c10::Symbol set : out->beforeSets())
      if (in->beforeSets().count(set) || in->afterSets().count(set)) return true;
    return false;
  }
  return false;
}

TEST(OpTable, EveryRowNamesAnOpOfTheDispatcher) {
  for (const OpRow& row : op_table()) EXPECT_TRUE(handle_of(row.name)) << row.name;
}

TEST(OpTable, NamesAreUnique) {
  std::set<std::string_view> seen;
  for (const OpRow& row : op_table()) EXPECT_TRUE(seen.insert(row.name).second) << row.name;
}

TEST(OpTable, LookupFindsEachRowAndNothingElse) {
  for (const OpRow& row : op_table()) EXPECT_EQ(find_op(row.name), &row) << row.name;
  EXPECT_EQ(find_op("aten::add"), nullptr);
  EXPECT_EQ(find_op(""), nullptr);
}

TEST(OpTable, HiddenWritesNameTensorArgumentsThatTheSchemaDoesNotMark) {
  for (const OpRow& row : op_table()) {
    const auto handle = handle_of(row.name);
    ASSERT_TRUE(handle) << row.name;
    for (const std::string& name : split(row.writes)) {
      const c10::Argument* a = find_argument(handle->schema(), name);
      ASSERT_NE(a, nullptr) << row.name << " has no argument " << name;
      EXPECT_TRUE(is_tensor(*a)) << row.name << " " << name;
      EXPECT_FALSE(a->alias_info() && a->alias_info()->isWrite()) << row.name << ": the schema marks " << name << " already";
    }
  }
}

TEST(OpTable, HiddenAliasesNameATensorArgumentThatTheSchemaDoesNotMark) {
  for (const OpRow& row : op_table()) {
    if (row.aliases.empty()) continue;
    const auto handle = handle_of(row.name);
    ASSERT_TRUE(handle) << row.name;
    const c10::Argument* a = find_argument(handle->schema(), std::string(row.aliases));
    ASSERT_NE(a, nullptr) << row.name << " has no argument " << row.aliases;
    EXPECT_TRUE(is_tensor(*a)) << row.name;
    EXPECT_EQ(a->alias_info(), nullptr) << row.name;
  }
}

TEST(OpTable, KindViewIsWhatAliasesItsFirstTensorWithoutWriting) {
  for (const OpRow& row : op_table()) {
    const auto handle = handle_of(row.name);
    ASSERT_TRUE(handle) << row.name;
    EXPECT_EQ(row.kind == Kind::view, first_result_is_view(handle->schema()) || !row.aliases.empty()) << row.name;
  }
}

TEST(OpTable, KindRandomIsWhatTheDispatcherTagsAsSeeded) {
  for (const OpRow& row : op_table()) {
    const auto handle = handle_of(row.name);
    ASSERT_TRUE(handle) << row.name;
    EXPECT_EQ(row.kind == Kind::random, handle->hasTag(at::Tag::nondeterministic_seeded)) << row.name;
  }
}

TEST(OpTable, FlopsAreNotNegative) {
  for (const OpRow& row : op_table()) EXPECT_GE(row.flops, 0) << row.name;
}

TEST(OpTable, OnlyIndexReadersWritersAndLabelLossesMayThrowForValues) {
  std::set<std::string> throwing;
  for (const OpRow& row : op_table())
    if (may_throw(row.kind)) throwing.insert(name_of(row.kind));
  EXPECT_EQ(throwing, (std::set<std::string>{"gather", "scatter", "loss"}));
}

}  // namespace
}  // namespace tandem
