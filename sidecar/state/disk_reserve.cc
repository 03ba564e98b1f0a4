// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/disk_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace kairos {

namespace {

// On the disk of the file at `path`; nothing where it is not known.
std::optional<uint64_t> FreeBytes(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return std::nullopt;
  return disk.f_bavail * disk.f_frsize;
}

}  // namespace

bool IsDiskFull(const std::string& path) {
  const std::optional<uint64_t> free_bytes = FreeBytes(path);
  return free_bytes && *free_bytes < kDiskBytesMin;
}

uint64_t DiskReserve::Take() {
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return 0;
  struct stat file {};
  // Not its size: one that came from a backup may have holes.
  const uint64_t kept = fstat(fd, &file) == 0 ? static_cast<uint64_t>(file.st_blocks) * 512 : 0;
  const uint64_t room = kept + FreeBytes(path_).value_or(0);
  uint64_t bytes = kDiskReserveBytes;
  for (; bytes > kept && bytes >= kDiskReserveBytesMin; bytes /= 2) {
    if (bytes > room / 2) continue;
    if (posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0) break;
    std::ignore = ftruncate(fd, static_cast<off_t>(kept));  // what it got before it failed
  }
  close(fd);
  bytes = std::max(bytes, kept);
  if (bytes >= kDiskReserveBytesMin) return bytes;
  Release();
  return 0;
}

void DiskReserve::Release() { unlink(path_.c_str()); }

}  // namespace kairos
