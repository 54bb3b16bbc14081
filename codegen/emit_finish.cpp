// What runs once after all chunks: partial sums are combined in order, then come the steps that need the totals.
#include "codegen/emitter.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

using Is = Instruction::Kind;

}  // namespace

void KernelEmitter::combine_chunks() {
  out_.line("for (long c = 1; c < chunks; ++c) {");
  for (const Accumulator& a : accumulators_) {
    const Term term = at(a.total).term;
    out_.line("{");
    out_.line(fmt::format("const double* restrict t = (const double*)(part + c * {} + {});", partial_bytes_, a.offset));
    out_.line("#pragma omp simd");
    out_.line(fmt::format("for (long i = 0; i < {}; ++i) {{", a.kept));
    if (is_pair(a))
      out_.line(fmt::format("ADD_WIDE(t{0}[i], l{0}[i], t[i]); l{0}[i] += t[{1} + i];", a.total, a.kept));
    else if (term == Term::row_sum)
      out_.line(fmt::format("t{0}[i] += t[i];", a.total));
    else
      out_.line(fmt::format("t{0}[i] = {1}_of(t{0}[i], t[i]);", a.total, term == Term::row_max ? "max" : "min"));
    out_.line("}");
    out_.line("}");
  }
  out_.line("}");
}

/// The dims over which the totals that instruction i comes from are reduced.
std::vector<bool> KernelEmitter::mask_of(std::int32_t i) const {
  if (at(i).kind == Is::total) return at(i).over;
  for (std::int32_t o : {at(i).a, at(i).b, at(i).c})
    if (o >= 0 && scope(o) == Scope::finish) return mask_of(o);
  return {};
}

void KernelEmitter::kept_elements(const std::vector<bool>& mask) {
  for (std::size_t d = 0; d < mask.size(); ++d)
    if (!mask[d]) out_.line(fmt::format("for (long d{0} = 0; d{0} < {1}; ++d{0}) {{", d, loop_.sizes[d]));
  std::vector<bool> loaded(loop_.code.size(), false);
  auto load_for = [&](std::int32_t o) {
    if (o < 0 || at(o).kind != Is::load || scope(o) == Scope::fixed || loaded[static_cast<std::size_t>(o)]) return;
    loaded[static_cast<std::size_t>(o)] = true;
    load(o, sum_of_products(parameter(at(o).index).strides, mask.size()));
  };
  std::vector<std::int32_t> code;
  for (std::size_t k = 0; k < loop_.code.size(); ++k) {
    const auto i = static_cast<std::int32_t>(k);
    if (schedule_.finish[k] && scope(i) == Scope::finish && mask_of(i) == mask) code.push_back(i);
  }
  for (std::int32_t i : code)
    if (at(i).kind != Is::total)
      for (std::int32_t o : {at(i).a, at(i).b, at(i).c}) load_for(o);
  for (std::int32_t i : code) {
    const Instruction& n = at(i);
    if (n.kind == Is::total) {
      const std::string index = sum_of_products(accumulator(i).strides, mask.size());
      const char* type = c_type(loop_.compute);
      out_.line(is_pair(accumulator(i)) ? fmt::format("const {0} v{1} = wide_sum(t{1}[{2}], l{1}[{2}]);", type, i, index)
                                        : fmt::format("const {0} v{1} = ({0})t{1}[{2}];", type, i, index));
      continue;
    }
    if (n.kind == Is::store)
      store(i, sum_of_products(parameter(n.index).strides, mask.size()));
    else
      out_.line(fmt::format("const {} v{} = {};", c_type(loop_.compute), i, c_value(n, loop_.compute)));
  }
  for (bool over : mask)
    if (!over) out_.line("}");
}

void KernelEmitter::finish() {
  out_.line(fmt::format("void {}_finish(void* const* p, const double* s, long chunks) {{", name_));
  declare_parameters(schedule_.finish);
  out_.line(fmt::format("char* part = p[{}];", loop_.parameters.size()));
  declare_accumulators("part");
  combine_chunks();
  fixed_code(schedule_.finish);
  std::vector<std::vector<bool>> masks;
  for (const Accumulator& a : accumulators_)
    if (std::find(masks.begin(), masks.end(), at(a.total).over) == masks.end()) masks.push_back(at(a.total).over);
  for (const auto& mask : masks) {
    out_.line("{");
    kept_elements(mask);
    out_.line("}");
  }
  out_.line("}");
}

}  // namespace tandem
