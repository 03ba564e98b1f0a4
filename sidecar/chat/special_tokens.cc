// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/special_tokens.h"

#include <algorithm>
#include <utility>

namespace kairos {

SpecialTokens::SpecialTokens(std::vector<SpecialToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const SpecialToken& a, const SpecialToken& b) { return a.text < b.text; });
  for (const SpecialToken& token : tokens_) starts_[static_cast<uint8_t>(token.text[0])] = true;
}

// The tokens that agree with the text so far are neighbours in tokens_; each byte narrows the
// range.
const SpecialToken* SpecialTokens::Match(std::string_view text, size_t position,
                                         size_t control_end) const {
  const SpecialToken* longest = nullptr;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; first != last && position + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[position + depth]);
    const auto byte_of = [depth](const SpecialToken& token) {
      return static_cast<uint8_t>(token.text[depth]);
    };
    first = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) < byte; });
    last = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) == byte; });
    if (first != last && first->text.size() == depth + 1) {
      const bool allowed = !first->control || position + depth + 1 <= control_end;
      if (allowed) longest = &*first;
      ++first;
    }
  }
  return longest;
}

}  // namespace kairos
