// SPDX-License-Identifier: Apache-2.0
// TextStream. The result depends on the bytes alone, not on how tokens cut them: a stop string
// counts at the byte that completes it, and of two completed by the same byte the longer cuts.
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "sidecar/chat/tokenizer.h"

namespace kairos {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
                       std::span<const TokenId> markers)
    : tokenizer_(tokenizer), markers_(markers) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    Stop stop{std::move(text), {}, 0};
    stop.borders.assign(stop.text.size(), 0);
    for (size_t i = 1, border = 0; i < stop.text.size(); ++i) {
      while (border > 0 && stop.text[i] != stop.text[border]) border = stop.borders[border - 1];
      if (stop.text[i] == stop.text[border]) ++border;
      stop.borders[i] = border;
    }
    stops_.push_back(std::move(stop));
  }
}

std::string TextStream::Push(TokenId token) {
  if (stopped_) return {};
  const bool is_marker = std::find(markers_.begin(), markers_.end(), token) != markers_.end();
  undecoded_ += tokenizer_.TokenBytes(token, is_marker);
  return Drain(false);
}

std::string TextStream::Finish() { return stopped_ ? std::string() : Drain(true); }

// Whole characters move from `undecoded_` to `pending_`, then all of that which no stop string can
// begin in is returned.
std::string TextStream::Drain(bool final) {
  size_t used = 0;
  while (used < undecoded_.size() && !stopped_) {
    const Utf8Character character = DecodeUtf8(undecoded_, used);
    if (character.state == Utf8State::kIncomplete && !final) break;
    if (character.state == Utf8State::kValid) {
      Append(std::string_view(undecoded_).substr(used, character.length));
    } else {
      Append("\xEF\xBF\xBD");
    }
    used += character.length;
  }
  undecoded_.erase(0, used);
  size_t held = 0;
  if (!stopped_ && !final) {
    for (const Stop& stop : stops_) held = std::max(held, stop.matched);
  }
  const size_t certain = pending_.size() - held;
  std::string text = pending_.substr(0, certain);
  pending_.erase(0, certain);
  if (stopped_) undecoded_.clear();
  return text;
}

void TextStream::Append(std::string_view character) {
  for (const char byte : character) {
    pending_ += byte;
    size_t cut = 0;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && stop.text[stop.matched] != byte) {
        stop.matched = stop.borders[stop.matched - 1];
      }
      if (stop.text[stop.matched] == byte) ++stop.matched;
      if (stop.matched == stop.text.size()) cut = std::max(cut, stop.matched);
    }
    if (cut == 0) continue;
    pending_.resize(pending_.size() - cut);
    stopped_ = true;
    return;
  }
}

}  // namespace kairos
