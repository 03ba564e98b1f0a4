// SPDX-License-Identifier: Apache-2.0
// An engine without a model: the next token is a function of all tokens before it. It keeps what it
// "wrote" into every slot and checks, for each sequence, that every slot it is told to reuse holds
// exactly the tokens it is reused for: wrong state cannot pass unseen.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "base/hash.h"
#include "sidecar/engine/engine.h"
#include "tests/support/slot_contents.h"

namespace kairos {

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(TokenId end_token, const BlockLayout& layout = {})
      : end_token_(end_token), contents_(layout) {}

  bool Submit(SequenceSpec&& spec) override {
    CheckReuse(spec);
    running_.push_back({std::move(spec), {}, false});
    ++submitted;
    return true;
  }
  bool Cancel(SequenceId id) override {
    for (Running& sequence : running_) sequence.cancel |= sequence.spec.id == id;
    return true;
  }
  std::optional<EngineEvent> PollEvent() override {
    if (events_.empty()) return std::nullopt;
    EngineEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void SetEventWaker(Waker*) override {}
  Waker& waker() override { return waker_; }
  const EngineCounters& counters() const override { return counters_; }

  // One token for every running sequence.
  bool DoWork(uint64_t now_ns) override {
    if (running_.empty() || held) return false;
    std::vector<Running> still;
    for (Running& sequence : running_) {
      if (!Step(sequence, now_ns)) still.push_back(std::move(sequence));
    }
    running_ = std::move(still);
    return true;
  }

  // What every sequence says, byte by byte, then the end token; empty: what Next() makes up.
  std::string script;

  // What a model would say after these tokens: letters, and sooner or later the end token.
  TokenId Next(const std::vector<TokenId>& tokens) const {
    const uint64_t hash = HashBytes(tokens.data(), tokens.size() * sizeof(TokenId));
    return hash % 9 == 0 ? end_token_ : static_cast<TokenId>('a' + hash % 26);
  }

  int submitted = 0;
  bool held = false;   // computes nothing while set

 private:
  struct Running {
    SequenceSpec spec;
    std::vector<TokenId> generated;
    bool cancel = false;
  };

  TokenId Scripted(size_t position) const {
    return position < script.size() ? static_cast<TokenId>(static_cast<uint8_t>(script[position]))
                                    : end_token_;
  }

  void CheckReuse(const SequenceSpec& spec) {
    ASSERT_LT(spec.computed, spec.tokens.size());
    const auto total = static_cast<uint32_t>(spec.tokens.size()) + spec.max_new_tokens;
    ASSERT_EQ(spec.slots.size(),
              (total + kBlockTokens - 1) / kBlockTokens * contents_.PerBlock(spec));
    contents_.CheckReuse(spec, spec.tokens);
  }

  bool Step(Running& sequence, uint64_t now_ns) {
    std::vector<TokenId> log = sequence.spec.tokens;
    log.insert(log.end(), sequence.generated.begin(), sequence.generated.end());
    if (sequence.cancel) return Finish(sequence, log, FinishCause::kCancelled, now_ns);
    if (sequence.spec.max_new_tokens == 0) {
      return Finish(sequence, log, FinishCause::kPrefilled, now_ns);
    }
    const TokenId token = script.empty() ? Next(log) : Scripted(sequence.generated.size());
    sequence.generated.push_back(token);
    EngineEvent event;
    event.id = sequence.spec.id;
    event.token = token;
    event.time_ns = now_ns;
    events_.push_back(event);
    if (token == end_token_) return Finish(sequence, log, FinishCause::kEndToken, now_ns);
    if (sequence.generated.size() == sequence.spec.max_new_tokens) {
      return Finish(sequence, log, FinishCause::kLength, now_ns);
    }
    return false;
  }

  // KV of `log` is stored: everything but the token sampled last.
  bool Finish(Running& sequence, const std::vector<TokenId>& log, FinishCause cause,
              uint64_t now_ns) {
    const SequenceSpec& spec = sequence.spec;
    const auto computed = static_cast<uint32_t>(log.size());
    contents_.Compute(spec, log, computed);
    EngineEvent event;
    event.kind = EngineEvent::Kind::kFinished;
    event.id = spec.id;
    event.cause = cause;
    event.computed = computed;
    event.time_ns = now_ns;
    events_.push_back(event);
    return true;
  }

  TokenId end_token_;
  std::vector<Running> running_;
  std::deque<EngineEvent> events_;
  SlotContents contents_;
  Waker waker_;
  EngineCounters counters_;
};

}  // namespace kairos
