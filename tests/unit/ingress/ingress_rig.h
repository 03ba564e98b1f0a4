// SPDX-License-Identifier: Apache-2.0
// A real RingIngress on a real socket, pumped by the test, with the conductor played by the test.
#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "shm/attach.h"
#include "shm/doorbell.h"
#include "shm/records.h"
#include "sidecar/ingress/ring_ingress.h"

namespace kairos {

// The client's end, as libkairos would use it but without its comforts.
struct RigClient {
  ClientAttachment attachment;

  PushResult Push(RecordType type, uint64_t id, PayloadView payload) {
    OutgoingMessage message{static_cast<uint16_t>(type), id, payload, 0};
    return attachment.requests.Push(&message);
  }
  PushResult Push(RecordType type, uint64_t id, const std::string& text) {
    return Push(type, id, std::as_bytes(std::span(text)));
  }
  void Publish() {
    if (attachment.requests.Publish()) (void)RingDoorbell(attachment.socket.get());
  }
  // A reply, copied out; the type is 0 where there is none.
  struct Got {
    RecordType type{};
    uint64_t id = 0;
    int32_t code = 0;
    int32_t detail = 0;
    std::string text;
    std::vector<int32_t> tokens;
    uint64_t session = 0;
    uint64_t version = 0;
    bool has_final = false;
  };
  Got Poll() {
    Got got;
    RingMessage message;
    uint32_t frames = 1u << 20;
    const PollResult polled = attachment.replies.Poll(&frames, &message);
    if (attachment.replies.Release()) (void)RingDoorbell(attachment.socket.get());
    if (polled != PollResult::kMessage) return got;
    got.type = static_cast<RecordType>(message.type);
    got.id = message.request_id;
    if (got.type == RecordType::kPong) {
      got.text.assign(reinterpret_cast<const char*>(message.payload.data()),
                      message.payload.size());
    } else if (auto view = DecodeReply(got.type, message.payload); view.ok()) {
      got.code = view->fixed().code;
      got.detail = view->fixed().detail;
      got.text = view->text();
      got.tokens.resize(view->token_count());
      view->CopyTokens(got.tokens.data());
      got.session = view->fixed().session_id;
      got.version = view->fixed().version;
      got.has_final = view->has_final();
    } else {
      ADD_FAILURE() << "malformed reply: " << view.status().message();
    }
    return got;
  }
  bool SeesEnd() {
    DrainedDoorbells drained;
    do {
      drained = DrainDoorbells(attachment.socket.get(), 64);
    } while (drained.count == 64);
    return drained.closed;
  }
};

class IngressRig {
 public:
  explicit IngressRig(IngressOptions options = {}, size_t queue_cells = 1024)
      : requests(queue_cells), replies(4096) {
    directory_ = testing::TempDir() + "kairos-ingress-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    options.socket_path = directory_ + "/kairos.sock";
    auto made = RingIngress::Create(options, requests, conductor, replies, own);
    EXPECT_TRUE(made.ok()) << made.status().message();
    ingress = made.Take();
  }
  ~IngressRig() {
    ingress.reset();
    rmdir(directory_.c_str());
  }

  // Runs ingress until `done` or the watchdog; true when done.
  bool PumpUntil(const std::function<bool()>& done, int watchdog_ms = 20'000) {
    const uint64_t end = MonotonicNs() + static_cast<uint64_t>(watchdog_ms) * 1'000'000u;
    while (!done()) {
      if (MonotonicNs() > end) return false;
      if (ingress->DoWork(MonotonicNs()) == 0) ingress->Wait(MonotonicNs(), 2);
    }
    return true;
  }
  // A few rounds, for "nothing else happens".
  void Pump(int rounds = 50) {
    for (int i = 0; i < rounds; ++i) {
      ingress->DoWork(MonotonicNs());
      ingress->Wait(MonotonicNs(), 0);
    }
  }

  Status TryAttach(RigClient* client, AttachOptions options = {}) {
    options.socket_path = ingress->socket_path();
    options.reply_types = kReplyTypes;
    std::optional<Result<ClientAttachment>> result;
    std::thread thread([&] { result.emplace(AttachToSidecar(options, &attach_text)); });
    Flag joined;
    std::thread watcher([&] {
      thread.join();
      joined.Set(true);
      own.Wake();
    });
    EXPECT_TRUE(PumpUntil([&] { return joined.on(); }));
    watcher.join();
    if (!result->ok()) return result->status();
    client->attachment = result->Take();
    return Status();
  }
  RigClient Attach(AttachOptions options = {}) {
    RigClient client;
    const Status status = TryAttach(&client, std::move(options));
    EXPECT_TRUE(status.ok()) << attach_text;
    const auto request = Next();
    EXPECT_TRUE(request && request->kind == RequestKind::kAttach);
    return client;
  }

  // The conductor's side.
  std::optional<Request> Next() {
    std::optional<Request> request;
    PumpUntil([&] { return (request = requests.TryPop()).has_value(); }, 5000);
    return request;
  }
  void Answer(const Request& to, ReplyKind kind, std::string text = {}, int32_t detail = 0) {
    Reply reply;
    reply.kind = kind;
    reply.attachment = to.attachment;
    reply.id = to.id;
    reply.text = std::move(text);
    reply.detail = detail;
    if (kind == ReplyKind::kFinal) reply.final.struct_size = sizeof(reply.final);
    EXPECT_TRUE(replies.TryPush(std::move(reply)));
    own.Wake();
  }
  RigClient::Got Await(RigClient& client, int watchdog_ms = 5000) {
    RigClient::Got got;
    EXPECT_TRUE(PumpUntil([&] { return (got = client.Poll()).type != RecordType{}; }, watchdog_ms));
    return got;
  }
  bool PingWorks(RigClient& client, uint64_t id) {
    EXPECT_EQ(client.Push(RecordType::kPing, id, "are you there"), PushResult::kDone);
    client.Publish();
    const RigClient::Got got = Await(client);
    return got.type == RecordType::kPong && got.id == id && got.text == "are you there";
  }

  uint64_t Poisoned(Violation violation) const {
    return ingress->counters().poisoned[static_cast<size_t>(violation)].value();
  }

  SpscQueue<Request> requests;
  SpscQueue<Reply> replies;
  Waker conductor;
  Waker own;
  std::unique_ptr<RingIngress> ingress;
  std::string attach_text;

 private:
  std::string directory_;
};

inline kairos_string_t Str(const std::string& text) { return {text.data(), text.size()}; }

// A small valid turn.
inline Payload TurnPayload(const std::string& content) {
  const std::string role = "user";
  kairos_message_t message{};
  message.struct_size = sizeof(message);
  message.role = Str(role);
  message.content = Str(content);
  kairos_turn_options_t turn{};
  turn.struct_size = sizeof(turn);
  turn.if_version = KAIROS_VERSION_ANY;
  turn.messages = &message;
  turn.message_count = 1;
  Payload payload;
  EXPECT_TRUE(EncodeTurn(turn, &payload).ok());
  return payload;
}

}  // namespace kairos
