// SPDX-License-Identifier: Apache-2.0
// A byte string that remembers, piece by piece, where its bytes came from. Concatenation and
// slicing keep the marks, so text of a message stays text of a message through everything a
// template does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kairos {

// 0 is the template itself (trusted); any other number names an outside source, which is never
// trusted.
using TextSource = uint32_t;
inline constexpr TextSource kTemplateSource = 0;

class MarkedText {
 public:
  struct Run {
    size_t end = 0;  // byte offset one past the run
    TextSource source = kTemplateSource;
    friend bool operator==(const Run&, const Run&) = default;
  };

  MarkedText() = default;
  MarkedText(std::string_view text, TextSource source) { Append(text, source); }

  void Append(std::string_view text, TextSource source);
  void Append(const MarkedText& other);
  // Bytes [begin, end) of `other`, which may not be this object.
  void AppendSlice(const MarkedText& other, size_t begin, size_t end);

  const std::string& text() const { return text_; }
  // Ends increase; neighbours differ in source; empty exactly when the text is.
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // Index of the run that holds byte `at`, which must be inside the text.
  size_t RunAt(size_t at) const;
  // Byte range from the first to past the last byte of `source`; both 0 where it has none.
  void Extent(TextSource source, size_t* begin, size_t* end) const;

 private:
  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace kairos
