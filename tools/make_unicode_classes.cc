// SPDX-License-Identifier: Apache-2.0
// Writes the tables of sidecar/chat/unicode_classes.h from libutf8proc; the build runs it.
// Usage: make_unicode_classes OUTPUT.cc
#include <utf8proc.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "sidecar/chat/unicode_classes.h"

namespace kairos {
namespace {

constexpr uint32_t kPageSize = 1u << kUnicodePageBits;
using Page = std::array<uint8_t, kPageSize>;

// libutf8proc has no White_Space property. By the standard it is the separators (Zs, Zl, Zp) plus
// six control characters.
bool IsWhiteSpace(uint32_t code_point, utf8proc_category_t category) {
  return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x85 ||
         category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

CharacterClass Classify(uint32_t code_point) {
  const utf8proc_category_t category =
      utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  if (IsWhiteSpace(code_point, category)) return CharacterClass::kSpace;
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) {
    return CharacterClass::kLetter;
  }
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) {
    return CharacterClass::kNumber;
  }
  return CharacterClass::kOther;
}

void WriteRow(std::FILE* out, const uint8_t* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    std::fprintf(out, i % 32 == 31 || i + 1 == count ? "%u,\n" : "%u,", values[i]);
  }
}

int Write(const char* path) {
  std::map<Page, uint8_t> numbers;
  std::vector<Page> pages;
  std::vector<uint8_t> page_of;
  for (uint32_t start = 0; start < kCodePointLimit; start += kPageSize) {
    Page page;
    for (uint32_t i = 0; i < kPageSize; ++i) page[i] = static_cast<uint8_t>(Classify(start + i));
    const auto [found, added] = numbers.emplace(page, static_cast<uint8_t>(pages.size()));
    if (added) pages.push_back(page);
    page_of.push_back(found->second);
  }
  if (pages.size() > 256) {
    std::fprintf(stderr, "make_unicode_classes: %zu pages, the limit is 256\n", pages.size());
    return 1;
  }
  std::FILE* out = std::fopen(path, "w");
  if (out == nullptr) {
    std::perror(path);
    return 1;
  }
  std::fprintf(out,
               "// Written by tools/make_unicode_classes.cc.\n"
               "#include \"sidecar/chat/unicode_classes.h\"\n"
               "namespace kairos {\n"
               "const char kUnicodeVersion[] = \"%s\";\n"
               "const uint8_t kUnicodePageOf[kCodePointLimit >> kUnicodePageBits] = {\n",
               utf8proc_unicode_version());
  WriteRow(out, page_of.data(), page_of.size());
  std::fprintf(out, "};\nconst uint8_t kUnicodePages[%zu][1u << kUnicodePageBits] = {\n",
               pages.size());
  for (const Page& page : pages) {
    std::fprintf(out, "{");
    WriteRow(out, page.data(), page.size());
    std::fprintf(out, "},\n");
  }
  std::fprintf(out, "};\n}  // namespace kairos\n");
  return std::fclose(out) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kairos

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_unicode_classes OUTPUT.cc\n");
    return 2;
  }
  return kairos::Write(argv[1]);
}
