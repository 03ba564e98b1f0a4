// SPDX-License-Identifier: Apache-2.0
// Clients that break the ring protocol, at their own memory, with everything a process can do to
// it.
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <gtest/gtest.h>

#include "shm/counters.h"
#include "tests/unit/ingress/ingress_rig.h"

namespace kairos {
namespace {

// Raw access to what the client may write.
struct Raw {
  explicit Raw(RigClient& client)
      : words(client.attachment.segments.c2s.words()),
        ring(client.attachment.segments.c2s.ring()) {}
  void Frame(uint64_t at, uint32_t length, uint16_t type, uint16_t flags, uint64_t id) {
    const FrameHeader header{length, type, flags, id};
    std::memcpy(ring + at, &header, sizeof(header));
  }
  void Tail(uint64_t tail) { shared_word::StoreAndFence(words->tail, tail); }
  WriterWords* words;
  std::byte* ring;
};

constexpr uint16_t kWhole = kFrameBegin | kFrameEnd;
constexpr auto kPingType = static_cast<uint16_t>(RecordType::kPing);
constexpr auto kStatType = static_cast<uint16_t>(RecordType::kSessionStat);

struct Attack {
  const char* name;
  Violation violation;
  void (*act)(Raw raw);
};

const Attack kAttacks[] = {
    {"random_tail", Violation::kTailBeyondCapacity, [](Raw raw) { raw.Tail(0x1234567890ab0); }},
    {"tail_backwards", Violation::kTailBackwards, [](Raw raw) { raw.Tail(~uint64_t{0} - 63); }},
    {"tail_beyond_capacity", Violation::kTailBeyondCapacity,
     [](Raw raw) { raw.Tail(kRingBytesDefault + 8); }},
    {"misaligned_tail", Violation::kTailMisaligned, [](Raw raw) { raw.Tail(20); }},
    {"tail_inside_header", Violation::kBadLength,
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kWhole, 1);
       raw.Tail(8);
     }},
    {"length_zero", Violation::kBadLength,
     [](Raw raw) {
       raw.Frame(0, 0, kPingType, kWhole, 1);
       raw.Tail(16);
     }},
    {"length_2_31", Violation::kBadLength,
     [](Raw raw) {
       raw.Frame(0, 1u << 31, kPingType, kWhole, 1);
       raw.Tail(64);
     }},
    {"length_2_32_minus_1", Violation::kBadLength,
     [](Raw raw) {
       raw.Frame(0, ~0u, kPingType, kWhole, 1);
       raw.Tail(64);
     }},
    {"length_beyond_tail", Violation::kBadLength,
     [](Raw raw) {
       raw.Frame(0, 100, kPingType, kWhole, 1);
       raw.Tail(64);
     }},
    {"length_beyond_frame_limit", Violation::kBadLength,
     [](Raw raw) {
       raw.Frame(0, kRingBytesDefault / 8, kPingType, kWhole, 1);
       raw.Tail(kRingBytesDefault / 2);
     }},
    {"padding_in_the_middle", Violation::kBadPadding,
     [](Raw raw) {
       raw.Frame(0, 48, kFramePadding, 0, 0);
       raw.Tail(64);
     }},
    {"padding_over_the_whole_ring", Violation::kBadPadding,
     [](Raw raw) {
       raw.Frame(0, kRingBytesDefault - 16, kFramePadding, 0, 0);
       raw.Tail(kRingBytesDefault);
     }},
    {"zeroed_memory", Violation::kBadPadding, [](Raw raw) { raw.Tail(4096); }},
    {"unknown_type", Violation::kUnknownType,
     [](Raw raw) {
       raw.Frame(0, 8, 63, kWhole, 1);
       raw.Tail(24);
     }},
    {"reply_type_in_requests", Violation::kUnknownType,
     [](Raw raw) {
       raw.Frame(0, 8, static_cast<uint16_t>(RecordType::kFinal), kWhole, 1);
       raw.Tail(24);
     }},
    {"unknown_flags", Violation::kBadFlags,
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kWhole | 64, 1);
       raw.Tail(24);
     }},
    {"abort_with_end", Violation::kBadFlags,
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameAbort | kFrameEnd, 1);
       raw.Tail(24);
     }},
    {"end_without_begin", Violation::kEndWithoutBegin,
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameEnd, 1);
       raw.Tail(24);
     }},
    {"begin_inside_message", Violation::kBeginInsideMessage,
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameBegin, 1);
       raw.Frame(24, 8, kPingType, kFrameBegin, 1);
       raw.Tail(48);
     }},
    {"fragment_of_another_message", Violation::kFragmentMismatch,
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameBegin, 1);
       raw.Frame(24, 8, kPingType, kFrameEnd, 2);
       raw.Tail(48);
     }},
    {"record_cut_short", Violation::kBadRecord,
     [](Raw raw) {
       raw.Frame(0, 8, kStatType, kWhole, 1);
       raw.Tail(24);
     }},
    {"impossible_reply_position", Violation::kHeadInvalid,
     [](Raw raw) {
       // Read when the ring looks full: big pings fill it.
       shared_word::StoreAndFence(raw.words->head, 0x7770);
       for (uint64_t i = 0; i < 16; ++i) raw.Frame(i * 65'024, 65'008, kPingType, kWhole, i + 1);
       raw.Tail(16 * 65'024);
     }},
};

