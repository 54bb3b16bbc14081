// One call in the making: arguments that suit an op, derived from its schema, from the names and types in it.
#pragma once

#include "tests/fuzz/model.h"
#include "tests/fuzz/ops.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::fuzz {

/// What a draft may draw upon, and what it may add.
struct Source {
  Random& random;
  Model& model;
  const std::vector<std::string>& names;  // of values, oldest first
  std::int64_t next_name = 0, inputs = 0;
  std::int64_t batch = 7;
};

/// A size as the program writes it: multiples of the batch follow it.
Argument size_of(std::int64_t n, std::int64_t batch);

class Draft {
 public:
  explicit Draft(Source& source) : source_(source), r_(source.random) {}

  /// The op with arguments; empty: something it needs is not there.
  std::optional<Statement> call(const Callable&);
  std::optional<Statement> layer(const LayerKind&);
  /// A tensor from outside, declared in this draft.
  std::string fresh(Outside::Role, at::ScalarType, at::IntArrayRef sizes, std::int64_t below = 8);
  /// An existing value, the latest more often.
  template <class Wanted>
  std::optional<std::string> existing(Wanted&& wanted);

  std::vector<Outside> outside;  // declared on the way
  std::vector<Layer> layers;
  std::vector<Statement> before;  // to be run before the call

 private:
  using Sizes = std::vector<std::int64_t>;
  struct Asked {
    const Callable& op;
    std::string name;
    bool optional;
  };
  std::optional<Argument> argument(const Callable&, const c10::Argument&);
  std::optional<Argument> of_type(const Asked&, const c10::Type&, const c10::Type& real_type);
  std::optional<Argument> tensor(const Asked&);
  std::optional<std::string> first_tensor(const Asked&);
  std::optional<std::string> further_tensor(const Asked&);
  std::string index_tensor();
  std::optional<std::string> mask();
  std::optional<Sizes> sizes_by_role(const Asked&);
  std::optional<Argument> tensors(const Asked&);
  std::optional<Argument> indices();
  std::optional<Argument> whole_number(const Asked&);
  std::optional<Argument> whole_numbers(const Asked&);
  Argument scalar(const Asked&);
  Argument sizes(const Sizes&) const;
  Sizes reshaped(Sizes);
  Sizes expanded(Sizes);
  std::string remember(const std::string& name);
  at::Tensor value_of(const std::string& name) const { return source_.model.values().at(name); }

  Source& source_;
  Random& r_;
  std::vector<at::Tensor> taken_;  // operands so far
  Sizes last_sizes_;               // of the latest int[] argument
};

template <class Wanted>
std::optional<std::string> Draft::existing(Wanted&& wanted) {
  const auto n = std::int64_t(source_.names.size());
  for (int i = 0; i < 12 && n > 0; i++) {
    const auto& name = source_.names[std::size_t(n - 1 - std::min(r_.below(n), r_.below(n)))];
    const auto t = value_of(name);
    if (t.defined() && wanted(name, t)) return name;
  }
  return {};
}

}  // namespace tandem::fuzz
