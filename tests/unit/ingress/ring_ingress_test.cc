// SPDX-License-Identifier: Apache-2.0
#include "sidecar/ingress/ring_ingress.h"

#include <csignal>
#include <map>
#include <set>

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <gtest/gtest.h>

#include "tests/unit/ingress/ingress_rig.h"

namespace kairos {
namespace {

// A socket on the ingress's path that has not said hello; not valid where it cannot connect.
Descriptor ConnectSilently(const IngressRig& rig) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  rig.ingress->socket_path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  Descriptor client(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    client.Close();
  }
  return client;
}

// A reply ring that fills at once.
AttachOptions SmallReplyRing() {
  AttachOptions options;
  options.reply_ring_bytes = kRingBytesMin;
  return options;
}

TEST(RingIngress, AttachesClientAndTellsTheConductor) {
  IngressRig rig;
  AttachOptions options;
  options.name_space = "tenant-7";
  RigClient client;

  ASSERT_TRUE(rig.TryAttach(&client, options).ok()) << rig.attach_text;
  const auto request = rig.Next();

  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->kind, RequestKind::kAttach);
  EXPECT_EQ(request->name_space, "tenant-7");
  EXPECT_EQ(request->uid, getuid());
  EXPECT_EQ(request->attachment.value, client.attachment.answer.attachment);
  EXPECT_TRUE(client.attachment.answer.incarnation == rig.ingress->incarnation());
}

TEST(RingIngress, AnswersPingWithoutTheConductor) {
  IngressRig rig;
  RigClient client = rig.Attach();

  EXPECT_TRUE(rig.PingWorks(client, 9));

  EXPECT_TRUE(rig.requests.empty());
  EXPECT_EQ(rig.ingress->counters().pings.value(), 1u);
}

TEST(RingIngress, EchoesLargestPingThroughSmallestRing) {
  IngressRig rig;
  AttachOptions options;
  options.request_ring_bytes = options.reply_ring_bytes = kRingBytesMin;
  RigClient client = rig.Attach(options);
  std::string text(kPingBytesMax, 'p');
  text[70] = 'q';
  OutgoingMessage message{static_cast<uint16_t>(RecordType::kPing), 3,
                          std::as_bytes(std::span(text)), 0};
  PushResult pushed = PushResult::kFull;
  RigClient::Got got;

  ASSERT_TRUE(rig.PumpUntil([&] {
    if (pushed == PushResult::kFull) pushed = client.attachment.requests.Push(&message);
    client.Publish();
    got = client.Poll();
    return got.type == RecordType::kPong;
  }));

  EXPECT_TRUE(got.text == text) << got.text.size();
}

TEST(RingIngress, HandsTurnToTheConductorAndRepliesToItsClient) {
  IngressRig rig;
  RigClient client = rig.Attach();
  RigClient other = rig.Attach();

  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 5, TurnPayload("hello")), PushResult::kDone);
  client.Publish();
  const auto request = rig.Next();
  ASSERT_TRUE(request && request->turn);
  EXPECT_EQ(request->kind, RequestKind::kTurnSubmit);
  EXPECT_EQ(request->id.value, 5u);
  EXPECT_EQ(request->turn->messages.at(0).content, "hello");
  rig.Answer(*request, ReplyKind::kAccepted);
  rig.Answer(*request, ReplyKind::kText, "some words");
  rig.Answer(*request, ReplyKind::kFinal);

  EXPECT_EQ(rig.Await(client).type, RecordType::kAccepted);
  const RigClient::Got text = rig.Await(client);
  EXPECT_EQ(text.type, RecordType::kText);
  EXPECT_EQ(text.text, "some words");
  const RigClient::Got final = rig.Await(client);
  EXPECT_EQ(final.type, RecordType::kFinal);
  EXPECT_TRUE(final.has_final);
  EXPECT_EQ(other.Poll().type, RecordType{});
}

