// SPDX-License-Identifier: Apache-2.0
#include "capi/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "shm/socket_path.h"

namespace kairos {
namespace {

// A struct as a caller with a newer header would pass it.
template <typename T>
struct Longer {
  T known;
  uint64_t later = 0;
};

TEST(Options, NullClientOptionsAreTheDefaults) {
  ClientOptions options;

  ASSERT_TRUE(ReadClientOptions(nullptr, &options).ok());

  EXPECT_EQ(options.connect_timeout_ms, 5000);
  EXPECT_EQ(options.spin_us, -1);
  EXPECT_EQ(options.name_space, "");
}

TEST(Options, LongerStructIsTakenWhileItsExtraBytesAreZero) {
  Longer<kairos_turn_options_t> longer;
  kairos_turn_options_init(&longer.known);
  longer.known.struct_size = sizeof(longer);
  longer.known.deadline_ms = 5;
  TurnOptions turn;
  ASSERT_TRUE(ReadTurnOptions(&longer.known, &turn).ok());
  EXPECT_EQ(turn.options.deadline_ms, 5u);
  EXPECT_EQ(turn.options.struct_size, sizeof(kairos_turn_options_t));

  longer.later = 1;
  TurnOptions again;
  const Status status = ReadTurnOptions(&longer.known, &again);

  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_STREQ(status.message(), "options: has fields that this library does not know");
}

TEST(Options, LongerMessagesAreWalkedByTheirOwnSize) {
  Longer<kairos_message_t> messages[2];
  for (auto& message : messages) {
    kairos_message_init(&message.known);
    message.known.struct_size = sizeof(message);
    message.known.role = {"user", 4};
  }
  messages[1].known.content = {"second", 6};
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.messages = &messages[0].known;
  options.message_count = 2;
  TurnOptions turn;
  ASSERT_TRUE(ReadTurnOptions(&options, &turn).ok());
  EXPECT_EQ(turn.options.messages[1].content.size, 6u);

  messages[1].known.struct_size = sizeof(kairos_message_t);
  TurnOptions again;

  EXPECT_STREQ(ReadTurnOptions(&options, &again).message(),
               "message.struct_size: must be equal in all messages");
}

struct WrongTurn {
  std::function<void(kairos_turn_options_t*, kairos_message_t*, kairos_generation_t*)> change;
  Code code;
  const char* message;
};

TEST(Options, WrongTurnsAreNamed) {
  const WrongTurn wrongs[] = {
      {[](auto* o, auto*, auto*) { o->struct_size = 0; }, Code::kInvalidArgument,
       "options.struct_size: use kairos_turn_options_init()"},
      {[](auto* o, auto*, auto*) { o->struct_size = 0xffffffff; }, Code::kInvalidArgument,
       "options.struct_size: use kairos_turn_options_init()"},
      {[](auto* o, auto*, auto*) { o->flags = 1u << 31; }, Code::kUnimplemented,
       "options.flags: has a bit this library does not know"},
      {[](auto* o, auto*, auto*) { o->model = {nullptr, 3}; }, Code::kInvalidArgument,
       "model: null pointer with a size"},
      {[](auto* o, auto*, auto*) { o->tool_name = {nullptr, 3}; }, Code::kInvalidArgument,
       "tool_name: null pointer with a size"},
      {[](auto* o, auto*, auto*) { o->messages = nullptr; }, Code::kInvalidArgument,
       "messages: null pointer with a count"},
      {[](auto* o, auto*, auto*) { o->message_count = 4097; }, Code::kInvalidArgument,
       "message_count: at most 4096"},
      {[](auto* o, auto*, auto*) { o->token_count = 1; }, Code::kInvalidArgument,
       "tokens: null pointer with a count"},
      {[](auto* o, auto*, auto*) { o->tools_json = {nullptr, 3}; }, Code::kInvalidArgument,
       "tools_json: null pointer with a size"},
      {[](auto* o, auto*, auto*) { o->idempotency_key = {nullptr, 3}; }, Code::kInvalidArgument,
       "idempotency_key: null pointer with a size"},
      {[](auto*, auto* m, auto*) { m->role.size = 0; }, Code::kInvalidArgument,
       "message.role: must be given"},
      {[](auto*, auto* m, auto*) { m->content = {nullptr, 3}; }, Code::kInvalidArgument,
       "message.content: null pointer with a size"},
      {[](auto*, auto* m, auto*) { m->flags = 1; }, Code::kUnimplemented,
       "message.flags: has a bit this library does not know"},
      {[](auto*, auto* m, auto*) { m->struct_size = 8; }, Code::kInvalidArgument,
       "message.struct_size: use kairos_message_init()"},
      {[](auto*, auto*, auto* g) { g->struct_size = 1; }, Code::kInvalidArgument,
       "generation.struct_size: use kairos_generation_init()"},
      {[](auto*, auto*, auto* g) { g->reserved[0] = 1; }, Code::kInvalidArgument,
       "generation.reserved: must be zero"},
      {[](auto*, auto*, auto* g) { g->flags = 1u << 9; }, Code::kUnimplemented,
       "generation.flags: has a bit this library does not know"},
      {[](auto*, auto*, auto* g) { g->stop_count = 1; }, Code::kInvalidArgument,
       "generation.stops: null pointer with a count"},
      {[](auto*, auto*, auto* g) { g->bias_count = 1; }, Code::kInvalidArgument,
       "generation.biases: null pointer with a count"},
  };
  for (const WrongTurn& wrong : wrongs) {
    kairos_message_t message;
    kairos_message_init(&message);
    message.role = {"user", 4};
    kairos_generation_t generation;
    kairos_generation_init(&generation);
    kairos_turn_options_t options;
    kairos_turn_options_init(&options);
    options.messages = &message;
    options.message_count = 1;
    options.generation = &generation;
    wrong.change(&options, &message, &generation);
    TurnOptions turn;

    const Status status = ReadTurnOptions(&options, &turn);

    EXPECT_EQ(status.code(), wrong.code) << wrong.message;
    EXPECT_STREQ(status.message(), wrong.message);
  }
}

TEST(Options, WrongClientOptionsAreNamed) {
  const std::string long_path(108, 'p');
  const std::pair<std::function<void(kairos_client_options_t*)>, const char*> wrongs[] = {
      {[&](auto* o) { o->socket_path = {long_path.data(), long_path.size()}; },
       "socket_path: at most 107 bytes"},
      {[](auto* o) { o->name_space = {"a/b", 3}; }, "name_space: 1 to 64 of [A-Za-z0-9._-]"},
      {[](auto* o) { o->request_ring_bytes = 65537; },
       "ring bytes: 0 or a power of two from 64 KiB to 64 MiB"},
      {[](auto* o) { o->reply_ring_bytes = 1u << 27; },
       "ring bytes: 0 or a power of two from 64 KiB to 64 MiB"},
      {[](auto* o) { o->spin_us = -2; }, "spin_us: -1 to 1000000"},
      {[](auto* o) { o->reserved[0] = 1; }, "options.reserved: must be zero"},
  };
  for (const auto& [change, message] : wrongs) {
    kairos_client_options_t from;
    kairos_client_options_init(&from);
    change(&from);
    ClientOptions options;

    EXPECT_STREQ(ReadClientOptions(&from, &options).message(), message);
  }
}

TEST(Options, ShorterOutputsGetWhatTheyHaveRoomFor) {
  kairos_session_t session{};
  session.id = 7;
  session.version = 9;
  unsigned char out[32];
  std::memset(out, 0xee, sizeof(out));

  CopyOut(session, out, 16);

  uint32_t size;
  uint64_t id;
  std::memcpy(&size, out, sizeof(size));
  std::memcpy(&id, out + offsetof(kairos_session_t, id), sizeof(id));
  EXPECT_EQ(size, 16u) << "the caller's own size stays";
  EXPECT_EQ(id, 7u);
  EXPECT_EQ(out[16], 0xee) << "nothing is written past it";
}

TEST(SocketPath, FollowsItsRule) {
  unsetenv("KAIROS_SOCKET");
  unsetenv("XDG_RUNTIME_DIR");
  const std::string fallback = *DefaultSocketPath();
  EXPECT_TRUE(fallback == "/run/kairos/kairos.sock" || fallback.starts_with("/tmp/kairos-"));
  setenv("XDG_RUNTIME_DIR", "/run/user/12", 1);
  EXPECT_EQ(*DefaultSocketPath(), "/run/user/12/kairos/kairos.sock");
  setenv("KAIROS_SOCKET", "/x/y.sock", 1);
  EXPECT_EQ(*DefaultSocketPath(), "/x/y.sock");
  setenv("KAIROS_SOCKET", std::string(108, 'x').c_str(), 1);
  EXPECT_FALSE(DefaultSocketPath().ok());
  setenv("KAIROS_SOCKET", "", 1);
  EXPECT_EQ(*DefaultSocketPath(), "/run/user/12/kairos/kairos.sock");
  unsetenv("KAIROS_SOCKET");
  unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace kairos
