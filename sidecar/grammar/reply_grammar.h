// SPDX-License-Identifier: Apache-2.0
// Writes the grammar of a whole reply: which tool calls it may hold, in the format that its family
// of models is taught, and what its text must match.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sidecar/chat/wire_format.h"

namespace kairos {

// Numbers of kairos.h.
enum class ToolChoice : int32_t {
  kAuto = 0,      // text and calls as the model likes; a call that it begins is a valid one
  kNone = 1,      // text only
  kRequired = 2,  // one call or more
  kNamed = 3,     // exactly one call of the tool named
  kFree = 4,      // nothing is enforced
};
enum class ConstraintKind : int32_t { kNone = 0, kJsonSchema = 1, kRegex = 2, kLark = 3 };

struct ReplyRules {
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;  // of kNamed
  bool one_call = false;  // at most
  bool in_reasoning = false;  // the prompt ends inside the reasoning that it opens
  ConstraintKind kind = ConstraintKind::kNone;
  std::string constraint;  // what the text must match
};

// Limits of what is enforced.
inline constexpr size_t kConstrainedToolsMax = 128;
inline constexpr int kReplyCallsMax = 8;  // of one reply

// What a marker of the format is in the model's vocabulary.
enum class MarkerKind : int32_t { kText, kToken, kControlToken };
using MarkerKindOf = std::function<MarkerKind(std::string_view marker)>;

struct ReplyGrammar {
  std::string grammar;  // for GrammarCompiler; empty where nothing is to be enforced
  bool is_prose = false;  // it may end anywhere, so there is no end to be sought
  // What clients wrote of it, each as a grammar of its own: tells whose fault a refusal is.
  struct Part {
    std::string label;  // "constraint", or the tool in words
    std::string grammar;
  };
  std::vector<Part> parts;
};

// `tools_json` is the JSON array of function schemas, or empty. INVALID_ARGUMENT names the tool or
// field in *error; UNIMPLEMENTED where the format cannot be enforced. Pure; any thread.
Result<ReplyGrammar> WriteReplyGrammar(const WireFormat& format, const ReplyRules& rules,
                                       std::string_view tools_json, const MarkerKindOf& kind_of,
                                       std::string* error);

}  // namespace kairos