TEST(RingIngress, RefusesBadFieldAndKeepsTheAttachment) {
  IngressRig rig;
  RigClient client = rig.Attach();

  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 5, TurnPayload("bad \xff text")),
            PushResult::kDone);
  client.Publish();
  const RigClient::Got got = rig.Await(client);

  EXPECT_EQ(got.type, RecordType::kError);
  EXPECT_EQ(got.id, 5u);
  EXPECT_EQ(got.code, KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(got.detail, KAIROS_DETAIL_BAD_UTF8);
  EXPECT_NE(got.text.find("content"), std::string::npos) << got.text;
  EXPECT_TRUE(rig.requests.empty());
  EXPECT_TRUE(rig.PingWorks(client, 6));
}

TEST(RingIngress, RefusesRecordOverTheLimitAndKeepsTheAttachment) {
  IngressOptions options;
  options.request_bytes_max = 10'000;
  IngressRig rig(options);
  RigClient client = rig.Attach();
  // A client that ignores the limit it was told.
  client.attachment.requests = RingProducer(ClientRequestView(
      client.attachment.segments, client.attachment.answer.request_ring_bytes, 0));

  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 5, std::string(20'000, 'x')), PushResult::kDone);
  client.Publish();
  const RigClient::Got got = rig.Await(client);

  EXPECT_EQ(got.code, KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(got.detail, KAIROS_DETAIL_RECORD_TOO_LARGE);
  EXPECT_TRUE(rig.PingWorks(client, 6));
}

TEST(RingIngress, LimitsRequestsInFlight) {
  IngressOptions options;
  options.attachment.in_flight_max = 3;
  IngressRig rig(options);
  RigClient client = rig.Attach();

  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_EQ(client.Push(RecordType::kTurnSubmit, id, TurnPayload("x")), PushResult::kDone);
  }
  client.Publish();
  const RigClient::Got got = rig.Await(client);
  EXPECT_EQ(got.id, 4u);
  EXPECT_EQ(got.code, KAIROS_RESOURCE_EXHAUSTED);
  EXPECT_EQ(got.detail, KAIROS_DETAIL_QUOTA);
  const auto first = rig.Next();
  rig.Answer(*first, ReplyKind::kFinal);
  EXPECT_EQ(rig.Await(client).type, RecordType::kFinal);
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 5, TurnPayload("x")), PushResult::kDone);
  client.Publish();

  std::set<uint64_t> ids;
  for (int i = 0; i < 3; ++i) ids.insert(rig.Next()->id.value);
  EXPECT_EQ(ids, (std::set<uint64_t>{2, 3, 5}));
}

TEST(RingIngress, LimitsBytesInFlight) {
  IngressOptions options;
  options.attachment.in_flight_bytes_max = 5000;
  IngressRig rig(options);
  RigClient client = rig.Attach();

  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 1, TurnPayload(std::string(4000, 'a'))),
            PushResult::kDone);
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 2, TurnPayload(std::string(4000, 'a'))),
            PushResult::kDone);
  client.Publish();
  const RigClient::Got got = rig.Await(client);

  EXPECT_EQ(got.id, 2u);
  EXPECT_EQ(got.detail, KAIROS_DETAIL_QUOTA);
  EXPECT_NE(got.text.find("bytes in flight: at most"), std::string::npos);
}

TEST(RingIngress, ForwardsCancelOfOpenTurnOnly) {
  IngressRig rig;
  RigClient client = rig.Attach();
  Payload cancel;

  EncodeTurnCancel(99, &cancel);
  ASSERT_EQ(client.Push(RecordType::kTurnCancel, 1, cancel), PushResult::kDone);
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 2, TurnPayload("x")), PushResult::kDone);
  EncodeTurnCancel(2, &cancel);
  ASSERT_EQ(client.Push(RecordType::kTurnCancel, 3, cancel), PushResult::kDone);
  client.Publish();

  EXPECT_EQ(rig.Next()->kind, RequestKind::kTurnSubmit);
  const auto request = rig.Next();
  EXPECT_EQ(request->kind, RequestKind::kTurnCancel);
  EXPECT_EQ(request->target.value, 2u);
  rig.Pump();
  EXPECT_TRUE(rig.requests.empty());
}

