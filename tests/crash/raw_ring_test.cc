// SPDX-License-Identifier: Apache-2.0
// Clients with their hands on the shared bytes of a live sidecar: killed while they write or read,
// breaking the protocol, changing what is parsed, turning their descriptors against it. After each:
// the sidecar lives, a neighbour's turn is word for word what it was before, and nothing of the
// offender is held. Run by tests/support/with_daemon.py, also with rings that start shortly before
// 2^32, 2^63 and 2^64.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "kairos/kairos.h"
#include "tests/unit/ingress/ingress_rig.h"

namespace kairos {
namespace {

constexpr int kWatchdogMs = 120'000;
constexpr uint16_t kWhole = kFrameBegin | kFrameEnd;
constexpr auto kPingType = static_cast<uint16_t>(RecordType::kPing);
constexpr auto kTurnType = static_cast<uint16_t>(RecordType::kTurnSubmit);

std::string SocketPath() { return std::getenv("KAIROS_SOCKET"); }
std::string ProcFolder() { return std::string("/proc/") + std::getenv("KAIROS_SIDECAR_PID"); }

// Polls what has no event to wait for.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const uint64_t end = MonotonicNs() + uint64_t{kWatchdogMs} * 1'000'000;
  while (!condition()) {
    if (MonotonicNs() > end) return false;
    usleep(1000);
  }
  return true;
}

// ---- What the sidecar holds ---------------------------------------------------------------------

struct Held {
  size_t descriptors = 0;
  size_t segments = 0;
  uint64_t resident_pages = 0;
};

Held Holds() {
  Held held;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(ProcFolder() + "/fd")) {
    ++held.descriptors;
  }
  std::ifstream maps(ProcFolder() + "/maps");
  for (std::string line; std::getline(maps, line);) {
    held.segments += line.find("memfd:kairos") != std::string::npos;
  }
  uint64_t size = 0;
  std::ifstream(ProcFolder() + "/statm") >> size >> held.resident_pages;
  return held;
}

// Waits until only this many clients are attached; what is held then.
Held HoldsWith(size_t clients) {
  EXPECT_TRUE(Eventually([&] { return Holds().segments == 2 * clients; }))
      << Holds().segments << " segments for " << clients << " clients";
  return Holds();
}

// ---- The neighbour ------------------------------------------------------------------------------

// An ordinary program with libkairos.
class Neighbour {
 public:
  Neighbour() {
    kairos_client_options_t options;
    kairos_client_options_init(&options);
    const std::string path = SocketPath();
    options.socket_path = {path.data(), path.size()};
    EXPECT_EQ(kairos_client_open(&options, &client_), KAIROS_OK);
  }
  ~Neighbour() { kairos_client_close(client_); }
  Neighbour(const Neighbour&) = delete;

  bool Ping() { return kairos_client_ping(client_, 64, 0, kWatchdogMs) > 0; }

  uint64_t Submit() {
    const std::string role = "user", content = "Name three colours.";
    kairos_message_t message;
    kairos_message_init(&message);
    message.role = {role.data(), role.size()};
    message.content = {content.data(), content.size()};
    kairos_generation_t generation;
    kairos_generation_init(&generation);
    generation.max_tokens = 6;
    kairos_turn_options_t turn;
    kairos_turn_options_init(&turn);
    turn.messages = &message;
    turn.message_count = 1;
    turn.generation = &generation;
    uint64_t request = 0;
    EXPECT_EQ(kairos_turn_submit(client_, &turn, &request), KAIROS_OK);
    return request;
  }
  // The whole text of the turn, or "error ...".
  std::string Read(uint64_t request) {
    std::string text;
    for (;;) {
      kairos_event_t* event = nullptr;
      if (kairos_event_next(client_, kWatchdogMs, &event) != 1) return "error: no event";
      const int32_t type = kairos_event_type(event);
      const kairos_string_t piece = kairos_event_text(event);
      EXPECT_EQ(kairos_event_request(event), request);
      if (type == KAIROS_EVENT_ERROR) text = "error: ";
      text.append(piece.data == nullptr ? "" : piece.data, piece.size);
      kairos_event_release(event);
      if (type == KAIROS_EVENT_FINAL || type == KAIROS_EVENT_ERROR) return text;
    }
  }
  std::string Turn() { return Read(Submit()); }

