// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/bpe_merges.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace kairos {
namespace {

struct Rule {
  TokenId left;
  TokenId right;
  TokenId merged;
};

// The definition: the earliest rule that fits anywhere is applied at its first place, again and
// again.
std::vector<TokenId> ApplyNaively(const std::vector<Rule>& rules, std::vector<TokenId> tokens) {
  for (bool merged = true; merged;) {
    merged = false;
    for (size_t rule = 0; rule < rules.size() && !merged; ++rule) {
      for (size_t i = 0; i + 1 < tokens.size() && !merged; ++i) {
        if (tokens[i] != rules[rule].left || tokens[i + 1] != rules[rule].right) continue;
        tokens[i] = rules[rule].merged;
        tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(i) + 1);
        merged = true;
      }
    }
  }
  return tokens;
}

std::vector<TokenId> ApplyMerges(const BpeMerges& merges, std::vector<TokenId> tokens) {
  BpeScratch scratch;
  tokens.resize(merges.Apply(tokens, scratch));
  return tokens;
}

TEST(BpeMerges, MatchesNaiveModelOnShortAndLongWords) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<Rule> rules;
    BpeMerges merges(40);
    TokenId tokens_count = 3;
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<TokenId>(random() % tokens_count);
      const auto right = static_cast<TokenId>(random() % tokens_count);
      const Rule rule{left, right, tokens_count};
      if (!merges.Insert(left, right, {static_cast<uint32_t>(rules.size()), rule.merged})) continue;
      rules.push_back(rule);
      ++tokens_count;
    }
    for (const size_t length : {0, 1, 2, 5, 31, 32, 33, 34, 90, 200}) {
      std::vector<TokenId> word(length);
      // Some symbols are bytes without a token, which nothing merges with.
      for (TokenId& token : word) {
        token = random() % 16 == 0 ? kNoToken : static_cast<TokenId>(random() % 3);
      }

      EXPECT_EQ(ApplyMerges(merges, word), ApplyNaively(rules, word)) << "length " << length;
    }
  }
}

TEST(BpeMerges, MergesLeftmostFirstAmongEqualRanks) {
  BpeMerges merges(1);
  ASSERT_TRUE(merges.Insert(7, 7, {0, 8}));

  EXPECT_EQ(ApplyMerges(merges, {7, 7, 7}), (std::vector<TokenId>{8, 7}));
  EXPECT_EQ(ApplyMerges(merges, std::vector<TokenId>(41, 7)).back(), 7);
}

TEST(BpeMerges, RefusesPairThatIsAlreadyThere) {
  BpeMerges merges(4);
  ASSERT_TRUE(merges.Insert(1, 2, {0, 3}));

  EXPECT_FALSE(merges.Insert(1, 2, {1, 4}));

  EXPECT_EQ(merges.Find(1, 2).merged, 3);
  EXPECT_EQ(merges.Find(2, 1).rank, BpeMerges::kNoRank);
}

TEST(BpeMerges, FindsEveryPairOfFullTable) {
  BpeMerges merges(1000);
  for (TokenId i = 0; i < 1000; ++i) {
    ASSERT_TRUE(merges.Insert(i, i * 7, {static_cast<uint32_t>(i), i + 1}));
  }

  for (TokenId i = 0; i < 1000; ++i) {
    ASSERT_EQ(merges.Find(i, i * 7).rank, static_cast<uint32_t>(i));
    ASSERT_EQ(merges.Find(i * 7 + 1, i).rank, BpeMerges::kNoRank);
  }
  EXPECT_EQ(merges.Find(kNoToken, kNoToken).rank, BpeMerges::kNoRank);
}

}  // namespace
}  // namespace kairos
