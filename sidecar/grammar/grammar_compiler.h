// SPDX-License-Identifier: Apache-2.0
// Makes token constraints out of grammars. llguidance does the parsing (regex derivatives as lexer,
// an Earley parser above, masks by a walk over the trie of token bytes); this is its only user.
//
// A grammar is text in llguidance's dialect of Lark, which embeds JSON schemas (%json), regular
// expressions and special tokens. reply_grammar.h writes the grammars of replies.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/engine/token_constraint.h"

namespace kairos {

// What the words of a refusal begin with where a grammar is above the work limits.
inline constexpr std::string_view kTooMuchWork = "too much work to enforce";

// A grammar that is ready to hold replies. One thread at a time.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // At the beginning of a reply. All of one grammar share what their masks have learned of it; what
  // has gone to another thread shares it safely. Takes microseconds.
  virtual std::unique_ptr<TokenConstraint> Start() = 0;
};

// Immutable after Create; any thread. What it makes may outlive neither it nor its tokenizer.
class GrammarCompiler {
 public:
  // `tokenizer` outlives the compiler. Takes some tens of milliseconds: builds the trie.
  static Result<std::unique_ptr<GrammarCompiler>> Create(const Tokenizer& tokenizer,
                                                         std::string* error);
  virtual ~GrammarCompiler() = default;

  // INVALID_ARGUMENT with the reason in *error: syntax, a keyword that is not supported (named), a
  // grammar above the work limits, or one that nothing matches. Takes milliseconds, a second for
  // the worst that schema_limits.h lets through. `is_prose`: when the tokens run short the text
  // goes on to the last of them, as without a grammar; otherwise it ends where it may.
  virtual Result<std::unique_ptr<CompiledGrammar>> Compile(const std::string& grammar,
                                                           bool is_prose,
                                                           std::string* error) const = 0;
};

// Grammars that were compiled lately, by their text. Owner: one thread.
class GrammarCache {
 public:
  // Null where it is not there.
  std::unique_ptr<TokenConstraint> Start(const std::string& grammar);
  void Keep(std::string grammar, std::unique_ptr<CompiledGrammar> compiled);

 private:
  struct Entry {
    std::string grammar;
    std::unique_ptr<CompiledGrammar> compiled;
    uint32_t uses = 0;
  };
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace kairos
