#include "autograd/graph.h"

#include "autograd/text.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <limits>

namespace tandem {

namespace {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

template <class T>
bool same_bits(const T& a, const T& b) {
  return a == b;
}

bool same_bits(const c10::complex<double>& a, const c10::complex<double>& b) {
  return same_bits(a.real(), b.real()) && same_bits(a.imag(), b.imag());
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

/// The first index at which the lists differ, or the common size.
template <class T>
std::size_t mismatch(const std::vector<T>& a, const std::vector<T>& b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return i;
}

/// One sentence about two lists of the same kind; `show` names one of their elements.
template <class T, class Show>
std::string list_difference(const char* what, const std::vector<T>& a, const std::vector<T>& b, Show&& show) {
  if (a == b) return {};
  std::size_t i = mismatch(a, b);
  if (i == a.size() || i == b.size()) return fmt::format("expected {} {}s, found {}", a.size(), what, b.size());
  return fmt::format("{} {}: expected {}, found {}", what, i, show(a[i]), show(b[i]));
}

std::string show_storage(const Storage& s) {
  return fmt::format("{} {} {} of {} bytes on {}", name_of(s.role), s.index, in_quotes(s.name), s.bytes, s.device.str());
}

std::string show_value(const Value& v) {
  return fmt::format("{} with strides [{}] at s{}@{}+{}{}{}{}", describe(v), fmt::join(v.strides, ", "), v.storage, v.version, v.offset,
                     v.conj ? " conj" : "", v.neg ? " neg" : "", v.zero ? " zero" : "");
}

std::string show_gradient(const Gradient& g) {
  return fmt::format("%{} for leaf {} {} (before the update: %{})", g.value, g.leaf, in_quotes(g.name), g.before);
}

std::string id_difference(const char* what, ValueId a, ValueId b) {
  return a == b ? std::string() : fmt::format("{}: expected %{}, found %{}", what, a, b);
}

/// What a reader of the program sees of two results; "" where that is the same.
std::string result_difference(const Node& n, const Value& a, const Value& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes)
    return fmt::format("the result of {}: expected {}, found {}", describe(n), describe(a), describe(b));
  if (a.offset != b.offset)
    return fmt::format("the result of {}: expected its elements from {} on, found {}", describe(n), a.offset, b.offset);
  return "";
}

/// About the first call that is another op or gives something else; what differs besides has no words of the program's own.
std::string call_difference(const Graph& a, const Graph& b) {
  for (std::size_t i = 0; i < std::min(a.nodes.size(), b.nodes.size()); i++) {
    const auto &n = a.nodes[i], &m = b.nodes[i];
    if (n.op != m.op) return fmt::format("node at position {}: expected {}, found {}", i, describe(n), m.op);
    for (std::size_t k = 0; k < std::min(n.results.size(), m.results.size()); k++) {
      const auto &x = n.results[k].values, &y = m.results[k].values;
      for (std::size_t j = 0; j < std::min(x.size(), y.size()); j++) {
        if (x[j] < 0 || y[j] < 0) continue;
        if (auto d = result_difference(n, a.values[std::size_t(x[j])], b.values[std::size_t(y[j])]); !d.empty()) return d;
      }
    }
  }
  return "";
}

}  // namespace

bool same(const Constant& a, const Constant& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        return same_bits(x, std::get<T>(b));
      },
      a);
}

bool Argument::operator==(const Argument& o) const {
  if (kind != o.kind) return false;
  if (kind != Kind::constant) return values == o.values;
  if (wrapped != o.wrapped || scalar != o.scalar) return false;
  return scalar >= 0 ? constant.index() == o.constant.index() : same(constant, o.constant);  // a run-time scalar's number does not count
}

std::string first_difference(const Graph& a, const Graph& b) {
  if (auto d = call_difference(a, b); !d.empty()) return d;
  if (auto d = list_difference("storage", a.storages, b.storages, show_storage); !d.empty()) return d;
  if (auto d = list_difference("value", a.values, b.values, show_value); !d.empty()) return d;
  auto show_scalar = [](const RuntimeScalar& s) { return in_quotes(s.name); };
  if (auto d = list_difference("scalar", a.scalars, b.scalars, show_scalar); !d.empty()) return d;
  std::size_t i = mismatch(a.nodes, b.nodes);
  if (i < a.nodes.size() && i < b.nodes.size())
    return fmt::format("node at position {}: expected `{}`, found `{}`", i, print(a, a.nodes[i]), print(b, b.nodes[i]));
  if (a.nodes.size() != b.nodes.size()) return fmt::format("expected {} nodes, found {}", a.nodes.size(), b.nodes.size());
  if (auto d = id_difference("loss", a.loss, b.loss); !d.empty()) return d;
  if (auto d = list_difference("output", a.outputs, b.outputs, [](ValueId v) { return fmt::format("%{}", v); }); !d.empty()) return d;
  if (auto d = list_difference("gradient", a.gradients, b.gradients, show_gradient); !d.empty()) return d;
  return id_difference("norm of the gradients", a.grad_norm, b.grad_norm);
}

const char* name_of(Side s) {
  switch (s) {
    case Side::forward: return "forward";
    case Side::backward: return "backward";
    case Side::update: return "update";
  }
  return "unknown";
}

const char* name_of(Role r) {
  switch (r) {
    case Role::internal: return "internal";
    case Role::input: return "input";
    case Role::parameter: return "parameter";
    case Role::gradient: return "gradient";
    case Role::buffer: return "buffer";
    case Role::optimizer_state: return "optimizer_state";
    case Role::captured: return "captured";
    case Role::carried: return "carried";
  }
  return "unknown";
}

std::int64_t bytes_of(const Value& v) {
  std::int64_t bytes = v.dtype < c10::ScalarType::Undefined ? static_cast<std::int64_t>(c10::elementSize(v.dtype)) : 0;
  for (std::int64_t size : v.sizes) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(bytes, size, &bytes)) bytes = std::numeric_limits<std::int64_t>::max();  // no memory holds it
  }
  return bytes;
}

std::string describe(const Value& v) { return fmt::format("{} [{}]", dtype_name(v.dtype), fmt::join(v.sizes, ", ")); }

std::string describe(const Node& n) { return fmt::format("node {} {} ({})", n.id, n.op, name_of(n.side)); }

}  // namespace tandem