 private:
  kairos_client_t* client_ = nullptr;
};

// ---- Raw clients --------------------------------------------------------------------------------

RigClient AttachRaw() {
  AttachOptions options;
  options.socket_path = SocketPath();
  options.reply_types = kReplyTypes;
  std::string text;
  auto attached = AttachToSidecar(options, &text);
  EXPECT_TRUE(attached.ok()) << text;
  if (!attached.ok()) std::abort();
  return RigClient{attached.Take()};
}

// The sidecar closed the attachment's socket.
bool AwaitEnd(RigClient& client) {
  pollfd entry{client.attachment.socket.get(), POLLRDHUP, 0};
  return poll(&entry, 1, kWatchdogMs) == 1 && client.SeesEnd();
}

RigClient::Got AwaitReply(RigClient& client) {
  RigClient::Got got;
  EXPECT_TRUE(Eventually([&] { return (got = client.Poll()).type != RecordType{}; }));
  return got;
}

// What a client may write, with positions counted from the ring's start.
struct Raw {
  explicit Raw(RigClient& client)
      : words(client.attachment.segments.c2s.words()),
        ring(client.attachment.segments.c2s.ring()),
        start(client.attachment.answer.start_position),
        capacity(client.attachment.answer.request_ring_bytes) {}
  void Bytes(uint64_t at, const void* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      ring[(start + at + i) & (capacity - 1)] = static_cast<const std::byte*>(bytes)[i];
    }
  }
  void Frame(uint64_t at, uint32_t length, uint16_t type, uint16_t flags, uint64_t id) {
    const FrameHeader header{length, type, flags, id};
    Bytes(at, &header, sizeof(header));
  }
  void Tail(uint64_t at) { shared_word::StoreAndFence(words->tail, start + at); }
  WriterWords* words;
  std::byte* ring;
  uint64_t start;
  uint64_t capacity;
};

struct Attack {
  const char* name;
  void (*act)(Raw raw);
};

const Attack kAttacks[] = {
    {"random_tail", [](Raw raw) { raw.Tail(0x1234567890ab0); }},
    {"tail_backwards", [](Raw raw) { raw.Tail(~uint64_t{0} - 63); }},
    {"tail_beyond_capacity", [](Raw raw) { raw.Tail(raw.capacity + 8); }},
    {"misaligned_tail", [](Raw raw) { raw.Tail(20); }},
    {"length_zero",
     [](Raw raw) {
       raw.Frame(0, 0, kPingType, kWhole, 1);
       raw.Tail(16);
     }},
    {"length_2_31",
     [](Raw raw) {
       raw.Frame(0, 1u << 31, kPingType, kWhole, 1);
       raw.Tail(64);
     }},
    {"length_2_32_minus_1",
     [](Raw raw) {
       raw.Frame(0, ~0u, kPingType, kWhole, 1);
       raw.Tail(64);
     }},
    {"length_beyond_tail",
     [](Raw raw) {
       raw.Frame(0, 100, kPingType, kWhole, 1);
       raw.Tail(64);
     }},
    {"padding_that_is_not_the_ring_s_rest",
     [](Raw raw) {
       raw.Frame(0, 40, kFramePadding, 0, 0);
       raw.Tail(64);
     }},
    {"unknown_type",
     [](Raw raw) {
       raw.Frame(0, 8, 63, kWhole, 1);
       raw.Tail(24);
     }},
    {"unknown_flags",
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kWhole | 64, 1);
       raw.Tail(24);
     }},
    {"end_without_begin",
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameEnd, 1);
       raw.Tail(24);
     }},
    {"begin_inside_message",
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameBegin, 1);
       raw.Frame(24, 8, kPingType, kFrameBegin, 1);
       raw.Tail(48);
     }},
    {"fragment_of_another_message",
     [](Raw raw) {
       raw.Frame(0, 8, kPingType, kFrameBegin, 1);
       raw.Frame(24, 8, kPingType, kFrameEnd, 2);
       raw.Tail(48);
     }},
    {"record_cut_short",
     [](Raw raw) {
       raw.Frame(0, 8, kTurnType, kWhole, 1);
       raw.Tail(24);
     }},
    {"duplicate_request_id",
     [](Raw raw) {
       const Payload turn = TurnPayload("twice");
       const auto frame = (sizeof(FrameHeader) + turn.size() + 7) & ~uint64_t{7};
       // Across the ring's end they would be another offence.
       const uint64_t left = raw.capacity - (raw.start & (raw.capacity - 1));
       const uint64_t begin = left < 2 * frame ? left : 0;
       if (begin >= sizeof(FrameHeader)) {
         raw.Frame(0, static_cast<uint32_t>(begin - sizeof(FrameHeader)), kFramePadding, 0, 0);
       }
       for (const uint64_t at : {begin, begin + frame}) {
         raw.Frame(at, static_cast<uint32_t>(turn.size()), kTurnType, kWhole, 5);
         raw.Bytes(at + sizeof(FrameHeader), turn.data(), turn.size());
       }
       raw.Tail(begin + 2 * frame);
     }},
};

