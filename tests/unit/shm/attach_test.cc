// SPDX-License-Identifier: Apache-2.0
#include "shm/attach.h"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "shm/doorbell.h"
#include "shm/peer.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace kairos {
namespace {

class Attach : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "kairos-attach-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    path_ = directory_ + "/run/kairos.sock";
    auto listener = ListenForClients(path_, 0600);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    listener_ = listener.Take();
    offer_.incarnation = {{0x1111, 0x2222}};
    offer_.start_position = (uint64_t{1} << 32) - 64;
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir((directory_ + "/run").c_str());
    rmdir(directory_.c_str());
  }

  // The sidecar's half of one exchange. `tamper` may change the answer before it is sent.
  template <typename Tamper>
  void Serve(Tamper tamper) {
    pollfd entry{listener_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 5000), 1);
    served_ = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(served_.valid());
    entry.fd = served_.get();
    ASSERT_EQ(poll(&entry, 1, 5000), 1);
    auto hello = ReceiveHello(served_.get());
    ASSERT_TRUE(hello.ok()) << hello.status().message();
    hello_ = *hello;
    auto answer = Negotiate(hello_, offer_, 7);
    if (!answer.ok()) {
      ASSERT_TRUE(SendRefusal(served_.get(), answer.status().code(),
                              static_cast<int32_t>(answer.status().detail()),
                              answer.status().message())
                      .ok());
      return;
    }
    auto pair = CreateSegments(*answer);
    ASSERT_TRUE(pair.ok());
    pair_ = pair.Take();
    AttachAnswer sent = *answer;
    tamper(&sent);
    ASSERT_TRUE(SendWelcome(served_.get(), sent, pair_).ok());
  }

  template <typename Tamper>
  Result<ClientAttachment> Exchange(const AttachOptions& options, Tamper tamper) {
    std::thread server([&] { Serve(tamper); });
    auto attached = AttachToSidecar(options, &text_);
    server.join();
    return attached;
  }
  Result<ClientAttachment> Exchange(const AttachOptions& options) {
    return Exchange(options, [](AttachAnswer*) {});
  }

  AttachOptions Options() const {
    AttachOptions options;
    options.socket_path = path_;
    options.reply_types = {64, 80};
    return options;
  }

  std::string directory_, path_, text_;
  AttachOffer offer_;
  AttachHello hello_{};
  Descriptor listener_, served_;
  SegmentPair pair_;
};

TEST_F(Attach, GivesClientTwoRingsThatReachTheSidecar) {
  AttachOptions options = Options();
  options.name_space = "tenant-a";
  options.request_ring_bytes = 1u << 18;
  auto attached = Exchange(options);
  ASSERT_TRUE(attached.ok()) << text_;
  const AttachAnswer& answer = attached->answer;
  RingConsumer requests(
      SidecarRequestView(pair_, answer.request_ring_bytes, answer.start_position), {1, 63});
  RingProducer replies(SidecarReplyView(pair_, answer.reply_ring_bytes, answer.start_position));
  const std::string ping = "ping", pong = "pong";
  RingMessage message;
  uint32_t frames = 8;

  OutgoingMessage outgoing{5, 41, std::as_bytes(std::span(ping)), 0};
  ASSERT_EQ(attached->requests.Push(&outgoing), PushResult::kDone);
  (void)attached->requests.Publish();
  ASSERT_EQ(requests.Poll(&frames, &message), PollResult::kMessage);
  EXPECT_EQ(message.request_id, 41u);
  outgoing = {64, 41, std::as_bytes(std::span(pong)), 0};
  ASSERT_EQ(replies.Push(&outgoing), PushResult::kDone);
  (void)replies.Publish();
  ASSERT_EQ(attached->replies.Poll(&frames, &message), PollResult::kMessage);

  EXPECT_EQ(message.type, 64);
  EXPECT_EQ(answer.request_ring_bytes, 1u << 18);
  EXPECT_EQ(answer.reply_ring_bytes, kRingBytesDefault);
  EXPECT_EQ(answer.attachment, 7u);
  EXPECT_TRUE(answer.incarnation == offer_.incarnation);
  EXPECT_EQ(std::string(hello_.name_space, hello_.name_space_size), "tenant-a");
}

