#include "tests/fuzz/draft.h"

#include <algorithm>
#include <cmath>

namespace tandem::fuzz {
namespace {

bool among(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

bool broadcasts(const at::Tensor& small, const at::Tensor& large) {
  if (small.dim() > large.dim()) return false;
  for (std::int64_t d = 1; d <= small.dim(); d++)
    if (small.size(-d) != 1 && small.size(-d) != large.size(-d)) return false;
  return true;
}

std::optional<Argument> as_argument(const std::optional<std::string>& name) { return name ? std::optional(named(*name)) : std::nullopt; }

}  // namespace

Argument size_of(std::int64_t n, std::int64_t batch) { return n > 0 && n % batch == 0 ? batches(n / batch) : whole(n); }

std::string Draft::remember(const std::string& name) {
  taken_.push_back(value_of(name));
  return name;
}

std::string Draft::fresh(Outside::Role role, at::ScalarType type, at::IntArrayRef sizes, std::int64_t below) {
  Outside o;
  o.role = role == Outside::Role::input && source_.inputs >= 6 ? Outside::Role::buffer : role;
  source_.inputs += o.role == Outside::Role::input;
  o.name = std::string(1, "pbx"[int(o.role)]) + std::to_string(source_.next_name++);
  o.dtype = type;
  if (!at::isFloatingType(type)) o.below = std::max<std::int64_t>(below, 1);
  for (const auto n : sizes) o.sizes.push_back(o.role == Outside::Role::input ? size_of(n, source_.batch) : whole(n));
  o.channels_last = sizes.size() == 4 && r_.chance(0.3);
  outside.push_back(o);
  source_.model.declare(o);
  return o.name;
}

std::optional<Statement> Draft::call(const Callable& op) {
  Statement s;
  s.op = op.name;
  const auto& arguments = op.schema->arguments();
  s.arguments.resize(arguments.size());
  std::vector<std::size_t> order(arguments.size());
  for (std::size_t i = 0; i < order.size(); i++) order[i] = i;
  // addmm and baddbmm: the sum's shape follows from the product.
  if (arguments.size() > 2 && among(arguments[1].name(), {"mat1", "batch1"}))
    std::rotate(order.begin(), order.begin() + 1, order.begin() + 3);
  for (const auto i : order) {
    auto a = argument(op, arguments[i]);
    if (!a) return {};
    s.arguments[i] = std::move(*a);
  }
  return s;
}

std::optional<Statement> Draft::layer(const LayerKind& kind) {
  const auto first = existing([](auto&, const at::Tensor& t) { return t.numel() > 0; });
  if (!first) return {};
  const auto t = value_of(*first);
  const auto arguments = kind.arguments(t, r_);
  if (arguments.empty()) return {};
  Layer l{"l" + std::to_string(source_.next_name++), kind.name, arguments};
  layers.push_back(l);
  source_.model.add(l);
  Statement s;
  s.op = l.name;
  s.arguments.push_back(named(*first));
  for (int i = 1; i < kind.inputs; i++) {
    const auto like = existing([&](auto&, const at::Tensor& o) { return o.sizes() == t.sizes() && o.scalar_type() == t.scalar_type(); });
    s.arguments.push_back(named(like ? *like : *first));
  }
  return s;
}

std::optional<Argument> Draft::argument(const Callable& op, const c10::Argument& a) {
  const auto& name = a.name();
  if (among(name, {"layout", "device", "pin_memory", "generator", "names"})) return nothing();
  const auto& type = *a.type();
  const bool is_optional = type.kind() == c10::TypeKind::OptionalType;
  if (name.rfind("sparse", 0) == 0 || name.rfind("scale_grad", 0) == 0) return truth(false);
  if (is_optional && r_.chance(name == "dtype" ? 0.7 : 0.5)) return nothing();
  const auto& inner = is_optional ? *type.castRaw<c10::OptionalType>()->getElementType() : type;
  const auto* real = a.real_type().get();
  if (real->kind() == c10::TypeKind::OptionalType) real = real->castRaw<c10::OptionalType>()->getElementType().get();
  return of_type({op, name, is_optional}, inner, *real);
}

std::optional<Argument> Draft::of_type(const Asked& asked, const c10::Type& type, const c10::Type& real_type) {
  static const std::vector<double> fractions{0.5, 0.1, 0.3, 0.8};
  static const std::vector<at::ScalarType> casts{at::kFloat, at::kDouble, at::kDouble, at::kBFloat16};
  if (real_type.kind() == c10::TypeKind::ScalarTypeType) return fuzz::type(r_.pick(casts));
  if (real_type.kind() == c10::TypeKind::MemoryFormatType)
    return whole(std::int64_t(r_.chance(0.5) ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast));
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return tensor(asked);
    case c10::TypeKind::NumberType: return scalar(asked);
    case c10::TypeKind::FloatType: return real(asked.name == "eps" ? 1e-5 : r_.pick(fractions));
    case c10::TypeKind::BoolType:
      if (among(asked.name, {"train", "training"}) && r_.chance(0.8)) return Argument{.kind = Argument::Kind::training};
      return truth(r_.chance(0.5));
    case c10::TypeKind::StringType: return asked.name == "approximate" ? in_quotes(r_.chance(0.5) ? "tanh" : "none") : in_quotes("mean");
    case c10::TypeKind::ListType: {
      const auto& item = *type.castRaw<c10::ListType>()->getElementType();
      if (item.kind() == c10::TypeKind::TensorType) return tensors(asked);
      if (item.kind() == c10::TypeKind::OptionalType) return indices();
      if (item.kind() == c10::TypeKind::BoolType) return list({truth(true), truth(r_.chance(0.7)), truth(r_.chance(0.7))});
      return whole_numbers(asked);
    }
    default: return whole_number(asked);
  }
}

std::optional<Argument> Draft::tensor(const Asked& asked) {
  if (asked.name == "index" || asked.name == "indices") return named(index_tensor());
  if (among(asked.name, {"mask", "condition"})) return as_argument(mask());
  const auto name = taken_.empty() ? first_tensor(asked) : further_tensor(asked);
  return name ? std::optional(named(remember(*name))) : std::nullopt;
}

std::optional<std::string> Draft::first_tensor(const Asked& asked) {
  const bool whole_ones = r_.chance(0.04);
  return existing([&](const std::string& name, const at::Tensor& t) {
    if (asked.op.writes && (name[0] == 'p' || (name[0] != 'v' && r_.chance(0.9)))) return false;
    return whole_ones || t.is_floating_point();
  });
}

std::optional<std::string> Draft::further_tensor(const Asked& asked) {
  const auto& first = taken_.front();
  const auto type = first.is_floating_point() ? first.scalar_type() : at::kFloat;
  const auto role = r_.chance(0.6) ? Outside::Role::parameter : r_.chance(0.5) ? Outside::Role::buffer : Outside::Role::input;
  if (asked.op.row && asked.op.row->kind == Kind::loss && asked.name == "target" && first.dim() >= 1) {
    Sizes s = first.sizes().vec();
    const auto classes = s[std::size_t(first.dim() > 1)];
    s.erase(s.begin() + (first.dim() > 1));
    return fresh(Outside::Role::input, at::kLong, s, classes);
  }
  if (auto s = sizes_by_role(asked)) {
    if (r_.chance(0.4))
      if (auto found = existing([&](auto&, const at::Tensor& t) { return t.sizes() == *s && t.scalar_type() == type; })) return found;
    return fresh(asked.name.rfind("running_", 0) == 0 ? Outside::Role::buffer : role, type, *s);
  }
  const double p = double(r_.below(100)) / 100;
  std::optional<std::string> found;
  if (p < 0.55) found = existing([&](auto&, const at::Tensor& t) { return t.sizes() == first.sizes() && t.scalar_type() == type; });
  if (p >= 0.55 && p < 0.8) found = existing([&](auto&, const at::Tensor& t) { return broadcasts(t, first) || broadcasts(first, t); });
  if (found) return found;
  Sizes s = first.sizes().vec();
  if (r_.chance(0.4)) s.erase(s.begin(), s.begin() + r_.below(first.dim() + 1));
  for (auto& n : s)
    if (r_.chance(0.15)) n = 1;
  return fresh(role, type, s);
}

/// Shapes that follow from what is there already, by the argument's name.
std::optional<Draft::Sizes> Draft::sizes_by_role(const Asked& asked) {
  const auto& t = taken_.front();
  const auto n = r_.between(1, 5);
  if (among(asked.name, {"mat2", "batch2"}) || (asked.name == "other" && asked.op.row && asked.op.row->kind == Kind::contraction)) {
    if (t.dim() < 2) return Sizes{t.numel(), n};
    Sizes s = t.sizes().vec();
    s[s.size() - 2] = t.size(-1);
    s.back() = n;
    return asked.name == "other" && r_.chance(0.5) ? Sizes(s.end() - 2, s.end()) : s;
  }
  if (asked.name == "self" && taken_.size() >= 2 && t.dim() >= 2)
    return r_.chance(0.6) ? Sizes{taken_[1].size(-1)} : Sizes{t.size(-2), taken_[1].size(-1)};
  if (among(asked.name, {"vec", "tensor"}) && t.dim() > 0) return Sizes{t.size(-1)};
  const bool filters = asked.op.row && asked.op.row->kind == Kind::convolution;
  if (asked.name == "weight" && filters && t.dim() >= 3) {
    Sizes s{n, t.size(1)};
    for (std::int64_t d = 2; d < t.dim(); d++) s.push_back(r_.between(1, std::min<std::int64_t>(3, std::max<std::int64_t>(t.size(d), 1))));
    return s;
  }
  if (asked.name == "weight" && asked.op.row && asked.op.row->kind == Kind::contraction && t.dim() > 0) return Sizes{n, t.size(-1)};
  if (asked.name == "bias" && taken_.size() >= 2 && (filters || (asked.op.row && asked.op.row->kind == Kind::contraction)) &&
      taken_[1].dim() > 0)
    return Sizes{taken_[1].size(0)};
  if (among(asked.name, {"weight", "bias", "running_mean", "running_var"}))
    return !last_sizes_.empty() ? last_sizes_ : Sizes{t.dim() > 1 ? t.size(1) : t.numel()};
  return {};
}

std::string Draft::index_tensor() {
  const auto& t = taken_.empty() ? at::Tensor() : taken_.front();
  if (!t.defined() || t.dim() == 0) return fresh(Outside::Role::input, at::kLong, {r_.between(1, 4)}, 1);
  std::int64_t below = t.size(0);
  for (const auto n : t.sizes()) below = std::min(below, n);  // whatever dim it is for
  Sizes s = t.sizes().vec();
  if (r_.chance(0.5)) s = {r_.chance(0.3) ? source_.batch : r_.between(1, 4)};
  return fresh(r_.chance(0.7) ? Outside::Role::input : Outside::Role::buffer, at::kLong, s, below);
}

std::optional<std::string> Draft::mask() {
  const auto like = taken_.empty() ? at::Tensor() : taken_.front();
  const auto fits = [&](const at::Tensor& t) { return !like.defined() || broadcasts(t, like); };
  if (auto found = existing([&](auto&, const at::Tensor& t) { return t.scalar_type() == at::kBool && fits(t); })) return found;
  const auto of = existing([&](auto&, const at::Tensor& t) { return t.is_floating_point() && fits(t); });
  if (!of) return {};
  Statement s;
  s.results = {"v" + std::to_string(source_.next_name++)};
  const auto& comparisons = rows_of(Kind::pointwise);
  for (int tries = 0; tries < 200; tries++) {
    const auto& op = comparisons[std::size_t(r_.below(std::int64_t(comparisons.size())))];
    if (op.schema->overload_name() != "Scalar" || op.schema->arguments().size() != 2 || op.writes) continue;
    s.op = op.name;
    s.arguments = {named(*of), real(0.25)};
    source_.model.evaluate(s);
    if (source_.model.values().at(s.results[0]).scalar_type() != at::kBool) continue;
    before.push_back(s);
    return s.results[0];
  }
  return {};
}

std::optional<Argument> Draft::tensors(const Asked& asked) {
  const auto first = first_tensor(asked);
  if (!first) return {};
  std::vector<Argument> items{named(remember(*first))};
  const auto t = value_of(*first);
  const auto count = r_.between(1, 2);
  for (std::int64_t i = 0; i < count; i++) {
    const auto like = existing([&](auto&, const at::Tensor& o) { return o.sizes() == t.sizes(); });
    items.push_back(named(like && r_.chance(0.8) ? *like : fresh(Outside::Role::parameter, at::kFloat, t.sizes())));
  }
  return list(std::move(items));
}

std::optional<Argument> Draft::indices() {
  const auto& t = taken_.front();
  if (t.dim() == 0) return {};
  std::vector<Argument> items;
  if (t.dim() > 1 && r_.chance(0.3)) items.push_back(nothing());
  const auto n = r_.between(1, 4);
  items.push_back(named(fresh(Outside::Role::input, at::kLong, {n}, t.size(std::int64_t(items.size())))));
  if (t.dim() > std::int64_t(items.size()) && r_.chance(0.3))
    items.push_back(named(fresh(Outside::Role::input, at::kLong, {n}, t.size(std::int64_t(items.size())))));
  return list(std::move(items));
}

}  // namespace tandem::fuzz