TEST(RingIngress, StopsReadingWhileTheConductorQueueIsFullAndLosesNothing) {
  IngressRig rig({}, 4);
  RigClient client = rig.Attach();

  for (uint64_t id = 1; id <= 60; ++id) {
    ASSERT_EQ(client.Push(RecordType::kTurnSubmit, id, TurnPayload("x")), PushResult::kDone);
  }
  client.Publish();
  rig.Pump();
  EXPECT_GE(rig.ingress->counters().queue_full.value(), 1u);
  EXPECT_LE(rig.ingress->counters().records.value(), 6u) << "the rest is still in the ring";

  for (uint64_t id = 1; id <= 60; ++id) {
    const auto request = rig.Next();
    ASSERT_TRUE(request.has_value()) << id;
    ASSERT_EQ(request->id.value, id);
  }
}

TEST(RingIngress, DetachesAtOnceWhenTheClientCloses) {
  IngressRig rig;
  RigClient client = rig.Attach();
  RigClient other = rig.Attach();
  const uint32_t id = client.attachment.answer.attachment;

  client = RigClient{};
  const auto request = rig.Next();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->kind, RequestKind::kDetach);
  EXPECT_EQ(request->attachment.value, id);
  EXPECT_EQ(rig.ingress->counters().attachments.value(), 2u) << "until the conductor is done";
  rig.Answer(*request, ReplyKind::kDetached);

  EXPECT_TRUE(rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 1; }));
  EXPECT_TRUE(rig.PingWorks(other, 1));
}

TEST(RingIngress, RefusesClientsOverTheLimitAndTakesThemWhenOthersLeave) {
  IngressOptions options;
  options.attachments_max = 2;
  IngressRig rig(options);
  RigClient first = rig.Attach();
  RigClient second = rig.Attach();
  RigClient third;

  const Status refused = rig.TryAttach(&third);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.detail(), KAIROS_DETAIL_QUOTA);
  EXPECT_NE(rig.attach_text.find("limits.attachments"), std::string::npos) << rig.attach_text;
  second = RigClient{};
  const auto detach = rig.Next();
  rig.Answer(*detach, ReplyKind::kDetached);
  rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 1; });

  EXPECT_TRUE(rig.TryAttach(&third).ok()) << rig.attach_text;
}

TEST(RingIngress, RefusesClientsOfOneUserOverTheirLimit) {
  IngressOptions options;
  options.attachments_per_uid_max = 1;
  IngressRig rig(options);
  RigClient first = rig.Attach();
  RigClient second;

  EXPECT_EQ(rig.TryAttach(&second).code(), Code::kResourceExhausted);
  EXPECT_NE(rig.attach_text.find("of this user: at most 1"), std::string::npos) << rig.attach_text;
}

TEST(RingIngress, RefusesOneProcessOverItsLimitAndTakesItAgainWhenItLeaves) {
  IngressOptions options;
  options.attachments_per_process_max = 2;
  IngressRig rig(options);
  RigClient first = rig.Attach();
  RigClient second = rig.Attach();
  RigClient third;

  const Status refused = rig.TryAttach(&third);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.detail(), KAIROS_DETAIL_QUOTA);
  EXPECT_NE(rig.attach_text.find("of this process: at most 2 (limits.attachments_per_process)"),
            std::string::npos)
      << rig.attach_text;
  second = RigClient{};
  const auto detach = rig.Next();
  rig.Answer(*detach, ReplyKind::kDetached);
  rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 1; });

  EXPECT_TRUE(rig.TryAttach(&third).ok()) << rig.attach_text;
}

