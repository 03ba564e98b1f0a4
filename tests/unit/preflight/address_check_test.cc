// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/address_check.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace kairos {
namespace {

// A socket of 127.0.0.1 that listens; *port is where. Closed by the caller.
int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(fd, 1), 0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  *port = ntohs(address.sin_port);
  return fd;
}

TEST(AddressCheck, SaysWhatToDoWhereThePortIsInUseAndLeavesAFreeOneFree) {
  uint16_t port = 0;
  const int other = Listen(&port);
  const std::string address = "127.0.0.1:" + std::to_string(port);

  const Finding taken = CheckListenAddress(address);
  close(other);

  EXPECT_EQ(taken.severity, Severity::kFail);
  EXPECT_EQ(taken.exit_status, kExitCannotCreate);
  EXPECT_NE(taken.words.find(address + " is in use by another program"), std::string::npos)
      << taken.words;
  EXPECT_NE(taken.remedy.find("another port"), std::string::npos) << taken.remedy;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(CheckListenAddress(address).severity, Severity::kOk);
}

TEST(AddressCheck, NamesWhatTheSystemSaysWhereTheAddressCannotBeHad) {
  const Finding found = CheckListenAddress("192.0.2.1:9464");  // of no host, for documents

  EXPECT_EQ(found.severity, Severity::kFail);
  EXPECT_NE(found.words.find("cannot listen on 192.0.2.1:9464: "), std::string::npos)
      << found.words;
}

}  // namespace
}  // namespace kairos
