/* What the library and its plug-in say to each other. Plain C: they share no C++ types, allocator or exceptions. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with everything below; a plug-in of another number is not used. */
#define TANDEM_JIT_ABI 1

struct TandemJitRequest {
  const char* text; /* C11 without headers */
  size_t text_bytes;
  const char* cpu; /* LLVM's name; empty: this processor */
  int vector_bits; /* preferred width; 0: the widest of the processor */
};

struct TandemJitReply {
  int succeeded;
  const char* object; /* a relocatable object */
  size_t object_bytes;
  const char* words; /* by what it was compiled, or else the first error */
  void* owner;
};

int tandem_jit_abi(void);
const char* tandem_jit_version(void); /* e.g. "clang 19.1.7" */

/* Thread-safe. Never prints, throws or ends the process. The reply is valid until it is released. */
void tandem_jit_compile(const struct TandemJitRequest* request, struct TandemJitReply* reply);
void tandem_jit_release(struct TandemJitReply* reply);

#ifdef __cplusplus
}
#endif