class HostileClient : public testing::TestWithParam<Attack> {};

TEST_P(HostileClient, IsExpelledForTheRightReasonAndAlone) {
  IngressRig rig;
  AttachOptions options;
  options.reply_ring_bytes = 1u << 18;
  RigClient hostile = rig.Attach(options);
  RigClient neighbour = rig.Attach();
  ASSERT_TRUE(rig.PingWorks(neighbour, 1));

  GetParam().act(Raw(hostile));
  (void)RingDoorbell(hostile.attachment.socket.get());
  const auto request = rig.Next();

  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->kind, RequestKind::kDetach);
  EXPECT_EQ(request->attachment.value, hostile.attachment.answer.attachment);
  for (uint32_t i = 0; i < static_cast<uint32_t>(Violation::kCount); ++i) {
    const auto violation = static_cast<Violation>(i);
    EXPECT_EQ(rig.Poisoned(violation), violation == GetParam().violation ? 1u : 0u)
        << ViolationName(violation);
  }
  EXPECT_TRUE(hostile.SeesEnd());
  if (GetParam().violation != Violation::kHeadInvalid) {
    const RigClient::Got got = hostile.Poll();
    EXPECT_EQ(got.type, RecordType::kError);
    EXPECT_EQ(got.detail, KAIROS_DETAIL_PROTOCOL);
    EXPECT_EQ(got.code, KAIROS_FAILED_PRECONDITION);
    EXPECT_EQ(hostile.Poll().type, RecordType{}) << "exactly one";
  }
  EXPECT_TRUE(rig.PingWorks(neighbour, 2));
}

INSTANTIATE_TEST_SUITE_P(Attacks, HostileClient, testing::ValuesIn(kAttacks),
                         [](const auto& test) { return test.param.name; });

TEST(HostileClient, IsExpelledForDuplicateRequestId) {
  IngressRig rig;
  RigClient hostile = rig.Attach();

  ASSERT_EQ(hostile.Push(RecordType::kTurnSubmit, 5, TurnPayload("a")), PushResult::kDone);
  ASSERT_EQ(hostile.Push(RecordType::kTurnSubmit, 5, TurnPayload("b")), PushResult::kDone);
  hostile.Publish();

  EXPECT_EQ(rig.Next()->kind, RequestKind::kTurnSubmit);
  EXPECT_EQ(rig.Next()->kind, RequestKind::kDetach);
  EXPECT_EQ(rig.Poisoned(Violation::kDuplicateRequestId), 1u);
}

TEST(HostileClient, IsOneLineInTheLogHoweverOftenItComesBack) {
  IngressRig rig;
  testing::internal::CaptureStderr();
  for (uint64_t round = 1; round <= 20; ++round) {
    RigClient hostile = rig.Attach();
    ASSERT_EQ(hostile.Push(RecordType::kTurnSubmit, 5, TurnPayload("secret")), PushResult::kDone);
    ASSERT_EQ(hostile.Push(RecordType::kTurnSubmit, 5, TurnPayload("secret")), PushResult::kDone);
    hostile.Publish();
    EXPECT_EQ(rig.Next()->kind, RequestKind::kTurnSubmit);
    EXPECT_EQ(rig.Next()->kind, RequestKind::kDetach);
    EXPECT_EQ(rig.Poisoned(Violation::kDuplicateRequestId), round);
  }

  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "client_expelled uid=" + std::to_string(getuid());
  const size_t first = log.find(line);
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_NE(log.find("violation=duplicate_request_id left_out=0"), std::string::npos) << log;
  EXPECT_EQ(log.find("client_expelled", first + 1), std::string::npos) << log;
  EXPECT_EQ(log.find("secret"), std::string::npos) << log;
}

