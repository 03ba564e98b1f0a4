// SPDX-License-Identifier: Apache-2.0
// The bytes of the control socket: a 32-byte envelope frame and a body frame. Bodies are cereal's
// portable binary, read through an archive that checks every size against the bytes that are there
// before anything is allocated. Structs are versioned; a newer version is refused with
// UNIMPLEMENTED, and new optional data goes into the extension that ends each struct.
// Pure; any thread; lets no exception out. Fences cereal (control_messages.cc only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sidecar/control/control_request.h"

namespace kairos {

inline constexpr uint32_t kControlMagic = 0x5443524b;  // "KRCT"
inline constexpr uint16_t kControlProtocol = 1;
inline constexpr size_t kControlRequestBytesMax = 1u << 20;
inline constexpr size_t kControlReplyBytesMax = 16u << 20;
inline constexpr uint32_t kControlSessionsMax = 4096;  // rows of one reply
inline constexpr uint32_t kControlStatsMax = 1024;
inline constexpr uint64_t kDrainTimeoutMsMax = 3'600'000;

inline constexpr uint32_t kControlFlagReply = 1;

struct ControlEnvelope {
  uint32_t magic = kControlMagic;
  uint16_t protocol = kControlProtocol;
  uint16_t verb = 0;         // ControlVerb
  uint32_t flags = 0;        // kControlFlag*
  uint32_t body_bytes = 0;
  uint64_t request_id = 0;   // the client's, comes back in the reply
  uint64_t body_hash = 0;    // XXH3-64
};
static_assert(sizeof(ControlEnvelope) == 32);

// Fills size and hash from `body`; the bytes to send.
std::string EncodeEnvelope(ControlEnvelope envelope, std::string_view body);
// Size, magic, protocol, known flags and, where the body is given, its size and hash.
// INVALID_ARGUMENT; UNIMPLEMENTED for a newer protocol (the request id is then filled in).
Status DecodeEnvelope(std::string_view bytes, std::string_view body, ControlEnvelope* envelope);

// Without verb, ticket and uid, which travel elsewhere.
std::string EncodeRequest(const ControlRequest& request);
Status DecodeRequest(std::string_view bytes, ControlRequest* request);
// Without the ticket. RESOURCE_EXHAUSTED when the reply is larger than kControlReplyBytesMax.
Result<std::string> EncodeReply(const ControlReply& reply);
Status DecodeReply(std::string_view bytes, ControlReply* reply);

// The uid in libzmq's Peer-Address of a local peer, "localhost:<uid>:<gid>:<pid>". False for any
// other text: what is not understood is not trusted.
bool ParsePeerUid(std::string_view peer_address, uint32_t* uid);

}  // namespace kairos
