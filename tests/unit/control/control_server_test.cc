// SPDX-License-Identifier: Apache-2.0
// The server is driven by hand in a thread of the test; the conductor is the test itself.
#include "sidecar/control/control_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "sidecar/control/control_client.h"

namespace kairos {
namespace {

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kairos-ctl-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/control.sock";
    std::string error;
    auto server = ControlServer::Create(path_, requests_, conductor_, replies_, own_, &error);
    ASSERT_TRUE(server.ok()) << error;
    server_ = server.Take();
  }

  void TearDown() override {
    StopServer();
    server_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(directory_);
  }

  void StartServer() {
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        server_->DoWork(-1);
        if (answering_.load()) Answer();
      }
    });
  }

  void StopServer() {
    if (!thread_.joinable()) return;
    stop_.store(true);
    // The flag may be looked at just before the server sleeps, so it is woken until it ends.
    std::atomic<bool> ended{false};
    std::thread waker([&] {
      while (!ended.load()) {
        own_.Wake();
        std::this_thread::yield();
      }
    });
    thread_.join();
    ended.store(true);
    waker.join();
  }

  void Answer() {
    while (auto request = requests_.TryPop()) {
      ControlReply reply;
      reply.ticket = request->ticket;
      reply.session = request->session;
      reply.version = request->version + 1;
      reply.text = std::to_string(static_cast<int>(request->verb)) + "/" +
                   std::to_string(request->uid) + "/" + std::to_string(request->list_max);
      ASSERT_TRUE(replies_.TryPush(std::move(reply)));
    }
  }

  std::unique_ptr<ControlClient> Connect() {
    std::string error;
    auto client = ControlClient::Open(path_, &error);
    EXPECT_TRUE(client.ok()) << error;
    return client.ok() ? client.Take() : nullptr;
  }

  void ExpectServes() {
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    ControlReply reply;
    const Status status = client->Call(ControlRequest{}, 10'000, &reply);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(reply.code, 0) << reply.text;
  }

  // What came back to raw frames that a stranger sent, or no frames when nothing did.
  std::vector<std::string> Exchange(const std::vector<std::string>& frames, int timeout_ms) {
    void* context = zmq_ctx_new();
    void* socket = zmq_socket(context, ZMQ_DEALER);
    const int linger = 1000;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
    EXPECT_EQ(zmq_connect(socket, ("ipc://" + path_).c_str()), 0);
    for (size_t i = 0; i < frames.size(); ++i) {
      zmq_send(socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    }
    std::vector<std::string> got;
    zmq_pollitem_t item{socket, 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, timeout_ms) > 0) {
      int more = 1;
      while (more != 0) {
        char buffer[4096];
        const int size = zmq_recv(socket, buffer, sizeof(buffer), 0);
        got.emplace_back(buffer, static_cast<size_t>(size < 0 ? 0 : size));
        size_t more_size = sizeof(more);
        zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &more_size);
      }
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return got;
  }

  void ConnectTo(int fd) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  // A connection that says what it likes.
  int RawPeer() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ConnectTo(fd);
    return fd;
  }

  int32_t CodeOf(const std::vector<std::string>& frames) {
    ControlEnvelope envelope;
    ControlReply reply;
    EXPECT_EQ(frames.size(), 2u);
    if (frames.size() != 2) return -1;
    EXPECT_TRUE(DecodeEnvelope(frames[0], frames[1], &envelope).ok());
    EXPECT_TRUE(DecodeReply(frames[1], &reply).ok());
    return reply.code;
  }

  std::string directory_;
  std::string path_;
  SpscQueue<ControlRequest> requests_{256};
  SpscQueue<ControlReply> replies_{256};
  Waker conductor_;
  Waker own_;
  std::unique_ptr<ControlServer> server_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> answering_{true};
  std::thread thread_;
};

