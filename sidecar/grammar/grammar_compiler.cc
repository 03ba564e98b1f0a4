// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/grammar_compiler.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sidecar/grammar/closing_order.h"
#include "sidecar/grammar/end_finder.h"
#include "sidecar/grammar/matcher_handle.h"

namespace kairos {
namespace {

constexpr size_t kCachedGrammars = 32;
constexpr uint32_t kUsesMax = 256;  // of one compiled grammar
constexpr size_t kLexerStatesMax = 50'000;  // of 1 to 2 kB
constexpr uint64_t kLexerFuel = 1'000'000;  // of compiling; some 0.7 s
constexpr size_t kErrorBytesMax = 600;  // of the words for a client

struct FreeTokenizer {
  void operator()(LlgTokenizer* tokenizer) const { llg_free_tokenizer(tokenizer); }
};
using TokenizerHandle = std::unique_ptr<LlgTokenizer, FreeTokenizer>;

// Of a matcher that gave no mask: whether that is for want of anything that could follow.
bool IsDeadEnd(LlgMatcher* matcher) {
  const char* words = llg_matcher_get_error(matcher);
  return words != nullptr && std::string_view(words).starts_with("NoExtension");
}

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(MatcherHandle matcher, TokenId end, bool is_prose,
                    const ClosingOrder& closing)
      : matcher_(std::move(matcher)), end_(end), finder_(end, is_prose, closing) {}

  bool ComputeMask(std::span<uint32_t> mask, uint32_t tokens_left) override {
    finder_.Rest();
    if (!ComputeMatcherMask(matcher_.get(), mask)) return false;
    finder_.Look(matcher_.get(), tokens_left);
    return true;
  }

  bool IsShortOfTokens() override { return finder_.is_short(); }

  bool LeavesTimeToEnd(TokenId token) override {
    return token == end_ || finder_.LeavesTime(matcher_.get(), token);
  }

  void LeaveSoonestEnd(std::span<uint32_t> mask) override {
    if (!finder_.Soonest()) return;
    const auto token = static_cast<size_t>(*finder_.Soonest());
    std::fill(mask.begin(), mask.end(), 0);
    mask[token / 32] = 1u << (token % 32);
  }

  bool Consume(TokenId token) override {
    finder_.Consume(token);
    return llg_matcher_consume_token(matcher_.get(), static_cast<uint32_t>(token)) == 0;
  }

  bool IsDeadEnd() override { return kairos::IsDeadEnd(matcher_.get()); }

  void Forced(std::vector<TokenId>* out) override {
    out->clear();
    if (llg_matcher_is_stopped(matcher_.get())) {
      if (!llg_matcher_is_error(matcher_.get()) && end_ >= 0) out->push_back(end_);
      return;
    }
    uint32_t tokens[64];
    const int32_t count = llg_matcher_compute_ff_tokens(matcher_.get(), tokens, std::size(tokens));
    for (int32_t i = 0; i < count; ++i) out->push_back(static_cast<TokenId>(tokens[i]));
  }

  uint32_t CountAllowed(std::span<const TokenId> tokens) override {
    const std::vector<uint32_t> asked(tokens.begin(), tokens.end());
    const int32_t count = llg_matcher_validate_tokens(matcher_.get(), asked.data(), asked.size());
    return count < 0 ? 0 : static_cast<uint32_t>(count);
  }

 private:
  MatcherHandle matcher_;
  TokenId end_;
  EndFinder finder_;
};

class CompiledMatcher final : public CompiledGrammar {
 public:
  CompiledMatcher(MatcherHandle matcher, TokenId end, bool is_prose, const ClosingOrder& closing)
      : matcher_(std::move(matcher)), end_(end), is_prose_(is_prose), closing_(closing) {}

  std::unique_ptr<TokenConstraint> Start() override {
    return std::make_unique<GrammarConstraint>(MatcherHandle(llg_clone_matcher(matcher_.get())),
                                               end_, is_prose_, closing_);
  }

