// SPDX-License-Identifier: Apache-2.0
//
// What the C++ examples share: their one option, showing a turn, and saying what went wrong.
#pragma once

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <kairos/kairos.hpp>

// `--socket PATH` is the only option; without it the library finds the sidecar itself.
inline kairos::Client OpenClient(int argc, char** argv) {
  kairos::ClientOptions options;
  if (argc == 3 && std::strcmp(argv[1], "--socket") == 0) {
    options.socket_path = argv[2];
  } else if (argc != 1) {
    throw kairos::Error(KAIROS_INVALID_ARGUMENT, 0,
                        std::string("usage: ") + argv[0] + " [--socket PATH]");
  }
  return kairos::Client(options);
}

inline kairos::Session CreateSession(kairos::Client& client, std::string label) {
  kairos::SessionOptions options;
  options.label = std::move(label);
  return client.CreateSession(options);
}

// A user's message and a short greedy answer.
inline kairos::TurnOptions Question(std::string content, uint32_t max_tokens = 48) {
  std::printf("> %s\n", content.c_str());
  kairos::TurnOptions options;
  options.messages.push_back({"user", std::move(content), "", "", ""});
  options.generation.emplace();
  options.generation->max_tokens = max_tokens;
  return options;
}

inline void ShowText(const kairos::Event& event) {
  if (event.type() != kairos::EventType::kText) return;
  std::fwrite(event.text().data(), 1, event.text().size(), stdout);
  std::fflush(stdout);
}

inline void ShowFigures(const kairos::Turn& turn) {
  const kairos_final_t figures = turn.final_record();
  std::printf("\n  [session %016" PRIx64 " version %" PRIu64 ": %" PRIu64 " new, %" PRIu64
              " reused (%" PRIu64 " shared with other sessions), %" PRIu64 " recomputed, %" PRIu64
              " generated; first token after %.1f ms, all %.1f ms]\n",
              figures.session_id, figures.version, figures.new_tokens, figures.reused_tokens,
              figures.shared_tokens, figures.recomputed_tokens, figures.generated_tokens,
              static_cast<double>(figures.ttft_ns) / 1e6,
              static_cast<double>(figures.total_ns) / 1e6);
}

// Runs a turn to its end, streaming its text to standard output; returns its figures.
inline kairos_final_t Show(kairos::Turn turn) {
  for (const kairos::Event& event : turn) ShowText(event);
  ShowFigures(turn);
  return turn.final_record();
}

// Runs an example. What the library threw is said in words; the status is then 1.
template <typename Body>
int RunExample(int argc, char** argv, Body body) {
  try {
    kairos::Client client = OpenClient(argc, argv);
    return body(client);
  } catch (const kairos::Error& error) {
    std::fprintf(stderr, "%s (code %d, detail %d)\n", error.what(), error.code(), error.detail());
    return 1;
  }
}
