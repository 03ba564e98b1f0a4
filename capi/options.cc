// SPDX-License-Identifier: Apache-2.0
#include "capi/options.h"

#include <algorithm>
#include <cstring>

#include "shm/attach.h"
#include "shm/layout.h"
#include "shm/records.h"
#include "shm/socket_path.h"

namespace kairos {
namespace {

// Far above any struct to come: a size that was never set must not send us through foreign memory.
constexpr uint32_t kStructBytesMax = 4096;

// Sizes of version 1, which every caller has at least.
constexpr uint32_t kClientOptionsV1 = 88;
constexpr uint32_t kSessionOptionsV1 = 72;
constexpr uint32_t kMessageV1 = 88;
constexpr uint32_t kGenerationV1 = 112;
constexpr uint32_t kTurnOptionsV1 = 136;
static_assert(sizeof(kairos_client_options_t) >= kClientOptionsV1);
static_assert(sizeof(kairos_session_options_t) >= kSessionOptionsV1);
static_assert(sizeof(kairos_message_t) >= kMessageV1);
static_assert(sizeof(kairos_generation_t) >= kGenerationV1);
static_assert(sizeof(kairos_turn_options_t) >= kTurnOptionsV1);

Status Invalid(const char* message) { return Status(Code::kInvalidArgument, message); }
Status Unimplemented(const char* message) { return Status(Code::kUnimplemented, message); }

// What to say of one struct.
struct StructWords {
  const char* size;
  const char* tail;
  const char* reserved;
  const char* flags;
};

template <typename T>
Status ReadStruct(const T* from, uint32_t size_min, uint32_t known_flags, const StructWords& words,
                  T* to) {
  uint32_t size;
  std::memcpy(&size, from, sizeof(size));
  if (size < size_min || size > kStructBytesMax) return Invalid(words.size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) return Unimplemented(words.tail);
  }
  std::memcpy(to, from, std::min<size_t>(size, sizeof(T)));
  to->struct_size = sizeof(T);
  if ((to->flags & ~known_flags) != 0) return Unimplemented(words.flags);
  return Status();
}

template <size_t N>
Status CheckReserved(const uint64_t (&reserved)[N], const char* message) {
  for (uint64_t word : reserved) {
    if (word != 0) return Invalid(message);
  }
  return Status();
}

Status ReadGeneration(const kairos_generation_t* from, kairos_generation_t* to) {
  constexpr StructWords kWords{
      "generation.struct_size: use kairos_generation_init()",
      "generation: has fields that this library does not know",
      "generation.reserved: must be zero",
      "generation.flags: has a bit this library does not know"};
  constexpr uint32_t kFlags =
      KAIROS_AUTO_TEMPERATURE | KAIROS_AUTO_MAX_TOKENS | KAIROS_AUTO_CONTEXT | KAIROS_IGNORE_EOS |
      KAIROS_LOGITS_HASH | KAIROS_DEFAULT_TEMPERATURE | KAIROS_DEFAULT_TOP_P | KAIROS_DEFAULT_TOP_K;
  KAIROS_RETURN_IF_ERROR(ReadStruct(from, kGenerationV1, kFlags, kWords, to));
  KAIROS_RETURN_IF_ERROR(CheckReserved(to->reserved, kWords.reserved));
  KAIROS_RETURN_IF_ERROR(
      CheckString(to->constraint, "generation.constraint: null pointer with a size"));
  if (to->stops == nullptr && to->stop_count != 0) {
    return Invalid("generation.stops: null pointer with a count");
  }
  if (to->biases == nullptr && to->bias_count != 0) {
    return Invalid("generation.biases: null pointer with a count");
  }
  // Counts are limited before the arrays are walked.
  if (to->stop_count > kStopsMax) return Invalid("generation.stop_count: at most 16");
  if (to->bias_count > kBiasesMax) return Invalid("generation.bias_count: at most 1024");
  for (uint32_t i = 0; i < to->stop_count; ++i) {
    KAIROS_RETURN_IF_ERROR(
        CheckString(to->stops[i], "generation.stops: null pointer with a size"));
  }
  return Status();
}

Status ReadMessages(const kairos_turn_options_t& options, std::vector<kairos_message_t>* to) {
  constexpr StructWords kWords{
      "message.struct_size: use kairos_message_init()",
      "message: has fields that this library does not know", "",
      "message.flags: has a bit this library does not know"};
  if (options.message_count == 0) return Status();
  if (options.messages == nullptr) return Invalid("messages: null pointer with a count");
  if (options.message_count > kMessagesMax) return Invalid("message_count: at most 4096");
  uint32_t stride;
  std::memcpy(&stride, options.messages, sizeof(stride));
  if (stride < kMessageV1 || stride > kStructBytesMax) return Invalid(kWords.size);
  to->resize(options.message_count);
  const auto* bytes = reinterpret_cast<const unsigned char*>(options.messages);
  for (uint32_t i = 0; i < options.message_count; ++i) {
    const auto* from = reinterpret_cast<const kairos_message_t*>(bytes + size_t{i} * stride);
    kairos_message_t& message = (*to)[i];
    uint32_t size;
    std::memcpy(&size, from, sizeof(size));
    if (size != stride) return Invalid("message.struct_size: must be equal in all messages");
    KAIROS_RETURN_IF_ERROR(ReadStruct(from, kMessageV1, 0, kWords, &message));
    KAIROS_RETURN_IF_ERROR(CheckString(message.role, "message.role: null pointer with a size"));
    KAIROS_RETURN_IF_ERROR(
        CheckString(message.content, "message.content: null pointer with a size"));
    KAIROS_RETURN_IF_ERROR(CheckString(message.name, "message.name: null pointer with a size"));
    KAIROS_RETURN_IF_ERROR(
        CheckString(message.tool_call_id, "message.tool_call_id: null pointer with a size"));
    KAIROS_RETURN_IF_ERROR(CheckString(message.tool_calls_json,
                                       "message.tool_calls_json: null pointer with a size"));
    if (message.role.size == 0) return Invalid("message.role: must be given");
  }
  return Status();
}

}  // namespace

