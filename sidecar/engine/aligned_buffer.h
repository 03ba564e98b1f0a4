// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the forward pass: 64-byte aligned, grows, never shrinks, contents not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/check.h"

namespace kairos {

template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { std::free(data_); }
  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(other.data_), capacity_(other.capacity_) {
    other.data_ = nullptr;
    other.capacity_ = 0;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(AlignedBuffer&&) = delete;

  // Zeroed where newly taken.
  T* Reserve(size_t count) {
    if (count <= capacity_) return data_;
    std::free(data_);
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    KAIROS_CHECK(data_ != nullptr);
    __builtin_memset(static_cast<void*>(data_), 0, bytes);
    capacity_ = count;
    return data_;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace kairos
