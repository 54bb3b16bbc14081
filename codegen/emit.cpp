#include "codegen/emit.h"

#include "autograd/support/error.h"
#include "codegen/emitter.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

using Is = Instruction::Kind;

KernelEmitter::KernelEmitter(const Loop& loop, std::string_view name) : loop_(loop), name_(name), schedule_(schedule(loop)) {
  lay_out_workspace();
}

void KernelEmitter::lay_out_workspace() {
  for (std::size_t i = 0; i < loop_.code.size(); ++i) {
    const Instruction& n = loop_.code[i];
    if (n.kind != Is::total || !schedule_.finish[i]) continue;
    Accumulator a;
    a.total = static_cast<std::int32_t>(i);
    a.strides.assign(loop_.sizes.size(), 0);
    for (std::size_t d = loop_.sizes.size(); d-- > 0;) {
      if (n.over[d]) continue;
      a.strides[d] = a.kept;
      a.kept *= loop_.sizes[d];
    }
    a.columns = n.term == Term::row_sum && loop_.row == 1 && !loop_.flat() && !n.over.back() &&
                std::all_of(n.over.begin(), n.over.end() - 1, [](bool over) { return over; });
    a.offset = partial_bytes_;
    partial_bytes_ += 8 * a.kept;
    if (n.term == Term::row_sum && !single()) partial_bytes_ += 8 * a.kept;
    if (a.columns) partial_bytes_ += 8 * a.kept;
    accumulators_.push_back(std::move(a));
  }
  partial_bytes_ = (partial_bytes_ + 63) / 64 * 64;  // chunks of different threads share no cache line
}

const Accumulator& KernelEmitter::accumulator(std::int32_t total) const {
  return *std::find_if(accumulators_.begin(), accumulators_.end(), [&](const Accumulator& a) { return a.total == total; });
}

void KernelEmitter::declare_parameters(const std::vector<bool>& code) {
  std::vector<bool> seen(loop_.parameters.size(), false);
  for (std::size_t i = 0; i < code.size(); ++i) {
    const Instruction& n = loop_.code[i];
    if (code[i] && (n.kind == Is::load || n.kind == Is::store)) seen[static_cast<std::size_t>(n.index)] = true;
  }
  for (std::size_t p = 0; p < seen.size(); ++p) {
    const LoopParameter& q = loop_.parameters[p];
    if (seen[p]) out_.line(fmt::format("{}{}* restrict p{} = p[{}];", q.written ? "" : "const ", c_type(q.dtype), p, p));
  }
}

void KernelEmitter::declare_accumulators(std::string_view part) {
  for (const Accumulator& a : accumulators_) {
    std::int64_t at = a.offset;
    auto next = [&](const char* type, char letter) {
      out_.line(fmt::format("{0}* restrict {1}{2} = ({0}*)({3} + {4});", type, letter, a.total, part, at));
      at += 8 * a.kept;
    };
    next("double", 't');
    if (is_pair(a)) next("double", 'l');
    if (a.columns) next(c_type(loop_.compute), 'f');
  }
}

void KernelEmitter::clear_accumulators() {
  for (const Accumulator& a : accumulators_) {
    const Term term = at(a.total).term;
    const char* first = term == Term::row_sum ? "0" : term == Term::row_max ? "-__builtin_inf()" : "__builtin_inf()";
    std::string all = fmt::format("t{}[i] = {};", a.total, first);
    if (is_pair(a)) all += fmt::format(" l{}[i] = 0;", a.total);
    if (a.columns) all += fmt::format(" f{}[i] = 0;", a.total);
    out_.line(fmt::format("for (long i = 0; i < {}; ++i) {{", a.kept));
    out_.line(all);
    out_.line("}");
  }
}

void KernelEmitter::load(std::int32_t i, const std::string& index) {
  const LoopParameter& q = parameter(at(i).index);
  const std::string element = fmt::format("p{}[{}]", at(i).index, index);
  if (q.dtype == loop_.compute) {
    out_.line(fmt::format("const {} v{} = {};", c_type(q.dtype), i, element));
    return;
  }
  out_.line(fmt::format("const {} e{} = {};", c_type(q.dtype), i, element));
  out_.line(fmt::format("const {0} v{1} = ({0})e{1};", c_type(loop_.compute), i));
}

/// An element that is only moved keeps its bits.
void KernelEmitter::store(std::int32_t i, const std::string& index) {
  const Instruction& n = at(i);
  const LoopParameter& q = parameter(n.index);
  std::string value = fmt::format("v{}", n.a);
  const bool moved = at(n.a).kind == Is::load && parameter(at(n.a).index).dtype == q.dtype;
  if (q.dtype != loop_.compute) value = moved ? fmt::format("e{}", n.a) : c_element(value, q.dtype);
  out_.line(fmt::format("p{}[{}] = {};", n.index, index, value));
}