Status CheckString(kairos_string_t string, const char* message) {
  if (string.data == nullptr && string.size != 0) return Invalid(message);
  return Status();
}

Status ReadClientOptions(const kairos_client_options_t* from, ClientOptions* to) {
  constexpr StructWords kWords{
      "options.struct_size: use kairos_client_options_init()",
      "options: has fields that this library does not know", "options.reserved: must be zero",
      "options.flags: has a bit this library does not know"};
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  if (from != nullptr) {
    KAIROS_RETURN_IF_ERROR(ReadStruct(from, kClientOptionsV1, 0, kWords, &options));
  }
  KAIROS_RETURN_IF_ERROR(CheckReserved(options.reserved, kWords.reserved));
  KAIROS_RETURN_IF_ERROR(
      CheckString(options.socket_path, "socket_path: null pointer with a size"));
  KAIROS_RETURN_IF_ERROR(CheckString(options.name_space, "name_space: null pointer with a size"));
  if (options.socket_path.size > kSocketPathBytesMax) {
    return Invalid("socket_path: at most 107 bytes");
  }
  if (options.name_space.size > kNameSpaceBytesMax) {
    return Invalid("name_space: 1 to 64 of [A-Za-z0-9._-]");
  }
  if (options.socket_path.size != 0) {
    to->socket_path.assign(options.socket_path.data, options.socket_path.size);
  } else {
    KAIROS_ASSIGN_OR_RETURN(to->socket_path, DefaultSocketPath());
  }
  if (options.name_space.size != 0) {
    to->name_space.assign(options.name_space.data, options.name_space.size);
    if (!IsNameSpace(to->name_space)) return Invalid("name_space: 1 to 64 of [A-Za-z0-9._-]");
  }
  for (uint32_t bytes : {options.request_ring_bytes, options.reply_ring_bytes}) {
    if (bytes != 0 && !IsRingSize(bytes)) {
      return Invalid("ring bytes: 0 or a power of two from 64 KiB to 64 MiB");
    }
  }
  if (options.spin_us < -1 || options.spin_us > 1'000'000) {
    return Invalid("spin_us: -1 to 1000000");
  }
  to->request_ring_bytes = options.request_ring_bytes;
  to->reply_ring_bytes = options.reply_ring_bytes;
  to->spin_us = options.spin_us;
  to->connect_timeout_ms = options.connect_timeout_ms == 0 ? kConnectTimeoutMsDefault
                                                           : options.connect_timeout_ms;
  return Status();
}

