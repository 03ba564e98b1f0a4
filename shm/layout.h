// SPDX-License-Identifier: Apache-2.0
// The bytes both processes agree on. An attachment has two segments (memfds), one per writer:
//
//   c2s: the client writes it     +0    SegmentHeader   written once by the sidecar
//   s2c: the sidecar writes it    +512  WriterWords     the words of this segment's writer
//                                 +4096 ring bytes      a power of two
//
// 1. Every shared word has exactly one writer and lives in that writer's segment: the consumer
//    position of the c2s ring is therefore in s2c, and the reverse.
// 2. Fixed-width little-endian fields, naturally aligned, offsets from the segment's start.
// 3. The sidecar never trusts anything it reads back from c2s, its own header included.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kairos {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");
static_assert(sizeof(void*) == 8, "64-bit only");

inline constexpr uint32_t kSegmentMagic = 0x3152534bu;  // "KSR1"
inline constexpr uint16_t kLayoutMajor = 1;
inline constexpr uint16_t kLayoutMinor = 0;

inline constexpr uint64_t kRingBytesMin = 64u << 10;
inline constexpr uint64_t kRingBytesMax = 64u << 20;
inline constexpr uint64_t kRingBytesDefault = 1u << 20;
// One message, all fragments together.
inline constexpr uint64_t kMessageBytesMax = 16u << 20;
inline constexpr uint64_t kFrameAlign = 8;
// A frame, header included, is at most this part of its ring.
inline constexpr uint64_t kFramePartOfRing = 8;

enum class SegmentRole : uint32_t { kClientToSidecar = 1, kSidecarToClient = 2 };

// A life of the sidecar: drawn at random when it starts.
struct Incarnation {
  uint64_t word[2];
  friend bool operator==(const Incarnation&, const Incarnation&) = default;
};

struct SegmentHeader {
  // kSegmentMagic | major << 32 | minor << 48; stored last, so that a half-made header has none.
  uint64_t magic_version;
  uint64_t layout_hash;
  Incarnation incarnation;
  uint64_t segment_bytes;
  uint64_t words_offset;
  uint64_t ring_offset;
  uint64_t ring_bytes;
  uint64_t start_position;  // of both rings of the attachment
  uint64_t features;
  SegmentRole role;
  uint32_t attachment;
  uint64_t reserved[21];
};
static_assert(sizeof(SegmentHeader) == 256);
static_assert(offsetof(SegmentHeader, layout_hash) == 8);
static_assert(offsetof(SegmentHeader, incarnation) == 16);
static_assert(offsetof(SegmentHeader, segment_bytes) == 32);
static_assert(offsetof(SegmentHeader, words_offset) == 40);
static_assert(offsetof(SegmentHeader, ring_offset) == 48);
static_assert(offsetof(SegmentHeader, ring_bytes) == 56);
static_assert(offsetof(SegmentHeader, start_position) == 64);
static_assert(offsetof(SegmentHeader, features) == 72);
static_assert(offsetof(SegmentHeader, role) == 80);
static_assert(offsetof(SegmentHeader, attachment) == 84);

// One pair of 64-byte lines each: adjacent-line prefetch would couple neighbours otherwise.
struct WriterWords {
  alignas(128) uint64_t tail;         // producer position of the ring in this segment
  alignas(128) uint64_t head;         // consumer position of the ring in the other segment
  alignas(128) uint64_t sleep_epoch;  // odd: this writer sleeps until a doorbell, as consumer
  alignas(128) uint64_t space_epoch;  // odd: this writer waits for room, as producer
};
static_assert(sizeof(WriterWords) == 512);
static_assert(offsetof(WriterWords, head) == 128);
static_assert(offsetof(WriterWords, sleep_epoch) == 256);
static_assert(offsetof(WriterWords, space_epoch) == 384);

struct FrameHeader {
  uint32_t length;  // payload bytes, without this header and without alignment
  uint16_t type;    // 0 is padding; the others are record types
  uint16_t flags;   // kFrame*
  uint64_t request_id;
};
static_assert(sizeof(FrameHeader) == 16);

inline constexpr uint16_t kFramePadding = 0;
inline constexpr uint16_t kFrameBegin = 1;
inline constexpr uint16_t kFrameEnd = 2;
inline constexpr uint16_t kFrameAbort = 4;  // forgets the message that was begun; no payload

inline constexpr uint64_t kWordsOffset = 512;
inline constexpr uint64_t kRingOffset = 4096;

// FNV-1a over what an older or newer layout would differ in. Both ends compare it before mapping.
constexpr uint64_t LayoutHash() {
  constexpr uint64_t kFacts[] = {
      kSegmentMagic, kLayoutMajor, sizeof(SegmentHeader), sizeof(WriterWords), sizeof(FrameHeader),
      kWordsOffset, kRingOffset, kFrameAlign, kFramePartOfRing, offsetof(WriterWords, head),
      offsetof(WriterWords, sleep_epoch), offsetof(WriterWords, space_epoch),
      kFrameBegin | kFrameEnd << 4 | kFrameAbort << 8, sizeof(void*)};
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint64_t fact : kFacts) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ ((fact >> shift) & 0xffu)) * 0x100000001b3u;
    }
  }
  return hash;
}

constexpr bool IsRingSize(uint64_t bytes) {
  return bytes >= kRingBytesMin && bytes <= kRingBytesMax && std::has_single_bit(bytes);
}

constexpr uint64_t SegmentBytes(uint64_t ring_bytes) { return kRingOffset + ring_bytes; }

}  // namespace kairos