TEST(RingIngress, RefusesRingsOverTheirMemoryAndTakesThemWhenOthersLeave) {
  IngressOptions options;
  options.ring_memory_max = 5u << 20;
  IngressRig rig(options);
  RigClient first = rig.Attach();
  RigClient second = rig.Attach();
  EXPECT_EQ(rig.ingress->counters().ring_bytes.value(), 4u << 20);
  RigClient third;

  const Status refused = rig.TryAttach(&third);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.detail(), KAIROS_DETAIL_QUOTA);
  EXPECT_NE(rig.attach_text.find("rings of 2048 KiB, besides 4096 KiB of other clients: at most "
                                 "5120 KiB together (limits.ring_memory)"),
            std::string::npos)
      << rig.attach_text;
  AttachOptions small;
  small.request_ring_bytes = small.reply_ring_bytes = 512u << 10;
  EXPECT_TRUE(rig.TryAttach(&third, small).ok()) << rig.attach_text;
  EXPECT_TRUE(rig.Next().has_value());  // its attach
  third = RigClient{};
  const auto detach = rig.Next();
  rig.Answer(*detach, ReplyKind::kDetached);
  rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 2; });

  EXPECT_EQ(rig.ingress->counters().ring_bytes.value(), 4u << 20);
  rig.ingress->ChangeLimits({256, 128, 8u << 20, 256, 0});
  EXPECT_TRUE(rig.TryAttach(&third).ok()) << rig.attach_text;
}

TEST(RingIngress, CountsAProcessByItselfAndItsAttachmentsUntilItDies) {
  IngressOptions options;
  options.attachments_per_process_max = 1;
  options.attachments_max = 2;
  IngressRig rig(options);
  RigClient own = rig.Attach();
  const pid_t child = fork();
  if (child == 0) {
    const Descriptor socket = ConnectSilently(rig);
    while (socket.valid()) pause();
    _exit(1);
  }

  EXPECT_TRUE(rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 2; }));
  EXPECT_EQ(rig.ingress->counters().attach_refused.value(), 0u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);

  EXPECT_TRUE(rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 1; }));
}

TEST(RingIngress, RefusesUsersThatAreNotListed) {
  IngressOptions options;
  options.allowed_uids = {getuid() + 1};
  IngressRig rig(options);
  RigClient client;

  EXPECT_EQ(rig.TryAttach(&client).code(), Code::kFailedPrecondition);
}

TEST(RingIngress, RefusesNewClientsWhileDraining) {
  IngressRig rig;
  RigClient old = rig.Attach();
  RigClient late;

  rig.ingress->SetDraining(true);
  const Status refused = rig.TryAttach(&late);

  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_EQ(refused.detail(), KAIROS_DETAIL_DRAINING);
  EXPECT_TRUE(rig.PingWorks(old, 1));
}

TEST(RingIngress, DropsConnectionThatNeverSaysHello) {
  IngressOptions options;
  options.hello_timeout_ns = 1'000'000;
  IngressRig rig(options);
  const Descriptor silent = ConnectSilently(rig);
  ASSERT_TRUE(silent.valid());

  EXPECT_TRUE(rig.PumpUntil([&] { return rig.ingress->counters().attach_timeouts.value() == 1; }));
  EXPECT_TRUE(rig.PumpUntil([&] { return rig.ingress->counters().attachments.value() == 0; }));

  EXPECT_TRUE(DrainDoorbells(silent.get(), 1).closed);
  EXPECT_TRUE(rig.requests.empty()) << "the conductor never heard of it";
}

