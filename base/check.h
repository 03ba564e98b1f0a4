// SPDX-License-Identifier: Apache-2.0
// KAIROS_CHECK: our own fault. Prints where, aborts; the next start recovers from what is stored.
// Never used on bytes that came from outside the process.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kairos {

[[noreturn]] inline void CheckFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "kairos: check failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace kairos

#define KAIROS_CHECK(expression) \
  ((expression) ? static_cast<void>(0) : ::kairos::CheckFailed(#expression, __FILE__, __LINE__))

#ifdef NDEBUG
#define KAIROS_DCHECK(expression) static_cast<void>(sizeof((expression) ? 1 : 0))
#else
#define KAIROS_DCHECK(expression) KAIROS_CHECK(expression)
#endif
