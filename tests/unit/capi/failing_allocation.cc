// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/capi/failing_allocation.h"

#include <cstddef>

extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_calloc(size_t count, size_t size);
extern "C" void* __libc_realloc(void* memory, size_t size);

namespace {

// Allocations of this thread until one fails; negative: none does; 0: one has failed.
constinit thread_local int allocations_left = -1;

bool Fails() { return allocations_left > 0 && --allocations_left == 0; }

}  // namespace

extern "C" void* malloc(size_t size) { return Fails() ? nullptr : __libc_malloc(size); }
extern "C" void* calloc(size_t count, size_t size) {
  return Fails() ? nullptr : __libc_calloc(count, size);
}
extern "C" void* realloc(void* memory, size_t size) {
  return Fails() ? nullptr : __libc_realloc(memory, size);
}

namespace kairos {

void FailAllocation(int n) { allocations_left = n; }

bool AllocationFailed() {
  const bool failed = allocations_left == 0;
  allocations_left = -1;
  return failed;
}

}  // namespace kairos
