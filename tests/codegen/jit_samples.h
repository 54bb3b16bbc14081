// Kernels as text, the compilers that may be there, and a look at what they made.
#pragma once

#include "autograd/support/error.h"
#include "codegen/jit/elf_object.h"
#include "codegen/jit/jit.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <string>

namespace tandem::jit::test {

/// y = a * b + c, element by element.
inline const std::string multiply_add = R"(
void k(void* const* p, long begin, long end) {
  float* restrict y = p[0];
  const float *restrict a = p[1], *restrict b = p[2], *restrict c = p[3];
  _Pragma("omp simd") for (long i = begin; i < end; ++i) y[i] = a[i] * b[i] + c[i];
}
)";

inline void run(const Module& module, void* const* p, long begin, long end) {
  reinterpret_cast<void (*)(void* const*, long, long)>(module.find("k"))(p, begin, end);
}

struct Choice {
  const char* name;
  Compiler compiler;
  const char* cc;  // of Compiler::system
};

inline void PrintTo(const Choice& choice, std::ostream* out) { *out << choice.name; }

inline Settings settings_of(const Choice& choice, const std::string& cpu = "") {
  Settings settings;
  settings.compiler = choice.compiler;
  settings.cc = choice.cc;
  settings.target.cpu = cpu;
  return settings;
}

/// Why the compiler cannot be tried here; empty when it can.
inline std::string absent(const Choice& choice) {
#ifndef TANDEM_HAS_JIT
  if (choice.compiler == Compiler::plugin) return "built without the plug-in";
#endif
  if (choice.compiler == Compiler::system && access(choice.cc, X_OK) != 0) return std::string("no ") + choice.cc;
  return "";
}

inline const Choice plugin{"plugin", Compiler::plugin, ""};
inline const Choice gcc{"gcc", Compiler::system, "/usr/bin/gcc"};
inline const Choice clang{"clang", Compiler::system, "/usr/bin/clang"};

inline std::string message_of(const std::string& text, const Settings& settings) {
  try {
    compile(text, settings);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Machine code of an object.
inline std::string code_of(const std::vector<char>& object) {
  const ElfObject elf(object);
  std::string code;
  for (const auto& section : elf.sections()) {
    if (section.sh_flags & SHF_EXECINSTR) code.append(elf.content(section), section.sh_size);
  }
  return code;
}

/// Instructions on vectors of 512 bits, by their EVEX prefix: fixed bits of the second and third byte, width in the fourth.
inline int wide_instructions(const std::string& code) {
  int found = 0;
  for (std::size_t i = 0; i + 4 < code.size(); ++i) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(code[i + k]); };
    found += byte(0) == 0x62 && (byte(1) & 0x08) == 0 && (byte(2) & 0x04) != 0 && (byte(3) & 0x60) == 0x40;
  }
  return found;
}

/// Instructions on vectors of 256 bits, by their VEX prefix.
inline int half_wide_instructions(const std::string& code) {
  int found = 0;
  for (std::size_t i = 0; i + 3 < code.size(); ++i) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(code[i + k]); };
    found += (byte(0) == 0xc5 && (byte(1) & 0x04) != 0) || (byte(0) == 0xc4 && (byte(2) & 0x04) != 0);
  }
  return found;
}

}  // namespace tandem::jit::test
