/* How this library was built. */

#include "status.h"

#ifndef NVM_BUILD_FLAGS
#define NVM_BUILD_FLAGS "unknown"
#endif

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

#ifdef NVM_DISPATCH_SWITCH
#define DISPATCH "switch"
#else
#define DISPATCH "computed goto"
#endif

#if defined(__x86_64__)
#define ARCH "x86_64"
#elif defined(__aarch64__)
#define ARCH "aarch64"
#else
#define ARCH "other"
#endif

#ifdef NVM_TEST
#define VARIANT "test"
#else
#define VARIANT "release"
#endif

NVM_EXPORT const char *nvm_build_info(void) {
  return "compiler=" COMPILER "\nflags=" NVM_BUILD_FLAGS "\ndispatch=" DISPATCH
         "\narchitecture=" ARCH "\nvariant=" VARIANT;
}
