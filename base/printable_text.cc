// SPDX-License-Identifier: Apache-2.0
#include "base/printable_text.h"

#include <cstdint>

#include <fmt/format.h>

#include "base/utf8.h"

namespace kairos {
namespace {

// Controls, what turns the direction of text, separators of lines and paragraphs, and characters
// that show nothing. Joiners (200c, 200d) stay: scripts and emoji need them.
bool IsHidden(uint32_t code) {
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  constexpr Range kHidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                               {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
                               {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
  for (const Range& range : kHidden) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

std::string Escape(uint32_t code) {
  switch (code) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  if (code < 0x80) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

// `line_start` follows a line feed; null where the text has to be one line.
std::string Shown(std::string_view text, const std::string_view* line_start, bool quoted) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Character c = DecodeUtf8(text, i);
    const std::string_view bytes = text.substr(i, c.length);
    i += c.length;
    if (c.state != Utf8State::kValid) {
      for (const char byte : bytes) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<uint8_t>(byte)));
      }
    } else if (line_start != nullptr && c.code_point == '\n') {
      out += '\n';
      out += *line_start;
    } else if (line_start != nullptr && c.code_point == '\t') {
      out += '\t';
    } else if (IsHidden(c.code_point)) {
      out += Escape(c.code_point);
    } else {
      if (quoted && (c.code_point == '"' || c.code_point == '\\')) out += '\\';
      out += bytes;
    }
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) { return Shown(text, nullptr, false); }

std::string PrintableLines(std::string_view text, std::string_view indent) {
  return Shown(text, &indent, false);
}

std::string QuotedText(std::string_view text) { return '"' + Shown(text, nullptr, true) + '"'; }

}  // namespace kairos