TEST(HostileClient, CannotMakeIngressHoldMoreThanTheTotalOfHalfSentRequests) {
  IngressOptions options;
  options.buffered_bytes_max = 600'000;
  IngressRig rig(options);
  RigClient hostile = rig.Attach();
  RigClient neighbour = rig.Attach();
  const std::string text(30'000'000, 'x');
  OutgoingMessage endless{static_cast<uint16_t>(RecordType::kTurnSubmit), 1,
                          std::as_bytes(std::span(text)), 0};

  ASSERT_TRUE(rig.PumpUntil([&] {
    (void)hostile.attachment.requests.Push(&endless);
    hostile.Publish();
    return rig.ingress->counters().over_memory.value() == 1;
  }));

  EXPECT_EQ(rig.Next()->kind, RequestKind::kDetach);
  EXPECT_TRUE(rig.PingWorks(neighbour, 1));
}

// A second thread rewrites headers, payloads and the tail while ingress parses. Whatever is seen
// must be an intact private copy or an expulsion; run under thread and address sanitizers.
TEST(HostileClient, GainsNothingByMutatingWhatIsBeingParsed) {
  const uint64_t seed = 7;
  uint64_t expelled = 0;
  for (int round = 0; round < 30; ++round) {
    IngressRig rig;
    RigClient neighbour = rig.Attach();
    RigClient hostile = rig.Attach();
    Raw raw(hostile);
    const Payload turn = TurnPayload("mutate me, please, while you read");
    Flag stop;
    std::thread mutator([&] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(round));
      const uint64_t frame = (sizeof(FrameHeader) + turn.size() + 7) & ~uint64_t{7};
      uint64_t tail = 0, id = 1;
      while (!stop.on() && tail < 200 * frame) {
        const uint64_t at = tail & (kRingBytesDefault - 1);
        if (at + frame > kRingBytesDefault) break;
        const FrameHeader header{static_cast<uint32_t>(turn.size()),
                                 static_cast<uint16_t>(RecordType::kTurnSubmit), kWhole, id++};
        CopyToShared(raw.ring + at, reinterpret_cast<const std::byte*>(&header), sizeof(header));
        CopyToShared(raw.ring + at + sizeof(header), turn.data(), turn.size());
        tail += frame;
        raw.Tail(tail);
        (void)RingDoorbell(hostile.attachment.socket.get());
        for (int i = 0; i < 8; ++i) {
          const auto value = static_cast<std::byte>(random());
          CopyToShared(raw.ring + at + random() % frame, &value, 1);
        }
      }
      stop.Set(true);
    });
    while (!stop.on()) {
      rig.ingress->DoWork(MonotonicNs());
      rig.ingress->Wait(MonotonicNs(), 0);
      while (auto request = rig.requests.TryPop()) {
        if (request->kind != RequestKind::kTurnSubmit) continue;
        ASSERT_TRUE(request->turn.has_value());
        for (const ChatMessage& message : request->turn->messages) {
          ASSERT_TRUE(IsUtf8(message.content));
          ASSERT_LE(message.content.size(), turn.size());
        }
      }
      if (rig.ingress->counters().detached.value() > 0) stop.Set(true);
    }
    mutator.join();
    EXPECT_TRUE(rig.PingWorks(neighbour, 1)) << "seed " << seed << " round " << round;
    expelled += rig.ingress->counters().detached.value();
  }
  EXPECT_GT(expelled, 0u);
}

// ---- Death --------------------------------------------------------------------------------------

size_t OpenDescriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

size_t Mappings() {
  FILE* maps = fopen("/proc/self/maps", "re");
  size_t count = 0;
  char line[512];
  while (maps != nullptr && fgets(line, sizeof(line), maps) != nullptr) {
    count += std::string_view(line).find("memfd:kairos") != std::string_view::npos;
  }
  if (maps != nullptr) fclose(maps);
  return count;
}

enum class DeathPoint {
  kAfterAttach,
  kBetweenCopyAndPublish,
  kMidMessage,
  kAfterPublish,
  kReading
};

