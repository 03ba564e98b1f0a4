// SPDX-License-Identifier: Apache-2.0
// Expressions of the template language by recursive descent, loosest binding first:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, then postfix, filters and tests.
// Every function returns null after the stream has recorded a failure.
#pragma once

#include "sidecar/chat/jinja/token_stream.h"

namespace kairos {

class JinjaExpressionParser {
 public:
  explicit JinjaExpressionParser(JinjaTokenStream& stream) : stream_(stream) {}

  // One expression; without `conditional` a following "if" is left alone (loop filters).
  JinjaNodePtr Parse(bool conditional = true);
  // One expression, or several with commas as a tuple.
  JinjaNodePtr ParseTuple(bool conditional = true);
  // name, name.member, or several with commas.
  JinjaNodePtr ParseTarget(bool allow_member);
  // "name(args) | name ..." applied to `input`, which is null for a captured block.
  JinjaNodePtr ParseFilters(JinjaNodePtr input, bool first_without_bar);
  JinjaNodePtr ParsePostfix(JinjaNodePtr node);
  JinjaNodePtr ParsePrimary();

  // Set while a macro body is parsed, to note what it names.
  JinjaNode* macro = nullptr;

 private:
  using Level = JinjaNodePtr (JinjaExpressionParser::*)();
  JinjaNodePtr ParseCondition();
  JinjaNodePtr ParseOr();
  JinjaNodePtr ParseAnd();
  JinjaNodePtr ParseNot();
  JinjaNodePtr ParseCompare();
  JinjaNodePtr ParseSum();
  JinjaNodePtr ParseConcat();
  JinjaNodePtr ParseProduct();
  JinjaNodePtr ParsePower();
  JinjaNodePtr ParseUnary();
  JinjaNodePtr ParseUnaryOperand(bool with_filters);
  JinjaNodePtr ParseBinary(std::initializer_list<const char*> operators, Level next);
  JinjaNodePtr ParseLiteral();
  JinjaNodePtr ParseNameOrConstant();
  JinjaNodePtr ParseParenthesized();
  JinjaNodePtr ParseListLiteral();
  JinjaNodePtr ParseDictLiteral();
  JinjaNodePtr ParseSubscript(JinjaNodePtr object);
  JinjaNodePtr ParseIndex();
  JinjaNodePtr ParseCall(JinjaNodePtr callee);
  JinjaNodePtr ParseTest(JinjaNodePtr input);
  JinjaNodePtr Join(JinjaNodeKind kind, JinjaNodePtr left, JinjaNodePtr right);
  bool ParseArguments(JinjaNode* node);
  bool AtTupleEnd() const;

  JinjaTokenStream& stream_;
};

}  // namespace kairos
