// SPDX-License-Identifier: Apache-2.0
// Messages and task contexts as this client has last read them, so that reading them again costs
// a question and no content.
//
// 1. Nothing is answered from here alone: the sidecar is told the version that is held, and says
//    whether that is the head still. A version's text never changes.
// 2. Bounded in texts and bytes; the one unused for longest goes first.
// 3. A text that is out for a call is not here, so no call can lose the one that it relies on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "capi/event.h"

namespace kairos {

class TextCache {
 public:
  static constexpr size_t kTextsMax = 64;
  static constexpr uint64_t kBytesMax = 4u << 20;     // of all
  static constexpr uint64_t kTextBytesMax = 1u << 20;  // larger ones are not kept

  // `type` is the request that reads it. Null where there is none.
  EventPtr Take(RecordType type, uint64_t session) noexcept;
  // Null is nothing to keep.
  void Put(RecordType type, EventPtr text) noexcept;
  void Forget(uint64_t session) noexcept;

 private:
  struct Entry {
    RecordType type{};
    EventPtr text;
    uint64_t used = 0;
  };

  Entry* Coldest() noexcept;
  void Drop(Entry* entry) noexcept;

  std::mutex mutex_;
  std::array<Entry, kTextsMax> entries_;
  uint64_t bytes_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace kairos
