#include "tests/fuzz/edit.h"

#include <algorithm>
#include <set>

namespace tandem::fuzz {
namespace {

void rename(Argument& a, const std::string& from, const std::string& to) {
  for_each_value(a, [&](std::string& name) {
    if (name == from) name = to;
  });
}

void rename(Program& p, const std::string& from, const std::string& to) {
  for (auto& s : p.statements)
    for (auto& a : s.arguments) rename(a, from, to);
  for (auto* names : {&p.losses, &p.outputs})
    for (auto& n : *names)
      if (n == from) n = to;
}

std::string first_operand(const Statement& s) {
  std::string first;
  for (const auto& a : s.arguments)
    for_each_value(a, [&](const std::string& name) {
      if (first.empty()) first = name;
    });
  return first;
}

}  // namespace

Program tidy(Program p) {
  std::set<std::string> used;
  for (const auto& s : p.statements) {
    used.insert(s.op);
    for (const auto& a : s.arguments) for_each_value(a, [&](const std::string& name) { used.insert(name); });
  }
  used.insert(p.losses.begin(), p.losses.end());
  used.insert(p.outputs.begin(), p.outputs.end());
  std::erase_if(p.outside, [&](const Outside& o) { return !used.count(o.name); });
  std::erase_if(p.layers, [&](const Layer& l) { return !used.count(l.name); });
  return p;
}

Program without(const Program& program, std::size_t i) {
  Program p = program;
  std::set<std::string> gone(p.statements[i].results.begin(), p.statements[i].results.end());
  p.statements.erase(p.statements.begin() + std::ptrdiff_t(i));
  std::erase_if(p.statements, [&](const Statement& s) {
    bool uses = false;
    for (const auto& a : s.arguments) for_each_value(a, [&](const std::string& name) { uses |= gone.count(name) > 0; });
    if (uses) gone.insert(s.results.begin(), s.results.end());
    return uses;
  });
  for (auto* names : {&p.losses, &p.outputs}) std::erase_if(*names, [&](const std::string& n) { return gone.count(n) > 0; });
  return tidy(std::move(p));
}

Program bypassed(const Program& program, std::size_t i) {
  const auto& s = program.statements[i];
  const auto operand = first_operand(s);
  if (operand.empty() || s.results.empty()) return program;
  Program p = program;
  p.statements.erase(p.statements.begin() + std::ptrdiff_t(i));
  rename(p, s.results[0], operand);
  return tidy(std::move(p));
}

Program cut_off(const Program& program, std::size_t i, const Outside& instead) {
  Program p = program;
  const auto result = p.statements[i].results.at(0);
  p.statements.erase(p.statements.begin() + std::ptrdiff_t(i));
  rename(p, result, instead.name);
  p.outside.push_back(instead);
  return tidy(std::move(p));
}

}  // namespace tandem::fuzz
