// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/disk_reserve.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace kairos {

bool IsDiskFull(const std::string& path) {
  struct statvfs disk {};
  return statvfs(path.c_str(), &disk) == 0 && disk.f_bavail * disk.f_frsize < kDiskBytesMin;
}

bool DiskReserve::Take() {
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  const bool taken = posix_fallocate(fd, 0, static_cast<off_t>(kDiskReserveBytes)) == 0;
  close(fd);
  if (!taken) Release();
  return taken;
}

void DiskReserve::Release() { unlink(path_.c_str()); }

}  // namespace kairos
