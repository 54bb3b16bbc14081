#include "codegen/jit/plugin/unit.h"

#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Basic/TargetInfo.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>

namespace tandem::jit {

namespace {

/// Keeps clang's first error and prints nothing.
class FirstError final : public clang::DiagnosticConsumer {
 public:
  explicit FirstError(std::string& words) : words_(words) {}

  void HandleDiagnostic(clang::DiagnosticsEngine::Level level, const clang::Diagnostic& diagnostic) override {
    DiagnosticConsumer::HandleDiagnostic(level, diagnostic);  // counts
    if (level < clang::DiagnosticsEngine::Error || !words_.empty()) return;
    llvm::raw_string_ostream out(words_);
    if (diagnostic.hasSourceManager() && diagnostic.getLocation().isValid()) {
      const clang::PresumedLoc place = diagnostic.getSourceManager().getPresumedLoc(diagnostic.getLocation());
      if (place.isValid()) out << "text:" << place.getLine() << ':' << place.getColumn() << ": ";
    }
    llvm::SmallString<128> message;
    diagnostic.FormatDiagnostic(message);
    out << "error: " << message;
  }

 private:
  std::string& words_;
};

/// What the passes and the code generator say. Without it LLVM would print, and end the process or go on with broken code at an error.
class ThrowBackEndErrors final : public llvm::DiagnosticHandler {
 public:
  bool handleDiagnostics(const llvm::DiagnosticInfo& diagnostic) override {
    if (diagnostic.getSeverity() != llvm::DS_Error) return true;
    std::string words;
    llvm::raw_string_ostream out(words);
    llvm::DiagnosticPrinterRawOStream printer(out);
    diagnostic.print(printer);
    throw BackEndError("error: " + words);
  }
};

const char* file_name = "text";

std::vector<std::string> arguments_of(const std::string& cpu, const std::vector<std::string>& features, int vector_bits) {
  std::vector<std::string> result{"-triple", llvm::sys::getDefaultTargetTriple(), "-target-cpu", cpu, "-std=c11", "-x", "c",
                                  // -O3 makes clang write what the passes want to know; they are run by Optimiser.
                                  "-O3", "-disable-llvm-passes", "-emit-llvm-only", "-pic-level", "2", "-nostdsysteminc", "-nobuiltininc",
                                  "-w",
                                  // One rounding per operation, and no assumption about what shares memory with what but for restrict.
                                  "-ffp-contract=off", "-fopenmp-simd", "-relaxed-aliasing",
                                  // A processor without such wide vectors takes its widest.
                                  "-mprefer-vector-width=" + std::to_string(vector_bits == 0 ? 512 : vector_bits)};
  for (const std::string& feature : features) result.insert(result.end(), {"-target-feature", feature});
  result.emplace_back(file_name);
  return result;
}

}  // namespace

Unit::Unit(const TandemJitRequest& request) : request_(request), cpu_(request.cpu) {
  if (!cpu_.empty()) return;  // a named processor has the features of its name
  cpu_ = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) features_.push_back((feature.second ? "+" : "-") + feature.first().str());
}

bool Unit::compile() {
  context_.setDiagnosticHandler(std::make_unique<ThrowBackEndErrors>());
  if (!parse() || !make_target_machine()) return false;
  optimiser_.run(*module_, *machine_);
  if (!emit()) return false;
  words_ = describe();
  return true;
}

bool Unit::parse() {
  clang_.createDiagnostics(new FirstError(words_), /*ShouldOwnClient=*/true);
  clang_.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());
  const std::vector<std::string> arguments = arguments_of(cpu_, features_, request_.vector_bits);
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  if (!clang::CompilerInvocation::CreateFromArgs(clang_.getInvocation(), pointers, clang_.getDiagnostics())) return false;
  const llvm::MemoryBufferRef text({request_.text, request_.text_bytes}, file_name);
  clang_.getFrontendOpts().Inputs = {clang::FrontendInputFile(text, clang::InputKind(clang::Language::C))};
  action_ = std::make_unique<clang::EmitLLVMOnlyAction>(&context_);
  if (!clang_.ExecuteAction(*action_) || !words_.empty()) return false;
  module_ = action_->takeModule();
  if (!module_) words_ = "error: no code";
  return module_ != nullptr;
}

bool Unit::make_target_machine() {
  const std::string& triple = module_->getTargetTriple();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, words_);
  if (!target) return false;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // a * b + c stays two roundings
  std::string features;
  for (const std::string& feature : features_) features += (features.empty() ? "" : ",") + feature;
  machine_.reset(target->createTargetMachine(triple, cpu_, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                             llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (!machine_) words_ = "error: no code generator for " + triple;
  return machine_ != nullptr;
}

bool Unit::emit() {
  if (machine_->addPassesToEmitFile(code_generator_, object_stream_, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    words_ = "error: no object files for this processor";
    return false;
  }
  code_generator_.run(*module_);
  return true;
}

std::string Unit::describe() const {
  const clang::TargetInfo& target = clang_.getTarget();
  const int widest = target.hasFeature("avx512f") ? 512 : target.hasFeature("avx") ? 256 : 128;
  const int bits = request_.vector_bits == 0 ? widest : std::min(widest, request_.vector_bits);
  return std::string(tandem_jit_version()) + " in process, " + cpu_ + ", " + std::to_string(bits) + "-bit vectors";
}

}  // namespace tandem::jit
