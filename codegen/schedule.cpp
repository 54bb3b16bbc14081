#include "codegen/schedule.h"

#include <algorithm>
#include <bit>

namespace tandem {
namespace {

using Is = Instruction::Kind;

bool is_row_reduction(const Instruction& n) {
  return n.kind == Is::step && (n.term == Term::row_sum || n.term == Term::row_max || n.term == Term::row_min);
}

class Scheduler {
 public:
  explicit Scheduler(const Loop& loop) : loop_(loop), n_(loop.code.size()) {}

  Schedule run() {
    s_.scopes = scopes_of(loop_);
    s_.used.assign(n_, false);
    s_.finish.assign(n_, false);
    s_.level.assign(n_, 0);
    s_.buffer.assign(n_, Schedule::nowhere);
    mark_used();
    for (std::size_t i = 0; i < n_; ++i) s_.level[i] = level_of(i);
    place_ends();
    needed_.assign(n_, 0);
    for (std::size_t i = n_; i-- > 0;) place_value(i);
    for (std::size_t i = 0; i < n_; ++i) list(i);
    return std::move(s_);
  }

 private:
  const Instruction& at(std::size_t i) const { return loop_.code[i]; }
  Scope scope(std::int32_t i) const { return s_.scopes[static_cast<std::size_t>(i)]; }

  template <class F>
  void for_operands(std::size_t i, F&& f) const {
    for (std::int32_t o : {at(i).a, at(i).b, at(i).c})
      if (o >= 0) f(static_cast<std::size_t>(o));
  }

  /// A total belongs to both sides: the kernel adds up its operand, the finish knows its value.
  void mark_used() {
    for (std::size_t i = n_; i-- > 0;) {
      const bool late = s_.scopes[i] == Scope::finish;
      if (at(i).kind == Is::store) (late ? s_.finish : s_.used)[i] = true;
      if (at(i).kind == Is::total) {
        if (s_.finish[i]) for_operands(i, [&](std::size_t o) { s_.used[o] = true; });
        continue;
      }
      if (s_.used[i]) for_operands(i, [&](std::size_t o) { s_.used[o] = true; });
      if (s_.finish[i]) for_operands(i, [&](std::size_t o) { s_.finish[o] = true; });
    }
  }

  std::int32_t level_of(std::size_t i) const {
    std::int32_t level = 0;
    for_operands(i, [&](std::size_t o) { level = std::max(level, s_.level[o]); });
    return is_row_reduction(at(i)) ? level + 1 : level;
  }

  bool is_end(std::size_t i) const {
    if (at(i).kind == Is::total) return s_.finish[i];
    if (!s_.used[i]) return false;
    return is_row_reduction(at(i)) || (at(i).kind == Is::store && s_.scopes[i] == Scope::element);
  }

  /// Elements that a later pass may load again are overwritten in the last pass, where each is loaded before it is stored.
  void place_ends() {
    pass_of_end_.assign(n_, -1);
    std::int32_t last = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      if (!is_end(i)) continue;
      pass_of_end_[i] = is_row_reduction(at(i)) ? s_.level[i] - 1 : s_.level[i];
      last = std::max(last, pass_of_end_[i]);
    }
    for (std::size_t i = 0; i < n_; ++i)
      if (is_end(i) && at(i).kind == Is::store && loop_.parameters[static_cast<std::size_t>(at(i).index)].read) pass_of_end_[i] = last;
    s_.passes.resize(static_cast<std::size_t>(last) + 1);
  }

  /// Users come after what they use, so that all passes that need this one are known.
  void place_value(std::size_t i) {
    std::uint64_t here = needed_[i];
    if (is_end(i)) {
      here = std::uint64_t{1} << pass_of_end_[i];
    } else if (s_.scopes[i] != Scope::element || !s_.used[i]) {
      return;
    } else if (std::popcount(here) > 1 && at(i).kind == Is::step && is_expensive(at(i).term)) {
      s_.buffer[i] = memory_for(i);
      if (s_.buffer[i] != Schedule::nowhere) here &= ~here + 1;
    }
    for_operands(i, [&](std::size_t o) { needed_[o] |= here; });
  }

  std::int32_t memory_for(std::size_t i) {
    const std::int32_t first = std::countr_zero(needed_[i]);
    for (std::size_t k = 0; k < n_; ++k) {
      if (!is_end(k) || at(k).kind != Is::store || at(k).a != static_cast<std::int32_t>(i) || pass_of_end_[k] != first) continue;
      const LoopParameter& p = loop_.parameters[static_cast<std::size_t>(at(k).index)];
      if (p.dtype == loop_.compute && !p.read) return at(k).index;
    }
    const std::int64_t bytes = loop_.row_elements() * static_cast<std::int64_t>(c10::elementSize(loop_.compute));
    if (buffered_ + bytes > row_buffer_bytes) return Schedule::nowhere;
    buffered_ += bytes;
    return Schedule::row_buffer;
  }

  void list(std::size_t i) {
    const auto number = static_cast<std::int32_t>(i);
    if (is_end(i)) {
      s_.passes[static_cast<std::size_t>(pass_of_end_[i])].ends.push_back(number);
      return;
    }
    if (s_.scopes[i] != Scope::element || !s_.used[i]) return;
    bool first = true;
    for (std::size_t p = 0; p < s_.passes.size(); ++p) {
      if ((needed_[i] >> p & 1) == 0) continue;
      (first || s_.buffer[i] == Schedule::nowhere ? s_.passes[p].code : s_.passes[p].kept).push_back(number);
      first = false;
    }
  }

  const Loop& loop_;
  const std::size_t n_;
  Schedule s_;
  std::vector<std::int32_t> pass_of_end_;
  std::vector<std::uint64_t> needed_;  // bit p: pass p
  std::int64_t buffered_ = 0;
};

}  // namespace

Schedule schedule(const Loop& loop) { return Scheduler(loop).run(); }

}  // namespace tandem
