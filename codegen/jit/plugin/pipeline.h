// The passes between clang's output and the code generator.
#pragma once

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/Target/TargetMachine.h>

namespace tandem::jit {

/// Keeps what the passes know of a module, so that it lives no shorter than the module.
class Optimiser {
 public:
  void run(llvm::Module& module, llvm::TargetMachine& machine);

 private:
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager components_;
  llvm::ModuleAnalysisManager modules_;
};

}  // namespace tandem::jit
