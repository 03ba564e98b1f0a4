// SPDX-License-Identifier: Apache-2.0
// Makes token constraints out of grammars. llguidance does the parsing (regex derivatives as lexer,
// an Earley parser above, masks by a walk over the trie of token bytes); this is its only user.
//
// A grammar is text in llguidance's dialect of Lark, which embeds JSON schemas (%json), regular
// expressions and special tokens. reply_grammar.h writes the grammars of replies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/engine/token_constraint.h"

namespace kairos {

// Immutable after Create but for a cache of compiled grammars, which belongs to the thread that
// compiles. Constraints may outlive neither the compiler nor its tokenizer.
class GrammarCompiler {
 public:
  // `tokenizer` outlives the compiler. Takes some tens of milliseconds: builds the trie.
  static Result<std::unique_ptr<GrammarCompiler>> Create(const Tokenizer& tokenizer,
                                                         std::string* error);
  virtual ~GrammarCompiler() = default;

  // INVALID_ARGUMENT with the reason in *error: syntax, a keyword that is not supported (named), or
  // a grammar above the work limits. Text thread only. Takes milliseconds, seconds for the worst
  // that the limits let through; a grammar that was compiled lately is copied, with all that its
  // masks have learned. `is_prose`: when the tokens run short the text goes on to the last of them,
  // as without a grammar; otherwise it ends where it may.
  virtual Result<std::unique_ptr<TokenConstraint>> Compile(const std::string& grammar,
                                                           bool is_prose, std::string* error) = 0;
};

}  // namespace kairos
