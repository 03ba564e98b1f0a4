// SPDX-License-Identifier: Apache-2.0
// The tiers' tables, one per source file. Callers use ChooseKernels() or FindKernels(): a table
// here may hold instructions that this CPU lacks.
#pragma once

#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;
extern const KernelTable kAvx512VnniKernels;

}  // namespace kairos
