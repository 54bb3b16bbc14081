// Runs a nest element by element on the tensors of a node.
#pragma once

#include "partitioner/nest.h"
#include "tests/partitioner/one_node.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::test {

template <class T>
class NestRun {
 public:
  NestRun(const OneNode& one, const Nest& nest) : one_(one), nest_(nest), n_(static_cast<std::size_t>(nest.elements())) {
    for (std::size_t i = 0; i < n_; ++i) {
      std::int64_t row = 0, column = 0, rest = static_cast<std::int64_t>(i);
      std::int64_t rows = 1, columns = 1;
      for (std::size_t d = nest.sizes.size(); d-- > 0; rest /= nest.sizes[d]) {
        std::int64_t& id = nest.reduced[d] ? column : row;
        std::int64_t& of = nest.reduced[d] ? columns : rows;
        id += rest % nest.sizes[d] * of;
        of *= nest.sizes[d];
      }
      row_.push_back(row);
      column_.push_back(column);
      row_length_ = columns;
    }
  }

  /// Into the tensors of the results.
  void run() {
    for (const Step& s : nest_.formula.steps) steps_.push_back(evaluate(s));
    for (std::size_t k = 0; k < nest_.results.size(); ++k) {
      const Access& r = nest_.results[k];
      if (r.value < 0) continue;
      at::Tensor t = one_.operands[static_cast<std::size_t>(r.value)];
      const std::vector<T>& from = steps_[static_cast<std::size_t>(nest_.formula.results[k])];
      for (std::size_t i = 0; i < n_; ++i) store(t, offset(r, i), from[i]);
    }
  }

 private:
  std::int64_t offset(const Access& a, std::size_t i) const {
    std::int64_t at = 0;
    for (std::size_t d = nest_.sizes.size(); d-- > 0; i /= static_cast<std::size_t>(nest_.sizes[d]))
      at += static_cast<std::int64_t>(i % static_cast<std::size_t>(nest_.sizes[d])) * a.strides[d];
    return at;
  }

  static T load(const at::Tensor& t, std::int64_t at) {
    switch (t.scalar_type()) {
      case at::kFloat: return static_cast<T>(t.data_ptr<float>()[at]);
      case at::kDouble: return static_cast<T>(t.data_ptr<double>()[at]);
      case at::kBool: return static_cast<T>(t.data_ptr<bool>()[at]);
      case at::kLong: return static_cast<T>(t.data_ptr<std::int64_t>()[at]);
      case at::kInt: return static_cast<T>(t.data_ptr<std::int32_t>()[at]);
      default: throw std::runtime_error("dtype");
    }
  }

  static void store(at::Tensor& t, std::int64_t at, T value) {
    if (t.scalar_type() == at::kFloat)
      t.data_ptr<float>()[at] = static_cast<float>(value);
    else if (t.scalar_type() == at::kDouble)
      t.data_ptr<double>()[at] = static_cast<double>(value);
    else
      t.data_ptr<bool>()[at] = value != 0;
  }

  double argument(std::int32_t index) const {
    const Constant& c = one_.node().args[static_cast<std::size_t>(index)].constant;
    if (auto* b = std::get_if<bool>(&c)) return *b;
    if (auto* i = std::get_if<std::int64_t>(&c)) return static_cast<double>(*i);
    return std::get<double>(c);
  }

  std::vector<T> evaluate(const Step& s) const {
    std::vector<T> out(n_);
    if (is_reduction(s.term)) return reduce(s);
    for (std::size_t i = 0; i < n_; ++i) {
      const auto of = [&](std::int32_t step) { return step < 0 ? T(0) : steps_[static_cast<std::size_t>(step)][i]; };
      if (s.term == Term::operand) {
        const Access& a = nest_.operands[static_cast<std::size_t>(s.index)];
        out[i] = load(one_.operands[static_cast<std::size_t>(a.value)], offset(a, i));
      } else if (s.term == Term::argument) {
        out[i] = static_cast<T>(argument(s.index));
      } else if (s.term == Term::number) {
        out[i] = static_cast<T>(s.value);
      } else if (s.term == Term::count) {
        out[i] = static_cast<T>(row_length_);
      } else {
        out[i] = apply(s.term, of(s.a), of(s.b), of(s.c));
      }
    }
    return out;
  }

  std::vector<T> reduce(const Step& s) const {
    const std::vector<T>& from = steps_[static_cast<std::size_t>(s.a)];
    const std::vector<std::int64_t>& line = s.term == Term::column_sum ? column_ : row_;
    const double inf = std::numeric_limits<double>::infinity();
    std::vector<double> total(n_, s.term == Term::row_max ? -inf : s.term == Term::row_min ? inf : 0.0);
    for (std::size_t i = 0; i < n_; ++i) {
      double& t = total[static_cast<std::size_t>(line[i])];
      if (s.term == Term::row_max)
        t = apply(Term::maximum, static_cast<T>(t), from[i], 0);
      else if (s.term == Term::row_min)
        t = apply(Term::minimum, static_cast<T>(t), from[i], 0);
      else
        t += static_cast<double>(from[i]);
    }
    std::vector<T> out(n_);
    for (std::size_t i = 0; i < n_; ++i) out[i] = static_cast<T>(total[static_cast<std::size_t>(line[i])]);
    return out;
  }

  static T apply(Term term, T a, T b, T c) {
    switch (term) {
      case Term::neg: return -a;
      case Term::abs: return std::fabs(a);
      case Term::exp: return std::exp(a);
      case Term::log: return std::log(a);
      case Term::log1p: return std::log1p(a);
      case Term::expm1: return std::expm1(a);
      case Term::sin: return std::sin(a);
      case Term::cos: return std::cos(a);
      case Term::tanh: return std::tanh(a);
      case Term::sqrt: return std::sqrt(a);
      case Term::erf: return std::erf(a);
      case Term::floor: return std::floor(a);
      case Term::ceil: return std::ceil(a);
      case Term::trunc: return std::trunc(a);
      case Term::rint: return std::rint(a);
      case Term::is_nan: return std::isnan(a);
      case Term::logical_not: return a == 0;
      case Term::add: return a + b;
      case Term::sub: return a - b;
      case Term::mul: return a * b;
      case Term::div: return a / b;
      case Term::pow: return std::pow(a, b);
      case Term::minimum: return std::isnan(a) || a < b ? a : b;
      case Term::maximum: return std::isnan(a) || a > b ? a : b;
      case Term::fma: return std::fma(a, b, c);
      case Term::lt: return a < b;
      case Term::le: return a <= b;
      case Term::gt: return a > b;
      case Term::ge: return a >= b;
      case Term::eq: return a == b;
      case Term::ne: return a != b;
      case Term::logical_and: return a != 0 && b != 0;
      case Term::logical_or: return a != 0 || b != 0;
      case Term::select: return a != 0 ? b : c;
      default: throw std::runtime_error(std::string("term ") + name_of(term));
    }
  }

  const OneNode& one_;
  const Nest& nest_;
  std::size_t n_;
  std::vector<std::int64_t> row_, column_;  // per element
  std::int64_t row_length_ = 1;
  std::vector<std::vector<T>> steps_;
};

}  // namespace tandem::test
