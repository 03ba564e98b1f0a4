// SPDX-License-Identifier: Apache-2.0
// How a client process gets its two rings: one exchange on a SOCK_SEQPACKET Unix socket.
//
//   client   connect, AttachHello
//   sidecar  AttachAnswer with the c2s and s2c memfds (SCM_RIGHTS), or with a code and words
//   both     keep the socket: doorbells, and its end-of-file is the notice of death
//
// Sizes and layout are decided by the sidecar; the client checks seals, sizes and layout hash
// before it maps anything. Plain functions for both sides; none starts a thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/status.h"
#include "shm/descriptor.h"
#include "shm/ring.h"
#include "shm/segment.h"

namespace kairos {

inline constexpr uint64_t kHelloMagic = 0x314f4c4c4548524bu;   // "KRHELLO1"
inline constexpr uint64_t kAnswerMagic = 0x31525753414e524bu;  // "KRNASWR1"
inline constexpr uint32_t kNameSpaceBytesMax = 64;

// Bits of `features`.
inline constexpr uint64_t kFeatureWatch = 1;  // records watch and session

struct AttachHello {
  uint64_t magic;
  uint32_t size;  // sizeof(AttachHello) as the client knows it
  uint32_t pointer_bytes;
  uint32_t abi_min;
  uint32_t abi_max;
  uint64_t layout_hash;
  uint64_t features;
  uint32_t request_ring_bytes;  // 0: the sidecar's default
  uint32_t reply_ring_bytes;
  uint32_t flags;
  uint32_t name_space_size;  // 0: "default"
  char name_space[kNameSpaceBytesMax];
  uint64_t reserved[17];
};
static_assert(sizeof(AttachHello) == 256 && offsetof(AttachHello, name_space) == 56);

struct AttachAnswer {
  uint64_t magic;
  uint32_t size;
  int32_t code;    // 0: welcome, else a positive KAIROS_* code
  int32_t detail;  // KAIROS_DETAIL_*
  uint32_t abi;    // chosen
  uint64_t layout_hash;
  uint64_t features;  // those of the hello that the sidecar has too
  Incarnation incarnation;
  uint64_t start_position;
  uint64_t request_bytes_max;  // of one message
  uint64_t reply_bytes_max;
  uint32_t request_ring_bytes;
  uint32_t reply_ring_bytes;
  uint32_t attachment;
  uint32_t text_size;
  char text[256];
  uint64_t reserved[20];
};
static_assert(sizeof(AttachAnswer) == 512 && offsetof(AttachAnswer, text) == 96);

// 1..64 of [A-Za-z0-9._-].
bool IsNameSpace(std::string_view name);

// ---- Sidecar side -------------------------------------------------------------------------------

// Listens on `path` with exactly `mode` (0600 or 0660), making its directory (0750) if missing and
// replacing a socket that is there. Only under the daemon's own lock. Non-blocking.
Result<Descriptor> ListenForClients(const std::string& path, mode_t mode);

// kUnavailable with EAGAIN as detail: nothing there yet. kInvalidArgument: no hello, say so and
// close.
Result<AttachHello> ReceiveHello(int socket);

// What the sidecar offers; used to check a hello and fill the answer.
struct AttachOffer {
  uint32_t abi_min = 1;
  uint32_t abi_max = 1;
  uint64_t features = 0;
  uint64_t request_ring_bytes = kRingBytesDefault;
  uint64_t reply_ring_bytes = kRingBytesDefault;
  uint64_t ring_bytes_max = kRingBytesMax;
  uint64_t request_bytes_max = kMessageBytesMax;
  uint64_t reply_bytes_max = kMessageBytesMax;
  uint64_t start_position = 0;
  Incarnation incarnation{};
};

// Chooses version and sizes for this hello; a refusal names the field and the limit.
Result<AttachAnswer> Negotiate(const AttachHello& hello, const AttachOffer& offer,
                               uint32_t attachment);

// Makes both segments of a negotiated attachment.
Result<SegmentPair> CreateSegments(const AttachAnswer& answer);

// Sends the answer and, with a welcome, both descriptors. Never blocks; kUnavailable if the client
// is gone or does not read.
Status SendWelcome(int socket, const AttachAnswer& answer, const SegmentPair& pair);
Status SendRefusal(int socket, Code code, int32_t detail, std::string_view text);

// ---- Client side --------------------------------------------------------------------------------

struct AttachOptions {
  std::string socket_path;
  std::string name_space;  // empty: "default"
  uint32_t abi_min = 1;
  uint32_t abi_max = 1;
  uint64_t features = 0;
  uint32_t request_ring_bytes = 0;
  uint32_t reply_ring_bytes = 0;
  FrameTypes reply_types;  // what the reply ring may carry
  int timeout_ms = 5000;
};

// A live attachment as the client holds it. The socket is to be polled for readability.
struct ClientAttachment {
  Descriptor socket;
  SegmentPair segments;
  RingProducer requests;
  RingConsumer replies;
  AttachAnswer answer{};
};

// Blocks up to timeout_ms. kUnavailable: nobody listens; kDeadlineExceeded; the sidecar's own code
// if it refused, and then, as for every failure, the words are in *text.
Result<ClientAttachment> AttachToSidecar(const AttachOptions& options, std::string* text);

}  // namespace kairos
