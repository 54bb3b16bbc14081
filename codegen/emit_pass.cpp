// One pass over a row, or over the elements of a flat loop.
#include "codegen/emitter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tandem {
namespace {

using Is = Instruction::Kind;

bool is_total(const Instruction& n) { return n.kind == Is::total; }
bool is_row_reduction(const Instruction& n) { return n.kind == Is::step && is_reduction(n.term); }
const char* extreme(Term t) { return t == Term::row_max ? "max" : "min"; }

}  // namespace

/// Whether the loop over the last dim reduces it to one number per run; otherwise each of its elements has a place of its own.
bool KernelEmitter::runs_along_last_dim(std::int32_t i) const { return is_row_reduction(at(i)) || (is_total(at(i)) && at(i).over.back()); }

void KernelEmitter::pass(std::size_t number) {
  const Pass& p = schedule_.passes[number];
  if (p.ends.empty()) return;
  for (std::int32_t i : p.ends) {
    if (!is_row_reduction(at(i))) continue;
    if (at(i).term == Term::row_sum)
      out_.line(single() ? fmt::format("double w{} = 0;", i) : fmt::format("double w{0} = 0, c{0} = 0;", i));
    else
      out_.line(fmt::format("{} w{} = {}__builtin_inf();", c_type(loop_.compute), i, at(i).term == Term::row_max ? "-" : ""));
  }
  for (std::size_t d = loop_.outer(); d < last_dim(); ++d)
    out_.line(fmt::format("for (long d{0} = 0; d{0} < {1}; ++d{0}) {{", d, loop_.sizes[d]));
  run_over_last_dim(p);
  for (std::size_t d = loop_.outer(); d < last_dim(); ++d) out_.line("}");
  after_pass(p);
}

void KernelEmitter::run_over_last_dim(const Pass& p) {
  out_.line("{");
  offsets(p);
  const bool blocks = open_blocks(p);
  simd_loop(p);
  after_run(p);
  if (blocks) out_.line("}");
  out_.line("}");
}

/// Where the run begins in each parameter, accumulator and buffer.
void KernelEmitter::offsets(const Pass& p) {
  std::vector<bool> moved(loop_.parameters.size(), false);
  auto move = [&](std::int32_t q) {
    if (moved[static_cast<std::size_t>(q)] || loop_.flat()) return;
    moved[static_cast<std::size_t>(q)] = true;
    out_.line(fmt::format("const long o{} = {};", q, sum_of_products(parameter(q).strides, last_dim())));
  };
  for (std::int32_t i : p.code)
    if (at(i).kind == Is::load) move(at(i).index);
  for (std::int32_t i : p.kept)
    if (const std::int32_t q = schedule_.buffer[static_cast<std::size_t>(i)]; q >= 0) move(q);
  for (std::int32_t i : p.ends)
    if (at(i).kind == Is::store) move(at(i).index);
  for (std::int32_t i : p.ends)
    if (is_total(at(i))) out_.line(fmt::format("const long k{} = {};", i, sum_of_products(accumulator(i).strides, last_dim())));
  const auto in_buffer = [&](std::int32_t i) { return schedule_.buffer[static_cast<std::size_t>(i)] == Schedule::row_buffer; };
  if (std::none_of(p.code.begin(), p.code.end(), in_buffer) && std::none_of(p.kept.begin(), p.kept.end(), in_buffer)) return;
  std::vector<std::int64_t> row(loop_.sizes.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t d = loop_.sizes.size(); d-- > loop_.outer(); stride *= loop_.sizes[d]) row[d] = stride;
  out_.line(fmt::format("const long r = {};", sum_of_products(row, last_dim())));
}

/// Long sums are summed up in blocks, whose sums are added in double. Gives `from` and `to`; whether a brace is open.
bool KernelEmitter::open_blocks(const Pass& p) {
  const std::int64_t size = loop_.sizes.back();
  const char* begin = loop_.flat() ? "begin" : "0";
  const std::string end = loop_.flat() ? "end" : fmt::format("{}", size);
  const bool sums =
      std::any_of(p.ends.begin(), p.ends.end(), [&](std::int32_t i) { return runs_along_last_dim(i) && at(i).term == Term::row_sum; });
  if (!sums || (!loop_.flat() && size <= elements_per_block)) {
    out_.line(fmt::format("const long from = {}, to = {};", begin, end));
    return false;
  }
  out_.line(fmt::format("for (long from = {0}; from < {1}; from += BLOCK) {{", begin, end));
  out_.line(fmt::format("const long to = from + BLOCK < {0} ? from + BLOCK : {0};", end));
  return true;
}

