// SPDX-License-Identifier: Apache-2.0
// A device: where weights and KV live and what computes on them. Today the host's CPU is the one
// implementation; an accelerator is a second one, and what the engine asks of it is this interface.
// Thread-safe; allocation may block in the kernel.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"

namespace kairos {

// A range of device memory, zero when first read. Unmapped with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(uint8_t* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  uint8_t* data() const { return data_; }  // page-aligned
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

struct DeviceProperties {
  std::string name;              // "host"
  uint32_t compute_units = 0;    // cores this process may keep busy: its mask and its group's quota
  uint64_t memory_bytes = 0;     // in total, not what is free
  bool host_addressable = true;  // pointers may be dereferenced by the host
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;
  // Memory is taken on first touch. RESOURCE_EXHAUSTED with errno when refused or `bytes` is 0.
  virtual Result<DeviceMemory> Allocate(uint64_t bytes) = 0;
};

// The host's processors and RAM; lives as long as the process.
Device& HostDevice();

}  // namespace kairos