Status ReadSessionOptions(const kairos_session_options_t* from, kairos_session_options_t* to) {
  constexpr StructWords kWords{
      "options.struct_size: use kairos_session_options_init()",
      "options: has fields that this library does not know", "options.reserved: must be zero",
      "options.flags: has a bit this library does not know"};
  kairos_session_options_init(to);
  if (from == nullptr) return Status();
  constexpr uint32_t kFlags = KAIROS_SESSION_DROP_REASONING;
  KAIROS_RETURN_IF_ERROR(ReadStruct(from, kSessionOptionsV1, kFlags, kWords, to));
  KAIROS_RETURN_IF_ERROR(CheckReserved(to->reserved, kWords.reserved));
  KAIROS_RETURN_IF_ERROR(CheckString(to->model, "model: null pointer with a size"));
  return CheckString(to->label, "label: null pointer with a size");
}

Status ReadTurnOptions(const kairos_turn_options_t* from, TurnOptions* to) {
  constexpr StructWords kWords{
      "options.struct_size: use kairos_turn_options_init()",
      "options: has fields that this library does not know", "",
      "options.flags: has a bit this library does not know"};
  constexpr uint32_t kFlags =
      KAIROS_TURN_WHOLE_HISTORY | KAIROS_TURN_NO_GENERATE | KAIROS_TURN_NO_REUSE |
      KAIROS_TURN_ONE_CALL | KAIROS_TURN_MOVE_MODEL;
  if (from == nullptr) return Invalid("options: null pointer");
  kairos_turn_options_t& options = to->options;
  KAIROS_RETURN_IF_ERROR(ReadStruct(from, kTurnOptionsV1, kFlags, kWords, &options));
  KAIROS_RETURN_IF_ERROR(CheckString(options.model, "model: null pointer with a size"));
  KAIROS_RETURN_IF_ERROR(CheckString(options.tool_name, "tool_name: null pointer with a size"));
  KAIROS_RETURN_IF_ERROR(
      CheckString(options.tools_json, "tools_json: null pointer with a size"));
  KAIROS_RETURN_IF_ERROR(
      CheckString(options.idempotency_key, "idempotency_key: null pointer with a size"));
  if (options.tokens == nullptr && options.token_count != 0) {
    return Invalid("tokens: null pointer with a count");
  }
  if (options.token_count > kTokensMax) return Invalid("token_count: at most 1048576");
  KAIROS_RETURN_IF_ERROR(ReadMessages(options, &to->messages));
  options.messages = to->messages.data();
  if (options.generation != nullptr) {
    KAIROS_RETURN_IF_ERROR(ReadGeneration(options.generation, &to->generation));
    options.generation = &to->generation;
  }
  return Status();
}

Status CheckOutSize(uint32_t struct_size, const char* message) {
  if (struct_size < sizeof(uint32_t) || struct_size > kStructBytesMax) return Invalid(message);
  return Status();
}

namespace {

// The caller's struct_size stays as it is; what this build does not know becomes zero.
template <typename T>
void CopyOutStruct(const T& from, void* to, uint32_t struct_size) {
  const size_t known = std::min<size_t>(struct_size, sizeof(T));
  std::memset(to, 0, struct_size);
  std::memcpy(to, &from, known);
  std::memcpy(to, &struct_size, sizeof(struct_size));
}

}  // namespace

void CopyOut(const kairos_session_t& from, void* to, uint32_t struct_size) {
  CopyOutStruct(from, to, struct_size);
}
void CopyOut(const kairos_final_t& from, void* to, uint32_t struct_size) {
  CopyOutStruct(from, to, struct_size);
}

}  // namespace kairos
