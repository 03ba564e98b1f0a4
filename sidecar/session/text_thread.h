// SPDX-License-Identifier: Apache-2.0
// Renders, tokenizes and compiles grammars for the conductor, on private copies, so that a very
// long prompt stalls nobody.
// Owner: text thread runs DoWork(); Submit and Poll are the conductor's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/spsc_queue.h"
#include "base/status.h"
#include "base/waker.h"
#include "sidecar/chat/chat_renderer.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/grammar/grammar_compiler.h"
#include "sidecar/grammar/reply_grammar.h"

namespace kairos {

struct TextJob {
  uint64_t ticket = 0;
  std::vector<ChatMessage> history;
  std::vector<ChatMessage> added;   // none: nothing is rendered
  std::string tools_json;
  bool add_generation_prompt = true;
  int64_t now_unix_s = 0;
  ReplyRules rules;
};

struct TextResult {
  uint64_t ticket = 0;
  Status status;
  std::string error;                     // words for the client
  std::vector<TokenId> tokens;
  std::vector<uint32_t> message_ends;    // token count after each added message
  std::vector<std::string> tool_names;   // in the job's tool list
  uint64_t dropped_bytes = 0;
  bool used_fallback = false;
  std::unique_ptr<TokenConstraint> constraint;  // or null: nothing is enforced
};

class TextThread {
 public:
  TextThread(const ChatRenderer& renderer, const Tokenizer& tokenizer, const WireFormat& format,
             GrammarCompiler& compiler);

  // Conductor only; false when full.
  [[nodiscard]] bool Submit(TextJob&& job);
  std::optional<TextResult> Poll() { return results_.TryPop(); }
  void SetResultWaker(Waker* waker) { result_waker_ = waker; }

  // Text thread only. Runs one job; false when there was none.
  bool DoWork();
  Waker& waker() { return waker_; }

 private:
  TextResult Run(const TextJob& job) const;
  void Render(const TextJob& job, TextResult* result, bool* in_reasoning) const;
  void Constrain(const ReplyRules& rules, const std::string& tools_json,
                 TextResult* result) const;
  std::vector<uint32_t> TokenEnds(const RenderedPrompt& prompt, const EncodeResult& encoded) const;

  const ChatRenderer& renderer_;
  const Tokenizer& tokenizer_;
  const WireFormat& format_;
  GrammarCompiler& compiler_;
  SpscQueue<TextJob> jobs_{1024};
  SpscQueue<TextResult> results_{1024};
  Waker waker_;
  Waker* result_waker_ = nullptr;
};

}  // namespace kairos