void KernelEmitter::fixed_code(const std::vector<bool>& wanted) {
  for (std::size_t k = 0; k < loop_.code.size(); ++k) {
    const auto i = static_cast<std::int32_t>(k);
    if (!wanted[k] || scope(i) != Scope::fixed) continue;
    const Instruction& n = at(i);
    const char* type = c_type(loop_.compute);
    switch (n.kind) {
      case Is::load: load(i, "0"); break;
      case Is::store: store(i, "0"); break;
      case Is::number: out_.line(fmt::format("const {} v{} = {};", type, i, c_number(n.value, loop_.compute))); break;
      case Is::scalar: out_.line(fmt::format("const {0} v{1} = ({0})s[{2}];", type, i, n.index)); break;
      default: out_.line(fmt::format("const {} v{} = {};", type, i, c_value(n, loop_.compute)));
    }
  }
}

std::string KernelEmitter::sum_of_products(const std::vector<std::int64_t>& strides, std::size_t dims) const {
  std::string out;
  for (std::size_t d = 0; d < dims; ++d) {
    if (strides[d] == 0) continue;
    if (!out.empty()) out += " + ";
    out += strides[d] == 1 ? fmt::format("d{}", d) : fmt::format("d{} * {}", d, strides[d]);
  }
  return out.empty() ? "0" : out;
}

void KernelEmitter::unit_indices() {
  if (loop_.outer() == 0) return;
  std::string rest = "u";
  for (std::size_t d = loop_.outer() - 1; d > 0; --d) {
    out_.line(fmt::format("const long d{} = {} % {};", d, rest, loop_.sizes[d]));
    out_.line(fmt::format("const long u{} = {} / {};", d, rest, loop_.sizes[d]));
    rest = fmt::format("u{}", d);
  }
  out_.line(fmt::format("const long d0 = {};", rest));
}

void KernelEmitter::unit_code(std::int32_t level) {
  for (std::size_t k = 0; k < loop_.code.size(); ++k) {
    const auto i = static_cast<std::int32_t>(k);
    if (!schedule_.used[k] || scope(i) != Scope::unit || schedule_.level[k] != level) continue;
    const Instruction& n = at(i);
    const bool memory = n.kind == Is::load || n.kind == Is::store;
    const std::string index = memory ? sum_of_products(parameter(n.index).strides, loop_.outer()) : "";
    if (n.kind == Is::load) {
      load(i, index);
    } else if (n.kind == Is::store) {
      store(i, index);
    } else if (n.kind != Is::step || operands_of(n.term) < 0 || !is_reduction(n.term)) {
      out_.line(fmt::format("const {} v{} = {};", c_type(loop_.compute), i, c_value(n, loop_.compute)));
    }
  }
}

void KernelEmitter::add_blocks() {
  if (std::none_of(accumulators_.begin(), accumulators_.end(), [](const Accumulator& a) { return a.columns; })) return;
  out_.line(fmt::format("if (((u - begin) & {}) == {} || u + 1 == end) {{", rows_per_block - 1, rows_per_block - 1));
  for (const Accumulator& a : accumulators_) {
    if (!a.columns) continue;
    out_.line("#pragma omp simd");
    out_.line(fmt::format("for (long i = 0; i < {}; ++i) {{", a.kept));
    out_.line(is_pair(a) ? fmt::format("ADD_WIDE(t{0}[i], l{0}[i], f{0}[i]);", a.total)
                         : fmt::format("t{0}[i] += (double)f{0}[i];", a.total));
    out_.line(fmt::format("f{}[i] = 0;", a.total));
    out_.line("}");
  }
  out_.line("}");
}

void KernelEmitter::kernel() {
  out_.line(fmt::format("void {}(void* const* p, const double* s, long begin, long end, long chunk) {{", name_));
  declare_parameters(schedule_.used);
  if (partial_bytes_ > 0) {
    out_.line(fmt::format("char* part = (char*)p[{}] + chunk * {};", loop_.parameters.size(), partial_bytes_));
    declare_accumulators("part");
    clear_accumulators();
  }
  fixed_code(schedule_.used);
  for (std::size_t i = 0; i < loop_.code.size(); ++i)
    if (schedule_.buffer[i] == Schedule::row_buffer) out_.line(fmt::format("{} b{}[{}];", c_type(loop_.compute), i, loop_.row_elements()));
  if (!loop_.flat()) {
    out_.line("for (long u = begin; u < end; ++u) {");
    unit_indices();
  }
  unit_code(0);
  for (std::size_t number = 0; number < schedule_.passes.size(); ++number) {
    pass(number);
    unit_code(static_cast<std::int32_t>(number) + 1);
  }
  if (!loop_.flat()) {
    add_blocks();
    out_.line("}");
  }
  out_.line("}");
}

Emitted emit(const Loop& loop, std::string_view name) {
  if (const std::string wrong = fault_of(loop); !wrong.empty())
    throw InternalError(fmt::format("a loop that cannot be emitted: {}", wrong));
  KernelEmitter emitter(loop, name);
  emitter.kernel();
  if (emitter.partial_bytes() > 0) emitter.finish();
  return {emitter.text(), loop.row_elements(), emitter.partial_bytes()};
}

}  // namespace tandem
