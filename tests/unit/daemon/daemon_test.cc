// SPDX-License-Identifier: Apache-2.0
// A whole sidecar over a tiny model in this process, and clients in threads beside it.
#include "sidecar/daemon/daemon.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "kairos/kairos.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

constexpr int32_t kTimeoutMs = 120'000;  // a hang, not a measure

kairos_string_t Text(std::string_view text) { return {text.data(), text.size()}; }

void AddVocabulary(GgufWriter* writer) {
  TinyVocabulary vocabulary;
  vocabulary.AddMerge("h", "e");
  vocabulary.Add("<|im_start|>", TokenKind::kControl);
  const TokenId end = vocabulary.Add("<|im_end|>", TokenKind::kControl);
  for (int i = 0; vocabulary.tokens.size() < TinyShape().vocabulary; ++i) {
    vocabulary.Add("<|unused_" + std::to_string(i) + "|>", TokenKind::kUnused);
  }
  std::vector<int32_t> kinds;
  for (const TokenKind kind : vocabulary.kinds) kinds.push_back(static_cast<int32_t>(kind));
  writer->String("tokenizer.ggml.model", "gpt2");
  writer->String("tokenizer.ggml.pre", vocabulary.pre);
  writer->StringArray("tokenizer.ggml.tokens", vocabulary.tokens);
  writer->IntegerArray("tokenizer.ggml.token_type", kinds);
  writer->StringArray("tokenizer.ggml.merges", vocabulary.merges);
  writer->Unsigned("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end));
}

// One client; belongs to the thread that made it. What goes wrong is a failed expectation.
class Client {
 public:
  explicit Client(const std::string& socket) {
    kairos_client_options_t options;
    kairos_client_options_init(&options);
    options.socket_path = Text(socket);
    EXPECT_EQ(kairos_client_open(&options, &client_), 0);
  }
  ~Client() { kairos_client_close(client_); }
  kairos_client_t* get() { return client_; }

  uint64_t Submit(uint64_t session, const std::string& words, uint32_t max_tokens) {
    kairos_message_t user;
    kairos_message_init(&user);
    user.role = Text("user");
    user.content = Text(words);
    kairos_generation_t generation;
    kairos_generation_init(&generation);
    generation.max_tokens = max_tokens;
    generation.flags = KAIROS_IGNORE_EOS;
    kairos_turn_options_t options;
    kairos_turn_options_init(&options);
    options.session_id = session;
    options.messages = &user;
    options.message_count = 1;
    options.generation = &generation;
    uint64_t request = 0;
    EXPECT_EQ(kairos_turn_submit(client_, &options, &request), 0);
    return request;
  }

  // Reads events up to the first text.
  void AwaitText() {
    for (int32_t type = 0; type != KAIROS_EVENT_TEXT;) {
      kairos_event_t* event = nullptr;
      ASSERT_EQ(kairos_event_next(client_, kTimeoutMs, &event), 1);
      type = kairos_event_type(event);
      kairos_event_release(event);
    }
  }

  // Events up to the last one of the only open turn; `stop_at_text` cancels it at its first text.
  kairos_final_t Finish(uint64_t request, bool stop_at_text = false) {
    kairos_final_t final{};
    final.struct_size = sizeof(final);
    for (int32_t type = 0; type != KAIROS_EVENT_FINAL && type != KAIROS_EVENT_ERROR;) {
      kairos_event_t* event = nullptr;
      if (kairos_event_next(client_, kTimeoutMs, &event) != 1) {
        ADD_FAILURE() << "no event";
        break;
      }
      type = kairos_event_type(event);
      if (type == KAIROS_EVENT_TEXT && stop_at_text) {
        EXPECT_EQ(kairos_turn_cancel(client_, request), 0);
        stop_at_text = false;
      }
      if (type == KAIROS_EVENT_ERROR) ADD_FAILURE() << kairos_event_text(event).data;
      if (type == KAIROS_EVENT_FINAL) {
        EXPECT_EQ(kairos_event_final(event, &final), 0);
      }
      kairos_event_release(event);
    }
    return final;
  }

 private:
  kairos_client_t* client_ = nullptr;
};

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "kairos-daemon-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const auto image = BuildTinyGguf(TinyShape(), "", AddVocabulary);
    std::FILE* file = std::fopen((folder_ + "/model.gguf").c_str(), "wb");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(std::fwrite(image.data(), 1, image.size(), file), image.size());
    ASSERT_EQ(std::fclose(file), 0);
    options_.models = {{"model", folder_ + "/model.gguf", 8u << 20}};
    options_.ingress.socket_path = folder_ + "/socket";
    options_.catalog.path = folder_ + "/catalog.db";
  }
  void TearDown() override {
    // The daemon protects its process from being looked at, which leak checks need.
    prctl(PR_SET_DUMPABLE, 1);
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  DaemonOptions options_;
};

