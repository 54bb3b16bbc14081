// Writes the functions of one kernel.
#pragma once

#include "codegen/c_text.h"
#include "codegen/schedule.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Where a total is added up: `kept` numbers in the chunk's part of the workspace. Sums are in double; sums of doubles are pairs of a sum and what
/// it lost to rounding.
struct Accumulator {
  std::int32_t total = -1;  // instruction
  std::int64_t kept = 1;
  std::vector<std::int64_t> strides;  // per dim of the loop, 0 where summed over
  std::int64_t offset = 0;            // bytes: sums, then for doubles what they lost, then for columns the current block
  bool columns = false;               // rows are added up in the compute dtype first, `rows_per_block` of them
};

constexpr std::int64_t rows_per_block = 16;       // short sums in float32 lose little; eager's cascades have the same length
constexpr std::int64_t elements_per_block = 128;  // longer runs are summed up in blocks; the prelude's BLOCK is at least that

class KernelEmitter {
 public:
  KernelEmitter(const Loop& loop, std::string_view name);

  void kernel();  // emit.cpp
  void finish();  // emit_finish.cpp
  const std::string& text() const { return out_.text(); }
  std::int64_t partial_bytes() const { return partial_bytes_; }

 private:
  const Instruction& at(std::int32_t i) const { return loop_.code[static_cast<std::size_t>(i)]; }
  Scope scope(std::int32_t i) const { return schedule_.scopes[static_cast<std::size_t>(i)]; }
  const LoopParameter& parameter(std::int32_t p) const { return loop_.parameters[static_cast<std::size_t>(p)]; }
  std::size_t last_dim() const { return loop_.sizes.size() - 1; }
  bool single() const { return loop_.compute == c10::ScalarType::Float; }
  const Accumulator& accumulator(std::int32_t total) const;
  bool is_pair(const Accumulator& a) const { return !single() && at(a.total).term == Term::row_sum; }

  void lay_out_workspace();
  void declare_parameters(const std::vector<bool>& code);
  void declare_accumulators(std::string_view part);
  void clear_accumulators();
  void fixed_code(const std::vector<bool>& wanted);
  void unit_indices();
  void unit_code(std::int32_t level);
  void add_blocks();

  // emit_finish.cpp
  void combine_chunks();
  void kept_elements(const std::vector<bool>& mask);
  std::vector<bool> mask_of(std::int32_t i) const;

  // emit_pass.cpp
  void pass(std::size_t number);
  void run_over_last_dim(const Pass& p);
  void offsets(const Pass& p);
  bool open_blocks(const Pass& p);
  void simd_loop(const Pass& p);
  void element_end(std::int32_t i);
  void after_run(const Pass& p);
  void after_pass(const Pass& p);
  bool runs_along_last_dim(std::int32_t reduction) const;

  void load(std::int32_t i, const std::string& index);
  void store(std::int32_t i, const std::string& index);
  std::string sum_of_products(const std::vector<std::int64_t>& strides, std::size_t dims) const;  // "d0 * 8 + d1", "0" when empty
  std::string element_index(std::int32_t parameter) const;

  const Loop& loop_;
  const std::string name_;
  const Schedule schedule_;
  CText out_;
  std::vector<Accumulator> accumulators_;
  std::int64_t partial_bytes_ = 0;
};

}  // namespace tandem
