// From C text to code in this process: clang as a plug-in that is loaded at the first compile, or the system's C compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::jit {

/// For which processor. The default is the one that runs this.
struct Target {
  std::string cpu;      // LLVM's name, e.g. "haswell" (AVX2), "skylake-avx512"; empty: this processor
  int vector_bits = 0;  // preferred vector width; 0: the widest that the processor has
  bool operator==(const Target&) const = default;
};

enum class Compiler : std::uint8_t {
  automatic,  // the plug-in, else the system's C compiler
  plugin,     // clang in this process
  system,     // cc, gcc or clang found on PATH (or $TANDEM_CC), run as a process
};

struct Settings {
  Compiler compiler = Compiler::automatic;
  Target target;
  std::string
      plugin;  // path of the plug-in; empty: $TANDEM_JIT_PLUGIN, beside the program or library that holds this code, where it was built or installed
  std::string cc;  // path of the system's C compiler; empty: $TANDEM_CC, else found on PATH
};

/// Loaded code. Its functions stay valid as long as it lives.
class Module {
 public:
  virtual ~Module() = default;
  virtual void* find(const std::string& symbol) const = 0;  // nullptr when there is none
  std::size_t code_bytes = 0;
  double compile_ms = 0, load_ms = 0;
  std::string compiled_by;  // e.g. "clang 19.1.7 in process, skylake-avx512, 512-bit vectors"
};

/// Compiles one translation unit (C11 without headers) and loads it. Equal text, settings and target give the module that is still loaded.
/// Thread-safe. Throws Error: "jit: expected ..., found ..." when there is no compiler, when the text is refused (with the compiler's first
/// message), or when the object cannot be loaded. No floating-point contraction, no fast-math.
std::shared_ptr<const Module> compile(std::string_view text, const Settings& = {});

/// Object bytes only, for tests and caches; load() takes the objects of clang and gcc (x86-64 ELF) and needs neither.
std::vector<char> compile_to_object(std::string_view text, const Settings& = {});
std::shared_ptr<const Module> load(const std::vector<char>& object);

}  // namespace tandem::jit