TEST_F(Attach, SocketHasTheModeThatWasAsked) {
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  auto again = ListenForClients(path_, 0660);

  ASSERT_TRUE(again.ok());
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
}

TEST_F(Attach, KeepsFileThatIsNoSocket) {
  const std::string file = directory_ + "/precious";
  close(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));

  EXPECT_EQ(ListenForClients(file, 0600).status().code(), Code::kFailedPrecondition);

  struct stat status{};
  EXPECT_EQ(stat(file.c_str(), &status), 0);
  unlink(file.c_str());
}

TEST_F(Attach, RefusesRingSizeByName) {
  AttachOptions options = Options();
  options.reply_ring_bytes = 100'000;

  auto attached = Exchange(options);

  EXPECT_EQ(attached.status().code(), Code::kInvalidArgument);
  EXPECT_NE(text_.find("reply_ring_bytes"), std::string::npos) << text_;
}

TEST_F(Attach, RefusesProtocolVersionOutsideTheRange) {
  AttachOptions options = Options();
  options.abi_min = options.abi_max = 9;

  auto attached = Exchange(options);

  EXPECT_EQ(attached.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(attached.status().detail(), KAIROS_DETAIL_PROTOCOL);
}

TEST_F(Attach, NegotiatesNothingWithStrangers) {
  AttachHello hello{};
  hello.pointer_bytes = 8;
  hello.abi_min = hello.abi_max = 1;
  hello.layout_hash = LayoutHash();
  ASSERT_TRUE(Negotiate(hello, offer_, 1).ok());

  AttachHello other = hello;
  other.layout_hash ^= 1;
  EXPECT_FALSE(Negotiate(other, offer_, 1).ok());
  other = hello;
  other.pointer_bytes = 4;
  EXPECT_FALSE(Negotiate(other, offer_, 1).ok());
  other = hello;
  other.name_space_size = 65;
  EXPECT_FALSE(Negotiate(other, offer_, 1).ok());
  other = hello;
  other.name_space_size = 3;
  std::memcpy(other.name_space, "a/b", 3);
  EXPECT_FALSE(Negotiate(other, offer_, 1).ok());
}

TEST_F(Attach, ClientRefusesWelcomeThatDiffersFromTheSegments) {
  struct {
    const char* name;
    void (*tamper)(AttachAnswer*);
  } const cases[] = {
      {"size", [](AttachAnswer* answer) { answer->request_ring_bytes *= 2; }},
      {"not a ring size", [](AttachAnswer* answer) { answer->reply_ring_bytes = 12345; }},
      {"layout", [](AttachAnswer* answer) { answer->layout_hash ^= 1; }},
      {"incarnation", [](AttachAnswer* answer) { answer->incarnation.word[0] ^= 1; }},
      {"attachment", [](AttachAnswer* answer) { answer->attachment ^= 1; }},
      {"start", [](AttachAnswer* answer) { answer->start_position += 8; }},
      {"version", [](AttachAnswer* answer) { answer->abi = 2; }},
  };
  for (const auto& one : cases) {
    auto attached = Exchange(Options(), one.tamper);
    EXPECT_EQ(attached.status().code(), Code::kFailedPrecondition) << one.name;
  }
}

TEST_F(Attach, ClientRefusesSegmentThatCouldShrink) {
  Descriptor fd(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(SegmentBytes(kRingBytesMin))), 0);
  SegmentSpec spec;
  spec.ring_bytes = kRingBytesMin;

  EXPECT_EQ(Segment::Map(fd.get(), spec).status().code(), Code::kFailedPrecondition);
}

