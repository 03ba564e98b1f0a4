// SPDX-License-Identifier: Apache-2.0
#include "capi/handle_table.h"

#include <atomic>

#include "capi/client.h"

namespace kairos {
namespace {

constexpr uint64_t kOpen = 1u << 23;
constexpr uint64_t kReferences = kOpen - 1;
constexpr uint32_t kGenerationShift = 24;
constexpr uint32_t kSlotBits = 10;
static_assert(kClientsMax == 1u << kSlotBits);

struct Slot {
  // Acquired by whoever takes a reference, released by RegisterClient: `client` is set before. The
  // last release of a reference is acquire-release, so that destruction sees every call's work.
  std::atomic<uint64_t> word{0};
  Client* client = nullptr;
};
constinit Slot slots[kClientsMax];

uint64_t Generation(uint64_t word) { return word >> kGenerationShift; }

struct Handle {
  uint32_t slot;
  uint64_t generation;
};

Handle Split(kairos_client_t* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  return {static_cast<uint32_t>(number & (kClientsMax - 1)), number >> kSlotBits};
}

// The last reference of a closed handle is given up only after the client is gone, so that the slot
// cannot be claimed before that.
void Unreference(Slot& slot) noexcept {
  uint64_t word = slot.word.load(std::memory_order_acquire);
  for (;;) {
    if ((word & (kReferences | kOpen)) == 1) {
      Client::Destroy(slot.client);
      slot.client = nullptr;
      slot.word.store(word & ~kReferences, std::memory_order_release);
      return;
    }
    if (slot.word.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel)) return;
  }
}

}  // namespace

kairos_client_t* RegisterClient(Client* client) noexcept {
  for (uint32_t index = 0; index < kClientsMax; ++index) {
    Slot& slot = slots[index];
    uint64_t word = slot.word.load(std::memory_order_acquire);
    if ((word & (kOpen | kReferences)) != 0) continue;
    // The claim counts as the reference that CloseHandle drops.
    const uint64_t generation = Generation(word) + 1;
    const uint64_t claimed = generation << kGenerationShift | 1;
    if (!slot.word.compare_exchange_strong(word, claimed, std::memory_order_acq_rel)) continue;
    slot.client = client;
    slot.word.store(claimed | kOpen, std::memory_order_release);
    return reinterpret_cast<kairos_client_t*>(generation << kSlotBits | index);
  }
  return nullptr;
}

ClientRef::ClientRef(kairos_client_t* handle) noexcept {
  const Handle wanted = Split(handle);
  Slot& slot = slots[wanted.slot];
  uint64_t word = slot.word.load(std::memory_order_acquire);
  do {
    if (Generation(word) != wanted.generation || (word & kOpen) == 0) return;
  } while (!slot.word.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel));
  slot_ = wanted.slot;
  client_ = slot.client;
}

ClientRef::~ClientRef() {
  if (client_ != nullptr) Unreference(slots[slot_]);
}

bool CloseHandle(kairos_client_t* handle) noexcept {
  ClientRef reference(handle);
  if (reference.get() == nullptr) return false;
  Slot& slot = slots[reference.slot_];
  // Of two threads that close at once, one clears the bit.
  if ((slot.word.fetch_and(~kOpen, std::memory_order_acq_rel) & kOpen) == 0) return false;
  reference.get()->BeginClose();
  Unreference(slot);
  return true;
}

}  // namespace kairos
