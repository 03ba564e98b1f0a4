// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/version_record.h"

#include <bit>
#include <cstring>

#include "base/hash.h"

namespace kairos {

namespace {

static_assert(std::endian::native == std::endian::little, "the stored format is little-endian");

constexpr uint8_t kFlagCancelled = 1;
// token_end, flags and five text sizes.
constexpr size_t kMessageBytesMin = 4 + 1 + 5 * 4;

void PutNumber(uint32_t number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void PutText(const std::string& text, std::string* out) {
  PutNumber(static_cast<uint32_t>(text.size()), out);
  out->append(text);
}

bool TakeNumber(std::string_view* bytes, uint32_t* number) {
  if (bytes->size() < sizeof(*number)) return false;
  std::memcpy(number, bytes->data(), sizeof(*number));
  bytes->remove_prefix(sizeof(*number));
  return true;
}

bool TakeText(std::string_view* bytes, std::string* text) {
  uint32_t size = 0;
  if (!TakeNumber(bytes, &size) || bytes->size() < size) return false;
  text->assign(bytes->data(), size);
  bytes->remove_prefix(size);
  return true;
}

}  // namespace

std::string EncodeTokens(std::span<const TokenId> tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
}

std::string EncodeMessages(std::span<const MessageRecord> messages) {
  std::string out;
  PutNumber(static_cast<uint32_t>(messages.size()), &out);
  for (const MessageRecord& record : messages) {
    PutNumber(record.token_end, &out);
    out.push_back(static_cast<char>(record.cancelled ? kFlagCancelled : 0));
    PutText(record.message.role, &out);
    PutText(record.message.content, &out);
    PutText(record.message.name, &out);
    PutText(record.message.tool_call_id, &out);
    PutText(record.message.tool_calls_json, &out);
  }
  return out;
}

bool DecodeTokens(std::string_view bytes, std::vector<TokenId>* tokens) {
  if (bytes.size() % sizeof(TokenId) != 0) return false;
  const size_t before = tokens->size();
  tokens->resize(before + bytes.size() / sizeof(TokenId));
  if (!bytes.empty()) std::memcpy(tokens->data() + before, bytes.data(), bytes.size());
  return true;
}

bool DecodeMessages(std::string_view bytes, std::vector<MessageRecord>* messages) {
  uint32_t count = 0;
  if (!TakeNumber(&bytes, &count) || count > bytes.size() / kMessageBytesMin) return false;
  messages->reserve(messages->size() + count);
  for (uint32_t i = 0; i < count; ++i) {
    MessageRecord& record = messages->emplace_back();
    if (!TakeNumber(&bytes, &record.token_end) || bytes.empty()) return false;
    const auto flags = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if ((flags & ~kFlagCancelled) != 0) return false;
    record.cancelled = (flags & kFlagCancelled) != 0;
    ChatMessage& message = record.message;
    if (!TakeText(&bytes, &message.role) || !TakeText(&bytes, &message.content) ||
        !TakeText(&bytes, &message.name) || !TakeText(&bytes, &message.tool_call_id) ||
        !TakeText(&bytes, &message.tool_calls_json)) {
      return false;
    }
  }
  return bytes.empty();
}

uint64_t RecordChecksum(const VersionRecord& record) {
  const uint64_t numbers[] = {static_cast<uint64_t>(record.base),
                              record.kept_tokens,
                              record.kept_messages,
                              record.token_count,
                              record.message_count,
                              static_cast<uint64_t>(record.phase),
                              record.created_unix_ms,
                              record.tools_hash,
                              record.tokens.size(),
                              record.messages.size(),
                              record.context_json.size()};
  uint64_t hash = HashBytes(numbers, sizeof(numbers));
  for (const std::string* text :
       {&record.tokens, &record.messages, &record.context_json, &record.waiting_for}) {
    hash = HashBytes(text->data(), text->size(), hash);
  }
  return hash;
}

bool ApplyRecord(const VersionRecord& record, StateVersion* version) {
  if (record.kept_tokens > version->tokens.size() ||
      record.kept_messages > version->messages.size()) {
    return false;
  }
  version->tokens.resize(record.kept_tokens);
  version->messages.resize(record.kept_messages);
  if (!DecodeTokens(record.tokens, &version->tokens) ||
      !DecodeMessages(record.messages, &version->messages)) {
    return false;
  }
  version->context_json = record.context_json;
  version->phase = record.phase;
  version->waiting_for = record.waiting_for;
  version->created_unix_ms = record.created_unix_ms;
  return version->tokens.size() == record.token_count &&
         version->messages.size() == record.message_count;
}

}  // namespace kairos
