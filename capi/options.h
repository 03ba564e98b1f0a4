// SPDX-License-Identifier: Apache-2.0
// Reads the structs that callers pass, as they compiled them: takes the bytes this build knows,
// refuses a longer struct whose extra bytes say something, checks pointers, flags and reserved
// fields. Values and UTF-8 are for the sidecar to judge, which must not trust this process anyway.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kairos/kairos.h"

namespace kairos {

inline constexpr int32_t kConnectTimeoutMsDefault = 5000;

struct ClientOptions {
  std::string socket_path;
  std::string name_space;      // empty: "default"
  uint32_t request_ring_bytes = 0;
  uint32_t reply_ring_bytes = 0;
  int32_t spin_us = -1;
  int32_t connect_timeout_ms = kConnectTimeoutMsDefault;
};

// A turn's options with every nested struct at this build's size; `options` points into the object,
// and the strings still at the caller's memory.
struct TurnOptions {
  kairos_turn_options_t options{};
  kairos_generation_t generation{};
  std::vector<kairos_message_t> messages;

  TurnOptions() = default;
  TurnOptions(const TurnOptions&) = delete;
  TurnOptions& operator=(const TurnOptions&) = delete;
};

// kInvalidArgument names the field; kUnimplemented: a field or flag of a newer header is in use.
// A null `from` gives the defaults where kairos.h allows it.
[[nodiscard]] Status ReadClientOptions(const kairos_client_options_t* from, ClientOptions* to);
[[nodiscard]] Status ReadSessionOptions(const kairos_session_options_t* from,
                                        kairos_session_options_t* to);
[[nodiscard]] Status ReadTurnOptions(const kairos_turn_options_t* from, TurnOptions* to);
[[nodiscard]] Status CheckString(kairos_string_t string, const char* message);

// Structs that the library fills: `struct_size` says how much the caller has room for.
[[nodiscard]] Status CheckOutSize(uint32_t struct_size, const char* message);
void CopyOut(const kairos_session_t& from, void* to, uint32_t struct_size);
void CopyOut(const kairos_final_t& from, void* to, uint32_t struct_size);

}  // namespace kairos
