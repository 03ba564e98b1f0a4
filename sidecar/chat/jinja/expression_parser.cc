// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/expression_parser.h"

namespace kairos {

namespace {

JinjaNodePtr OrNull(const JinjaTokenStream& stream, JinjaNodePtr node) {
  return stream.failed() ? nullptr : std::move(node);
}

}  // namespace

JinjaNodePtr JinjaExpressionParser::Join(JinjaNodeKind kind, JinjaNodePtr left,
                                         JinjaNodePtr right) {
  if (left == nullptr || right == nullptr) return nullptr;
  JinjaNodePtr node = stream_.Make(kind);
  if (!stream_.Adopt(node.get(), std::move(left))) return nullptr;
  if (!stream_.Adopt(node.get(), std::move(right))) return nullptr;
  return node;
}

JinjaNodePtr JinjaExpressionParser::Parse(bool conditional) {
  const JinjaTokenStream::Nesting nesting(stream_);
  if (stream_.failed()) return nullptr;
  return conditional ? ParseCondition() : ParseOr();
}

bool JinjaExpressionParser::AtTupleEnd() const {
  return stream_.At(JinjaTokenKind::kStatementEnd) || stream_.At(JinjaTokenKind::kPrintEnd) ||
         stream_.AtOperator(")") || stream_.At(JinjaTokenKind::kEnd);
}

JinjaNodePtr JinjaExpressionParser::ParseTuple(bool conditional) {
  JinjaNodePtr first = Parse(conditional);
  if (first == nullptr || !stream_.AtOperator(",")) return first;
  JinjaNodePtr tuple = stream_.Make(JinjaNodeKind::kTuple);
  if (!stream_.Adopt(tuple.get(), std::move(first))) return nullptr;
  while (stream_.SkipOperator(",")) {
    if (AtTupleEnd()) break;
    JinjaNodePtr item = Parse(conditional);
    if (item == nullptr || !stream_.Adopt(tuple.get(), std::move(item))) return nullptr;
  }
  return tuple;
}

JinjaNodePtr JinjaExpressionParser::ParseTarget(bool allow_member) {
  JinjaNodePtr tuple;
  for (;;) {
    JinjaNodePtr item = stream_.Make(JinjaNodeKind::kName);
    if (stream_.SkipOperator("(")) {
      const JinjaTokenStream::Nesting nesting(stream_);
      if (stream_.failed()) return nullptr;
      item = ParseTarget(false);
      if (item == nullptr || !stream_.ExpectOperator(")")) return nullptr;
    } else if (!stream_.ExpectName(&item->text)) {
      return nullptr;
    } else if (allow_member && stream_.SkipOperator(".")) {
      JinjaNodePtr member = stream_.Make(JinjaNodeKind::kAttribute);
      if (!stream_.ExpectName(&member->text)) return nullptr;
      if (!stream_.Adopt(member.get(), std::move(item))) return nullptr;
      item = std::move(member);
    }
    if (tuple == nullptr && !stream_.AtOperator(",")) return item;
    if (tuple == nullptr) tuple = stream_.Make(JinjaNodeKind::kTuple);
    if (!stream_.Adopt(tuple.get(), std::move(item))) return nullptr;
    if (!stream_.SkipOperator(",")) return tuple;
    if (!stream_.At(JinjaTokenKind::kName) && !stream_.AtOperator("(")) return tuple;
    if (stream_.AtName("in")) return tuple;
  }
}

JinjaNodePtr JinjaExpressionParser::ParseCondition() {
  JinjaNodePtr value = ParseOr();
  while (value != nullptr && stream_.SkipName("if")) {
    JinjaNodePtr test = ParseOr();
    JinjaNodePtr otherwise;
    if (test != nullptr && stream_.SkipName("else")) {
      otherwise = Parse();
      if (otherwise == nullptr) return nullptr;
    }
    JinjaNodePtr node = Join(JinjaNodeKind::kCondition, std::move(test), std::move(value));
    if (node == nullptr || !stream_.Adopt(node.get(), std::move(otherwise))) return nullptr;
    value = std::move(node);
  }
  return value;
}

JinjaNodePtr JinjaExpressionParser::ParseOr() {
  JinjaNodePtr left = ParseAnd();
  while (left != nullptr && stream_.SkipName("or")) {
    left = Join(JinjaNodeKind::kOr, std::move(left), ParseAnd());
  }
  return left;
}

JinjaNodePtr JinjaExpressionParser::ParseAnd() {
  JinjaNodePtr left = ParseNot();
  while (left != nullptr && stream_.SkipName("and")) {
    left = Join(JinjaNodeKind::kAnd, std::move(left), ParseNot());
  }
  return left;
}

JinjaNodePtr JinjaExpressionParser::ParseNot() {
  if (!stream_.AtName("not")) return ParseCompare();
  const JinjaTokenStream::Nesting nesting(stream_);
  if (stream_.failed()) return nullptr;
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kUnary);
  node->text = stream_.Next().text;
  JinjaNodePtr operand = ParseNot();
  if (operand == nullptr || !stream_.Adopt(node.get(), std::move(operand))) return nullptr;
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseCompare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  JinjaNodePtr first = ParseSum();
  JinjaNodePtr node;
  while (first != nullptr || node != nullptr) {
    std::string op;
    for (const std::string_view candidate : kOperators) {
      if (stream_.AtOperator(candidate)) op = candidate;
    }
    if (stream_.AtName("in")) op = "in";
    if (stream_.AtName("not") && stream_.AtName("in", 1)) {
      stream_.Next();
      op = "not in";
    }
    if (op.empty()) break;
    stream_.Next();
    if (node == nullptr) {
      node = stream_.Make(JinjaNodeKind::kCompare);
      if (!stream_.Adopt(node.get(), std::move(first))) return nullptr;
    }
    node->operators.push_back(std::move(op));
    JinjaNodePtr operand = ParseSum();
    if (operand == nullptr || !stream_.Adopt(node.get(), std::move(operand))) return nullptr;
  }
  return node != nullptr ? std::move(node) : std::move(first);
}

