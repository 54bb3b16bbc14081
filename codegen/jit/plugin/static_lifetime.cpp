// Static objects of LLVM and clang are never destroyed: a thread may be compiling while the process ends, and it must not find them gone.
// Each C++ object file of the plug-in registers its destructors through this function, which the linker takes before the C library's.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) noexcept { return 0; }
