// SPDX-License-Identifier: Apache-2.0
// Renders, tokenizes and writes the grammars of replies for the conductor, on private copies, so
// that a very long prompt stalls nobody. Grammars that were compiled lately begin here at once;
// others are for the grammar thread.
// Owner: text thread runs DoWork(); Submit and Poll are the conductor's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
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

// A grammar to have at hand from now on.
struct KeptGrammar {
  std::string grammar;
  std::unique_ptr<CompiledGrammar> compiled;
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
  std::unique_ptr<TokenConstraint> constraint;  // or null: nothing is enforced, or not compiled yet
  ReplyGrammar to_compile;                      // then; otherwise without a grammar
};

class TextThread {
 public:
  TextThread(const ChatRenderer& renderer, const Tokenizer& tokenizer, const WireFormat& format);

  // Conductor only; false when full.
  [[nodiscard]] bool Submit(TextJob&& job);
  // Conductor only. It is dropped where too many come at once: whoever needs it compiles it anew.
  void Keep(KeptGrammar&& kept) { std::ignore = kept_.TryPush(std::move(kept)); }
  std::optional<TextResult> Poll() { return results_.TryPop(); }
  void SetResultWaker(Waker* waker) { result_waker_ = waker; }

  // Text thread only. Runs one job; false when there was none.
  bool DoWork();
  Waker& waker() { return waker_; }

  // Any thread: of the vocabulary's longest token. A text has no fewer tokens than its bytes
  // divided by this.
  uint32_t token_bytes_max() const { return token_bytes_max_; }

 private:
  TextResult Run(const TextJob& job);
  void Render(const TextJob& job, TextResult* result, bool* in_reasoning) const;
  void Constrain(const ReplyRules& rules, const std::string& tools_json, TextResult* result);

  const ChatRenderer& renderer_;
  const Tokenizer& tokenizer_;
  const WireFormat& format_;
  uint32_t token_bytes_max_ = 1;
  GrammarCache grammars_;
  SpscQueue<TextJob> jobs_{1024};
  SpscQueue<KeptGrammar> kept_{64};
  SpscQueue<TextResult> results_{1024};
  Waker waker_;
  Waker* result_waker_ = nullptr;
};

}  // namespace kairos
