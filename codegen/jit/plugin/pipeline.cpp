#include "codegen/jit/plugin/pipeline.h"

#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>

namespace tandem::jit {

namespace {

// What loops over tensors need of -O3, in three quarters of its time and with no slower code (measured over reductions, transposes,
// gathers, windows and updates). Short loops, as those of a pooling window, are unrolled whole before the vectoriser sees the loop around
// them; long ones never, since that is slow to compile and to run.
constexpr const char* passes =
    "always-inline,cgscc(inline),globaldce,function("
    "sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-instsimplify,loop-simplifycfg,licm,loop-rotate,licm,simple-loop-unswitch),simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop(loop-idiom,indvars,loop-deletion),gvn,"
    "loop-unroll<O3;no-partial;no-peeling;no-runtime;no-upperbound;full-unroll-max=7>,sroa,instcombine<no-verify-fixpoint>,loop-mssa(licm),"
    "loop-vectorize,instcombine<no-verify-fixpoint>,early-cse<memssa>,"
    "simplifycfg<forward-switch-cond;switch-range-to-icmp;hoist-common-insts;sink-common-insts>,vector-combine,"
    "loop-mssa(licm),sroa,instsimplify,simplifycfg)";

}  // namespace

void Optimiser::run(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules_);
  builder.registerCGSCCAnalyses(components_);
  builder.registerFunctionAnalyses(functions_);
  builder.registerLoopAnalyses(loops_);
  builder.crossRegisterProxies(loops_, functions_, components_, modules_);
  llvm::ModulePassManager pipeline;
  if (auto error = builder.parsePassPipeline(pipeline, passes)) llvm::report_fatal_error(std::move(error));
  pipeline.run(module, modules_);
}

}  // namespace tandem::jit
