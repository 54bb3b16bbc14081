// Finds the plug-in, opens it at the first compile and never closes it.
#include "autograd/support/error.h"
#include "codegen/jit/compilers.h"
#include "codegen/jit/plugin/plugin_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>

// In builds of ours with sanitizers the plug-in and LibTorch have none: they do not see how the threads of those, and OpenMP's, wait for each other,
// nor what LLVM frees. What LibTorch frees when it counts a last reference down was let go of by others in code that they do not see either.
#if defined(__SANITIZE_THREAD__)
extern "C" __attribute__((weak)) const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() {
  return "called_from_lib:tandem_jit.so\nrace:torch::autograd::Node::~Node\nrace:c10::TensorImpl::~TensorImpl\n"
         "race:c10::weak_intrusive_ptr\nrace:libgomp\n";
}
#elif defined(__SANITIZE_ADDRESS__)
extern "C" __attribute__((weak)) const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() { return "leak:tandem_jit.so\n"; }
#endif

namespace tandem::jit {

namespace {

constexpr const char* plugin_name = "tandem_jit.so";

struct Plugin {
  decltype(&tandem_jit_version) version = nullptr;
  decltype(&tandem_jit_compile) compile = nullptr;
  decltype(&tandem_jit_release) release = nullptr;
};

using Opened = std::variant<Plugin, Missing>;

template <typename Function>
bool resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

Opened open_plugin(const std::string& path) {
  // Its LLVM stays invisible to others, and stays: threads may still be in it when the process ends.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return Missing{fmt::format("a plug-in that can be loaded, found: {}", dlerror())};
  decltype(&tandem_jit_abi) abi = nullptr;
  Plugin plugin;
  if (!resolve(handle, "tandem_jit_abi", abi) || !resolve(handle, "tandem_jit_version", plugin.version) ||
      !resolve(handle, "tandem_jit_compile", plugin.compile) || !resolve(handle, "tandem_jit_release", plugin.release)) {
    return Missing{fmt::format("Tandem's plug-in, found another library in {}", path)};
  }
  if (abi() != TANDEM_JIT_ABI) return Missing{fmt::format("a plug-in with interface {}, found {} in {}", TANDEM_JIT_ABI, abi(), path)};
  return plugin;
}

/// The file that holds this code: the program, or the library that Tandem was linked into.
std::filesystem::path own_file() {
  Dl_info info{};
  link_map* map = nullptr;
  const bool found = dladdr1(reinterpret_cast<void*>(&own_file), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  std::error_code error;
  return std::filesystem::canonical(found && map && map->l_name[0] ? map->l_name : "/proc/self/exe", error);
}

/// Where the plug-in may be, the best first. A name without a folder is looked for where the system looks for libraries.
std::vector<std::string> plugin_places(const Settings& settings) {
  if (!settings.plugin.empty()) return {settings.plugin};
  const char* variable = std::getenv("TANDEM_JIT_PLUGIN");
  if (variable && *variable) return {variable};
  std::vector<std::string> places{own_file().replace_filename(plugin_name).string()};
#ifdef TANDEM_JIT_BUILT
  places.emplace_back(TANDEM_JIT_BUILT);
#endif
#ifdef TANDEM_JIT_INSTALLED
  places.emplace_back(TANDEM_JIT_INSTALLED);
#endif
  places.emplace_back(plugin_name);
  return places;
}

Opened find_plugin(const Settings& settings) {
  static std::mutex& mutex = *new std::mutex;
  static auto& opened = *new std::map<std::string, Plugin>;
  std::lock_guard lock(mutex);
  std::string all, problem;
  for (const std::string& place : plugin_places(settings)) {
    const auto known = opened.find(place);
    if (known != opened.end()) return known->second;
    all += (all.empty() ? "" : ", ") + place;
    const bool searched = place.find('/') == std::string::npos;
    if (!searched && access(place.c_str(), R_OK) != 0) continue;
    const Opened result = open_plugin(place);
    if (const auto* plugin = std::get_if<Plugin>(&result)) return opened[place] = *plugin;
    if (!searched && problem.empty()) problem = std::get<Missing>(result).why;
  }
  return Missing{problem.empty() ? fmt::format("the plug-in {}, found none of {}", plugin_name, all) : problem};
}

}  // namespace

std::variant<CompiledObject, Missing> compile_in_plugin(std::string_view text, const Settings& settings) {
  const Opened found = find_plugin(settings);
  if (const auto* missing = std::get_if<Missing>(&found)) return *missing;
  const Plugin& plugin = std::get<Plugin>(found);
  const std::string copy(text), cpu = settings.target.cpu;  // the plug-in wants them ended by a zero
  const TandemJitRequest request{copy.c_str(), copy.size(), cpu.c_str(), settings.target.vector_bits};

  struct Reply : TandemJitReply {
    explicit Reply(const Plugin& from) : TandemJitReply{}, plugin(from) {}
    ~Reply() { plugin.release(this); }
    const Plugin& plugin;
  } reply(plugin);
  plugin.compile(&request, &reply);
  if (!reply.succeeded) throw Error(fmt::format("jit: expected C text that {} accepts, found {}", plugin.version(), reply.words));
  return CompiledObject{{reply.object, reply.object + reply.object_bytes}, reply.words};
}

}  // namespace tandem::jit