 private:
  MatcherHandle matcher_;  // never advanced
  TokenId end_;
  bool is_prose_;
  const ClosingOrder& closing_;
};

// What the library says in terms of its own, and what is said in its place. By whole phrases, since
// its words hold names that clients chose.
struct Rewording {
  std::string_view theirs;
  std::string_view ours;
};
constexpr std::string_view kLessWork =
    ": use fewer properties, numbers, patterns and alternatives";
constexpr Rewording kPhrases[] = {
    {"Enable 'coerce_one_of' option", "oneOf: cannot be enforced where a value may match several "
                                      "of its schemas; use anyOf"},
    {"increase limits.initial_lexer_fuel", kTooMuchWork},
    {"fuel exhausted", kTooMuchWork},
    {"maximum relevance check fuel", kTooMuchWork},
    {"too big (limit for this grammar", kTooMuchWork},
    {"schema too large", kTooMuchWork},
    {"Schema intersection stack level exceeded", kTooMuchWork},
    {"Too many items (limit", kTooMuchWork},
    {"LexerTooComplex", kTooMuchWork},
    {"ParserTooComplex", kTooMuchWork},
};

// What the words begin with where the library names what a keyword holds alone, and the keyword.
constexpr Rewording kKeywords[] = {
    {"Resource '", "$ref: "},   {"Pointer '", "$ref: "},
    {"Anchor '", "$ref: "},     {"Invalid URI reference", "$ref: "},
    {"circular references", "$ref: "}, {"regex parse error", "pattern: "}};
constexpr Rewording kUnknownKeywords = {"Unimplemented keys", "keywords that cannot be enforced"};

// In our terms, on one line and not for ever.
std::string Reword(const char* words) {
  std::string text = words == nullptr ? "no reason given" : words;
  if (text.starts_with("panic: ")) return "cannot be enforced: the grammar library gives it up";
  for (const Rewording& one : kPhrases) {
    if (text.find(one.theirs) == std::string::npos) continue;
    text = one.ours;
    if (one.ours == kTooMuchWork) text += kLessWork;
    return text;
  }
  for (const Rewording& one : kKeywords) {
    if (!text.starts_with(one.theirs)) continue;
    text.insert(0, one.ours);
    break;
  }
  if (text.starts_with(kUnknownKeywords.theirs)) {
    text.replace(0, kUnknownKeywords.theirs.size(), kUnknownKeywords.ours);
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > kErrorBytesMax) text.resize(kErrorBytesMax);
  return text;
}

class LlguidanceCompiler final : public GrammarCompiler {
 public:
  explicit LlguidanceCompiler(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), closing_(tokenizer) {}

  bool Open(std::string* error) {
    const uint32_t size = tokenizer_.vocabulary_size();
    end_ = tokenizer_.eos();
    for (uint32_t i = 0; i < size && end_ < 0; ++i) {
      if (tokenizer_.IsEndOfGeneration(static_cast<TokenId>(i))) end_ = static_cast<TokenId>(i);
    }
    if (end_ < 0) return true;  // Compile says so
    std::vector<uint32_t> lengths(size);
    std::string bytes;
    std::vector<uint32_t> more_ends;
    for (uint32_t i = 0; i < size; ++i) {
      const auto token = static_cast<TokenId>(i);
      // A leading 0xff, which UTF-8 never has, keeps control tokens out of reach of text.
      std::string text;
      if (tokenizer_.IsControl(token)) text = '\xff';
      text += tokenizer_.TokenBytes(token, true);
      lengths[i] = static_cast<uint32_t>(text.size());
      bytes += text;
      if (tokenizer_.IsEndOfGeneration(token) && token != end_) more_ends.push_back(i);
    }
    LlgTokenizerInitV2 init{};
    init.struct_size = sizeof(init);
    init.vocab_size = size;
    init.tok_eos = static_cast<uint32_t>(end_);
    init.token_lens = lengths.data();
    init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
    init.tokenize_fn = &LlguidanceCompiler::Tokenize;
    init.tokenize_user_data = &tokenizer_;
    init.tok_eos_extra = more_ends.data();
    init.tok_eos_extra_count = static_cast<uint32_t>(more_ends.size());
    char words[512] = {};
    handle_.reset(llg_new_tokenizer_v2(&init, words, sizeof(words)));
    if (handle_ == nullptr) *error = std::string("cannot build the token trie: ") + words;
    return handle_ != nullptr;
  }