class Hostile : public testing::TestWithParam<Attack> {};

TEST_P(Hostile, IsExpelledAndTheNeighbourNoticesNothing) {
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  ASSERT_EQ(expected.rfind("error", 0), std::string::npos) << expected;
  const Held before = HoldsWith(1);
  const uint64_t running = neighbour.Submit();
  RigClient hostile = AttachRaw();

  GetParam().act(Raw(hostile));
  (void)RingDoorbell(hostile.attachment.socket.get());

  ASSERT_TRUE(AwaitEnd(hostile));
  RigClient::Got last;
  int errors = 0;
  for (RigClient::Got got; (got = hostile.Poll()).type != RecordType{};) {
    errors += got.type == RecordType::kError;
    last = got;
  }
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(last.type, RecordType::kError);
  EXPECT_EQ(last.code, KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(last.detail, KAIROS_DETAIL_PROTOCOL);
  EXPECT_FALSE(last.text.empty());
  EXPECT_EQ(neighbour.Read(running), expected);
  EXPECT_EQ(HoldsWith(1).descriptors, before.descriptors);
  EXPECT_EQ(neighbour.Turn(), expected);
}

INSTANTIATE_TEST_SUITE_P(Attacks, Hostile, testing::ValuesIn(kAttacks),
                         [](const auto& test) { return test.param.name; });

TEST(HostileBytes, WrittenAtRandomHurtNobodyElse) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  const Held before = HoldsWith(1);
  for (int round = 0; round < 200; ++round) {
    RigClient hostile = AttachRaw();
    Raw raw(hostile);
    const Payload turn = TurnPayload("some text to begin with");
    raw.Frame(0, static_cast<uint32_t>(turn.size()), kTurnType, kWhole, 1);
    raw.Bytes(sizeof(FrameHeader), turn.data(), turn.size());
    const uint64_t end = (sizeof(FrameHeader) + turn.size() + 7) & ~uint64_t{7};
    for (uint64_t i = random() % 6; i > 0; --i) {
      const auto value = static_cast<uint8_t>(random());
      raw.Bytes(random() % end, &value, 1);
    }
    if (random() % 4 == 0) shared_word::Store(raw.words->head, random());
    if (random() % 4 == 0) shared_word::Store(raw.words->sleep_epoch, random());
    if (random() % 4 == 0) shared_word::Store(raw.words->space_epoch, random());
    raw.Tail(random() % 3 == 0 ? random() % (2 * raw.capacity) : end);
    (void)RingDoorbell(hostile.attachment.socket.get());
    if (round % 20 == 0) {
      ASSERT_TRUE(neighbour.Ping()) << round;
    }
  }
  EXPECT_EQ(HoldsWith(1).descriptors, before.descriptors);
  EXPECT_EQ(neighbour.Turn(), expected);
}

