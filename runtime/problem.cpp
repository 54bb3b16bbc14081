#include "runtime/problem.h"

#include "autograd/cursor.h"
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "autograd/verify.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

constexpr std::string_view graph_mark = "\n=== captured graph\n", plan_mark = "\n=== failing plan\n";

std::string hex(const void* data, std::size_t bytes) {
  std::string out(2 * bytes, '0');
  const auto* p = static_cast<const unsigned char*>(data);
  constexpr char digits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < bytes; i++) {
    out[2 * i] = digits[p[i] >> 4];
    out[2 * i + 1] = digits[p[i] & 15];
  }
  return out;
}

std::string text_of(const at::Tensor& t) {
  if (!t.defined()) return "undefined";
  const auto packed = t.detach().contiguous();
  return fmt::format("{} {} {} {}", dtype_name(t.scalar_type()), t.sizes(), t.strides(),
                     hex(packed.const_data_ptr(), std::size_t(packed.numel()) * packed.itemsize()));
}

std::vector<unsigned char> read_hex(Cursor& in) {
  const auto digits = in.word([](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (digits.size() % 2) in.fail("an even number of hexadecimal digits");
  auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<unsigned char> out(digits.size() / 2);
  for (std::size_t i = 0; i < out.size(); i++) out[i] = static_cast<unsigned char>(value(digits[2 * i]) * 16 + value(digits[2 * i + 1]));
  return out;
}

c10::Storage read_storage(Cursor& in) {
  const auto bytes = read_hex(in);
  c10::Storage s(c10::Storage::use_byte_size_t(), bytes.size(), c10::GetAllocator(c10::DeviceType::CPU), true);
  if (!bytes.empty()) std::memcpy(s.mutable_data(), bytes.data(), bytes.size());
  return s;
}

at::Tensor read_tensor(Cursor& in) {
  if (in.accept("undefined")) return {};
  c10::ScalarType dtype;
  const auto name = in.word([](char c) { return c != ' ' && c != '\n'; });
  if (!parse_dtype(name, dtype)) in.fail("a dtype before this");
  in.expect(" ");
  const auto sizes = in.integers();
  in.expect(" ");
  const auto strides = in.integers();
  in.expect(" ");
  const auto bytes = read_hex(in);
  // The bytes that are there bound the tensor, whatever the text says of its sizes.
  std::uint64_t expected = c10::elementSize(dtype);
  for (auto n : sizes)
    if (n < 0 || (n > 0 && __builtin_mul_overflow(expected, std::uint64_t(n), &expected))) in.fail("sizes that fit the data");
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) expected = 0;
  if (bytes.size() != expected || strides.size() != sizes.size()) in.fail(fmt::format("{} bytes of data", expected));
  std::uint64_t span = 1;
  for (std::size_t i = 0; i < sizes.size(); i++) {
    std::uint64_t step = 0;
    if (strides[i] < 0 ||
        __builtin_mul_overflow(std::uint64_t(std::max<std::int64_t>(sizes[i] - 1, 0)), std::uint64_t(strides[i]), &step) ||
        __builtin_add_overflow(span, step, &span) || span > 64 * (expected + 64))
      in.fail("strides that fit the data");
  }
  auto packed = at::empty(sizes, at::TensorOptions().dtype(dtype));
  if (!bytes.empty()) std::memcpy(packed.mutable_data_ptr(), bytes.data(), bytes.size());
  auto t = at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype));
  return t.copy_(packed);
}

void end_line(Cursor& in) {
  if (!in.done()) in.expect("\n");
}

void read_data(Cursor& in, Problem& p) {
  auto index = [&](std::size_t limit) {
    const auto i = in.integer<std::uint32_t>();
    if (i >= limit) in.fail(fmt::format("a number below {} before this", limit));
    return i;
  };
  while (!in.done()) {
    if (in.accept("before s")) {
      auto& b = p.eager.before.storages[index(p.graph.storages.size())];
      in.expect(" shift ");
      b.shift = in.integer<std::int64_t>();
      if (b.shift != 0) in.fail("shift 0: data are written from the tensor's start");
      in.expect(" ");
      b.storage = read_storage(in);
    } else if (in.accept("after s")) {
      const auto s = index(p.graph.storages.size());
      in.expect(" ");
      p.eager.after[s] = read_storage(in);
    } else if (in.accept("scalar ")) {
      const auto s = index(p.graph.scalars.size());
      in.expect(" ");
      p.eager.before.scalars[s] = in.floating();
    } else if (in.accept("loss ")) {
      p.eager.loss = read_tensor(in);
    } else if (in.accept("output ")) {
      const auto i = index(p.graph.outputs.size());
      in.expect(" ");
      p.eager.outputs[i] = read_tensor(in);
    } else if (in.accept("gradient ")) {
      const auto i = index(p.graph.gradients.size());
      in.expect(" ");
      p.eager.gradients[i] = read_tensor(in);
    } else if (in.accept("kept ")) {
      const auto i = index(p.graph.gradients.size());
      in.expect(" ");
      p.eager.kept[i] = read_tensor(in);
    } else if (in.accept("norm ")) {
      p.eager.grad_norm = read_tensor(in);
    } else if (in.accept("generator before ")) {
      p.eager.generator_before = read_tensor(in);
    } else if (in.accept("generator after ")) {
      p.eager.generator_after = read_tensor(in);
    } else {
      in.fail("before, after, scalar, loss, output, gradient, kept, norm or generator");
    }
    end_line(in);
  }
}