JinjaNodePtr JinjaExpressionParser::ParseBinary(std::initializer_list<const char*> operators,
                                                Level next) {
  JinjaNodePtr left = (this->*next)();
  for (;;) {
    const char* found = nullptr;
    for (const char* op : operators) {
      if (stream_.AtOperator(op)) found = op;
    }
    if (left == nullptr || found == nullptr) return left;
    stream_.Next();
    left = Join(JinjaNodeKind::kBinary, std::move(left), (this->*next)());
    if (left != nullptr) left->text = found;
  }
}

JinjaNodePtr JinjaExpressionParser::ParseSum() {
  return ParseBinary({"+", "-"}, &JinjaExpressionParser::ParseConcat);
}

JinjaNodePtr JinjaExpressionParser::ParseConcat() {
  JinjaNodePtr first = ParseProduct();
  if (first == nullptr || !stream_.AtOperator("~")) return first;
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kConcat);
  if (!stream_.Adopt(node.get(), std::move(first))) return nullptr;
  while (stream_.SkipOperator("~")) {
    JinjaNodePtr item = ParseProduct();
    if (item == nullptr || !stream_.Adopt(node.get(), std::move(item))) return nullptr;
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseProduct() {
  return ParseBinary({"*", "/", "//", "%"}, &JinjaExpressionParser::ParsePower);
}

JinjaNodePtr JinjaExpressionParser::ParsePower() {
  return ParseBinary({"**"}, &JinjaExpressionParser::ParseUnary);
}

JinjaNodePtr JinjaExpressionParser::ParseUnary() { return ParseUnaryOperand(true); }

// A sign binds looser than postfix but tighter than filters: -x|abs is (-x)|abs.
JinjaNodePtr JinjaExpressionParser::ParseUnaryOperand(bool with_filters) {
  const JinjaTokenStream::Nesting nesting(stream_);
  if (stream_.failed()) return nullptr;
  JinjaNodePtr node;
  if (stream_.AtOperator("-") || stream_.AtOperator("+")) {
    node = stream_.Make(JinjaNodeKind::kUnary);
    node->text = stream_.Next().text;
    JinjaNodePtr operand = ParseUnaryOperand(false);
    if (operand == nullptr || !stream_.Adopt(node.get(), std::move(operand))) return nullptr;
  } else {
    node = ParsePrimary();
  }
  if (node != nullptr) node = ParsePostfix(std::move(node));
  if (node != nullptr && with_filters) node = ParseFilters(std::move(node), false);
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParsePrimary() {
  const JinjaTokenStream::Nesting nesting(stream_);
  if (stream_.failed()) return nullptr;
  if (stream_.At(JinjaTokenKind::kName)) return ParseNameOrConstant();
  if (stream_.AtOperator("(")) return ParseParenthesized();
  if (stream_.AtOperator("[")) return ParseListLiteral();
  if (stream_.AtOperator("{")) return ParseDictLiteral();
  return ParseLiteral();
}

JinjaNodePtr JinjaExpressionParser::ParseNameOrConstant() {
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kConstant);
  const std::string& name = stream_.Next().text;
  if (name == "true" || name == "True") {
    node->constant = JinjaValue::Bool(true);
  } else if (name == "false" || name == "False") {
    node->constant = JinjaValue::Bool(false);
  } else if (name == "none" || name == "None") {
    node->constant = JinjaValue::None();
  } else {
    node->kind = JinjaNodeKind::kName;
    node->text = name;
    if (macro != nullptr && name == "varargs") macro->takes_varargs = true;
    if (macro != nullptr && name == "kwargs") macro->takes_kwargs = true;
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseLiteral() {
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kConstant);
  if (stream_.At(JinjaTokenKind::kInt)) {
    node->constant = JinjaValue::Int(stream_.Next().integer);
  } else if (stream_.At(JinjaTokenKind::kFloat)) {
    node->constant = JinjaValue::Float(stream_.Next().real);
  } else if (stream_.At(JinjaTokenKind::kString)) {
    node->kind = JinjaNodeKind::kText;
    while (stream_.At(JinjaTokenKind::kString)) node->text += stream_.Next().text;
    node->literal.marked.Append(node->text, kTemplateSource);
  } else {
    stream_.Fail("expected an expression, found " + stream_.Describe());
    return nullptr;
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseParenthesized() {
  stream_.Next();
  if (stream_.SkipOperator(")")) return stream_.Make(JinjaNodeKind::kTuple);
  JinjaNodePtr inner = ParseTuple();
  if (inner == nullptr || !stream_.ExpectOperator(")")) return nullptr;
  return inner;
}

JinjaNodePtr JinjaExpressionParser::ParseListLiteral() {
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kList);
  stream_.Next();
  while (!stream_.AtOperator("]")) {
    JinjaNodePtr item = Parse();
    if (item == nullptr || !stream_.Adopt(node.get(), std::move(item))) return nullptr;
    if (!stream_.SkipOperator(",")) break;
  }
  if (!stream_.ExpectOperator("]")) return nullptr;
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseDictLiteral() {
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kDict);
  stream_.Next();
  while (!stream_.AtOperator("}")) {
    JinjaNodePtr key = Parse();
    if (key == nullptr || !stream_.Adopt(node.get(), std::move(key))) return nullptr;
    if (!stream_.ExpectOperator(":")) return nullptr;
    JinjaNodePtr value = Parse();
    if (value == nullptr || !stream_.Adopt(node.get(), std::move(value))) return nullptr;
    if (!stream_.SkipOperator(",")) break;
  }
  if (!stream_.ExpectOperator("}")) return nullptr;
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParsePostfix(JinjaNodePtr node) {
  while (node != nullptr) {
    if (stream_.AtOperator(".") || stream_.AtOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (stream_.AtOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseSubscript(JinjaNodePtr object) {
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kSubscript);
  if (!stream_.Adopt(node.get(), std::move(object))) return nullptr;
  if (stream_.SkipOperator(".")) {
    if (stream_.At(JinjaTokenKind::kInt)) {
      JinjaNodePtr index = stream_.Make(JinjaNodeKind::kConstant);
      index->constant = JinjaValue::Int(stream_.Next().integer);
      return stream_.Adopt(node.get(), std::move(index)) ? std::move(node) : nullptr;
    }
    node->kind = JinjaNodeKind::kAttribute;
    return stream_.ExpectName(&node->text) ? std::move(node) : nullptr;
  }
  stream_.Next();
  JinjaNodePtr index = ParseIndex();
  if (index == nullptr || !stream_.Adopt(node.get(), std::move(index))) return nullptr;
  if (!stream_.ExpectOperator("]")) return nullptr;
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseIndex() {
  JinjaNodePtr parts[3];
  int part = 0;
  bool slice = false;
  for (;;) {
    if (stream_.AtOperator(":")) {
      if (++part > 2) {
        stream_.Fail("a slice has at most three parts");
        return nullptr;
      }
      slice = true;
      stream_.Next();
    } else if (stream_.AtOperator("]")) {
      break;
    } else {
      if (parts[part] != nullptr) break;
      parts[part] = Parse();
      if (parts[part] == nullptr) return nullptr;
    }
  }
  if (!slice && parts[0] == nullptr) {
    stream_.Fail("empty subscript");
    return nullptr;
  }
  if (!slice) return std::move(parts[0]);
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kSlice);
  for (JinjaNodePtr& p : parts) {
    if (!stream_.Adopt(node.get(), std::move(p))) return nullptr;
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::ParseCall(JinjaNodePtr callee) {
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kCall);
  if (!stream_.Adopt(node.get(), std::move(callee))) return nullptr;
  return ParseArguments(node.get()) ? std::move(node) : nullptr;
}

bool JinjaExpressionParser::ParseArguments(JinjaNode* node) {
  using Form = JinjaArgumentNode::Form;
  if (!stream_.ExpectOperator("(")) return false;
  while (!stream_.AtOperator(")")) {
    JinjaArgumentNode argument;
    if (stream_.SkipOperator("*")) {
      argument.form = Form::kStar;
    } else if (stream_.SkipOperator("**")) {
      argument.form = Form::kDoubleStar;
    } else if (stream_.At(JinjaTokenKind::kName) &&
               stream_.Peek(1).kind == JinjaTokenKind::kOperator && stream_.Peek(1).text == "=") {
      argument.form = Form::kKeyword;
      argument.keyword = stream_.Next().text;
      stream_.Next();
    } else if (!node->arguments.empty() && node->arguments.back().form != Form::kPositional) {
      return stream_.Fail("positional argument after a keyword argument");
    }
    argument.value = Parse();
    if (argument.value == nullptr || !stream_.Deepen(node, argument.value->depth)) return false;
    node->arguments.push_back(std::move(argument));
    if (!stream_.SkipOperator(",")) break;
  }
  return stream_.ExpectOperator(")");
}

JinjaNodePtr JinjaExpressionParser::ParseFilters(JinjaNodePtr input, bool first_without_bar) {
  JinjaNodePtr node = std::move(input);
  while (!stream_.failed()) {
    if (first_without_bar || stream_.SkipOperator("|")) {
      first_without_bar = false;
      JinjaNodePtr filter = stream_.Make(JinjaNodeKind::kFilter);
      if (!stream_.ExpectName(&filter->text)) return nullptr;
      while (stream_.SkipOperator(".")) {
        std::string part;
        if (!stream_.ExpectName(&part)) return nullptr;
        filter->text += "." + part;
      }
      if (!stream_.Adopt(filter.get(), std::move(node))) return nullptr;
      if (stream_.AtOperator("(") && !ParseArguments(filter.get())) return nullptr;
      node = std::move(filter);
    } else if (stream_.AtName("is") && node != nullptr) {
      node = ParseTest(std::move(node));
    } else if (stream_.AtOperator("(") && node != nullptr) {
      node = ParseCall(std::move(node));
    } else {
      break;
    }
  }
  return OrNull(stream_, std::move(node));
}

JinjaNodePtr JinjaExpressionParser::ParseTest(JinjaNodePtr input) {
  stream_.Next();
  const bool negated = stream_.SkipName("not");
  JinjaNodePtr node = stream_.Make(JinjaNodeKind::kTest);
  if (!stream_.Adopt(node.get(), std::move(input))) return nullptr;
  if (!stream_.ExpectName(&node->text)) return nullptr;
  const JinjaTokenKind kind = stream_.Peek().kind;
  if (stream_.AtOperator("(")) {
    if (!ParseArguments(node.get())) return nullptr;
  } else if (kind == JinjaTokenKind::kString || kind == JinjaTokenKind::kInt ||
             kind == JinjaTokenKind::kFloat || stream_.AtOperator("[") || stream_.AtOperator("{") ||
             (kind == JinjaTokenKind::kName && !stream_.AtName("else") && !stream_.AtName("or") &&
              !stream_.AtName("and") && !stream_.AtName("if") && !stream_.AtName("is"))) {
    JinjaArgumentNode argument;
    argument.value = ParsePrimary();
    if (argument.value != nullptr) argument.value = ParsePostfix(std::move(argument.value));
    if (argument.value == nullptr || !stream_.Deepen(node.get(), argument.value->depth)) {
      return nullptr;
    }
    node->arguments.push_back(std::move(argument));
  }
  if (!negated) return node;
  JinjaNodePtr inverse = stream_.Make(JinjaNodeKind::kUnary);
  inverse->text = "not";
  if (!stream_.Adopt(inverse.get(), std::move(node))) return nullptr;
  return inverse;
}

}  // namespace kairos
