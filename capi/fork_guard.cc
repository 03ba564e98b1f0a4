// SPDX-License-Identifier: Apache-2.0
#include "capi/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace kairos {
namespace {

using Life = std::atomic<uint64_t>;
static_assert(Life::is_always_lock_free);

// Set once with release, read with acquire: the page is mapped before it is seen.
constinit std::atomic<Life*> life_page{nullptr};
constinit std::atomic<bool> use_pid{false};
// Copied by fork, so a child draws numbers that no ancestor's client holds.
constinit std::atomic<uint64_t> lives_given{0};

Life* MapPage() noexcept {
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, size, MADV_WIPEONFORK) != 0) {
    munmap(page, size);
    return nullptr;
  }
  auto* life = static_cast<Life*>(page);  // zero bytes are a valid Life of 0
  Life* expected = nullptr;
  if (!life_page.compare_exchange_strong(expected, life, std::memory_order_acq_rel)) {
    munmap(page, size);
    return expected;
  }
  return life;
}

}  // namespace

uint64_t ProcessLife() noexcept {
  if (use_pid.load(std::memory_order_relaxed)) return static_cast<uint64_t>(getpid());
  Life* page = life_page.load(std::memory_order_acquire);
  if (page == nullptr) page = MapPage();
  if (page == nullptr) {
    use_pid.store(true, std::memory_order_relaxed);
    return static_cast<uint64_t>(getpid());
  }
  uint64_t life = page->load(std::memory_order_relaxed);
  if (life == 0) {
    const uint64_t drawn = lives_given.fetch_add(1, std::memory_order_relaxed) + 1;
    life = page->compare_exchange_strong(life, drawn, std::memory_order_relaxed) ? drawn : life;
  }
  return life;
}

}  // namespace kairos
