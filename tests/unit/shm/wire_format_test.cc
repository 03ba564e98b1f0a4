// SPDX-License-Identifier: Apache-2.0
// docs/WIRE_FORMAT.md shows bytes; these are the bytes that the code makes. A vector there is a
// block of lines "offset  bytes  # words". A gap is zeros; the last offset is the end.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "shm/attach.h"
#include "shm/records.h"
#include "tests/unit/shm/ring_pair.h"

namespace kairos {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Copy(const void* from, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  return Bytes(bytes, bytes + size);
}

std::string Dump(const Bytes& bytes) {
  std::string text;
  char part[32];
  for (size_t at = 0; at < bytes.size(); at += 16) {
    const size_t end = std::min(at + 16, bytes.size());
    bool is_zero = true;
    for (size_t i = at; i < end; ++i) is_zero = is_zero && bytes[i] == 0;
    if (is_zero) continue;
    std::snprintf(part, sizeof(part), "%04zx ", at);
    text += part;
    for (size_t i = at; i < end; ++i) {
      std::snprintf(part, sizeof(part), " %02x", bytes[i]);
      text += part;
    }
    text += '\n';
  }
  std::snprintf(part, sizeof(part), "%04zx\n", bytes.size());
  return text + part;
}

// Every vector of the document by its name.
std::map<std::string, std::string> ReadVectors() {
  std::map<std::string, std::string> vectors;
  std::ifstream file("docs/WIRE_FORMAT.md");
  std::string line, name;
  bool inside = false;
  while (std::getline(file, line)) {
    if (line.starts_with("```vector ")) {
      name = line.substr(10);
      inside = true;
    } else if (line.starts_with("```")) {
      inside = false;
    } else if (inside) {
      vectors[name] += line.substr(0, line.find('#')) + '\n';
    }
  }
  return vectors;
}

Bytes Parse(const std::string& text) {
  Bytes bytes;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word)) continue;
    bytes.resize(std::stoul(word, nullptr, 16));
    while (words >> word) bytes.push_back(static_cast<uint8_t>(std::stoul(word, nullptr, 16)));
  }
  return bytes;
}

void ExpectVector(const std::string& name, const Bytes& made) {
  const auto vectors = ReadVectors();
  const auto found = vectors.find(name);
  ASSERT_NE(found, vectors.end()) << "the document lacks " << name << ":\n" << Dump(made);
  EXPECT_EQ(Dump(Parse(found->second)), Dump(made)) << name;
}

TEST(WireFormat, ShowsTheSegmentHeaderAndItsFirstWords) {
  SegmentSpec spec;
  spec.role = SegmentRole::kSidecarToClient;
  spec.ring_bytes = kRingBytesMin;
  spec.start_position = 64;
  spec.incarnation = {{0x1111, 0x2222}};
  spec.attachment = 7;
  auto made = Segment::Create(spec);
  ASSERT_TRUE(made.ok()) << made.status().message();

  const auto* words = reinterpret_cast<const std::byte*>(made->words());
  ExpectVector("segment", Copy(words - kWordsOffset, kWordsOffset + sizeof(WriterWords)));
}

