// SPDX-License-Identifier: Apache-2.0
//
// The same as agent_loop.c, over kairos.hpp.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include <kairos/kairos.hpp>

namespace {

class Loop {
 public:
  Loop(kairos::Client& client, std::string tools, float temperature)
      : client_(client), tools_(std::move(tools)), temperature_(temperature) {}

  void Forget() { session_.reset(); }

  // One turn to its end; prints the calls of it and returns their number.
  int Run(const std::string& role, const std::string& content, int32_t choice) {
    kairos::TurnOptions options;
    options.messages.push_back({role, content, "", "", ""});
    options.tool_choice = choice;
    options.flags = KAIROS_TURN_ONE_CALL;
    options.generation.emplace();
    options.generation->max_tokens = choice == KAIROS_TOOL_CHOICE_NONE ? 8 : 160;
    options.generation->temperature = temperature_;
    options.generation->seed = ++seed_;
    if (!session_) {
      session_.emplace(client_.CreateSession());
      options.tools_json = tools_;
    }
    int calls = 0;
    kairos::Turn turn = session_->Submit(options);
    for (const kairos::Event& event : turn) {
      if (event.type() != kairos::EventType::kToolCall) continue;
      std::cout << event.text() << "\n";
      ++calls;
    }
    return calls;
  }

 private:
  kairos::Client& client_;
  std::string tools_;
  float temperature_;
  uint64_t seed_ = 0;
  std::optional<kairos::Session> session_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: agent_loop SOCKET TOOLS.json TEMPERATURE < LINES\n");
    return 2;
  }
  try {
    std::ifstream file(argv[2]);
    const std::string tools{std::istreambuf_iterator<char>(file), {}};
    kairos::ClientOptions options;
    options.socket_path = argv[1];
    kairos::Client client(options);
    Loop loop(client, tools, std::strtof(argv[3], nullptr));
    for (std::string line; std::getline(std::cin, line);) {
      if (line.empty()) {
        loop.Forget();
        continue;
      }
      if (loop.Run("user", line, KAIROS_TOOL_CHOICE_REQUIRED) != 1) return 1;
      loop.Run("tool", "{\"ok\": true}", KAIROS_TOOL_CHOICE_NONE);
    }
  } catch (const kairos::Error& error) {
    std::fprintf(stderr, "agent_loop: %s\n", error.what());
    return 1;
  }
  return 0;
}
