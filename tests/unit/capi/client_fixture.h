// SPDX-License-Identifier: Apache-2.0
// A client on a fake sidecar, and short names for what tests of the client do all the time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kairos/kairos.h"
#include "tests/unit/capi/fake_sidecar.h"

namespace kairos {

// Long enough to be a hang, not a measure.
inline constexpr int32_t kPatienceMs = 20'000;

inline std::string LastError() {
  char text[512];
  kairos_last_error(text, sizeof(text));
  return text;
}

struct ReleaseEvent {
  void operator()(kairos_event_t* event) const { kairos_event_release(event); }
};
using Event = std::unique_ptr<kairos_event_t, ReleaseEvent>;

inline std::string Text(const Event& event) {
  const kairos_string_t text = kairos_event_text(event.get());
  return {text.data == nullptr ? "" : text.data, text.size};
}

inline kairos_client_t* OpenClient(const std::string& path, uint32_t ring_bytes = 0) {
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path = {path.data(), path.size()};
  options.request_ring_bytes = ring_bytes;
  options.reply_ring_bytes = ring_bytes;
  kairos_client_t* client = nullptr;
  EXPECT_EQ(kairos_client_open(&options, &client), 0) << LastError();
  return client;
}

inline int32_t Submit(kairos_client_t* client, const std::string& content, uint64_t* request,
                      uint64_t session = 0) {
  kairos_message_t message;
  kairos_message_init(&message);
  message.role = {"user", 4};
  message.content = {content.data(), content.size()};
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = session;
  options.messages = &message;
  options.message_count = 1;
  return kairos_turn_submit(client, &options, request);
}

// The next event; null on time-out or error.
inline Event Next(kairos_client_t* client, int32_t timeout_ms = kPatienceMs) {
  kairos_event_t* event = nullptr;
  kairos_event_next(client, timeout_ms, &event);
  return Event(event);
}

// Types of a turn's events up to its last.
inline std::vector<int32_t> TypesOfTurn(kairos_client_t* client, uint64_t request) {
  std::vector<int32_t> types;
  while (Event event = Next(client)) {
    EXPECT_EQ(kairos_event_request(event.get()), request);
    types.push_back(kairos_event_type(event.get()));
    if (types.back() == KAIROS_EVENT_FINAL || types.back() == KAIROS_EVENT_ERROR) break;
  }
  return types;
}

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override { client_ = OpenClient(sidecar_.path()); }
  void TearDown() override { kairos_client_close(client_); }

  FakeSidecar sidecar_;
  kairos_client_t* client_ = nullptr;
};

}  // namespace kairos
