// SPDX-License-Identifier: Apache-2.0
// Room on the catalog's disk that is kept for the time when all other is used up: deleting writes
// to the log first, so without it a full disk could not be emptied by deleting sessions.
// Owner: journal thread. Calls may block on disk.
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

// Below this, a catalog on the disk takes no more turns.
inline constexpr uint64_t kDiskBytesMin = 1u << 20;
// Deleting a session writes about what it takes, since its text is overwritten.
inline constexpr uint64_t kDiskReserveBytes = 2u << 20;

// Whether the disk of the file at `path` has less than kDiskBytesMin left; false where it is not
// known.
bool IsDiskFull(const std::string& path);

class DiskReserve {
 public:
  // The file at `path` is the reserve; one that is there from an earlier process is taken over.
  explicit DiskReserve(std::string path) : path_(std::move(path)) {}
  // Allocates the file, mode 0600. False, and nothing is kept, where that much is not free.
  bool Take();
  // Gives the room back to the disk.
  void Release();

 private:
  std::string path_;
};

}  // namespace kairos
