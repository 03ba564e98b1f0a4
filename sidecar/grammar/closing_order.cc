// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/closing_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "sidecar/engine/token_constraint.h"

namespace kairos {
namespace {

bool OnlyOf(std::string_view text, std::string_view set) {
  return !text.empty() && text.find_first_not_of(set) == std::string_view::npos;
}

bool HasAny(std::string_view text, std::string_view set) {
  return text.find_first_of(set) != std::string_view::npos;
}

// Ranks of one kind are for tokens of different lengths, the longest first.
constexpr uint32_t kKindRanks = 8;
constexpr uint32_t kLastKindToVary = 4;  // of those that close and separate
constexpr uint32_t kSpelledKind = 8;
constexpr size_t kFewTokens = 1024;  // of which a name or one of some values can be chosen
constexpr size_t kOthersMax = 12;
constexpr size_t kPartsMax = 64;
constexpr TokenId kNone = -1;

uint32_t RankOf(uint32_t kind, size_t bytes) {
  const auto length = static_cast<uint32_t>(std::min<size_t>(bytes, kKindRanks - 1));
  return kind * kKindRanks + (kind <= kLastKindToVary ? kKindRanks - 1 - length : 0);
}

uint32_t KindBetween(std::string_view text) {
  if (HasAny(text, "}]") && OnlyOf(text, "}]\"")) return 1;
  if (text == "\"\"" || text == "[]" || text == "{}") return 2;
  if (text == "\"") return 3;
  if (OnlyOf(text, "\",: }]\n")) return 4;
  if (text.size() == 1 && OnlyOf(text, "123456789")) return 5;
  if (!HasAny(text, "{[,\\")) return 6;
  return 7;
}

uint32_t KindInText(std::string_view text) {
  if (text.starts_with('"') && text.size() > 1 && OnlyOf(text.substr(1), "}]")) return 1;
  if (text.starts_with('"') && text.size() > 1 && OnlyOf(text, "\",: \n")) return 2;
  if (text == "\"") return 3;
  if (text.size() == 1 && OnlyOf(text, "abcdefghijklmnopqrstuvwxyz")) return 4;
  if (!HasAny(text, "\"\\")) return 5;
  return text.starts_with('"') ? 6 : 7;
}

// Whether the token is one byte of which the tokenizer makes another token.
bool IsSpelled(const Tokenizer& tokenizer, TokenId token, std::string_view text) {
  if (text.size() != 1) return false;
  const std::vector<TokenId> tokens = tokenizer.Encode(text, false).tokens;
  return tokens.size() == 1 && tokens[0] != token;
}

}  // namespace

ClosingOrder::ClosingOrder(const Tokenizer& tokenizer) {
  const uint32_t size = tokenizer.vocabulary_size();
  shapes_.resize(size);
  const auto mark = [size](Ranks& ranks, uint32_t number, uint32_t token) {
    const auto place = std::lower_bound(
        ranks.begin(), ranks.end(), number,
        [](const Rank& rank, uint32_t wanted) { return rank.number < wanted; });
    auto rank = place;
    if (place == ranks.end() || place->number != number) {
      rank = ranks.insert(place, {number, std::vector<uint32_t>(MaskWords(size))});
    }
    rank->mask[token / 32] |= 1u << (token % 32);
  };
  for (uint32_t i = 0; i < size; ++i) {
    const auto token = static_cast<TokenId>(i);
    const std::string_view text = tokenizer.TokenBytes(token, true);
    const bool is_spelled = IsSpelled(tokenizer, token, text);
    const auto rank = [&](uint32_t kind) {
      if (tokenizer.IsEndOfGeneration(token)) return RankOf(0, 0);
      return RankOf(is_spelled ? kSpelledKind : kind, text.size());
    };
    mark(between_, rank(KindBetween(text)), i);
    mark(in_text_, rank(KindInText(text)), i);
    if (!text.empty() && !is_spelled) {
      shapes_[i] = {static_cast<uint8_t>(text[0]),
                    static_cast<uint16_t>(std::min<size_t>(text.size(), UINT16_MAX))};
    }
    if (text.size() == 1 && OnlyOf(text, "q]~")) text_signs_.push_back(token);
  }
}

const ClosingOrder::Ranks& ClosingOrder::RanksFor(std::span<const uint32_t> mask) const {
  bool in_text = !text_signs_.empty();
  for (const TokenId token : text_signs_) {
    in_text &= (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
  return in_text ? in_text_ : between_;
}

std::optional<TokenId> ClosingOrder::FirstOf(const Rank& rank, std::span<const uint32_t> mask) {
  for (size_t word = 0; word < rank.mask.size(); ++word) {
    const uint32_t both = rank.mask[word] & mask[word];
    if (both != 0) return static_cast<TokenId>(word * 32) + std::countr_zero(both);
  }
  return std::nullopt;
}

// The longest of the tokens, where they are few and all begin alike: then they most likely are
// parts of one text. A negative number where they are not.
TokenId ClosingOrder::LongestOfOneText(std::span<const uint32_t> mask) const {
  size_t allowed = 0;
  for (const uint32_t word : mask) allowed += static_cast<size_t>(std::popcount(word));
  if (allowed > kPartsMax) return kNone;
  TokenId longest = kNone;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const size_t token = word * 32 + static_cast<size_t>(std::countr_zero(bits));
      if (token >= shapes_.size() || shapes_[token].bytes == 0) return kNone;
      if (longest != kNone && shapes_[token].first != shapes_[static_cast<size_t>(longest)].first) {
        return kNone;
      }
      if (longest == kNone ||
          shapes_[token].bytes > shapes_[static_cast<size_t>(longest)].bytes) {
        longest = static_cast<TokenId>(token);
      }
    }
  }
  return longest;
}

std::optional<TokenId> ClosingOrder::Choose(std::span<const uint32_t> mask) const {
  if (const TokenId token = LongestOfOneText(mask); token != kNone) return token;
  for (const Rank& rank : RanksFor(mask)) {
    if (const auto token = FirstOf(rank, mask)) return token;
  }
  return std::nullopt;
}

std::vector<TokenId> ClosingOrder::Others(std::span<const uint32_t> mask, TokenId chosen) const {
  std::vector<TokenId> others;
  const auto add = [&](TokenId token) {
    const bool is_new = std::find(others.begin(), others.end(), token) == others.end();
    if (token != chosen && is_new && others.size() < kOthersMax) others.push_back(token);
  };
  uint32_t kind = 0;  // of which the best is there
  for (const Rank& rank : RanksFor(mask)) {
    const uint32_t of = rank.number / kKindRanks;
    if (of == 0 || of == kind) continue;
    if (of > kLastKindToVary) break;
    if (const auto token = FirstOf(rank, mask)) {
      add(*token);
      kind = of;
    }
  }
  size_t allowed = 0;
  for (const uint32_t word : mask) allowed += static_cast<size_t>(std::popcount(word));
  if (allowed > kFewTokens) return others;
  std::array<TokenId, 256> longest;
  longest.fill(kNone);
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const size_t token = word * 32 + static_cast<size_t>(std::countr_zero(bits));
      if (token >= shapes_.size() || shapes_[token].bytes == 0) continue;
      TokenId& best = longest[shapes_[token].first];
      if (best == kNone || shapes_[token].bytes > shapes_[static_cast<size_t>(best)].bytes) {
        best = static_cast<TokenId>(token);
      }
    }
  }
  for (const TokenId token : longest) {
    if (token != kNone) add(token);
  }
  return others;
}

}  // namespace kairos
