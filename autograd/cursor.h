// Reads tokens of a text form from left to right. Every failure is an Error "text line L: expected X, found Y".
#pragma once

#include "autograd/graph.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>

namespace tandem {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  std::size_t at() const { return at_; }

  [[noreturn]] void fail(std::string_view expected) const { fail_at(at_, expected); }
  [[noreturn]] void fail_at(std::size_t where, std::string_view expected) const;

  bool accept(std::string_view literal) {
    if (text_.substr(at_, literal.size()) != literal) return false;
    at_ += literal.size();
    return true;
  }
  void expect(std::string_view literal);

  /// The longest run of characters that `keep` accepts, perhaps empty.
  template <class Keep>
  std::string_view word(Keep&& keep) {
    std::size_t from = at_;
    while (at_ < text_.size() && keep(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }

  template <class T>
  T integer(int base = 10) {
    T value = 0;
    const char* from = text_.data() + at_;
    auto [end, error] = std::from_chars(from, text_.data() + text_.size(), value, base);
    if (error != std::errc()) fail(fmt::format("an integer of {} bits", 8 * sizeof(T)));
    at_ += static_cast<std::size_t>(end - from);
    return value;
  }

  /// An integer, or a floating number: those have a '.', an 'e', or are inf or nan.
  Constant number();
  double floating();
  std::string string();
  c10::Device device();
  Constant constant();
  std::vector<std::int64_t> integers();  // "[1, 2]", perhaps "[]"

  /// Reads "a, b, c" and `close`, the opening bracket being read.
  template <class Element>
  void elements(std::string_view close, Element&& element) {
    if (accept(close)) return;
    do element();
    while (accept(", "));
    expect(close);
  }

 private:
  double nan_payload(bool negative);
  char escape();
  Constant list();

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Throws unless the text is what print() writes for what was read, so that equal things have equal texts.
void expect_printed_form(std::string_view text, std::string_view printed);

}  // namespace tandem
