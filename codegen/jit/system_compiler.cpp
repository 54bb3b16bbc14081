// The system's C compiler, gcc or clang: slower to compile than the plug-in, and there on most machines that build software.
#include "autograd/support/error.h"
#include "codegen/jit/compilers.h"
#include "codegen/jit/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

namespace tandem::jit {

namespace {

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Path of a program: the name itself if it is a path, else the first on PATH.
std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? std::optional(name) : std::nullopt;
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    const std::string program = folder + "/" + name;
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return std::nullopt;
}

std::variant<std::string, Missing> find_compiler(const Settings& settings) {
  std::vector<std::string> names{"cc", "gcc", "clang"};
  const char* variable = std::getenv("TANDEM_CC");
  if (variable && *variable) names = {variable};
  if (!settings.cc.empty()) names = {settings.cc};
  std::string all;
  for (const std::string& name : names) {
    if (const auto program = find_program(name)) return *program;
    all += (all.empty() ? "" : ", ") + name;
  }
  return Missing{fmt::format("a C compiler on PATH or in $TANDEM_CC, found none of {}", all)};
}

/// First line of `cc --version`, asked once for each compiler.
std::string version_of(const std::string& compiler) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::string>;
  std::lock_guard lock(mutex);
  const auto found = known.find(compiler);
  if (found != known.end()) return found->second;
  const TemporaryFolder folder;
  run_program({compiler, "--version"}, folder.file("version"));
  const std::vector<char> printed = read_file(folder.file("version"));
  return known[compiler] = split({printed.data(), printed.size()}, '\n').front();
}

/// The first error that the compiler printed, without the folder of its input.
std::string first_message(const std::string& printed_to, const std::string& source) {
  const std::vector<char> printed = read_file(printed_to);
  const std::vector<std::string> lines = split({printed.data(), printed.size()}, '\n');
  std::string message = lines.front().empty() ? "no object and no message" : lines.front();
  for (const std::string& line : lines) {
    if (line.find("error") == std::string::npos) continue;
    message = line;
    break;
  }
  if (message.compare(0, source.size(), source) == 0) message = "text" + message.substr(source.size());
  return message;
}

std::string cpu_of(const Target& target) { return target.cpu.empty() ? "native" : target.cpu; }

/// A preference only: a processor without such wide vectors gets its widest.
int vector_bits_of(const Target& target) { return target.vector_bits == 0 ? 512 : target.vector_bits; }

std::vector<std::string> arguments_of(const std::string& compiler, const Target& target, const std::string& source,
                                      const std::string& object) {
  return {compiler, "-x", "c", "-std=c11", "-O3", "-fPIC", "-nostdinc", "-w",
          // One rounding per operation, NaN and infinities as they are; only what nobody sees here (errno, traps) is given up for vectors.
          "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fno-strict-aliasing", "-march=" + cpu_of(target),
          fmt::format("-mprefer-vector-width={}", vector_bits_of(target)),
          // Kernels are leaves: no tables for unwinding, no checks of the stack.
          "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fcf-protection=none", "-c", "-o", object, source};
}

}  // namespace

std::variant<CompiledObject, Missing> compile_by_system(std::string_view text, const Settings& settings) {
  const auto found = find_compiler(settings);
  if (const auto* missing = std::get_if<Missing>(&found)) return *missing;
  const std::string& compiler = std::get<std::string>(found);
  const TemporaryFolder folder;
  const std::string source = folder.file("unit.c"), object = folder.file("unit.o"), printed = folder.file("printed");
  if (!std::ofstream(source, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size())).flush()) {
    throw Error(fmt::format("jit: expected room for {} bytes of C text, found that {} cannot be written", text.size(), source));
  }
  const bool succeeded = run_program(arguments_of(compiler, settings.target, source, object), printed);
  CompiledObject result;
  if (succeeded) result.bytes = read_file(object);
  if (result.bytes.empty())
    throw Error(fmt::format("jit: expected C text that {} accepts, found {}", compiler, first_message(printed, source)));
  result.compiled_by = fmt::format("{} ({}), {}, {}-bit vectors at most", version_of(compiler), compiler, cpu_of(settings.target),
                                   vector_bits_of(settings.target));
  return result;
}

}  // namespace tandem::jit
