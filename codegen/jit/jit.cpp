#include "codegen/jit/jit.h"

#include "autograd/support/error.h"
#include "codegen/jit/compilers.h"
#include "codegen/jit/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

namespace tandem::jit {

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void check(const Settings& settings) {
  const int bits = settings.target.vector_bits;
  if (bits != 0 && bits != 128 && bits != 256 && bits != 512) {
    throw Error(fmt::format("jit: expected a vector width of 0, 128, 256 or 512 bits, found {}", bits));
  }
}

CompiledObject compile_text(std::string_view text, const Settings& settings) {
  check(settings);
  std::vector<std::string> missing;
  for (const Compiler compiler : {Compiler::plugin, Compiler::system}) {
    if (settings.compiler != Compiler::automatic && settings.compiler != compiler) continue;
    auto result = compiler == Compiler::plugin ? compile_in_plugin(text, settings) : compile_by_system(text, settings);
    if (auto* object = std::get_if<CompiledObject>(&result)) {
      if (!missing.empty()) object->compiled_by += "; not in process: expected " + missing.front();
      return std::move(*object);
    }
    missing.push_back(std::get<Missing>(result).why);
  }
  throw Error(fmt::format("jit: expected {}", fmt::join(missing, "; and instead of it ")));
}

using Key = std::array<std::uint64_t, 2>;

Key key_of(std::string_view text, const Settings& settings) {
  std::string all = fmt::format("{} {}", static_cast<int>(settings.compiler), settings.target.vector_bits);
  for (const std::string& part : {settings.target.cpu, settings.plugin, settings.cc}) all += '\0' + part;
  for (const char* name : {"TANDEM_JIT_PLUGIN", "TANDEM_CC"}) {
    const char* value = std::getenv(name);
    all += '\0' + std::string(value ? value : "");
  }
  all += '\0';
  all += text;
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.low64, hash.high64};
}

/// The modules that somebody still holds. Never destroyed: a thread may still compile while the process ends.
class LoadedModules {
 public:
  std::shared_ptr<const Module> find(const Key& key) {
    std::lock_guard lock(mutex_);
    const auto found = modules_.find(key);
    return found == modules_.end() ? nullptr : found->second.lock();
  }

  /// The module of this key that all use from now on: another thread may have been faster.
  std::shared_ptr<const Module> add(const Key& key, std::shared_ptr<const Module> module) {
    std::lock_guard lock(mutex_);
    std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = modules_[key];
    if (auto faster = entry.lock()) return faster;
    entry = module;
    return module;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Module>> modules_;
};

LoadedModules& loaded_modules() {
  static LoadedModules& modules = *new LoadedModules;
  return modules;
}

}  // namespace

std::shared_ptr<const Module> compile(std::string_view text, const Settings& settings) {
  const Key key = key_of(text, settings);
  if (auto module = loaded_modules().find(key)) return module;
  const auto start = std::chrono::steady_clock::now();
  CompiledObject object = compile_text(text, settings);
  const double compile_ms = milliseconds_since(start);
  const auto compiled = std::chrono::steady_clock::now();
  std::unique_ptr<Module> module = load_object(object.bytes);
  module->compile_ms = compile_ms;
  module->load_ms = milliseconds_since(compiled);
  module->compiled_by = std::move(object.compiled_by);
  return loaded_modules().add(key, std::move(module));
}

std::vector<char> compile_to_object(std::string_view text, const Settings& settings) { return compile_text(text, settings).bytes; }

std::shared_ptr<const Module> load(const std::vector<char>& object) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Module> module = load_object(object);
  module->load_ms = milliseconds_since(start);
  return module;
}

}  // namespace tandem::jit
