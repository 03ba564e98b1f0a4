// SPDX-License-Identifier: Apache-2.0
// Room on the catalog's disk that is kept for the time when all other is used up: deleting writes
// to the log first, so without it a full disk could not be emptied by deleting sessions. So does
// carrying over what a killed process left in the log.
// Owner: journal thread. Calls may block on disk.
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

// Below this, a catalog on the disk takes no more turns.
inline constexpr uint64_t kDiskBytesMin = 1u << 20;
// Deleting a session writes about what it takes, since its text is overwritten.
inline constexpr uint64_t kDiskReserveBytes = 2u << 20;
// The least that is worth keeping: some small sessions can be deleted with it.
inline constexpr uint64_t kDiskReserveBytesMin = 256u << 10;

// Whether the disk of the file at `path` has less than kDiskBytesMin left; false where it is not
// known.
bool IsDiskFull(const std::string& path);

class DiskReserve {
 public:
  // The file at `path` is the reserve; one that is there from an earlier process is taken over.
  explicit DiskReserve(std::string path) : path_(std::move(path)) {}
  // Allocates the file, mode 0600. Of what is free, turns get no less than the reserve: where that
  // is little, the reserve is a half, a quarter and so on. What is kept already stays. The bytes
  // that are kept; 0 where there is no room for kDiskReserveBytesMin.
  uint64_t Take();
  // Gives the room back to the disk.
  void Release();

 private:
  std::string path_;
};

}  // namespace kairos
