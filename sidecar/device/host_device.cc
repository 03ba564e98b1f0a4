// SPDX-License-Identifier: Apache-2.0
// The host as a device: anonymous maps, huge pages where the system grants them.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/control_group.h"
#include "sidecar/device/device.h"

namespace kairos {
namespace {

DeviceProperties ReadProperties() {
  DeviceProperties properties;
  properties.name = "host";
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  properties.compute_units = 1;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 0) {
    properties.compute_units = static_cast<uint32_t>(CPU_COUNT(&cpus));
  }
  // Threads beyond a quota would all be stopped for the rest of each period.
  const double quota = ReadGroupLimits().processors;
  if (quota < properties.compute_units) {
    properties.compute_units = std::max(1u, static_cast<uint32_t>(quota));
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    properties.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
  }
  return properties;
}

class HostDeviceMemory final : public Device {
 public:
  const DeviceProperties& properties() const override { return properties_; }

  Result<DeviceMemory> Allocate(uint64_t bytes) override {
    if (bytes == 0) return Status(Code::kResourceExhausted, "an allocation of zero bytes");
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return Status(Code::kResourceExhausted, "the system refused memory", errno);
    }
    madvise(data, bytes, MADV_HUGEPAGE);
    return DeviceMemory(static_cast<uint8_t*>(data), bytes);
  }

 private:
  const DeviceProperties properties_ = ReadProperties();
};

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Device& HostDevice() {
  static HostDeviceMemory device;
  return device;
}

}  // namespace kairos