void KernelEmitter::simd_loop(const Pass& p) {
  std::vector<std::string> sums, most, least;
  const char* key = single() ? "int" : "long";
  // Without vectors a block is one long chain of additions: in double it costs the same and loses nothing.
  const bool chain =
      std::any_of(p.code.begin(), p.code.end(), [&](std::int32_t i) { return at(i).kind == Is::step && is_library_call(at(i).term); });
  for (std::int32_t i : p.ends) {
    if (!runs_along_last_dim(i)) continue;
    const bool sum = at(i).term == Term::row_sum;
    out_.line(sum ? fmt::format("{} r{} = 0;", chain ? "double" : c_type(loop_.compute), i)
                  : fmt::format("{} r{} = {}_KEY_FIRST{};", key, i, at(i).term == Term::row_max ? "MAX" : "MIN", single() ? "_F" : ""));
    (sum ? sums : at(i).term == Term::row_max ? most : least).push_back(fmt::format("r{}", i));
  }
  std::string pragma = "#pragma omp simd";
  if (!sums.empty()) pragma += fmt::format(" reduction(+ : {})", fmt::join(sums, ", "));
  if (!most.empty()) pragma += fmt::format(" reduction(max : {})", fmt::join(most, ", "));
  if (!least.empty()) pragma += fmt::format(" reduction(min : {})", fmt::join(least, ", "));
  out_.line(pragma);
  out_.line("for (long i = from; i < to; ++i) {");
  for (std::int32_t i : p.kept) {
    const std::int32_t q = schedule_.buffer[static_cast<std::size_t>(i)];
    out_.line(fmt::format("const {} v{} = {};", c_type(loop_.compute), i,
                          q >= 0 ? fmt::format("p{}[{}]", q, element_index(q)) : fmt::format("b{}[r + i]", i)));
  }
  for (std::int32_t i : p.code) {
    if (at(i).kind == Is::load)
      load(i, element_index(at(i).index));
    else
      out_.line(fmt::format("const {} v{} = {};", c_type(loop_.compute), i, c_value(at(i), loop_.compute)));
    if (schedule_.buffer[static_cast<std::size_t>(i)] == Schedule::row_buffer) out_.line(fmt::format("b{}[r + i] = v{};", i, i));
  }
  for (std::int32_t i : p.ends) element_end(i);
  out_.line("}");
}

std::string KernelEmitter::element_index(std::int32_t p) const {
  const std::int64_t stride = parameter(p).strides.back();
  const std::string base = loop_.flat() ? "" : fmt::format("o{} + ", p);
  if (stride == 0) return loop_.flat() ? "0" : fmt::format("o{}", p);
  return stride == 1 ? base + "i" : fmt::format("{}i * {}", base, stride);
}

void KernelEmitter::element_end(std::int32_t i) {
  const Instruction& n = at(i);
  if (n.kind == Is::store) return store(i, element_index(n.index));
  if (runs_along_last_dim(i)) {
    if (n.term == Term::row_sum)
      out_.line(fmt::format("r{} += v{};", i, n.a));
    else
      out_.line(fmt::format("const {0} y{1} = {2}_key{3}(v{4}); r{1} = y{1} {5} r{1} ? y{1} : r{1};", single() ? "int" : "long", i,
                            extreme(n.term), single() ? "_f" : "", n.a, n.term == Term::row_max ? ">" : "<"));
    return;
  }
  const Accumulator& a = accumulator(i);
  if (a.columns)
    out_.line(fmt::format("f{0}[k{0} + i] += v{1};", i, n.a));
  else if (n.term != Term::row_sum)
    out_.line(fmt::format("t{0}[k{0} + i] = {1}_of(t{0}[k{0} + i], v{2});", i, extreme(n.term), n.a));
  else if (single())
    out_.line(fmt::format("t{0}[k{0} + i] += (double)v{1};", i, n.a));
  else
    out_.line(fmt::format("ADD_WIDE(t{0}[k{0} + i], l{0}[k{0} + i], v{1});", i, n.a));
}

void KernelEmitter::after_run(const Pass& p) {
  for (std::int32_t i : p.ends) {
    if (!runs_along_last_dim(i)) continue;
    const bool total = is_total(at(i));
    const std::string sum = total ? fmt::format("t{0}[k{0}]", i) : fmt::format("w{}", i),
                      lost = total ? fmt::format("l{0}[k{0}]", i) : fmt::format("c{}", i);
    if (at(i).term != Term::row_sum)
      out_.line(fmt::format("{0} = {1}_of({0}, key_value{2}(r{3}));", sum, extreme(at(i).term), single() ? "_f" : "", i));
    else if (single())
      out_.line(fmt::format("{} += (double)r{};", sum, i));
    else
      out_.line(fmt::format("ADD_WIDE({}, {}, r{});", sum, lost, i));
  }
}

void KernelEmitter::after_pass(const Pass& p) {
  for (std::int32_t i : p.ends) {
    if (!is_row_reduction(at(i))) continue;
    const bool pair = at(i).term == Term::row_sum && !single();
    out_.line(fmt::format("const {} v{} = {};", c_type(loop_.compute), i,
                          pair ? fmt::format("wide_sum(w{0}, c{0})", i) : fmt::format("({})w{}", c_type(loop_.compute), i)));
  }
}

}  // namespace tandem