  Result<std::unique_ptr<CompiledGrammar>> Compile(const std::string& grammar, bool is_prose,
                                                   std::string* error) const override {
    if (end_ < 0) {
      *error = "the model names no end token, so nothing can be enforced";
      return Status(Code::kUnimplemented, "the grammar cannot be used");
    }
    LlgConstraintInit init{};
    llg_constraint_init_set_defaults(&init, handle_.get());
    init.log_buffer_level = 0;
    init.log_stderr_level = 0;  // its lines would show prompts
    init.limits.verbose_errors = false;
    init.limits.max_lexer_states = kLexerStatesMax;
    init.limits.initial_lexer_fuel = kLexerFuel;
    MatcherHandle matcher(llg_new_matcher(&init, "llguidance", grammar.c_str()));
    if (const char* words = llg_matcher_get_error(matcher.get()); words != nullptr) {
      *error = Reword(words);
      return Status(Code::kInvalidArgument, "the grammar cannot be used");
    }
    // The first mask tells whether anything matches, and those to come share its work.
    const MatcherHandle probe(llg_clone_matcher(matcher.get()));
    if (llg_matcher_compute_mask(probe.get()) != 0) {
      *error = IsDeadEnd(probe.get()) ? "nothing matches it"
                                      : Reword(llg_matcher_get_error(probe.get()));
      return Status(Code::kInvalidArgument, "the grammar cannot be used");
    }
    return std::unique_ptr<CompiledGrammar>(std::make_unique<CompiledMatcher>(
        std::move(matcher), end_, is_prose, closing_));
  }

 private:
  // Called by llguidance from any thread that owns a constraint.
  static size_t Tokenize(const void* user_data, const uint8_t* bytes, size_t size,
                         uint32_t* tokens, size_t room) {
    const auto* tokenizer = static_cast<const Tokenizer*>(user_data);
    const EncodeResult encoded =
        tokenizer->Encode(std::string_view(reinterpret_cast<const char*>(bytes), size), false);
    for (size_t i = 0; i < std::min(room, encoded.tokens.size()); ++i) {
      tokens[i] = static_cast<uint32_t>(encoded.tokens[i]);
    }
    return encoded.tokens.size();
  }

  const Tokenizer& tokenizer_;
  const ClosingOrder closing_;
  TokenId end_ = -1;
  TokenizerHandle handle_;
};

}  // namespace

std::unique_ptr<TokenConstraint> GrammarCache::Start(const std::string& grammar) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.grammar == grammar; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  std::unique_ptr<TokenConstraint> constraint = found->compiled->Start();
  // What all of one grammar have learned is forgotten now and then, since it only grows.
  if (++found->uses == kUsesMax) entries_.erase(found);
  return constraint;
}

void GrammarCache::Keep(std::string grammar, std::unique_ptr<CompiledGrammar> compiled) {
  const auto is_it = [&](const Entry& entry) { return entry.grammar == grammar; };
  if (std::any_of(entries_.begin(), entries_.end(), is_it)) return;
  if (entries_.size() == kCachedGrammars) entries_.pop_back();
  entries_.push_front({std::move(grammar), std::move(compiled)});
}

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::Create(const Tokenizer& tokenizer,
                                                                 std::string* error) {
  auto compiler = std::make_unique<LlguidanceCompiler>(tokenizer);
  if (!compiler->Open(error)) return Status(Code::kInternal, "cannot build the token trie");
  return std::unique_ptr<GrammarCompiler>(std::move(compiler));
}

}  // namespace kairos