TEST_F(Attach, SaysWhenNobodyListens) {
  AttachOptions options = Options();
  options.socket_path = directory_ + "/nobody.sock";

  auto attached = AttachToSidecar(options, &text_);

  EXPECT_EQ(attached.status().code(), Code::kUnavailable);
  EXPECT_FALSE(text_.empty());
}

TEST_F(Attach, GivesUpOnSidecarThatDoesNotAnswer) {
  AttachOptions options = Options();
  options.timeout_ms = 30;

  auto attached = AttachToSidecar(options, &text_);

  EXPECT_EQ(attached.status().code(), Code::kDeadlineExceeded);
}

TEST(Segment, CannotBeResizedOrWrittenByItsReader) {
  SegmentSpec spec;
  spec.role = SegmentRole::kSidecarToClient;
  spec.ring_bytes = kRingBytesMin;
  auto made = Segment::Create(spec);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const int fd = made->fd();
  const auto bytes = static_cast<off_t>(made->bytes());

  EXPECT_NE(ftruncate(fd, bytes / 2), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(ftruncate(fd, bytes * 2), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(write(fd, "x", 1), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "no further seals";
  EXPECT_NE(fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE, 0);
  // The sidecar's own mapping still writes, and a reader's mapping sees it.
  auto seen = Segment::Map(fd, spec);
  ASSERT_TRUE(seen.ok());
  made->words()->tail = 4242;
  EXPECT_EQ(seen->words()->tail, 4242u);
}

TEST(Segment, SurvivesHolesPunchedByTheClient) {
  SegmentSpec spec;
  spec.ring_bytes = kRingBytesMin;
  auto made = Segment::Create(spec);
  ASSERT_TRUE(made.ok());
  SegmentSpec reply_spec = spec;
  reply_spec.role = SegmentRole::kSidecarToClient;
  auto replies = Segment::Create(reply_spec);
  ASSERT_TRUE(replies.ok());
  auto mapped = Segment::Map(made->fd(), spec);
  ASSERT_TRUE(mapped.ok());
  RingProducer producer(
      {mapped->words(), replies->words(), mapped->ring(), spec.ring_bytes, 0});
  RingConsumer consumer({replies->words(), made->words(), made->ring(), spec.ring_bytes, 0},
                        {1, 63});
  const std::string text = "soon gone";
  OutgoingMessage outgoing{1, 1, std::as_bytes(std::span(text)), 0};
  ASSERT_EQ(producer.Push(&outgoing), PushResult::kDone);
  (void)producer.Publish();
  EXPECT_NE(ftruncate(made->fd(), 4096), 0);
  EXPECT_NE(ftruncate(made->fd(), 1 << 22), 0);

  ASSERT_EQ(fallocate(made->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(kRingOffset), 4096),
            0);
  RingMessage message;
  uint32_t frames = 8;
  EXPECT_EQ(consumer.Poll(&frames, &message), PollResult::kBroken);

  EXPECT_EQ(consumer.violation(), Violation::kBadPadding) << "zeroes are not a frame";
}

TEST(Doorbell, NeverBlocksWhenNobodyReads) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);

  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(RingDoorbell(ends[0]), RingResult::kRung);

  EXPECT_EQ(DrainDoorbells(ends[1], 3).count, 3u);
  close(ends[1]);
  EXPECT_EQ(RingDoorbell(ends[0]), RingResult::kGone);
  close(ends[0]);
}

TEST(Doorbell, ReportsClosedPeer) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  EXPECT_FALSE(DrainDoorbells(ends[1], 3).closed);
  EXPECT_FALSE(HungUp(ends[1]));
  (void)RingDoorbell(ends[0]);
  close(ends[0]);

  const DrainedDoorbells drained = DrainDoorbells(ends[1], 3);

  EXPECT_EQ(drained.count, 1u);
  EXPECT_TRUE(drained.closed);
  EXPECT_TRUE(HungUp(ends[1]));
  close(ends[1]);
}

}  // namespace
}  // namespace kairos