// A client accepted late in a round is younger than the round's time; the difference wrapped around
// and a client that was slow with its hello was dropped at once.
TEST(RingIngress, KeepsAClientThatIsYoungerThanTheRound) {
  IngressRig rig;
  const Descriptor slow = ConnectSilently(rig);
  ASSERT_TRUE(slow.valid());

  // Rounds whose time was taken a second before the client came, far enough apart for sweeps.
  const uint64_t before_ns = MonotonicNs() - 1'000'000'000;
  for (uint64_t round = 0; round < 40; ++round) {
    rig.ingress->DoWork(before_ns + round * 21'000'000);
  }

  EXPECT_EQ(rig.ingress->counters().attach_timeouts.value(), 0u);
  EXPECT_EQ(rig.ingress->counters().attachments.value(), 1u);
}

TEST(RingIngress, RefusesHelloOfAnotherProtocol) {
  IngressRig rig;
  const Descriptor stranger = ConnectSilently(rig);
  ASSERT_TRUE(stranger.valid());
  ASSERT_EQ(send(stranger.get(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL), 14);

  EXPECT_TRUE(rig.PumpUntil([&] { return rig.ingress->counters().attach_refused.value() == 1; }));
  AttachAnswer answer{};
  ASSERT_EQ(recv(stranger.get(), &answer, sizeof(answer), 0),
            static_cast<ssize_t>(sizeof(answer)));
  EXPECT_EQ(answer.code, KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(answer.detail, KAIROS_DETAIL_PROTOCOL);
}

TEST(RingIngress, MovesClientThatFloodsDoorbellsToTimerPolling) {
  IngressOptions options;
  options.doorbells_empty_max = 100;
  IngressRig rig(options);
  RigClient flooder = rig.Attach();
  RigClient neighbour = rig.Attach();

  ASSERT_TRUE(rig.PumpUntil([&] {
    for (int i = 0; i < 20; ++i) (void)RingDoorbell(flooder.attachment.socket.get());
    return rig.ingress->counters().demotions.value() == 1;
  }));

  EXPECT_TRUE(rig.PingWorks(neighbour, 1));
  EXPECT_TRUE(rig.PingWorks(flooder, 2)) << "slower, but served";
  flooder = RigClient{};
  const auto request = rig.Next();
  EXPECT_TRUE(request && request->kind == RequestKind::kDetach) << "its end is still noticed";
}

TEST(RingIngress, PausesAFloodWhileTurnsRunAndNobodyElse) {
  constexpr uint64_t kPings = 6000;
  constexpr uint64_t kAtOnce = WorkAllowance::kBurstNs / WorkAllowance::kPingNs;
  IngressRig rig;
  RigClient flooder = rig.Attach();
  RigClient neighbour = rig.Attach();
  uint64_t pongs = 0;
  const auto take_pongs = [&] {
    while (flooder.Poll().type == RecordType::kPong) ++pongs;
  };
  const auto flood = [&] {
    pongs = 0;
    for (uint64_t id = 1; id <= kPings; ++id) {
      ASSERT_EQ(flooder.Push(RecordType::kPing, id, "x"), PushResult::kDone);
    }
    flooder.Publish();
  };
  // Time as the test says, in steps in which ingress looks at everything.
  uint64_t now_ns = MonotonicNs() + 1'000'000'000;
  const auto pass = [&](uint64_t ns) {
    constexpr uint64_t kStepNs = 100'000;
    for (uint64_t passed = 0; passed < ns; passed += kStepNs) {
      rig.ingress->DoWork(now_ns += kStepNs);
      take_pongs();
    }
  };

  flood();
  pass(20'000'000);
  EXPECT_EQ(pongs, kPings);
  EXPECT_EQ(rig.ingress->counters().pauses.value(), 0u) << "nothing runs, so nobody is protected";

  ASSERT_EQ(neighbour.Push(RecordType::kTurnSubmit, 1, TurnPayload("x")), PushResult::kDone);
  neighbour.Publish();
  pass(1'000'000);
  const std::optional<Request> turn = rig.requests.TryPop();
  ASSERT_TRUE(turn.has_value());
  flood();
  pass(10'000'000);
  EXPECT_GE(rig.ingress->counters().pauses.value(), 1u);
  const uint64_t first = pongs;
  EXPECT_GT(first, kAtOnce);
  EXPECT_LE(first, kAtOnce + 100) << "with a hundredth of 10 ms";
  ASSERT_EQ(neighbour.Push(RecordType::kPing, 2, "hi"), PushResult::kDone);
  neighbour.Publish();
  pass(200'000);
  EXPECT_EQ(neighbour.Poll().type, RecordType::kPong);
  pass(100'000'000);
  EXPECT_GE(pongs - first, 900u) << "a hundredth of 100 ms, or a pause less";
  EXPECT_LE(pongs - first, 1300u);

  rig.Answer(*turn, ReplyKind::kFinal);
  pass(40'000'000);
  EXPECT_EQ(pongs, kPings);
}

TEST(RingIngress, FindsRecordWithoutDoorbellAndCountsIt) {
  IngressOptions options;
  options.sweep_ns = 1'000'000;
  IngressRig rig(options);
  RigClient client = rig.Attach();
  rig.Pump();
  EXPECT_TRUE(rig.PingWorks(client, 1));
  ASSERT_EQ(rig.ingress->counters().lost_wakes.value(), 0u);
  rig.Pump();

  ASSERT_EQ(client.Push(RecordType::kPing, 2, "quiet"), PushResult::kDone);
  (void)client.attachment.requests.Publish();

  EXPECT_EQ(rig.Await(client).id, 2u);
  EXPECT_EQ(rig.ingress->counters().lost_wakes.value(), 1u);
}

TEST(RingIngress, LosesNoWakeOverManyPingsThatSleepInBetween) {
  IngressOptions options;
  options.spin_us = 0;
  IngressRig rig(options);
  RigClient client = rig.Attach();

  for (uint64_t id = 1; id <= 2000; ++id) ASSERT_TRUE(rig.PingWorks(client, id));

  EXPECT_EQ(rig.ingress->counters().lost_wakes.value(), 0u);
}

TEST(RingIngress, MergesTextOfSlowReaderAndKeepsEveryByte) {
  IngressOptions options;
  IngressRig rig(options);
  RigClient client = rig.Attach(SmallReplyRing());
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 1, TurnPayload("x")), PushResult::kDone);
  client.Publish();
  const auto request = rig.Next();
  std::string expected;

  for (int i = 0; i < 3000; ++i) {
    const std::string piece = "piece " + std::to_string(i) + ";";
    expected += piece;
    rig.Answer(*request, ReplyKind::kText, piece);
  }
  rig.Answer(*request, ReplyKind::kFinal);
  ASSERT_TRUE(rig.PumpUntil([&] { return rig.replies.empty(); }));
  std::string seen;
  int records = 0;
  RigClient::Got got;
  for (got = rig.Await(client); got.type == RecordType::kText; got = rig.Await(client)) {
    seen += got.text;
    ++records;
  }

  EXPECT_EQ(got.type, RecordType::kFinal);
  EXPECT_TRUE(seen == expected) << seen.size();
  EXPECT_LT(records, 2000) << "what waited was merged";
  EXPECT_EQ(rig.ingress->counters().slow_consumers.value(), 0u);
}

TEST(RingIngress, KeepsReasoningAndBrokenCallsApartFromTheTextOfASlowReader) {
  IngressRig rig{IngressOptions()};
  RigClient client = rig.Attach(SmallReplyRing());
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 1, TurnPayload("x")), PushResult::kDone);
  client.Publish();
  const auto request = rig.Next();
  rig.Answer(*request, ReplyKind::kText, std::string(kRingBytesMin, 'x'));  // what follows waits
  rig.Answer(*request, ReplyKind::kReasoning, "h");
  rig.Answer(*request, ReplyKind::kReasoning, "m");
  rig.Answer(*request, ReplyKind::kText, "a");
  rig.Answer(*request, ReplyKind::kText, "b");
  rig.Answer(*request, ReplyKind::kText, "broken", KAIROS_DETAIL_CALL_MALFORMED);
  rig.Answer(*request, ReplyKind::kText, "c");
  rig.Answer(*request, ReplyKind::kFinal);
  ASSERT_TRUE(rig.PumpUntil([&] { return rig.replies.empty(); }));

  std::string seen;
  RigClient::Got got = rig.Await(client);
  for (got = rig.Await(client); got.type == RecordType::kText; got = rig.Await(client)) {
    seen += std::to_string(got.code) + " " + std::to_string(got.detail) + " " + got.text + ";";
  }

  EXPECT_EQ(seen, "1 0 hm;0 0 ab;0 16 broken;0 0 c;");
}

