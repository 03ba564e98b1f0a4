// SPDX-License-Identifier: Apache-2.0
// How far two words are apart, for "did you mean". Pure; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace kairos {

// Letters to insert, take out or replace to turn one word into the other. Time and memory go with
// the product and the sum of their sizes: cut what others wrote first.
inline size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Whether somebody who typed `word` may have meant one at this distance.
inline bool IsSlip(std::string_view word, size_t distance) {
  return distance <= std::max<size_t>(2, word.size() / 3) && distance < word.size();
}

}  // namespace kairos
