// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/closing_order.h"

#include <gtest/gtest.h>

#include <vector>

#include "sidecar/engine/token_constraint.h"
#include "tests/unit/chat/tiny_spm_vocabulary.h"

namespace kairos {
namespace {

// A vocabulary with a token for each byte can write '}' in two ways, of which its models know one.
TEST(ClosingOrder, TakesTheTokenThatTextBecomesBeforeThatOfItsByte) {
  constexpr TokenId kBytes = TinySpmVocabulary::kBytes;
  TinySpmVocabulary vocabulary;
  const TokenId close = vocabulary.Add("}", 0);
  const auto tokenizer = vocabulary.Build();
  const ClosingOrder order(*tokenizer);
  std::vector<uint32_t> mask(MaskWords(tokenizer->vocabulary_size()));
  const auto allow = [&](TokenId token) {
    mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  };

  allow(kBytes + '{');
  EXPECT_EQ(order.Choose(mask), kBytes + '{');
  allow(kBytes + '}');
  allow(close);
  EXPECT_EQ(order.Choose(mask), close);
  allow(TinySpmVocabulary::kEnd);
  EXPECT_EQ(order.Choose(mask), TinySpmVocabulary::kEnd);
}

}  // namespace
}  // namespace kairos