TEST(WireFormat, ShowsTheHello) {
  std::string directory = testing::TempDir() + "kairos-wire-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  AttachOptions options;
  options.socket_path = directory + "/s";
  options.name_space = "team-a";
  options.request_ring_bytes = 1u << 18;
  options.timeout_ms = 1;
  auto listener = ListenForClients(options.socket_path, 0600);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  std::string text;
  // Nobody answers; the hello waits in the socket.
  ASSERT_FALSE(AttachToSidecar(options, &text).ok());

  Descriptor peer(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  Bytes hello(1024);
  const ssize_t size = recv(peer.get(), hello.data(), hello.size(), MSG_DONTWAIT);
  unlink(options.socket_path.c_str());
  rmdir(directory.c_str());

  ASSERT_GT(size, 0);
  hello.resize(static_cast<size_t>(size));
  ExpectVector("hello", hello);
}

Bytes SentAnswer(int reader) {
  Bytes answer(1024);
  const ssize_t size = recv(reader, answer.data(), answer.size(), MSG_DONTWAIT);
  answer.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return answer;
}

TEST(WireFormat, ShowsWelcomeAndRefusal) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  AttachHello hello{};
  hello.pointer_bytes = 8;
  hello.abi_min = hello.abi_max = 1;
  hello.layout_hash = LayoutHash();
  AttachOffer offer;
  offer.incarnation = {{0x1111, 0x2222}};
  offer.request_bytes_max = kRequestBytesMax;
  offer.reply_bytes_max = kReplyBytesMax;
  auto answer = Negotiate(hello, offer, 7);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  auto pair = CreateSegments(*answer);
  ASSERT_TRUE(pair.ok());

  ASSERT_TRUE(SendWelcome(ends[0], *answer, *pair).ok());
  ExpectVector("welcome", SentAnswer(ends[1]));

  ASSERT_TRUE(SendRefusal(ends[0], Code::kUnavailable, KAIROS_DETAIL_DRAINING, "draining").ok());
  ExpectVector("refusal", SentAnswer(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST(WireFormat, ShowsFrames) {
  RingPair ring;
  ASSERT_EQ(ring.Push(1, 0x0102030405060708u, "hello"), PushResult::kDone);
  ExpectVector("frame", Copy(ring.bytes, 24));

  // 15 frames of 4096 bytes and one of 4056 leave 40 bytes, which the next frame does not fit.
  RingPair wrapped;
  RingMessage message;
  for (int i = 0; i < 16; ++i) {
    const size_t payload = (i == 15 ? 4056 : 4096) - sizeof(FrameHeader);
    ASSERT_EQ(wrapped.Push(1, 1, std::string(payload, '\0')), PushResult::kDone);
    (void)wrapped.producer.Publish();
    ASSERT_EQ(wrapped.Poll(&message), PollResult::kMessage);
    (void)wrapped.consumer.Release();
  }
  ASSERT_EQ(wrapped.Push(1, 2, std::string(100, 'x')), PushResult::kDone);
  ExpectVector("padding", Copy(wrapped.bytes + kRingBytesMin - 40, 16));

  RingPair aborted;
  const std::string large(100'000, 'q');
  OutgoingMessage outgoing{13, 9, std::as_bytes(std::span(large)), 0};
  ASSERT_EQ(aborted.producer.Push(&outgoing), PushResult::kFull);
  ExpectVector("first_piece", Copy(aborted.bytes, 16));
  (void)aborted.producer.Publish();
  ASSERT_EQ(aborted.Poll(&message), PollResult::kEmpty);
  (void)aborted.consumer.Release();
  const uint64_t at = aborted.producer.tail() & (kRingBytesMin - 1);
  ASSERT_EQ(aborted.producer.PushAbort(13, 9), PushResult::kDone);
  ExpectVector("abort", Copy(aborted.bytes + at, 16));
}

TEST(WireFormat, ShowsRequestRecords) {
  Payload payload;
  WireSessionRequest fork{};
  fork.session_id = 0x0123456789abcdefu;
  fork.version = 3;
  EncodeSessionRequest(fork, &payload);
  ExpectVector("session_fork", Copy(payload.data(), payload.size()));

  EncodeTurnCancel(41, &payload);
  ExpectVector("turn_cancel", Copy(payload.data(), payload.size()));

  kairos_message_t message{};
  message.struct_size = sizeof(message);
  message.role = {"user", 4};
  message.content = {"Hi", 2};
  kairos_turn_options_t turn{};
  turn.struct_size = sizeof(turn);
  turn.if_version = KAIROS_VERSION_ANY;
  turn.messages = &message;
  turn.message_count = 1;
  turn.idempotency_key = {"k1", 2};
  ASSERT_TRUE(EncodeTurn(turn, &payload).ok());
  ExpectVector("turn_submit", Copy(payload.data(), payload.size()));
}

TEST(WireFormat, ShowsReplyRecords) {
  Payload payload;
  const int32_t token = 1234;
  ReplyFields fields;
  fields.session_id = 0x0123456789abcdefu;
  fields.text = " river";
  fields.tokens = {&token, 1};
  ASSERT_TRUE(EncodeReply(fields, &payload).ok());
  ExpectVector("text", Copy(payload.data(), payload.size()));

  ReplyFields refusal;
  refusal.code = KAIROS_NOT_FOUND;
  refusal.text = "no such session";
  ASSERT_TRUE(EncodeReply(refusal, &payload).ok());
  ExpectVector("error", Copy(payload.data(), payload.size()));
}

}  // namespace
}  // namespace kairos
