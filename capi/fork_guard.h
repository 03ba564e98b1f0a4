// SPDX-License-Identifier: Apache-2.0
// Tells a process from the one it was forked from, for the price of one load per call.
// A page that the kernel zeroes in a forked child holds the number of this process's life; unlike a
// fork handler it also sees children made without libc. Where the kernel cannot do that, the
// process id stands in.
#pragma once

#include <cstdint>

namespace kairos {

// Number of this process's life, never 0; differs between a parent and its child. Any thread. The
// first call of a process makes one mapping.
uint64_t ProcessLife() noexcept;

}  // namespace kairos
