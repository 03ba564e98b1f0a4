// SPDX-License-Identifier: Apache-2.0
// What the host gives: kernel, processor, limits of the process, memory. Any thread; reads procfs
// and sysfs, changes nothing but the process's own limit where it says so.
#pragma once

#include <cstdint>

#include "sidecar/preflight/finding.h"

namespace kairos {

// Sealed shared memory needs Linux 5.1.
Finding CheckKernel();
// The instruction set that the arithmetic will use, or that $KAIROS_KERNELS asks for in vain.
Finding CheckProcessor();
// Raises the soft limit of open files to the hard one. Whether it serves `clients` at a time.
Finding RaiseDescriptorLimit(uint64_t clients);
Finding CheckLockedMemory();
Finding CheckIoUring();
// Whether weights and KV fit the memory that this process may have (the host's, or its group's).
Finding CheckMemory(uint64_t weight_bytes, uint64_t kv_bytes);

// Whether the limit of address space (RLIMIT_AS) leaves room for `bytes` of models and KV, and for
// what kairosd needs beside them. Where it does not, the process would end at some allocation.
Finding CheckAddressSpace(uint64_t bytes);

// "1.5 GiB".
std::string BytesWords(uint64_t bytes);

}  // namespace kairos
