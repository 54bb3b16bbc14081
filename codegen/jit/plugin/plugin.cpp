// The plug-in's functions, and what keeps LLVM from ending the process that it is a guest in.
#include "codegen/jit/plugin/plugin_api.h"
#include "codegen/jit/plugin/unit.h"

#include <clang/Basic/Version.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>

#include <memory>
#include <mutex>
#include <new>

#define TANDEM_JIT_EXPORT extern "C" __attribute__((visibility("default")))

namespace tandem::jit {

namespace {

/// LLVM exits when this returns. Nothing in it catches exceptions, so this one reaches run().
[[noreturn]] void throw_fatal_error(void*, const char* reason, bool) {
  throw BackEndError(std::string("a failure inside LLVM: ") + reason);
}

/// Loop strength reduction takes a quarter of the code generator's time, and x86 addresses elements as well without it. It has no other switch.
void switch_off_strength_reduction() {
  const auto option = llvm::cl::getRegisteredOptions().find("disable-lsr");
  if (option != llvm::cl::getRegisteredOptions().end()) static_cast<llvm::cl::opt<bool>*>(option->second)->setValue(true);
}

void prepare() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_fatal_error_handler(throw_fatal_error);
    llvm::install_bad_alloc_error_handler(throw_fatal_error);
    switch_off_strength_reduction();
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
  });
}

struct Result {
  bool succeeded = false;
  std::string object, words;
};

Result run(const TandemJitRequest& request) {
  prepare();
  auto unit = std::make_unique<Unit>(request);
  Result result;
  try {
    result.succeeded = unit->compile();
    result.words = unit->words();
    if (result.succeeded) result.object = unit->object().str();
  } catch (const BackEndError& error) {
    unit.release();
    result.words = error.what();
  }
  result.words = result.words.substr(0, result.words.find('\n'));
  if (result.words.empty()) result.words = "an error without a message";
  return result;
}

}  // namespace

}  // namespace tandem::jit

TANDEM_JIT_EXPORT int tandem_jit_abi(void) { return TANDEM_JIT_ABI; }

TANDEM_JIT_EXPORT const char* tandem_jit_version(void) { return "clang " CLANG_VERSION_STRING; }

TANDEM_JIT_EXPORT void tandem_jit_compile(const TandemJitRequest* request, TandemJitReply* reply) {
  *reply = {0, nullptr, 0, "no memory", nullptr};
  try {
    auto result = std::make_unique<tandem::jit::Result>(tandem::jit::run(*request));
    *reply = {result->succeeded, result->object.data(), result->object.size(), result->words.c_str(), result.get()};
    result.release();
  } catch (const std::bad_alloc&) {
    return;
  }
}

TANDEM_JIT_EXPORT void tandem_jit_release(TandemJitReply* reply) {
  delete static_cast<tandem::jit::Result*>(reply->owner);
  reply->owner = nullptr;
}
