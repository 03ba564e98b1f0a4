// SPDX-License-Identifier: Apache-2.0
// kairos-bench kernels: speed of the arithmetic on one core. $KAIROS_KERNELS chooses the
// instruction set. Processor time, and by it operations and, for weights and KV, bytes read.
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

struct KernelBenchOptions {
  std::string cases;         // regular expression of their names; empty: all
  uint32_t repetitions = 3;  // of each case; medians are shown
  double seconds = 0.2;      // of a repetition, at least
  bool json = false;
  bool quick = false;  // hardly any time, once: proves that it works, measures nothing
};

// Exit status: 0 when something was measured.
int RunKernelBench(const KernelBenchOptions& options);

}  // namespace kairos
