// SPDX-License-Identifier: Apache-2.0
// Compiles grammars for the conductor, apart from the text thread: one may take seconds, and turns
// without such a grammar must not wait behind it.
// Owner: grammar thread runs DoWork(); Submit and Poll are the conductor's.
//
// 1. Clients take turns, so that one with many costly grammars delays others by one of them.
// 2. Jobs with the grammar that was just compiled are answered with it, whoever sent them.
// 3. What was refused lately is refused again without compiling.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/spsc_queue.h"
#include "base/status.h"
#include "base/units.h"
#include "base/waker.h"
#include "sidecar/grammar/grammar_compiler.h"
#include "sidecar/grammar/reply_grammar.h"
#include "sidecar/session/turn_queue.h"

namespace kairos {

struct GrammarJob {
  uint64_t ticket = 0;
  AttachmentId client;
  ReplyGrammar reply;  // without a grammar: the job with this ticket is wanted no more
};

struct GrammarResult {
  uint64_t ticket = 0;
  Status status;
  std::string error;  // words for the client
  std::unique_ptr<TokenConstraint> constraint;
  // With one of the results of a grammar: for whoever keeps it.
  std::string grammar;
  std::unique_ptr<CompiledGrammar> compiled;
};

class GrammarThread {
 public:
  // `compiler` outlives this and all that it made.
  explicit GrammarThread(const GrammarCompiler& compiler) : compiler_(compiler) {}

  // Conductor only; false when full.
  [[nodiscard]] bool Submit(GrammarJob&& job);
  std::optional<GrammarResult> Poll() { return results_.TryPop(); }
  void SetResultWaker(Waker* waker) { result_waker_ = waker; }

  // Grammar thread only. Compiles one grammar; false when there was nothing to do.
  bool DoWork();
  Waker& waker() { return waker_; }

 private:
  struct Refusal {
    std::string grammar;
    Status status;
    std::string error;
  };

  bool TakeJobs();
  void Compile(GrammarJob job);
  // Whose fault a refusal is: what clients wrote is tried part by part.
  void BlamePart(const std::vector<ReplyGrammar::Part>& parts, std::string* error) const;
  void AnswerEqual(const std::string& grammar, CompiledGrammar& compiled);
  void Answer(GrammarResult&& result);

  const GrammarCompiler& compiler_;
  SpscQueue<GrammarJob> jobs_{1024};
  SpscQueue<GrammarResult> results_{1024};
  TurnQueue order_;                                   // of the tickets in `waiting_`
  std::unordered_map<uint64_t, GrammarJob> waiting_;  // at most one for each open turn
  std::deque<Refusal> refusals_;
  Waker waker_;
  Waker* result_waker_ = nullptr;
};

}  // namespace kairos
