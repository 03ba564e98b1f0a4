// SPDX-License-Identifier: Apache-2.0
// A byte for the kind of what follows: tools, a JSON schema, a regular expression, a Lark grammar.
// It is refused in words or compiled, and what is compiled is walked a little. A refusal has words,
// a mask has a token, and bounds that were put to a schema's numbers stay as they are.
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json_depth.h"
#include "sidecar/chat/vocabulary.h"
#include "sidecar/grammar/grammar_compiler.h"
#include "sidecar/grammar/reply_grammar.h"
#include "sidecar/grammar/schema_limits.h"

namespace kairos {
namespace {

constexpr int kStepsMax = 24;

// A token for each printable character and the line feed, and an end.
std::unique_ptr<Tokenizer> MakeTokenizer() {
  static std::vector<std::string> texts;
  for (char c = '!'; c <= '~'; ++c) texts.emplace_back(1, c);
  texts.insert(texts.end(), {"\u0120", "\u010a", "in", "<|im_end|>"});
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "smollm";
  vocabulary.tokens.assign(texts.begin(), texts.end());
  vocabulary.kinds.assign(texts.size(), TokenKind::kNormal);
  vocabulary.kinds.back() = TokenKind::kControl;
  vocabulary.merges.push_back("i n");
  std::string error;
  auto tokenizer = Tokenizer::Create(vocabulary, &error);
  KAIROS_CHECK(tokenizer.ok());
  return tokenizer.Take();
}

void FuzzDialect(std::string_view text) {
  if (!JsonNestsWithin(text, 64)) return;
  SchemaJson schema = SchemaJson::parse(text.begin(), text.end(), nullptr, false);
  if (!schema.is_object() || !ReadInItsDraft(&schema).empty()) return;
  if (!SchemaFault(schema).empty()) return;
  BoundNumbers(&schema);
  SchemaJson again = schema;
  BoundNumbers(&again);
  KAIROS_CHECK(again == schema);
}

void Walk(const Tokenizer& tokenizer, TokenConstraint& constraint, std::string_view choices) {
  std::vector<uint32_t> mask(MaskWords(tokenizer.vocabulary_size()));
  std::vector<TokenId> forced;
  for (int step = 0; step < kStepsMax; ++step) {
    const auto left = static_cast<uint32_t>(kStepsMax - step);
    if (!constraint.ComputeMask(mask, left)) return static_cast<void>(constraint.IsDeadEnd());
    std::vector<TokenId> allowed;
    for (size_t word = 0; word < mask.size(); ++word) {
      for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
        allowed.push_back(static_cast<TokenId>(word * 32) + std::countr_zero(bits));
      }
    }
    KAIROS_CHECK(!allowed.empty());
    const auto choice = static_cast<uint8_t>(choices[static_cast<size_t>(step) % choices.size()]);
    TokenId token = allowed[choice % allowed.size()];
    if (constraint.IsShortOfTokens() && !tokenizer.IsEndOfGeneration(token) &&
        !constraint.LeavesTimeToEnd(token)) {
      constraint.LeaveSoonestEnd(mask);
      for (const TokenId other : allowed) {
        if (mask[static_cast<size_t>(other) / 32] >> (other % 32) & 1) token = other;
      }
    }
    KAIROS_CHECK(token >= 0 && static_cast<uint32_t>(token) < tokenizer.vocabulary_size());
    if (tokenizer.IsEndOfGeneration(token)) return;
    if (!constraint.Consume(token)) return;  // a work limit
    constraint.Forced(&forced);
  }
}

void Fuzz(uint8_t kind, const std::string& text) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer();
  static std::string words;
  static const std::unique_ptr<GrammarCompiler> compiler =
      GrammarCompiler::Create(*tokenizer, &words).Take();
  const auto constraint_kind = static_cast<ConstraintKind>(kind % 4);
  ReplyRules rules;
  std::string tools;
  if (constraint_kind == ConstraintKind::kNone) {
    rules.tool_choice = kind % 8 < 4 ? ToolChoice::kAuto : ToolChoice::kRequired;
    tools = text;
  } else {
    rules.kind = constraint_kind;
    rules.constraint = text;
  }
  if (constraint_kind == ConstraintKind::kJsonSchema) FuzzDialect(text);
  std::string error;
  const auto kind_of = [](std::string_view) { return MarkerKind::kText; };
  const Result<ReplyGrammar> reply =
      WriteReplyGrammar(WireFormatOf(WireFamily::kHermes), rules, tools, kind_of, &error);
  KAIROS_CHECK(reply.ok() == error.empty());
  if (!reply.ok() || reply->grammar.empty()) return;
  const auto made = compiler->Compile(reply->grammar, reply->is_prose, &error);
  KAIROS_CHECK(made.ok() == error.empty());
  if (made.ok()) Walk(*tokenizer, *(*made)->Start(), text.empty() ? "0" : text);
}

}  // namespace
}  // namespace kairos

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  kairos::Fuzz(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
