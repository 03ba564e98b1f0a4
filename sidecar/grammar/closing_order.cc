// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/closing_order.h"

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

size_t RankBetween(std::string_view text) {
  if (HasAny(text, "}]") && OnlyOf(text, "}]\"")) return 1;
  if (text == "\"") return 2;
  if (text == "\"\"" || text == "[]" || text == "{}") return 3;
  if (OnlyOf(text, "\",: }]\n")) return 4;
  if (text.size() == 1 && OnlyOf(text, "123456789")) return 5;
  if (!HasAny(text, "{[,\\")) return 6;
  return 7;
}

size_t RankInText(std::string_view text) {
  if (text.starts_with('"') && text.size() > 1 && OnlyOf(text.substr(1), "}]")) return 1;
  if (text.starts_with('"')) return text.size() == 1 ? 2 : 5;
  if (text.size() == 1 && OnlyOf(text, "abcdefghijklmnopqrstuvwxyz")) return 3;
  if (!HasAny(text, "\"\\")) return 4;
  return 6;
}

constexpr size_t kSpelledRank = 8;

// Whether the token is one byte of which the tokenizer makes another token.
bool IsSpelled(const Tokenizer& tokenizer, TokenId token, std::string_view text) {
  if (text.size() != 1) return false;
  const std::vector<TokenId> tokens = tokenizer.Encode(text, false).tokens;
  return tokens.size() == 1 && tokens[0] != token;
}

}  // namespace

ClosingOrder::ClosingOrder(const Tokenizer& tokenizer) {
  const uint32_t size = tokenizer.vocabulary_size();
  for (Ranks* ranks : {&between_, &in_text_}) {
    for (std::vector<uint32_t>& mask : *ranks) mask.resize(MaskWords(size));
  }
  for (uint32_t i = 0; i < size; ++i) {
    const auto token = static_cast<TokenId>(i);
    const std::string_view text = tokenizer.TokenBytes(token, true);
    const bool is_spelled = IsSpelled(tokenizer, token, text);
    const auto mark = [&](Ranks& ranks, size_t rank) {
      if (is_spelled) rank = kSpelledRank;
      if (tokenizer.IsEndOfGeneration(token)) rank = 0;
      ranks[rank][i / 32] |= 1u << (i % 32);
    };
    mark(between_, RankBetween(text));
    mark(in_text_, RankInText(text));
    if (text.size() == 1 && OnlyOf(text, "q]~")) text_signs_.push_back(token);
  }
}

std::optional<TokenId> ClosingOrder::Choose(std::span<const uint32_t> mask) const {
  bool in_text = !text_signs_.empty();
  for (const TokenId token : text_signs_) {
    in_text &= (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
  for (const std::vector<uint32_t>& rank : in_text ? in_text_ : between_) {
    for (size_t word = 0; word < rank.size(); ++word) {
      const uint32_t both = rank[word] & mask[word];
      if (both != 0) return static_cast<TokenId>(word * 32) + std::countr_zero(both);
    }
  }
  return std::nullopt;
}

}  // namespace kairos
