// SPDX-License-Identifier: Apache-2.0
#include "capi/text_cache.h"

#include <utility>

namespace kairos {

EventPtr TextCache::Take(RecordType type, uint64_t session) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.text == nullptr || entry.type != type || entry.text->session != session) continue;
    bytes_ -= entry.text->bytes;
    return std::move(entry.text);
  }
  return nullptr;
}

void TextCache::Put(RecordType type, EventPtr text) noexcept {
  if (text == nullptr || text->bytes > kTextBytesMax) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* place = nullptr;
  for (Entry& entry : entries_) {
    // Another thread may have put it there meanwhile.
    const bool same = entry.text != nullptr && entry.type == type &&
                      entry.text->session == text->session;
    if (same) Drop(&entry);
    if (entry.text == nullptr) place = &entry;
  }
  if (place == nullptr) {
    place = Coldest();
    Drop(place);
  }
  bytes_ += text->bytes;
  *place = {type, std::move(text), ++uses_};
  while (bytes_ > kBytesMax) Drop(Coldest());
}

void TextCache::Forget(uint64_t session) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.text != nullptr && entry.text->session == session) Drop(&entry);
  }
}

TextCache::Entry* TextCache::Coldest() noexcept {
  Entry* coldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.text == nullptr) continue;
    if (coldest == nullptr || entry.used < coldest->used) coldest = &entry;
  }
  return coldest;
}

void TextCache::Drop(Entry* entry) noexcept {
  bytes_ -= entry->text->bytes;
  entry->text.reset();
}

}  // namespace kairos
