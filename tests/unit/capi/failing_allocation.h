// SPDX-License-Identifier: Apache-2.0
// Makes one allocation of a thread fail. The program's malloc, calloc and realloc stand in front of
// the C library's, also for the library under test. Not under sanitizers, which do that themselves.
#pragma once

namespace kairos {

// The nth allocation of this thread from now on fails, once; n from 1.
void FailAllocation(int n);
// Takes the wish back. True where an allocation has failed.
bool AllocationFailed();

}  // namespace kairos
