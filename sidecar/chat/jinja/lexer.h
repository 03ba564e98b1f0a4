// SPDX-License-Identifier: Apache-2.0
// Template source to tokens. White space follows trim_blocks and lstrip_blocks, both on, as model
// templates assume. Linear in the source; no recursion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kairos {

enum class JinjaTokenKind : uint8_t {
  kData,
  kStatementBegin,
  kStatementEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd,
};

struct JinjaToken {
  JinjaTokenKind kind = JinjaTokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // data, name, operator, or the decoded string
  int64_t integer = 0;
  double real = 0;
};

// False with *error ("line N: ...") when the source cannot be read. The last token is kEnd.
bool LexJinja(std::string_view source, std::vector<JinjaToken>* tokens, std::string* error);

}  // namespace kairos
