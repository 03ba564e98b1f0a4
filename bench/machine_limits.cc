// SPDX-License-Identifier: Apache-2.0
#include "bench/machine_limits.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/clock.h"
#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {
namespace {

constexpr uint64_t kReadBytes = 256u << 20;
constexpr uint64_t kRunNs = 200'000'000;
constexpr uint64_t kRoundsPerLook = 20'000;

// Runs `work(thread)`, which returns how much it did, until the time is over; the sum per second.
double RatePerSecond(uint32_t threads, const std::function<double(uint32_t)>& work) {
  std::vector<double> rates(threads, 0.0);
  std::vector<std::thread> team;
  std::atomic<uint32_t> ready{0};
  for (uint32_t i = 0; i < threads; ++i) {
    team.emplace_back([&, i] {
      ready.fetch_add(1);
      while (ready.load() < threads) std::this_thread::yield();
      double done = 0.0;
      const uint64_t begin = MonotonicNs();
      uint64_t now = begin;
      do {
        done += work(i);
        now = MonotonicNs();
      } while (now - begin < kRunNs);
      rates[i] = done / (static_cast<double>(now - begin) * 1e-9);
    });
  }
  double sum = 0.0;
  for (uint32_t i = 0; i < threads; ++i) {
    team[i].join();
    sum += rates[i];
  }
  return sum;
}

// Keeps the compiler from dropping a loop whose result nobody reads.
template <typename Value>
void Keep(const Value& value) {
  asm volatile("" : : "m"(value) : "memory");
}

void ReadPlain(const uint64_t* words, uint64_t count) {
  uint64_t sums[8] = {};
  for (uint64_t i = 0; i + 8 <= count; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += words[i + static_cast<uint64_t>(j)];
  }
  Keep(sums);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void ReadAvx2(const uint64_t* words, uint64_t count) {
  __m256i sums[4] = {};
  const auto* vectors = reinterpret_cast<const __m256i*>(words);
  for (uint64_t i = 0; i + 4 <= count / 4; i += 4) {
    for (int j = 0; j < 4; ++j) {
      sums[j] = _mm256_add_epi64(sums[j], _mm256_load_si256(vectors + i + j));
    }
  }
  Keep(sums);
}

// Eight independent chains, so that latency does not bound the rate.
__attribute__((target("avx2"))) double RoundsAvx2() {
  __m256i left = _mm256_set1_epi8(3);
  __m256i right = _mm256_set1_epi8(5);
  __m256i sums[8] = {};
  for (uint64_t round = 0; round < kRoundsPerLook; ++round) {
    // Opaque operands: the products are made anew each round.
    asm volatile("" : "+x"(left), "+x"(right));
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(left, right));
      asm volatile("" : "+x"(left), "+x"(right));
    }
  }
  Keep(sums);
  return static_cast<double>(kRoundsPerLook) * 8 * 64;
}

// Twelve chains, since the instruction takes four or five cycles.
__attribute__((target("avx2,avxvnni"))) double RoundsAvxVnni() {
  __m256i left = _mm256_set1_epi8(3);
  __m256i right = _mm256_set1_epi8(5);
  __m256i sums[12] = {};
  for (uint64_t round = 0; round < kRoundsPerLook; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], left, right);
    asm volatile("" : "+x"(left), "+x"(right));
  }
  Keep(sums);
  return static_cast<double>(kRoundsPerLook) * 12 * 64;
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) double RoundsAvx512Vnni() {
  __m512i left = _mm512_set1_epi8(3);
  __m512i right = _mm512_set1_epi8(5);
  __m512i sums[12] = {};
  for (uint64_t round = 0; round < kRoundsPerLook; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], left, right);
    asm volatile("" : "+v"(left), "+v"(right));
  }
  Keep(sums);
  return static_cast<double>(kRoundsPerLook) * 12 * 128;
}

#endif

}  // namespace

double ReadBandwidth(uint32_t threads) {
  void* mapping = mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return 0.0;
  madvise(mapping, kReadBytes, MADV_HUGEPAGE);
  std::memset(mapping, 1, kReadBytes);
  const uint64_t part = kReadBytes / threads / 64 * 64;
  const double rate = RatePerSecond(threads, [&](uint32_t thread) {
    const auto* words = reinterpret_cast<const uint64_t*>(static_cast<char*>(mapping) +
                                                          thread * part);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      ReadAvx2(words, part / 8);
      return static_cast<double>(part);
    }
#endif
    ReadPlain(words, part / 8);
    return static_cast<double>(part);
  });
  munmap(mapping, kReadBytes);
  return rate;
}

double MultiplyAddRate(const char* tier, uint32_t threads) {
  if (FindKernels(tier) == nullptr) return 0.0;
#if defined(__x86_64__)
  const std::string_view name(tier);
  if (name == "avx2") return RatePerSecond(threads, [](uint32_t) { return RoundsAvx2(); });
  if (name == "avx_vnni") return RatePerSecond(threads, [](uint32_t) { return RoundsAvxVnni(); });
  if (name == "avx512_vnni") {
    return RatePerSecond(threads, [](uint32_t) { return RoundsAvx512Vnni(); });
  }
#endif
  return 0.0;
}

}  // namespace kairos