TEST(RingIngress, CancelsTurnOfReaderThatIsTooSlow) {
  IngressOptions options;
  options.attachment.reply.text_bytes_max = 100'000;
  IngressRig rig(options);
  RigClient client = rig.Attach(SmallReplyRing());
  RigClient neighbour = rig.Attach();
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 1, TurnPayload("x")), PushResult::kDone);
  client.Publish();
  const auto request = rig.Next();

  for (int i = 0; i < 300; ++i) rig.Answer(*request, ReplyKind::kText, std::string(1000, 't'));
  const auto cancel = rig.Next();
  ASSERT_TRUE(cancel.has_value());
  EXPECT_EQ(cancel->kind, RequestKind::kTurnCancel);
  EXPECT_EQ(cancel->target.value, 1u);
  EXPECT_TRUE(rig.PingWorks(neighbour, 1));
  rig.Answer(*request, ReplyKind::kFinal);
  RigClient::Got got;
  do {
    got = rig.Await(client);
  } while (got.type == RecordType::kText);

  EXPECT_EQ(got.type, RecordType::kError);
  EXPECT_EQ(got.detail, KAIROS_DETAIL_SLOW_CONSUMER);
  EXPECT_EQ(rig.ingress->counters().slow_consumers.value(), 1u);
  EXPECT_TRUE(rig.PingWorks(client, 2)) << "the attachment lives on";
}

