// SPDX-License-Identifier: Apache-2.0
// How long the texts are that a regular expression or a grammar's terminal matches, once all
// repetitions and references are written out. Compiling takes memory and time by the longest; text
// that is forced is followed in one go, so a step takes time by the shortest.
// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/grammar/lark_text.h"

namespace kairos {

// In characters and classes of such; grows no further at kExtentMax.
struct Extent {
  uint64_t least = 0;  // of one alternative, as if all that may be left out were there
  uint64_t most = 0;   // of all alternatives together, less what * and + repeat without limit
};
inline constexpr uint64_t kExtentMax = uint64_t{1} << 32;

// Sums extents up in the order in which an expression is read.
class ExtentSum {
 public:
  void Atom(Extent extent);
  void Open() { groups_.emplace_back(); }
  void Close();
  void Or();
  // Of the last atom or group.
  void Repeat(uint64_t least, uint64_t most);
  Extent Take();

 private:
  struct Group {
    Extent before;  // alternatives that are read
    Extent sum;     // this one, less `last`
    Extent last;
  };
  static Extent Whole(const Group& group);
  std::vector<Group> groups_{1};
};

// Reads "3}", "3,}" or "3,5}" as it stands behind a brace; nothing where it is none.
std::optional<Extent> ReadRepetition(std::string_view text);

Extent RegexExtent(std::string_view regex);
// The largest of a Lark grammar's definitions; what names a rule counts as nothing.
Extent LarkExtent(std::span<const LarkDefinition> definitions);

}  // namespace kairos
