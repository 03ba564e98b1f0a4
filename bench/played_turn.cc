// SPDX-License-Identifier: Apache-2.0
#include "bench/played_turn.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace kairos {
namespace {

constexpr uint64_t kTellNs = 200'000'000;

// An empty text is "not given": as an empty tool list it would take the session's tools away.
kairos_string_t View(const std::string& text) {
  return {text.empty() ? nullptr : text.data(), text.size()};
}

// Whether the sidecar's ingress answers; it does so at once, whatever the engine computes.
bool Answers(kairos_client_t* client, uint64_t silence_ns) {
  constexpr uint32_t kBytes = 8;
  const uint64_t limit_ms = std::clamp<uint64_t>(silence_ns / 1'000'000, 10'000, 120'000);
  return kairos_client_ping(client, kBytes, 0, static_cast<int32_t>(limit_ms)) >= 0;
}

PlayedTurn GiveUp(kairos_client_t* client, uint64_t request, PlayedTurn turn, std::string error) {
  kairos_turn_cancel(client, request);
  turn.error = std::move(error);
  return turn;
}

}  // namespace

std::string LastError() {
  char buffer[512];
  kairos_last_error(buffer, sizeof(buffer));
  return buffer;
}

uint64_t SubmitTurn(kairos_client_t* client, const TurnAsk& ask, PlayedTurn* out) {
  std::vector<kairos_message_t> messages(ask.messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    kairos_message_init(&messages[i]);
    messages[i].role = View(ask.messages[i].role);
    messages[i].name = View(ask.messages[i].name);
    messages[i].content = View(ask.messages[i].content);
  }
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  // Sampled, not greedy: equal answers with and without reuse then also show that noise is keyed by
  // position and not by history.
  generation.temperature = 0.7f;
  generation.top_p = 0.9f;
  generation.repetition_penalty = 1.1f;
  generation.seed = 20;
  generation.max_tokens = ask.max_tokens;
  if (ask.logits_hash) generation.flags |= KAIROS_LOGITS_HASH;
  if (ask.ignore_eos) generation.flags |= KAIROS_IGNORE_EOS;
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.session_id = ask.session;
  options.flags = ask.flags;
  options.messages = messages.data();
  options.message_count = static_cast<uint32_t>(messages.size());
  options.tools_json = View(ask.tools_json);
  // What tools return is in the script; a call made here would wait for another result.
  options.tool_choice = KAIROS_TOOL_CHOICE_NONE;
  options.generation = &generation;
  uint64_t request = 0;
  if (kairos_turn_submit(client, &options, &request) < 0) {
    out->error = LastError();
    return 0;
  }
  return request;
}

PlayedTurn PlayTurn(kairos_client_t* client, const TurnAsk& ask) {
  PlayedTurn turn;
  const uint64_t begin_ns = MonotonicNs();
  const uint64_t request = SubmitTurn(client, ask, &turn);
  if (request == 0) return turn;
  uint64_t heard_ns = begin_ns;
  uint64_t told_ns = 0;
  for (;;) {
    uint64_t now_ns = MonotonicNs();
    if (ask.waiting && now_ns - told_ns >= kTellNs) {
      ask.waiting(static_cast<double>(now_ns - begin_ns) * 1e-9);
      told_ns = now_ns;
    }
    kairos_event_t* event = nullptr;
    const int32_t got =
        kairos_event_next(client, static_cast<int32_t>(kTellNs / 1'000'000), &event);
    now_ns = MonotonicNs();
    if (got < 0) {
      turn.error = LastError();
      turn.unanswered = true;
      return turn;
    }
    if (got == 0) {
      if (ask.until_ns != 0 && now_ns >= ask.until_ns) {
        return GiveUp(client, request, std::move(turn), "the time for playing is over");
      }
      if (now_ns - heard_ns < ask.silence_ns) continue;
      if (!Answers(client, ask.silence_ns)) {
        turn.unanswered = true;
        return GiveUp(client, request, std::move(turn), "the sidecar does not answer");
      }
      heard_ns = MonotonicNs();
      continue;
    }
    heard_ns = now_ns;
    const double now_ms = static_cast<double>(now_ns - begin_ns) * 1e-6;
    const int32_t type = kairos_event_type(event);
    uint32_t count = 0;
    const int32_t* tokens = kairos_event_tokens(event, &count);
    if (turn.tokens.empty() && count > 0) turn.ttft_ms = now_ms;
    turn.tokens.insert(turn.tokens.end(), tokens, tokens + count);
    if (type == KAIROS_EVENT_TEXT || type == KAIROS_EVENT_REASONING) {
      const kairos_string_t text = kairos_event_text(event);
      turn.text.append(text.data, text.size);
    } else if (type == KAIROS_EVENT_FINAL) {
      turn.final.struct_size = sizeof(turn.final);
      kairos_event_final(event, &turn.final);
      turn.total_ms = now_ms;
      turn.ok = true;
    } else if (type == KAIROS_EVENT_ERROR) {
      const kairos_string_t text = kairos_event_text(event);
      turn.error.assign(text.data, text.size);
    }
    kairos_event_release(event);
    if (type == KAIROS_EVENT_FINAL || type == KAIROS_EVENT_ERROR) return turn;
  }
}

}  // namespace kairos
