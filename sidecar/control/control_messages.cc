// SPDX-License-Identifier: Apache-2.0
// Built with exceptions: cereal reports by throwing. Every entry point catches.
#include "sidecar/control/control_messages.h"

#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/string.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>
#include <type_traits>

#include "base/hash.h"

namespace kairos {

namespace {

// A row and a figure take at least so many bytes, so that a count can be held against what is left.
constexpr size_t kSessionRowBytesMin = 100;
constexpr size_t kStatBytesMin = 16;
constexpr uint32_t kNewestStruct = 1;

struct NewerVersion : cereal::Exception {
  NewerVersion() : cereal::Exception("newer version") {}
};

}  // namespace

// Reads what cereal's portable binary archive wrote in little-endian order. Unlike it, this checks
// each size tag against the remaining bytes before cereal resizes anything.
class BoundedArchive
    : public cereal::InputArchive<BoundedArchive, cereal::AllowEmptyClassElision> {
 public:
  explicit BoundedArchive(std::string_view bytes) : InputArchive(this), bytes_(bytes) {
    uint8_t little_endian = 0;
    (*this)(little_endian);
    if (little_endian != 1) throw cereal::Exception("byte order");
  }

  void Load(void* out, size_t size) {
    if (size > bytes_.size()) throw cereal::Exception("too short");
    if (size != 0) std::memcpy(out, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }

  // For a list that is about to be read: at most `max` items of at least `item_bytes` each.
  void RequireItems(uint64_t count, uint64_t max, size_t item_bytes) const {
    const bool fits = count <= max && count <= bytes_.size() / item_bytes;
    if (!fits) throw cereal::Exception("too many items");
  }

  size_t bytes_left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

template <typename T>
  requires std::is_arithmetic_v<T>
void CEREAL_LOAD_FUNCTION_NAME(BoundedArchive& archive, T& value) {
  archive.Load(&value, sizeof(value));
}

template <typename T>
void CEREAL_SERIALIZE_FUNCTION_NAME(BoundedArchive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}

template <typename T>
void CEREAL_SERIALIZE_FUNCTION_NAME(BoundedArchive& archive, cereal::SizeTag<T>& tag) {
  archive(tag.size);
  // An element has at least one byte.
  archive.RequireItems(tag.size, archive.bytes_left(), 1);
}

template <typename T>
void CEREAL_LOAD_FUNCTION_NAME(BoundedArchive& archive, cereal::BinaryData<T>& data) {
  archive.Load(data.data, static_cast<size_t>(data.size));
}

struct RequestBody {
  uint64_t session = 0;
  uint64_t version = 0;
  uint64_t after = 0;
  uint32_t list_max = 0;
  std::string extension;

  template <typename Archive>
  void serialize(Archive& archive, uint32_t struct_version) {
    if (struct_version > kNewestStruct) throw NewerVersion();
    archive(session, version, after, list_max, extension);
  }
};

struct SessionRow {
  kairos_session_t session{};

  template <typename Archive>
  void serialize(Archive& archive, uint32_t struct_version) {
    if (struct_version > kNewestStruct) throw NewerVersion();
    kairos_session_t& s = session;
    std::string label(s.label, std::min<size_t>(s.label_size, sizeof(s.label)));
    std::string waiting_for(s.waiting_for, strnlen(s.waiting_for, sizeof(s.waiting_for)));
    // What came after the first version of this row: the name of the model, and where there are
    // any, a line feed and the flags.
    std::string extension(s.model, strnlen(s.model, sizeof(s.model)));
    if (s.flags != 0) extension += "\n" + std::to_string(s.flags);
    archive(s.phase, s.id, s.version, s.oldest_version, s.token_count, s.resident_tokens,
            s.message_count, s.kv_bytes, s.created_unix_ms, s.used_unix_ms, s.parent_id, s.fidelity,
            label, waiting_for, extension);
    const size_t line = std::min(extension.find('\n'), extension.size());
    if (line < extension.size()) {
      const char* flags = extension.data() + line + 1;
      if (std::from_chars(flags, extension.data() + extension.size(), s.flags).ec != std::errc()) {
        throw cereal::Exception("flags are no number");
      }
      extension.resize(line);
    }
    if (label.size() > sizeof(s.label) || waiting_for.size() > sizeof(s.waiting_for) ||
        extension.size() > sizeof(s.model)) {
      throw cereal::Exception("text too long");
    }
    s.struct_size = sizeof(s);
    s.label_size = static_cast<uint32_t>(label.size());
    std::memcpy(s.label, label.data(), label.size());
    std::memcpy(s.waiting_for, waiting_for.data(), waiting_for.size());
    std::memcpy(s.model, extension.data(), extension.size());
  }
};

struct ReplyBody {
  ControlReply reply;

  template <typename Archive>
  void save(Archive& archive, uint32_t) const {
    archive(reply.code, reply.detail, reply.text, reply.session.value, reply.version);
    archive(static_cast<uint32_t>(reply.sessions.size()));
    for (const kairos_session_t& session : reply.sessions) {
      SessionRow row{session};
      archive(row);
    }
    archive(static_cast<uint32_t>(reply.stats.size()));
    for (const auto& [name, value] : reply.stats) archive(name, value);
    archive(std::string());
  }

  template <typename Archive>
  void load(Archive& archive, uint32_t struct_version) {
    if (struct_version > kNewestStruct) throw NewerVersion();
    archive(reply.code, reply.detail, reply.text, reply.session.value, reply.version);
    uint32_t count = 0;
    archive(count);
    archive.RequireItems(count, kControlSessionsMax, kSessionRowBytesMin);
    for (uint32_t i = 0; i < count; ++i) {
      SessionRow row;
      archive(row);
      reply.sessions.push_back(row.session);
    }
    archive(count);
    archive.RequireItems(count, kControlStatsMax, kStatBytesMin);
    for (uint32_t i = 0; i < count; ++i) {
      auto& [name, value] = reply.stats.emplace_back();
      archive(name, value);
    }
    std::string extension;
    archive(extension);
  }
};

}  // namespace kairos

CEREAL_CLASS_VERSION(kairos::RequestBody, 1)
CEREAL_CLASS_VERSION(kairos::SessionRow, 1)
CEREAL_CLASS_VERSION(kairos::ReplyBody, 1)

namespace kairos {

namespace {

template <typename Body>
bool Encode(const Body& body, std::string* bytes) try {
  std::ostringstream stream;
  {
    cereal::PortableBinaryOutputArchive archive(
        stream, cereal::PortableBinaryOutputArchive::Options::LittleEndian());
    archive(body);
  }
  *bytes = std::move(stream).str();
  return true;
} catch (const std::exception&) {
  return false;
}

template <typename Body>
Status Decode(std::string_view bytes, Body* body) try {
  BoundedArchive archive(bytes);
  archive(*body);
  if (archive.bytes_left() != 0) return {Code::kInvalidArgument, "control body: bytes left over"};
  return {};
} catch (const NewerVersion&) {
  return {Code::kUnimplemented, "control body: a newer version than this program knows"};
} catch (const std::exception&) {
  return {Code::kInvalidArgument, "control body: malformed"};
}

}  // namespace

std::string EncodeEnvelope(ControlEnvelope envelope, std::string_view body) {
  envelope.body_bytes = static_cast<uint32_t>(body.size());
  envelope.body_hash = HashBytes(body.data(), body.size());
  return std::string(reinterpret_cast<const char*>(&envelope), sizeof(envelope));
}

Status DecodeEnvelope(std::string_view bytes, std::string_view body, ControlEnvelope* envelope) {
  if (bytes.size() != sizeof(*envelope)) {
    return {Code::kInvalidArgument, "control envelope: not 32 bytes"};
  }
  std::memcpy(envelope, bytes.data(), sizeof(*envelope));
  if (envelope->magic != kControlMagic) {
    return {Code::kInvalidArgument, "control envelope: wrong magic"};
  }
  if (envelope->protocol != kControlProtocol) {
    return {Code::kUnimplemented, "control envelope: another protocol version", kControlProtocol};
  }
  if ((envelope->flags & ~kControlFlagReply) != 0) {
    return {Code::kInvalidArgument, "control envelope: unknown flags"};
  }
  if (envelope->body_bytes != body.size() ||
      envelope->body_hash != HashBytes(body.data(), body.size())) {
    return {Code::kInvalidArgument, "control envelope: does not fit its body"};
  }
  return {};
}

std::string EncodeRequest(const ControlRequest& request) {
  std::string bytes;
  const RequestBody body{request.session.value, request.version, request.after.value,
                         request.list_max,
                         request.drain_timeout_ms ? std::to_string(*request.drain_timeout_ms) : ""};
  const bool encoded = Encode(body, &bytes);
  KAIROS_CHECK(encoded);
  return bytes;
}

Status DecodeRequest(std::string_view bytes, ControlRequest* request) {
  if (bytes.size() > kControlRequestBytesMax) {
    return {Code::kInvalidArgument, "control body: larger than 1 MiB"};
  }
  RequestBody body;
  KAIROS_RETURN_IF_ERROR(Decode(bytes, &body));
  request->session = SessionId{body.session};
  request->version = body.version;
  request->after = SessionId{body.after};
  request->list_max = body.list_max;
  if (body.extension.empty()) return {};
  uint64_t drain_timeout_ms = 0;
  const char* end = body.extension.data() + body.extension.size();
  const auto read = std::from_chars(body.extension.data(), end, drain_timeout_ms);
  if (read.ec != std::errc() || read.ptr != end || drain_timeout_ms > kDrainTimeoutMsMax) {
    return {Code::kInvalidArgument, "drain timeout: at most 1 h"};
  }
  request->drain_timeout_ms = drain_timeout_ms;
  return {};
}

Result<std::string> EncodeReply(const ControlReply& reply) {
  std::string bytes;
  if (reply.sessions.size() > kControlSessionsMax || reply.stats.size() > kControlStatsMax ||
      reply.text.size() > kControlReplyBytesMax || !Encode(ReplyBody{reply}, &bytes) ||
      bytes.size() > kControlReplyBytesMax) {
    return Status(Code::kResourceExhausted, "control reply: larger than 16 MiB");
  }
  return bytes;
}

Status DecodeReply(std::string_view bytes, ControlReply* reply) {
  if (bytes.size() > kControlReplyBytesMax) {
    return {Code::kInvalidArgument, "control body: larger than 16 MiB"};
  }
  ReplyBody body;
  KAIROS_RETURN_IF_ERROR(Decode(bytes, &body));
  *reply = std::move(body.reply);
  return {};
}

bool ParsePeerUid(std::string_view peer_address, uint32_t* uid) {
  constexpr std::string_view kPrefix = "localhost:";
  if (peer_address.substr(0, kPrefix.size()) != kPrefix) return false;
  const char* at = peer_address.data() + kPrefix.size();
  const char* end = peer_address.data() + peer_address.size();
  uint32_t numbers[3] = {};
  for (int i = 0; i < 3; ++i) {
    const auto parsed = std::from_chars(at, end, numbers[i]);
    if (parsed.ec != std::errc()) return false;
    at = parsed.ptr;
    if (i < 2 && (at == end || *at++ != ':')) return false;
  }
  *uid = numbers[0];
  return at == end;
}

}  // namespace kairos