TEST(HostileBytes, ChangedWhileTheyAreParsedHurtNobodyElse) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  const Held before = HoldsWith(1);
  for (uint64_t round = 0; round < 20; ++round) {
    RigClient hostile = AttachRaw();
    Raw raw(hostile);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> tail{0};
    const Payload turn = TurnPayload("mutate me, please, while you read");
    const uint64_t frame = (sizeof(FrameHeader) + turn.size() + 7) & ~uint64_t{7};
    // At full speed over the frame that is just being read.
    std::thread mutator([&] {
      std::mt19937_64 random(seed + round);
      while (!stop.load(std::memory_order_relaxed)) {
        const auto value = static_cast<uint8_t>(random());
        raw.Bytes(tail.load(std::memory_order_relaxed) + random() % frame, &value, 1);
      }
    });
    for (uint64_t id = 1; id < 100; ++id) {
      const uint64_t at = tail.load();
      if (((raw.start + at) & (raw.capacity - 1)) + 2 * frame > raw.capacity) break;
      raw.Bytes(at + sizeof(FrameHeader), turn.data(), turn.size());
      raw.Frame(at, static_cast<uint32_t>(turn.size()), kTurnType, kWhole, id);
      raw.Tail(at + frame);
      (void)RingDoorbell(hostile.attachment.socket.get());
      tail.store(at + frame);
    }
    EXPECT_TRUE(neighbour.Ping());
    stop.store(true);
    mutator.join();
  }
  EXPECT_EQ(HoldsWith(1).descriptors, before.descriptors);
  EXPECT_EQ(neighbour.Turn(), expected);
}

// ---- Descriptors --------------------------------------------------------------------------------

struct RawSegments {
  Descriptor socket, c2s, s2c;
  AttachAnswer answer{};
};

