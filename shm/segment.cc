// SPDX-License-Identifier: Apache-2.0
// Fences Boost.Interprocess: this file alone is built with exceptions, and lets none out.
#include "shm/segment.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/mapped_region.hpp>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kairos {
namespace {

namespace bip = boost::interprocess;

// What mapped_region asks of a memory source: a handle and a mode. Borrows the descriptor.
class MemfdSource {
 public:
  MemfdSource(int fd, bip::mode_t mode) : fd_(fd), mode_(mode) {}
  bip::mapping_handle_t get_mapping_handle() const {
    return bip::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  bip::mode_t get_mode() const { return mode_; }

 private:
  int fd_;
  bip::mode_t mode_;
};

int CreateMemfd() {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = memfd_create("kairos", flags | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not know the flag.
  if (fd < 0 && errno == EINVAL) fd = memfd_create("kairos", flags);
  return fd;
}

constexpr uint64_t MagicVersion() {
  return kSegmentMagic | uint64_t{kLayoutMajor} << 32 | uint64_t{kLayoutMinor} << 48;
}

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool SameHeader(const SegmentHeader& header, const SegmentSpec& expected) {
  // A newer minor only adds; the hash covers what must be equal.
  return static_cast<uint32_t>(header.magic_version) == kSegmentMagic &&
         static_cast<uint16_t>(header.magic_version >> 32) == kLayoutMajor &&
         header.layout_hash == LayoutHash() && header.incarnation == expected.incarnation &&
         header.segment_bytes == SegmentBytes(expected.ring_bytes) &&
         header.words_offset == kWordsOffset && header.ring_offset == kRingOffset &&
         header.ring_bytes == expected.ring_bytes &&
         header.start_position == expected.start_position && header.role == expected.role &&
         header.attachment == expected.attachment;
}

Status CheckForeign(int fd, const SegmentSpec& expected) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Status(Code::kFailedPrecondition, "segment is not sealed against resizing");
  }
  struct stat status{};
  if (fstat(fd, &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != SegmentBytes(expected.ring_bytes)) {
    return Status(Code::kFailedPrecondition, "segment has another size than was announced");
  }
  SegmentHeader header{};
  if (pread(fd, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    return Status(Code::kFailedPrecondition, "segment header cannot be read", errno);
  }
  if (!SameHeader(header, expected)) {
    return Status(Code::kFailedPrecondition, "segment header differs from what was announced");
  }
  return Status();
}

void WriteHeader(void* base, const SegmentSpec& spec) {
  auto* header = new (base) SegmentHeader{};
  header->layout_hash = LayoutHash();
  header->incarnation = spec.incarnation;
  header->segment_bytes = SegmentBytes(spec.ring_bytes);
  header->words_offset = kWordsOffset;
  header->ring_offset = kRingOffset;
  header->ring_bytes = spec.ring_bytes;
  header->start_position = spec.start_position;
  header->features = spec.features;
  header->role = spec.role;
  header->attachment = spec.attachment;
  auto* words = new (static_cast<std::byte*>(base) + kWordsOffset) WriterWords{};
  words->tail = spec.start_position;
  words->head = spec.start_position;
  shared_word::Store(header->magic_version, MagicVersion());
}

}  // namespace

struct Segment::Mapping {
  bip::mapped_region region;
};

Segment::Segment() = default;
Segment::~Segment() { CloseFd(); }
Segment::Segment(Segment&& other) noexcept
    : mapping_(std::move(other.mapping_)), fd_(std::exchange(other.fd_, -1)) {}
Segment& Segment::operator=(Segment&& other) noexcept {
  if (this != &other) {
    CloseFd();
    mapping_ = std::move(other.mapping_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

namespace {

// Maps all of `fd`; false with errno where the kernel or the allocator refuses.
template <typename Mapping>
bool MapFd(int fd, bip::mode_t mode, uint64_t bytes, std::unique_ptr<Mapping>* out) {
  try {
    MemfdSource source(fd, mode);
    bip::mapped_region region(source, mode, 0, bytes);
    madvise(region.get_address(), bytes, MADV_DONTFORK);
    madvise(region.get_address(), bytes,
            mode == bip::read_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    *out = std::make_unique<Mapping>(Mapping{std::move(region)});
    return true;
  } catch (const bip::interprocess_exception& error) {
    errno = error.get_native_error();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return false;
}

Status Short(const char* message) { return Status(Code::kResourceExhausted, message, errno); }

}  // namespace

Result<Segment> Segment::Create(const SegmentSpec& spec) {
  const uint64_t bytes = SegmentBytes(spec.ring_bytes);
  Segment segment;
  segment.fd_ = CreateMemfd();
  if (segment.fd_ < 0) return Short("segment: no descriptor or memory for a memfd");
  if (ftruncate(segment.fd_, static_cast<off_t>(bytes)) != 0 ||
      fallocate(segment.fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    return Short("segment: memory cannot be reserved");
  }
  if (!MapFd(segment.fd_, bip::read_write, bytes, &segment.mapping_)) {
    return Short("segment: memory cannot be mapped");
  }
  WriteHeader(segment.mapping_->region.get_address(), spec);
  int seals = kSizeSeals;
  if (spec.role == SegmentRole::kSidecarToClient) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(segment.fd_, F_ADD_SEALS, seals) != 0) return Short("segment: sealing was refused");
  return segment;
}

Result<Segment> Segment::Map(int fd, const SegmentSpec& expected) {
  if (!IsRingSize(expected.ring_bytes)) {
    return Status(Code::kFailedPrecondition, "ring size: a power of two, 64 KiB to 64 MiB");
  }
  KAIROS_RETURN_IF_ERROR(CheckForeign(fd, expected));
  const bool writes = expected.role == SegmentRole::kClientToSidecar;
  Segment segment;
  if (!MapFd(fd, writes ? bip::read_write : bip::read_only, SegmentBytes(expected.ring_bytes),
             &segment.mapping_)) {
    return Short("segment: memory cannot be mapped");
  }
  return segment;
}

uint64_t Segment::bytes() const { return mapping_ ? mapping_->region.get_size() : 0; }

WriterWords* Segment::words() const {
  return reinterpret_cast<WriterWords*>(static_cast<std::byte*>(mapping_->region.get_address()) +
                                        kWordsOffset);
}

std::byte* Segment::ring() const {
  return static_cast<std::byte*>(mapping_->region.get_address()) + kRingOffset;
}

void Segment::CloseFd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

RingView SidecarRequestView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start) {
  return {pair.s2c.words(), pair.c2s.words(), pair.c2s.ring(), ring_bytes, start};
}
RingView SidecarReplyView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start) {
  return {pair.s2c.words(), pair.c2s.words(), pair.s2c.ring(), ring_bytes, start};
}
RingView ClientRequestView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start) {
  return {pair.c2s.words(), pair.s2c.words(), pair.c2s.ring(), ring_bytes, start};
}
RingView ClientReplyView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start) {
  return {pair.c2s.words(), pair.s2c.words(), pair.s2c.ring(), ring_bytes, start};
}

}  // namespace kairos
