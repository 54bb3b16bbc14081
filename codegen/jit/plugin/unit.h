// One translation unit on its way from C text to object bytes.
#pragma once

#include "codegen/jit/plugin/pipeline.h"
#include "codegen/jit/plugin/plugin_api.h"

#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::jit {

/// LLVM met an error behind the front end. It cannot go on, and its objects are in no state to be destroyed.
struct BackEndError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Holds all that compile() makes, so that the caller can leak it after a BackEndError.
class Unit {
 public:
  explicit Unit(const TandemJitRequest& request);
  bool compile();  // false: words() is the first error

  llvm::StringRef object() const { return {object_.data(), object_.size()}; }
  const std::string& words() const { return words_; }

 private:
  bool parse();
  bool make_target_machine();
  bool emit();
  std::string describe() const;

  const TandemJitRequest& request_;
  std::string cpu_, words_;
  std::vector<std::string> features_;
  llvm::LLVMContext context_;
  clang::CompilerInstance clang_;
  std::unique_ptr<clang::CodeGenAction> action_;
  std::unique_ptr<llvm::Module> module_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  Optimiser optimiser_;
  llvm::SmallVector<char, 0> object_;
  llvm::raw_svector_ostream object_stream_{object_};
  llvm::legacy::PassManager code_generator_;
};

}  // namespace tandem::jit