/// Every storage that the graph reads or writes from outside must be there, of its size.
void check_complete(const Graph& g, const EagerStep& e) {
  for (std::size_t s = 0; s < g.storages.size(); s++) {
    const auto& b = e.before.storages[s].storage;
    if (g.storages[s].role == Role::internal) continue;
    if (!b || std::int64_t(b.nbytes()) != g.storages[s].bytes || (e.after[s] && e.after[s].nbytes() != b.nbytes()))
      throw Error(fmt::format("problem: expected {} bytes of data for s{}, found {}", g.storages[s].bytes, s, b ? b.nbytes() : 0));
  }
  if (!e.generator_before.defined() || !e.generator_after.defined() || e.generator_before.scalar_type() != at::kByte ||
      e.generator_after.scalar_type() != at::kByte)
    throw Error("problem: expected two generator states, found none or others");
}

/// Passes keep what a graph shares with the outside.
void check_same_outside(const Graph& graph, const Graph& plan) {
  bool same = plan.storages.size() >= graph.storages.size() && plan.scalars.size() == graph.scalars.size() &&
              plan.gradients.size() == graph.gradients.size() && plan.outputs.size() == graph.outputs.size();
  for (std::size_t s = 0; same && s < plan.storages.size(); s++)
    same = s < graph.storages.size() ? plan.storages[s] == graph.storages[s] : plan.storages[s].role == Role::internal;
  if (!same) throw Error("problem: expected a plan of the captured graph, found one with other storages, scalars, outputs or gradients");
}

}  // namespace

std::string print(const Problem& p) {
  auto out = fmt::format("tandem problem 1\n{}\n", [&] {
    auto line = p.sentence;
    std::replace(line.begin(), line.end(), '\n', ' ');
    return line;
  }());
  const auto& g = p.graph;
  for (std::size_t s = 0; s < g.storages.size(); s++) {
    if (g.storages[s].role == Role::internal) continue;
    const auto& b = p.eager.before.storages[s];
    // An input that lies further into its storage than in the recorded step: write the bytes from there on, so that the shift is 0.
    const auto skip = std::size_t(std::max<std::int64_t>(b.shift, 0));
    auto from = [&](const c10::Storage& st) {
      auto text = hex(static_cast<const char*>(st.data()) + skip, st.nbytes() - skip);
      text.resize(2 * std::size_t(g.storages[s].bytes), '0');
      return text;
    };
    out += fmt::format("before s{} shift 0 {}\n", s, from(b.storage));
    if (p.eager.after[s]) out += fmt::format("after s{} {}\n", s, from(p.eager.after[s]));
  }
  for (std::size_t i = 0; i < p.eager.before.scalars.size(); i++) {
    auto number = fmt::format("{}", p.eager.before.scalars[i]);
    if (number.find_first_of(".en") == std::string::npos) number += ".0";
    out += fmt::format("scalar {} {}\n", i, number);
  }
  out += "loss " + text_of(p.eager.loss) + "\n";
  for (std::size_t i = 0; i < p.eager.outputs.size(); i++) out += fmt::format("output {} {}\n", i, text_of(p.eager.outputs[i]));
  for (std::size_t i = 0; i < p.eager.gradients.size(); i++) out += fmt::format("gradient {} {}\n", i, text_of(p.eager.gradients[i]));
  for (std::size_t i = 0; i < p.eager.kept.size(); i++) out += fmt::format("kept {} {}\n", i, text_of(p.eager.kept[i]));
  out += "norm " + text_of(p.eager.grad_norm) + "\n";
  out += "generator before " + text_of(p.eager.generator_before) + "\n";
  out += "generator after " + text_of(p.eager.generator_after);
  out += std::string(graph_mark) + print(g);
  if (p.plan) out += std::string(plan_mark.substr(out.back() == '\n' ? 1 : 0)) + print(*p.plan);
  return out;
}

Problem parse_problem(std::string_view text) {
  constexpr std::string_view head = "tandem problem 1\n";
  const auto graph_at = text.find(graph_mark);
  if (text.substr(0, head.size()) != head) throw Error("text line 1: expected 'tandem problem 1', found another text");
  if (graph_at == text.npos) throw Error("text line 1: expected a section '=== captured graph', found none");
  Problem p;
  const auto rest = text.substr(graph_at + graph_mark.size());
  const auto plan_at = rest.find(plan_mark.substr(1));
  p.graph = parse_graph(rest.substr(0, plan_at));
  if (plan_at != rest.npos) p.plan = parse_plan(rest.substr(plan_at + plan_mark.size() - 1));
  p.eager.before.storages.resize(p.graph.storages.size());
  p.eager.before.scalars.resize(p.graph.scalars.size());
  p.eager.after.resize(p.graph.storages.size());
  p.eager.outputs.resize(p.graph.outputs.size());
  p.eager.gradients.resize(p.graph.gradients.size());
  p.eager.kept.resize(p.graph.gradients.size());
  Cursor in(text.substr(0, graph_at));
  in.expect(head);
  p.sentence = std::string(in.word([](char c) { return c != '\n'; }));
  end_line(in);
  read_data(in, p);
  check_complete(p.graph, p.eager);
  for (std::size_t s = 0; s < p.eager.after.size(); s++)
    if (!p.eager.after[s]) p.eager.after[s] = p.eager.before.storages[s].storage;
  if (p.plan) check_same_outside(p.graph, p.plan->graph);
  return p;
}

Verdict replay(const Problem& p) {
  if (!p.plan) return check_capture(p.graph, p.eager, {}, {});
  if (auto fault = verify(p.graph); !fault.empty()) return {false, "capture check: " + fault, false, 0};
  Executor executor(*p.plan);
  return check_generation(p.graph, *p.plan, executor, p.eager);
}

}  // namespace tandem
