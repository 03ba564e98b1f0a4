// SPDX-License-Identifier: Apache-2.0
// Which tiers this CPU and OS can run.
#include "sidecar/engine/kernels/kernel_table.h"

#if defined(KAIROS_KERNELS_X86)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "sidecar/engine/kernels/arithmetic.h"
#include "sidecar/engine/kernels/tiers.h"

namespace kairos {
namespace {

struct Tier {
  const KernelTable* table;
  bool (*supported)();
};

// __builtin_cpu_supports reports AVX and AVX-512 features only when the OS saves their registers
// (it reads XCR0), so no further xgetbv is needed. F16C, which clang's builtin does not know, is
// older than AVX2 and in every CPU that has it.
#if defined(KAIROS_KERNELS_X86)
bool SupportsAvx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

// Of this bit clang's builtin knows nothing.
bool SupportsAvxVnni() {
  constexpr uint32_t kAvxVnniBit = 1u << 4;  // of EAX, leaf 7, sub-leaf 1
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return SupportsAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnniBit) != 0;
}

bool SupportsAvx512Vnni() {
  return SupportsAvx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}
#endif

bool Always() { return true; }

// Best first.
constexpr Tier kTiers[] = {
#if defined(KAIROS_KERNELS_X86)
    {&kAvx512VnniKernels, SupportsAvx512Vnni},
    {&kAvxVnniKernels, SupportsAvxVnni},
    {&kAvx2Kernels, SupportsAvx2},
#endif
    {&kScalarKernels, Always},
};

}  // namespace

uint64_t AttentionScratchBytes(uint32_t head_dim, uint32_t group) {
  // A tile of rows: scores, and queries as 16-bit words padded to whole vectors. Rows of all heads
  // of the group share the same tiles, so `group` does not enter.
  static_cast<void>(group);
  return kRowTileMax * (kScoreTokens * sizeof(float) + head_dim * sizeof(int16_t));
}

const KernelTable* FindKernels(const char* name) {
  for (const Tier& tier : kTiers) {
    if (std::strcmp(tier.table->name, name) == 0) return tier.supported() ? tier.table : nullptr;
  }
  return nullptr;
}

std::string KernelNames() {
  std::string names;
  for (const Tier& tier : kTiers) {
    names += (names.empty() ? "" : ", ") + std::string(tier.table->name);
  }
  return names;
}

bool IsKernelName(const char* name) {
  return std::any_of(std::begin(kTiers), std::end(kTiers),
                     [&](const Tier& tier) { return std::strcmp(tier.table->name, name) == 0; });
}

const KernelTable* ChooseKernels() {
  const char* forced = std::getenv("KAIROS_KERNELS");
  if (forced != nullptr && forced[0] != '\0') return FindKernels(forced);
  for (const Tier& tier : kTiers) {
    if (tier.supported()) return tier.table;
  }
  return nullptr;
}

}  // namespace kairos
