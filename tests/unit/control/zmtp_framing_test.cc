// SPDX-License-Identifier: Apache-2.0
#include "sidecar/control/zmtp_framing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kairos {
namespace {

constexpr uint64_t kMessageBytesMax = 1000;

std::string Greeting(char major = 3) {
  std::string bytes(64, '\0');
  bytes[0] = '\xff';
  bytes[9] = '\x7f';
  bytes[10] = major;
  return bytes;
}

std::string Frame(uint8_t flags, const std::string& payload) {
  std::string bytes(1, static_cast<char>(flags));
  if ((flags & 2) != 0) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(payload.size() >> shift));
    }
  } else {
    bytes.push_back(static_cast<char>(payload.size()));
  }
  return bytes + payload;
}

// Whether all is taken in one piece; and that cuts make no difference.
bool Takes(const std::string& bytes) {
  ZmtpFraming whole(kMessageBytesMax);
  const bool taken = whole.Take(bytes);
  ZmtpFraming cut(kMessageBytesMax);
  bool good = true;
  for (const char byte : bytes) good = good && cut.Take({&byte, 1});
  EXPECT_EQ(good, taken) << "byte by byte";
  return taken;
}

TEST(ZmtpFraming, FollowsMessagesAndCommandsOfAnyNumber) {
  std::string bytes = Greeting() + Frame(4, "\5READY");
  for (int i = 0; i < 100; ++i) {
    bytes += Frame(1, "envelope") + Frame(6, std::string(300, 'x'));
    bytes += Frame(2, std::string(900, 'x'));
    bytes += Frame(0, "");
  }

  EXPECT_TRUE(Takes(bytes));
}

TEST(ZmtpFraming, RefusesWhatIsNoZmtp3) {
  EXPECT_FALSE(Takes("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_FALSE(Takes(std::string("\x01\x00", 2)));
  EXPECT_FALSE(Takes(Greeting(1)));
  EXPECT_FALSE(Takes(Greeting(2)));
  EXPECT_TRUE(Takes(Greeting().substr(0, 63)));
  EXPECT_FALSE(Takes(Greeting() + "\x08")) << "a flag that has no meaning";
  EXPECT_FALSE(Takes(Greeting() + "\x05")) << "a command of several frames";
}

TEST(ZmtpFraming, RefusesMessageOverItsBytesWithTheFrameThatPasses) {
  const std::string head = Greeting() + Frame(1, std::string(200, 'x'));

  EXPECT_TRUE(Takes(head + Frame(2, std::string(800, 'x')) + Frame(2, std::string(1000, 'x'))));
  EXPECT_FALSE(Takes(head + Frame(2, std::string(801, 'x')).substr(0, 9)));
  EXPECT_FALSE(Takes(Greeting() + std::string("\2\xff\xff\xff\xff\xff\xff\xff\xff", 9)));
  EXPECT_FALSE(Takes(head + std::string("\2\xff\xff\xff\xff\xff\xff\xff\xff", 9)))
      << "sizes must not wrap";
}

TEST(ZmtpFraming, RefusesMessageOfTooManyFrames) {
  std::string bytes = Greeting();
  for (uint32_t i = 0; i < ZmtpFraming::kFramesMax; ++i) bytes += Frame(1, "");

  EXPECT_TRUE(Takes(bytes));
  EXPECT_FALSE(Takes(bytes + Frame(1, "")));
}

TEST(ZmtpFraming, RefusesLongCommand) {
  const std::string most(ZmtpFraming::kCommandBytesMax, 'x');

  EXPECT_TRUE(Takes(Greeting() + Frame(6, most)));
  EXPECT_FALSE(Takes(Greeting() + Frame(6, most + "x")));
}

}  // namespace
}  // namespace kairos
