#include "tests/fuzz/shrink.h"

#include "tests/fuzz/edit.h"
#include "tests/fuzz/model.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <set>

namespace tandem::fuzz {
namespace {

class Shrinker {
 public:
  Shrinker(Program p, const std::function<bool(const Program&)>& fails, int budget) : p_(std::move(p)), fails_(fails), budget_(budget) {}

  Program run() {
    for (bool again = true; again && budget_ > 0;) {
      const auto before = p_;
      drop_statements();
      drop_names(&Program::losses, 1);
      drop_names(&Program::outputs, 0);
      drop_steps();
      drop_settings();
      make_sizes_smaller();
      again = !(p_ == before);
    }
    return p_;
  }

 private:
  /// Goes on with the candidate when it fails too.
  bool attempt(Program candidate) {
    if (candidate == p_ || candidate.losses.empty() || candidate.steps.empty() || budget_-- <= 0 || !fails_(candidate)) return false;
    p_ = std::move(candidate);
    return true;
  }

  void drop_statements() {
    for (auto i = std::ptrdiff_t(p_.statements.size()) - 1; i >= 0; i--) {
      if (std::size_t(i) >= p_.statements.size()) continue;
      const auto at = std::size_t(i);
      attempt(without(p_, at)) || attempt(bypassed(p_, at)) || cut_off_here(at);
    }
  }

  /// The statement's result comes from outside, as parameter or as buffer.
  bool cut_off_here(std::size_t i) {
    const auto name = p_.statements[i].results.at(0);
    Outside o;
    try {
      Model model(p_);
      model.begin(model.batch(0, p_.steps[0].batch));
      for (const auto& s : p_.statements) model.evaluate(s);
      const auto& t = model.values().at(name);
      o.dtype = t.scalar_type();
      o.below = t.is_floating_point() || t.numel() == 0 ? 2 : t.max().item<std::int64_t>() + 1;
      for (const auto n : t.sizes()) o.sizes.push_back(whole(n));
      name_of(o.dtype);
    } catch (const std::exception&) {
      return false;
    }
    o.name = "c" + name;
    for (const auto role : {Outside::Role::buffer, Outside::Role::parameter}) {
      o.role = role;
      if ((role == Outside::Role::buffer || at::isFloatingType(o.dtype)) && attempt(cut_off(p_, i, o))) return true;
    }
    return false;
  }

  void drop_names(std::vector<std::string> Program::*names, std::size_t least) {
    for (std::size_t i = (p_.*names).size(); i-- > 0 && (p_.*names).size() > least;) {
      auto c = p_;
      (c.*names).erase((c.*names).begin() + std::ptrdiff_t(i));
      attempt(tidy(std::move(c)));
    }
  }

  void drop_steps() {
    for (std::size_t i = p_.steps.size(); i-- > 0;) {
      auto c = p_;
      c.steps.erase(c.steps.begin() + std::ptrdiff_t(i));
      attempt(std::move(c));
    }
    for (std::size_t i = 0; i < p_.steps.size(); i++) {
      auto c = p_;
      c.steps[i].lr.reset();
      attempt(std::move(c));
    }
  }

  void drop_settings() {
    for (const auto& [name, v] : std::map(p_.options)) {
      auto c = p_;
      c.options.erase(name);
      attempt(std::move(c));
    }
    auto plain = p_;
    plain.optimizer = "SGD";
    plain.hyper.clear();
    attempt(std::move(plain));
    for (const auto& [name, v] : std::map(p_.hyper)) {
      auto c = p_;
      c.hyper.erase(name);
      attempt(std::move(c));
    }
  }

  static void replace(std::vector<Argument>& arguments, std::int64_t from, std::int64_t to) {
    for (auto& a : arguments) {
      if (a.kind == Argument::Kind::integer && a.integer == from) a.integer = to;
      replace(a.items, from, to);
    }
  }

  void make_sizes_smaller() {
    std::set<std::int64_t, std::greater<>> sizes;
    for (const auto& o : p_.outside)
      for (const auto& s : o.sizes)
        if (s.kind == Argument::Kind::integer && s.integer > 1) sizes.insert(s.integer);
    for (const auto n : sizes)
      for (const std::int64_t smaller : {std::int64_t(1), n / 2, n - 1}) {
        auto c = p_;
        for (auto& o : c.outside) replace(o.sizes, n, smaller);
        for (auto& s : c.statements) replace(s.arguments, n, smaller);
        for (auto& l : c.layers) std::replace(l.arguments.begin(), l.arguments.end(), n, smaller);
        if (attempt(std::move(c))) break;
      }
    for (const std::int64_t b : {1, 2, 3}) {
      auto c = p_;
      for (auto& s : c.steps) s.batch = std::min(s.batch, b);
      if (attempt(std::move(c))) break;
    }
  }

  Program p_;
  const std::function<bool(const Program&)>& fails_;
  int budget_;
};

}  // namespace

Program shrink(Program p, const std::function<bool(const Program&)>& fails, int budget) {
  return Shrinker(std::move(p), fails, budget).run();
}

}  // namespace tandem::fuzz
