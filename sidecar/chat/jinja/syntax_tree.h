// SPDX-License-Identifier: Apache-2.0
// The parsed template: one node type, its meaning by kind. Immutable once parsed; depth is bounded,
// so that walking and destroying it never needs more than a bounded stack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/chat/jinja/value.h"

namespace kairos {

enum class JinjaNodeKind : uint8_t {
  // Expressions. `kids` are operands in source order.
  kText,      // text
  kConstant,  // constant (never a string)
  kName,      // text
  kList,
  kTuple,
  kDict,    // kids: key, value, key, value...
  kUnary,   // text: "not" "-" "+"
  kBinary,  // text: operator
  kConcat,  // kids joined by ~
  kAnd,
  kOr,
  kCompare,    // kids: first, then one per operator; operators
  kCondition,  // kids: test, then, else or null
  kAttribute,  // kids: object; text
  kSubscript,  // kids: object, index
  kSlice,      // kids: start, stop, step, each may be null
  kCall,       // kids: callee; arguments
  kFilter,     // kids: input, or null for the captured block; text; arguments
  kTest,       // kids: input; text; arguments
  // Statements.
  kData,         // text
  kPrint,        // kids: expression
  kIf,           // kids: test; body; otherwise
  kFor,          // target; kids: iterable, filter or null; body; otherwise; recursive
  kSet,          // target; kids: value
  kSetBlock,     // target; kids: filter chain or null; body
  kMacro,        // text; parameters; body
  kCallBlock,    // kids: call; parameters; body
  kFilterBlock,  // kids: filter chain; body
  kWith,         // parameters with values; body
  kScope,        // body in a scope of its own
  kBreak,
  kContinue,
};

struct JinjaNode;
using JinjaNodePtr = std::unique_ptr<JinjaNode>;

struct JinjaArgumentNode {
  enum class Form : uint8_t { kPositional, kKeyword, kStar, kDoubleStar };
  Form form = Form::kPositional;
  std::string keyword;
  JinjaNodePtr value;
};

struct JinjaParameter {
  std::string name;
  JinjaNodePtr value;  // default, or null
};

struct JinjaNode {
  JinjaNodeKind kind = JinjaNodeKind::kData;
  bool recursive = false;
  bool takes_varargs = false;  // kMacro: its body names varargs or kwargs
  bool takes_kwargs = false;
  uint32_t line = 0;
  uint32_t depth = 1;
  std::string text;
  JinjaText literal;  // kText, kData: the text as a value
  JinjaValue constant;
  JinjaNodePtr target;  // kName, kTuple of targets, or kAttribute on a name (namespace member)
  std::vector<std::string> operators;
  std::vector<JinjaNodePtr> kids;
  std::vector<JinjaArgumentNode> arguments;
  std::vector<JinjaParameter> parameters;
  std::vector<JinjaNodePtr> body;
  std::vector<JinjaNodePtr> otherwise;
};

using JinjaBody = std::vector<JinjaNodePtr>;

}  // namespace kairos