TEST_F(ControlServerTest, CarriesRequestAndReplyOfEachVerb) {
  StartServer();
  auto client = Connect();
  for (int verb = 1; verb <= static_cast<int>(kControlVerbLast); ++verb) {
    ControlRequest request;
    request.verb = static_cast<ControlVerb>(verb);
    request.session = SessionId{0x8000000000000000u + static_cast<uint64_t>(verb)};
    request.version = 41;
    request.list_max = 1'000'000;
    ControlReply reply;

    const Status status = client->Call(request, 10'000, &reply);

    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(reply.text, std::to_string(verb) + "/" + std::to_string(geteuid()) + "/4096");
    EXPECT_EQ(reply.session, request.session);
    EXPECT_EQ(reply.version, 42u);
  }
}

TEST_F(ControlServerTest, OpensItsSocketToTheOwnerAlone) {
  struct stat file {};

  ASSERT_EQ(stat(path_.c_str(), &file), 0);

  EXPECT_TRUE(S_ISSOCK(file.st_mode));
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST_F(ControlServerTest, RefusesToReplaceAFileThatIsNoSocket) {
  const std::string taken = directory_ + "/file";
  fclose(fopen(taken.c_str(), "w"));
  std::string error;

  auto server = ControlServer::Create(taken, requests_, conductor_, replies_, own_, &error);

  EXPECT_FALSE(server.ok());
  EXPECT_NE(error.find(taken), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_regular_file(taken));
  auto too_long = ControlServer::Create(directory_ + std::string(100, 'x'), requests_, conductor_,
                                        replies_, own_, &error);
  EXPECT_EQ(too_long.status().code(), Code::kInvalidArgument);
}

TEST_F(ControlServerTest, AnswersUnavailableWhenTheConductorDoesNot) {
  answering_.store(false);
  StartServer();
  auto client = Connect();
  ControlReply reply;

  const Status status = client->Call(ControlRequest{}, 20'000, &reply);

  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(reply.code, KAIROS_UNAVAILABLE);
  EXPECT_NE(reply.text.find("in time"), std::string::npos);
}

TEST_F(ControlServerTest, RefusesMalformedRequestsWithACodeAndGoesOn) {
  StartServer();
  const std::string body = EncodeRequest(ControlRequest{});
  ControlEnvelope ping;
  ping.verb = 1;
  ControlEnvelope unknown = ping;
  unknown.verb = 99;
  ControlEnvelope newer = ping;
  newer.protocol = 2;
  ControlEnvelope a_reply = ping;
  a_reply.flags = kControlFlagReply;
  std::string newer_body = body;
  newer_body[1] = 9;
  std::string bomb = body;
  bomb.replace(bomb.size() - 8, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");

  EXPECT_EQ(CodeOf(Exchange({EncodeEnvelope(unknown, body), body}, 10'000)), KAIROS_UNIMPLEMENTED);
  EXPECT_EQ(CodeOf(Exchange({EncodeEnvelope(newer, body), body}, 10'000)), KAIROS_UNIMPLEMENTED);
  EXPECT_EQ(CodeOf(Exchange({EncodeEnvelope(a_reply, body), body}, 10'000)),
            KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(Exchange({EncodeEnvelope(ping, newer_body), newer_body}, 10'000)),
            KAIROS_UNIMPLEMENTED);
  EXPECT_EQ(CodeOf(Exchange({EncodeEnvelope(ping, bomb), bomb}, 10'000)), KAIROS_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(Exchange({EncodeEnvelope(ping, body), body + "x"}, 10'000)),
            KAIROS_INVALID_ARGUMENT);
  ExpectServes();
}

TEST_F(ControlServerTest, DropsMessagesOfTheWrongShapeAndGoesOn) {
  StartServer();
  const std::string body = EncodeRequest(ControlRequest{});
  const std::string head = EncodeEnvelope(ControlEnvelope{}, body);
  const std::vector<std::vector<std::string>> table = {
      {""}, {"x"}, {"", ""}, {head}, {head, body, "x"}, {head, body, "x", "y", "z"},
      {std::string(32, 'x'), body}, {"", head, body}};

  for (const auto& frames : table) EXPECT_TRUE(Exchange(frames, 100).empty()) << frames.size();

  ExpectServes();
}

TEST_F(ControlServerTest, SurvivesBytesThatAreNotZeroMq) {
  StartServer();
  const std::string greeting = std::string("\xff\0\0\0\0\0\0\0\1\x7f", 10) + std::string(1, '\3') +
                               std::string(1, '\0') + "NULL" + std::string(16, '\0') +
                               std::string(32, '\0');
  const std::string ready =
      std::string("\4\x2a\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0", 44);
  // A frame that claims two gibibytes.
  const std::string claim = std::string("\2\0\0\0\0\x80\0\0\0", 9) + "only this";
  for (const std::string& bytes :
       {std::string(4096, '\xaa'), std::string("GET / HTTP/1.1\r\n\r\n"), greeting,
        greeting + ready + claim, greeting + std::string(1000, '\xff'), std::string()}) {
    const int fd = RawPeer();
    [[maybe_unused]] const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ExpectServes();
    close(fd);
  }
  ExpectServes();
}

TEST_F(ControlServerTest, DropsMessageLargerThanOneMebibyteAndGoesOn) {
  StartServer();
  const std::string body(kControlRequestBytesMax + 1, 'x');

  EXPECT_TRUE(Exchange({EncodeEnvelope(ControlEnvelope{}, body), body}, 300).empty());

  ExpectServes();
}

TEST_F(ControlServerTest, DropsMessageWithoutEndAndGoesOn) {
  StartServer();
  const std::string ready("\4\x1a\5READY\x0bSocket-Type\0\0\0\6DEALER", 28);
  std::string greeting(64, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = '\3';
  greeting.replace(12, 4, "NULL");
  const int fd = RawPeer();
  const std::string frame = std::string("\3\0\0\0\0\0\2\0\0", 9) + std::string(1 << 17, 'x');
  std::string bytes = greeting + ready;
  bool dropped = false;
  for (int i = 0; i < 1000 && !dropped; ++i) {
    for (size_t at = 0; at < bytes.size() && !dropped;) {
      const ssize_t sent = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      dropped = sent < 0;
      if (!dropped) at += static_cast<size_t>(sent);
    }
    bytes = frame;
  }

  EXPECT_TRUE(dropped) << "more than a message's limit was taken";
  close(fd);
  ExpectServes();
}

TEST_F(ControlServerTest, NewPeerTakesThePlaceOfTheOneIdleLongest) {
  StartServer();
  std::vector<int> idle;
  for (size_t i = 0; i < ControlDoor::kPeersMax; ++i) idle.push_back(RawPeer());
  ExpectServes();

  char byte = 0;
  ssize_t got = 1;
  while (got > 0) got = recv(idle[0], &byte, 1, 0);
  EXPECT_EQ(got, 0) << "the first was closed";
  for (const int fd : idle) close(fd);
  ExpectServes();
}

TEST_F(ControlServerTest, SurvivesWithoutDescriptorsAndServesWhenThereAreSome) {
  StartServer();
  ExpectServes();
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  std::vector<int> waiting;
  for (int i = 0; i < 40; ++i) waiting.push_back(socket(AF_UNIX, SOCK_STREAM, 0));
  std::vector<int> all;
  rlimit low = old;
  low.rlim_cur = std::min<rlim_t>(old.rlim_cur, 512);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int fd = dup(0); fd >= 0; fd = dup(0)) all.push_back(fd);
  for (const int fd : waiting) {
    ConnectTo(fd);
    char byte = 0;
    EXPECT_LE(recv(fd, &byte, 1, 0), 0) << "refused by an end of file";
  }
  for (const int fd : all) close(fd);
  for (const int fd : waiting) close(fd);
  setrlimit(RLIMIT_NOFILE, &old);

  ExpectServes();
}

TEST(ControlClient, SaysSoWhenNobodyListens) {
  std::string error;

  auto client = ControlClient::Open("/nonexistent/control.sock", &error);

  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), Code::kUnavailable);
  EXPECT_NE(error.find("/nonexistent/control.sock"), std::string::npos);
}

}  // namespace
}  // namespace kairos