TEST(RingIngress, CancelsTurnWhoseTextDoesNotMoveInTime) {
  IngressOptions options;
  options.attachment.slow_consumer_ns = 2'000'000;
  options.sweep_ns = 1'000'000;
  IngressRig rig(options);
  RigClient client = rig.Attach(SmallReplyRing());
  ASSERT_EQ(client.Push(RecordType::kTurnSubmit, 1, TurnPayload("x")), PushResult::kDone);
  client.Publish();
  const auto request = rig.Next();

  for (int i = 0; i < 80; ++i) rig.Answer(*request, ReplyKind::kText, std::string(1000, 't'));
  const auto cancel = rig.Next();

  ASSERT_TRUE(cancel.has_value());
  EXPECT_EQ(cancel->kind, RequestKind::kTurnCancel);
}

TEST(RingIngress, SendsReplyLargerThanTheRing) {
  IngressRig rig;
  RigClient client = rig.Attach(SmallReplyRing());
  Payload stat;
  WireSessionRequest fields{};
  fields.session_id = 4;
  EncodeSessionRequest(fields, &stat);
  ASSERT_EQ(client.Push(RecordType::kSessionMessages, 1, stat), PushResult::kDone);
  client.Publish();
  const auto request = rig.Next();
  std::string text(3'000'000, 'm');
  for (size_t i = 0; i < text.size(); i += 997) text[i] = static_cast<char>('a' + i % 26);

  rig.Answer(*request, ReplyKind::kResult, text);
  const RigClient::Got got = rig.Await(client);

  EXPECT_EQ(got.type, RecordType::kResult);
  EXPECT_TRUE(got.text == text) << got.text.size();
  EXPECT_TRUE(rig.PingWorks(client, 2));
}