// The exchange by hand, to keep the descriptors that libkairos closes.
RawSegments TakeDescriptors() {
  RawSegments out;
  out.socket = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  SocketPath().copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(connect(out.socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  AttachHello hello{};
  hello.magic = kHelloMagic;
  hello.size = sizeof(hello);
  hello.pointer_bytes = sizeof(void*);
  hello.abi_min = hello.abi_max = 1;
  hello.layout_hash = LayoutHash();
  EXPECT_EQ(send(out.socket.get(), &hello, sizeof(hello), 0), ssize_t{sizeof(hello)});
  iovec part{&out.answer, sizeof(out.answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_EQ(recvmsg(out.socket.get(), &message, MSG_CMSG_CLOEXEC), ssize_t{sizeof(out.answer)});
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  EXPECT_NE(header, nullptr);
  if (header == nullptr) std::abort();
  int fds[2];
  std::memcpy(fds, CMSG_DATA(header), sizeof(fds));
  out.c2s = Descriptor(fds[0]);
  out.s2c = Descriptor(fds[1]);
  return out;
}

TEST(Descriptors, CannotBeTurnedAgainstTheSidecar) {
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  const Held before = HoldsWith(1);
  {
    RawSegments raw = TakeDescriptors();
    ASSERT_EQ(raw.answer.code, 0);
    const auto size = static_cast<off_t>(SegmentBytes(raw.answer.request_ring_bytes));
    for (const int fd : {raw.c2s.get(), raw.s2c.get()}) {
      errno = 0;
      EXPECT_EQ(ftruncate(fd, 0), -1);
      EXPECT_EQ(errno, EPERM) << "shrink";
      EXPECT_EQ(ftruncate(fd, 4 * size), -1);
      EXPECT_EQ(errno, EPERM) << "grow";
      EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
      EXPECT_EQ(errno, EPERM) << "seal";
    }
    // The sidecar's segment: no write, no writable map, no hole.
    const char byte = 'x';
    EXPECT_EQ(pwrite(raw.s2c.get(), &byte, 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
    void* writable =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, raw.s2c.get(), 0);
    EXPECT_EQ(writable, MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, raw.s2c.get(), 0);
    ASSERT_NE(readable, MAP_FAILED);
    EXPECT_EQ(mprotect(readable, 4096, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, EACCES);
    munmap(readable, 4096);
    EXPECT_EQ(fallocate(raw.s2c.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    // Opened anew through procfs it is no more writable.
    const std::string again = "/proc/self/fd/" + std::to_string(raw.s2c.get());
    Descriptor reopened(open(again.c_str(), O_RDWR | O_CLOEXEC));
    if (reopened.valid()) {
      EXPECT_EQ(pwrite(reopened.get(), &byte, 1, 0), -1);
    }
    // Holes in its own segment zero its own words; whatever follows, follows for itself only.
    EXPECT_EQ(fallocate(raw.c2s.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size), 0);
    for (int i = 0; i < 10; ++i) (void)RingDoorbell(raw.socket.get());
    EXPECT_EQ(neighbour.Turn(), expected);
  }
  EXPECT_EQ(HoldsWith(1).descriptors, before.descriptors);
  EXPECT_EQ(neighbour.Turn(), expected);
}

TEST(Doorbells, RungWithoutEndHurtNobodyElse) {
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  const Held before = HoldsWith(1);
  {
    RigClient flooding = AttachRaw();
    std::atomic<bool> stop{false};
    std::thread flood([&] {
      while (!stop.load()) (void)RingDoorbell(flooding.attachment.socket.get());
    });
    for (int i = 0; i < 5; ++i) EXPECT_EQ(neighbour.Turn(), expected);
    stop.store(true);
    flood.join();
    EXPECT_EQ(flooding.Push(RecordType::kPing, 1, "still served"), PushResult::kDone);
    flooding.Publish();
    EXPECT_EQ(AwaitReply(flooding).text, "still served");
  }
  EXPECT_EQ(HoldsWith(1).descriptors, before.descriptors);
}

// A ping through the ring, answered however the sidecar came to look at it.
void Echo(RigClient& client, uint64_t id) {
  const std::string text = "echo " + std::to_string(id);
  ASSERT_EQ(client.Push(RecordType::kPing, id, text), PushResult::kDone);
  client.Publish();
  const RigClient::Got got = AwaitReply(client);
  ASSERT_EQ(got.id, id);
  ASSERT_EQ(got.text, text);
}

// Bytes of doorbells that the sidecar has not taken from the socket.
int UnreadBySidecar(const RigClient& client) {
  int bytes = 0;
  EXPECT_EQ(ioctl(client.attachment.socket.get(), SIOCOUTQ, &bytes), 0);
  return bytes;
}

TEST(Doorbells, OfAFloodAreLeftUnreadWhileTheRingIsStillServed) {
  Neighbour neighbour;
  RigClient flooding = AttachRaw();
  const char bell = 1;
  const auto ring_until_full = [&] {
    while (send(flooding.attachment.socket.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
    }
  };
  // More than a second's allowance of empty doorbells; then the socket stays as it is.
  ASSERT_TRUE(Eventually([&] {
    ring_until_full();
    const int before = UnreadBySidecar(flooding);
    EXPECT_TRUE(neighbour.Ping() && neighbour.Ping() && neighbour.Ping());
    return before > 0 && UnreadBySidecar(flooding) == before;
  }));

  for (uint64_t id = 1; id <= 20; ++id) Echo(flooding, id);
}

TEST(Doorbells, ThatAClientNeverReadsHoldUpNobody) {
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  const Held before = HoldsWith(1);
  {
    RigClient deaf = AttachRaw();
    // Asleep by its own word before each reply, it is rung for each: more often than any socket has
    // room for.
    constexpr uint64_t kReplies = 5000;
    for (uint64_t id = 1; id <= kReplies; ++id) {
      (void)deaf.attachment.replies.PrepareSleep();
      ASSERT_NO_FATAL_FAILURE(Echo(deaf, id));
      deaf.attachment.replies.FinishSleep();
    }
    char byte = 0;
    EXPECT_EQ(recv(deaf.attachment.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT), 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(neighbour.Turn(), expected);
    Echo(deaf, kReplies + 1);
  }
  EXPECT_EQ(HoldsWith(1).descriptors, before.descriptors);
}

// ---- Death --------------------------------------------------------------------------------------

enum class Moment { kAttached, kBetweenCopyAndPublish, kMidMessage, kUnannounced, kReading };

[[noreturn]] void DoomedClient(Moment moment, int ready) {
  RigClient client = AttachRaw();
  std::byte* claim = nullptr;
  switch (moment) {
    case Moment::kAttached: break;
    case Moment::kBetweenCopyAndPublish:
      claim = client.attachment.requests.Claim(1000);
      if (claim == nullptr) _exit(3);
      std::memset(claim, 'k', 1000);
      client.attachment.requests.Commit(kPingType, kWhole, 1);
      break;
    case Moment::kMidMessage:
      claim = client.attachment.requests.Claim(1000);
      client.attachment.requests.Commit(kTurnType, kFrameBegin, 1);
      client.Publish();
      break;
    case Moment::kUnannounced:
      if (client.Push(RecordType::kTurnSubmit, 2, TurnPayload("unheard")) != PushResult::kDone) {
        _exit(4);
      }
      (void)client.attachment.requests.Publish();
      break;
    case Moment::kReading:
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

void KillClientAt(Moment moment) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) DoomedClient(moment, ready[1]);
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the client failed";
  close(ready[0]);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(DeadClient, InTheMiddleOfAWriteLeavesNoTrace) {
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  const Held before = HoldsWith(1);
  for (const Moment moment : {Moment::kAttached, Moment::kBetweenCopyAndPublish,
                              Moment::kMidMessage, Moment::kUnannounced, Moment::kReading}) {
    const uint64_t running = neighbour.Submit();
    KillClientAt(moment);
    EXPECT_EQ(neighbour.Read(running), expected);
    const Held after = HoldsWith(1);
    EXPECT_EQ(after.descriptors, before.descriptors) << static_cast<int>(moment);
  }
}

TEST(DeadClient, AThousandTimesInTheMiddleOfAReadLeavesNothingBehind) {
  Neighbour neighbour;
  const std::string expected = neighbour.Turn();
  for (int round = 0; round < 50; ++round) KillClientAt(Moment::kReading);
  const Held before = HoldsWith(1);
  for (int round = 0; round < 1000; ++round) {
    KillClientAt(Moment::kReading);
    if (HasFatalFailure()) return;
    if (round % 250 == 0) {
      EXPECT_EQ(neighbour.Turn(), expected) << round;
    }
  }
  const Held after = HoldsWith(1);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.segments, before.segments);
  // A thousand attachments are 2 GiB of rings; 4,096 pages are 16 MiB.
  EXPECT_LT(after.resident_pages, before.resident_pages + 4096);
}

// ---- Positions ----------------------------------------------------------------------------------

TEST(Positions, MayPassAnyBoundaryInBothRings) {
  RigClient client = AttachRaw();
  const uint64_t capacity = client.attachment.answer.request_ring_bytes;
  const uint64_t start = client.attachment.answer.start_position;
  std::mt19937_64 random(start + 1);
  uint64_t sent = 0, id = 1;
  while (sent < 3 * capacity) {
    std::string text(1 + random() % 60'000, static_cast<char>('a' + id % 26));
    while (client.Push(RecordType::kPing, id, text) != PushResult::kDone) client.Publish();
    client.Publish();
    const RigClient::Got got = AwaitReply(client);
    ASSERT_EQ(got.type, RecordType::kPong) << got.text;
    ASSERT_EQ(got.id, id);
    ASSERT_EQ(got.text, text) << "position " << start + sent;
    sent += text.size();
    ++id;
  }
  const char* wanted = std::getenv("KAIROS_EXPECT_START");
  EXPECT_EQ(start, wanted == nullptr ? 0 : std::strtoull(wanted, nullptr, 10));
}

}  // namespace
}  // namespace kairos
