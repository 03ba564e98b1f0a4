// SPDX-License-Identifier: Apache-2.0
// What the host gives: kernel, processor, limits of the process, memory. Any thread; reads procfs
// and sysfs, changes nothing but the process's own limit where it says so.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "sidecar/preflight/finding.h"

namespace kairos {

// Sealed shared memory needs Linux 5.1.
Finding CheckKernel();
// The instruction set that the arithmetic will use, or that $KAIROS_KERNELS asks for in vain.
Finding CheckProcessor();
// Raises the soft limit of open files to the hard one. Whether it serves `clients` at a time; with
// too few for the start itself and one client of `models` models, kairosd is not to start.
Finding RaiseDescriptorLimit(uint64_t clients, uint64_t models);
Finding CheckLockedMemory();
Finding CheckIoUring();
// Whether weights and KV fit the memory that this process may have (the host's, or its group's).
Finding CheckMemory(uint64_t weight_bytes, uint64_t kv_bytes);

// Whether the limit of address space (RLIMIT_AS) leaves room for `bytes` of models and KV, and for
// what kairosd needs beside them. Where it does not, the process would end at some allocation.
Finding CheckAddressSpace(uint64_t bytes);

// What the kernel promises to all processes together, where it counts strictly
// (vm.overcommit_memory=2).
struct CommitLimit {
  bool is_strict = false;
  uint64_t limit_bytes = 0;
  uint64_t taken_bytes = 0;
};
CommitLimit ReadCommitLimit();

// Whether the process's limit of private memory (RLIMIT_DATA) leaves room for `bytes` of weights
// and KV, and for what kairosd needs beside them. What the host promises is a warning only: others
// give memory back, and a kairosd that runs counts itself.
Finding CheckPrivateMemory(uint64_t bytes, const CommitLimit& commit);

// What to change where the system refused memory all the same.
std::string RemedyForRefusedMemory(const CommitLimit& commit);

// What happened and what to change where the system refused a thread.
std::string WordsForRefusedThread(const Status& status);

// "1.5 GiB".
std::string BytesWords(uint64_t bytes);

}  // namespace kairos