// The client process: gets to its point, says so, and waits to be killed.
[[noreturn]] void DoomedClient(const std::string& path, DeathPoint point, int ready) {
  AttachOptions options;
  options.socket_path = path;
  options.reply_types = kReplyTypes;
  std::string text;
  auto attached = AttachToSidecar(options, &text);
  if (!attached.ok()) _exit(2);
  RigClient client{attached.Take()};
  const Payload body = TurnPayload(std::string(200'000, 'b'));
  OutgoingMessage big{static_cast<uint16_t>(RecordType::kTurnSubmit), 2, body, 0};
  std::byte* claim = nullptr;
  switch (point) {
    case DeathPoint::kAfterAttach: break;
    case DeathPoint::kBetweenCopyAndPublish:
      claim = client.attachment.requests.Claim(1000);
      if (claim == nullptr) _exit(3);
      std::memset(claim, 'k', 1000);
      client.attachment.requests.Commit(static_cast<uint16_t>(RecordType::kPing), kWhole, 1);
      break;
    case DeathPoint::kMidMessage:
      claim = client.attachment.requests.Claim(1000);
      client.attachment.requests.Commit(static_cast<uint16_t>(RecordType::kTurnSubmit),
                                        kFrameBegin, 1);
      client.Publish();
      break;
    case DeathPoint::kAfterPublish:
      if (client.attachment.requests.Push(&big) != PushResult::kDone) _exit(4);
      (void)client.attachment.requests.Publish();  // the doorbell is never rung
      break;
    case DeathPoint::kReading:
      for (uint64_t id = 1; id < 64; ++id) {
        if (client.Push(RecordType::kPing, id, "echo") != PushResult::kDone) _exit(5);
      }
      client.Publish();
      (void)client.Poll();
      break;
  }
  if (write(ready, "r", 1) != 1) _exit(6);
  for (;;) pause();
}

TEST(DeadClient, LeavesNothingBehindOverManyKills) {
  IngressRig rig;
  RigClient neighbour = rig.Attach();
  const size_t descriptors = OpenDescriptors();
  const size_t mappings = Mappings();
  constexpr int kRounds = 100;

  for (int round = 0; round < kRounds; ++round) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC | O_NONBLOCK), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    const auto point = static_cast<DeathPoint>(round % 5);
    if (child == 0) DoomedClient(rig.ingress->socket_path(), point, ready[1]);
    char byte;
    ASSERT_TRUE(rig.PumpUntil([&] { return read(ready[0], &byte, 1) == 1; })) << round;
    const uint64_t detached = rig.ingress->counters().detached.value();
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(
        rig.PumpUntil([&] { return rig.ingress->counters().detached.value() > detached; }));
    std::optional<Request> request;
    while ((request = rig.Next()) && request->kind != RequestKind::kDetach) {
      // A whole record may have been found before the death; half a record never is.
      const bool whole =
          point == DeathPoint::kAfterPublish && request->kind == RequestKind::kTurnSubmit;
      ASSERT_TRUE(whole || request->kind == RequestKind::kAttach) << round;
    }
    ASSERT_TRUE(request.has_value());
    rig.Answer(*request, ReplyKind::kDetached);
    ASSERT_TRUE(
        rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 1; }));
    close(ready[0]);
    close(ready[1]);
  }

  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(Mappings(), mappings);
  EXPECT_TRUE(rig.PingWorks(neighbour, 1));
  for (const Counter& poisoned : rig.ingress->counters().poisoned) EXPECT_EQ(poisoned.value(), 0u);
}

TEST(DeadClient, IsNoticedThoughItsForkedChildHoldsTheSocket) {
  IngressRig rig;
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC | O_NONBLOCK), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AttachOptions options;
    options.socket_path = rig.ingress->socket_path();
    std::string text;
    auto attached = AttachToSidecar(options, &text);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      for (;;) pause();
    }
    if (write(ready[1], &grandchild, sizeof(grandchild)) < 0) _exit(1);
    for (;;) pause();
  }
  pid_t grandchild = 0;
  ASSERT_TRUE(rig.PumpUntil([&] {
    return read(ready[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild);
  }));
  ASSERT_EQ(rig.Next()->kind, RequestKind::kAttach);

  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto request = rig.Next();

  EXPECT_TRUE(request && request->kind == RequestKind::kDetach);
  kill(grandchild, SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST(RingIngress, RefusesClientsCleanlyWhenDescriptorsRunOut) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  low.rlim_cur = OpenDescriptors() + 60;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  IngressOptions options;
  options.descriptors_reserved = 16;
  std::vector<RigClient> clients;
  bool refused = false;
  {
    IngressRig rig(options);
    for (int i = 0; i < 60 && !refused; ++i) {
      RigClient client;
      const Status status = rig.TryAttach(&client);
      refused = !status.ok();
      if (refused) {
        EXPECT_EQ(status.code(), Code::kResourceExhausted) << rig.attach_text;
        EXPECT_NE(rig.attach_text.find("descriptors"), std::string::npos) << rig.attach_text;
      } else {
        clients.push_back(std::move(client));
      }
    }
    EXPECT_TRUE(refused);
    ASSERT_GT(clients.size(), 3u);
    EXPECT_TRUE(rig.PingWorks(clients.front(), 1));
    clients.resize(clients.size() / 2);
    RigClient again;
    rig.PumpUntil([&] { return rig.ingress->counters().detached.value() > 0; });
    EXPECT_TRUE(rig.TryAttach(&again).ok()) << "recovers";
  }
  setrlimit(RLIMIT_NOFILE, &old);
}

}  // namespace
}  // namespace kairos