// A session of four turns: plain, cancelled, forked, and of the fork.
void PlayAgent(const std::string& socket, int agent) {
  Client client(socket);
  const std::string name = "agent " + std::to_string(agent);
  const kairos_final_t first = client.Finish(client.Submit(0, "hello from " + name, 6));
  EXPECT_EQ(first.version, 1u);
  EXPECT_EQ(first.generated_tokens, 6u);
  const uint64_t session = first.session_id;

  const kairos_final_t cut = client.Finish(client.Submit(session, "go on", 900), true);
  EXPECT_EQ(cut.version, 2u);
  EXPECT_LT(cut.generated_tokens, 900u);
  EXPECT_GT(cut.reused_tokens, 0u);

  uint64_t child = 0;
  EXPECT_EQ(kairos_session_fork(client.get(), session, 1, &child, kTimeoutMs), 0);
  const uint64_t request = client.Submit(child, "and you", 6);
  EXPECT_EQ(client.Finish(request).generated_tokens, 6u);
  kairos_event_t* messages = nullptr;
  EXPECT_EQ(kairos_session_messages(client.get(), child, 0, &messages, kTimeoutMs), 0);
  if (messages != nullptr) {
    const kairos_string_t json = kairos_event_text(messages);
    EXPECT_NE(std::string(json.data, json.size).find("hello from " + name), std::string::npos);
  }
  kairos_event_release(messages);
  EXPECT_EQ(kairos_session_delete(client.get(), session, kTimeoutMs), 0);
}

TEST_F(DaemonTest, ServesClientsAtOnceAndEndsWhenTold) {
  Daemon daemon;
  std::string error;
  ASSERT_EQ(daemon.Start(options_, &error), 0) << error;

  std::vector<std::thread> agents;
  for (int agent = 0; agent < 3; ++agent) {
    agents.emplace_back(PlayAgent, options_.ingress.socket_path, agent);
  }
  for (std::thread& agent : agents) agent.join();
  daemon.Stop(false);

  EXPECT_FALSE(std::filesystem::exists(options_.ingress.socket_path));
}

TEST_F(DaemonTest, CommitsWhatIsOpenWhenItIsToldToEndNow) {
  uint64_t session = 0;
  {
    Daemon daemon;
    std::string error;
    ASSERT_EQ(daemon.Start(options_, &error), 0) << error;
    Client client(options_.ingress.socket_path);
    session = client.Finish(client.Submit(0, "remember me", 4)).session_id;
    client.Submit(session, "and talk", 1500);
    client.AwaitText();
    daemon.Stop(true);
  }
  Daemon daemon;
  std::string error;
  ASSERT_EQ(daemon.Start(options_, &error), 0) << error;
  Client client(options_.ingress.socket_path);
  kairos_session_t found{};
  found.struct_size = sizeof(found);

  EXPECT_EQ(kairos_session_open(client.get(), session, &found, kTimeoutMs), 0);

  EXPECT_EQ(found.version, 2u);
  EXPECT_GT(found.message_count, 2u);
}

TEST_F(DaemonTest, RefusesASecondOneAtTheSameSocket) {
  Daemon first;
  Daemon second;
  std::string error;
  ASSERT_EQ(first.Start(options_, &error), 0) << error;

  EXPECT_EQ(second.Start(options_, &error), kExitAlreadyRunning);
  EXPECT_FALSE(error.empty());
}

}  // namespace
}  // namespace kairos