TEST(RingIngress, WorksAcrossPositionsWhereNarrowArithmeticBreaks) {
  for (const uint64_t start : {(uint64_t{1} << 32) - 4096, (uint64_t{1} << 63) - 4096,
                               ~uint64_t{0} - 4095}) {
    IngressOptions options;
    options.start_position = start;
    IngressRig rig(options);
    RigClient client = rig.Attach();
    for (uint64_t id = 1; id <= 300; ++id) ASSERT_TRUE(rig.PingWorks(client, id)) << start;
  }
}

Reply StateOf(AttachmentId to, uint64_t session, uint64_t version) {
  Reply reply;
  reply.kind = ReplyKind::kSession;
  reply.attachment = to;
  reply.session = SessionId{session};
  reply.sessions.resize(1);
  reply.sessions[0].struct_size = sizeof(kairos_session_t);
  reply.sessions[0].id = session;
  reply.sessions[0].version = version;
  return reply;
}

TEST(RingIngress, AWatcherThatStopsReadingGetsTheLatestStateOfEachSession) {
  IngressRig rig;
  RigClient watcher = rig.Attach(SmallReplyRing());
  RigClient neighbour = rig.Attach();
  ASSERT_EQ(watcher.Push(RecordType::kTurnSubmit, 1, TurnPayload("x")), PushResult::kDone);
  watcher.Publish();
  const auto request = rig.Next();

  constexpr uint64_t kSessions = 10, kRounds = 300;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    for (uint64_t session = 1; session <= kSessions; ++session) {
      ASSERT_TRUE(rig.replies.TryPush(StateOf(request->attachment, session, round)));
    }
    rig.Pump(1);
  }
  ASSERT_TRUE(rig.PumpUntil([&] { return rig.replies.empty(); }));
  EXPECT_TRUE(rig.PingWorks(neighbour, 1));
  rig.Answer(*request, ReplyKind::kText, "own");
  ASSERT_TRUE(rig.PumpUntil([&] { return rig.replies.empty(); }));
  std::set<uint64_t> at_the_end;
  uint64_t records = 0;
  bool own_came_first = false;
  while (at_the_end.size() < kSessions) {
    const RigClient::Got got = rig.Await(watcher);
    if (got.type == RecordType::kText) own_came_first = at_the_end.empty();
    if (got.type != RecordType::kSession) continue;
    ++records;
    if (got.version < kRounds) continue;
    EXPECT_EQ(got.detail, KAIROS_DETAIL_SKIPPED);
    at_the_end.insert(got.session);
  }

  EXPECT_LT(records, kSessions * kRounds / 2) << "states were merged";
  EXPECT_TRUE(own_came_first) << "a state that waits is not in the way of a reply";
  EXPECT_EQ(rig.ingress->counters().slow_consumers.value(), 0u);
  EXPECT_EQ(rig.ingress->counters().over_memory.value(), 0u);
}

TEST(RingIngress, AWatcherOfManySessionsIsToldThatSomeWereLeftOut) {
  IngressRig rig;
  RigClient watcher = rig.Attach(SmallReplyRing());
  for (uint64_t session = 1; session <= 2000; ++session) {
    ASSERT_TRUE(rig.replies.TryPush(StateOf(AttachmentId{1}, session, 1)));
  }
  ASSERT_TRUE(rig.PumpUntil([&] { return rig.replies.empty(); }));

  RigClient::Got got;
  uint64_t records = 0;
  do {
    got = rig.Await(watcher);
    ++records;
  } while (got.type == RecordType::kSession && got.session != 0);

  EXPECT_EQ(got.detail, KAIROS_DETAIL_SKIPPED);
  EXPECT_LT(records, 1000u);
  EXPECT_TRUE(rig.PingWorks(watcher, 1));
}

}  // namespace
}  // namespace kairos
