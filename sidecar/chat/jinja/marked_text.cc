// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/marked_text.h"

#include <algorithm>

namespace kairos {

void MarkedText::Append(std::string_view text, TextSource source) {
  if (text.empty()) return;
  text_.append(text);
  if (!runs_.empty() && runs_.back().source == source) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size(), source});
  }
}

void MarkedText::Append(const MarkedText& other) { AppendSlice(other, 0, other.size()); }

void MarkedText::AppendSlice(const MarkedText& other, size_t begin, size_t end) {
  if (begin >= end) return;
  for (size_t run = other.RunAt(begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    Append(std::string_view(other.text_).substr(begin, stop - begin), other.runs_[run].source);
    begin = stop;
  }
}

size_t MarkedText::RunAt(size_t at) const {
  const auto it = std::upper_bound(runs_.begin(), runs_.end(), at,
                                   [](size_t value, const Run& run) { return value < run.end; });
  return static_cast<size_t>(it - runs_.begin());
}

void MarkedText::Extent(TextSource source, size_t* begin, size_t* end) const {
  *begin = 0;
  *end = 0;
  size_t start = 0;
  for (const Run& run : runs_) {
    if (run.source == source) {
      if (*end == 0) *begin = start;
      *end = run.end;
    }
    start = run.end;
  }
}

}  // namespace kairos
