// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "sidecar/chat/jinja/expression_parser.h"

namespace kairos {

namespace {

class Parser {
 public:
  explicit Parser(std::vector<JinjaToken> tokens)
      : stream_(std::move(tokens)), expressions_(stream_) {}

  bool Run(JinjaBody* body, std::string* error) {
    std::string end;
    if (ParseBody(body, {}, &end)) return true;
    *error = stream_.error();
    return false;
  }

 private:
  // Statements until one of `ends` (consumed up to its name), or the template's end when empty.
  bool ParseBody(JinjaBody* body, std::initializer_list<const char*> ends, std::string* end) {
    const JinjaTokenStream::Nesting nesting(stream_);
    while (!stream_.failed()) {
      switch (stream_.Peek().kind) {
        case JinjaTokenKind::kData: {
          JinjaNodePtr node = stream_.Make(JinjaNodeKind::kData);
          node->literal.marked.Append(stream_.Next().text, kTemplateSource);
          body->push_back(std::move(node));
          break;
        }
        case JinjaTokenKind::kPrintBegin:
          if (!ParsePrint(body)) return false;
          break;
        case JinjaTokenKind::kStatementBegin: {
          stream_.Next();
          std::string name;
          if (!stream_.ExpectName(&name)) return false;
          for (const char* candidate : ends) {
            if (name == candidate) {
              *end = name;
              return true;
            }
          }
          if (!ParseStatement(name, body)) return false;
          break;
        }
        default:
          if (ends.size() == 0) return true;
          return stream_.Fail("expected '" + std::string(*(ends.end() - 1)) + "', found " +
                              stream_.Describe());
      }
    }
    return false;
  }

  bool ExpectTagEnd() {
    if (stream_.At(JinjaTokenKind::kStatementEnd)) {
      stream_.Next();
      return true;
    }
    return stream_.Fail("expected '%}', found " + stream_.Describe());
  }

  // A body that ends with `end_name`, its closing tag consumed.
  bool ParseEnclosed(JinjaNode* node, const char* end_name) {
    std::string end;
    return ExpectTagEnd() && ParseBody(&node->body, {end_name}, &end) && ExpectTagEnd() &&
           Measure(node);
  }

  bool Measure(JinjaNode* node) {
    uint32_t depth = 0;
    for (const JinjaNodePtr& kid : node->body) depth = std::max(depth, kid->depth);
    for (const JinjaNodePtr& kid : node->otherwise) depth = std::max(depth, kid->depth);
    for (const JinjaParameter& parameter : node->parameters) {
      if (parameter.value != nullptr) depth = std::max(depth, parameter.value->depth);
    }
    return stream_.Deepen(node, depth);
  }

  bool ParsePrint(JinjaBody* body) {
    stream_.Next();
    JinjaNodePtr node = stream_.Make(JinjaNodeKind::kPrint);
    JinjaNodePtr value = expressions_.ParseTuple();
    if (value == nullptr || !stream_.Adopt(node.get(), std::move(value))) return false;
    if (!stream_.At(JinjaTokenKind::kPrintEnd)) {
      return stream_.Fail("expected '}}', found " + stream_.Describe());
    }
    stream_.Next();
    body->push_back(std::move(node));
    return true;
  }

  bool ParseStatement(const std::string& name, JinjaBody* body) {
    struct Entry {
      const char* name;
      bool (Parser::*parse)(JinjaNode*);
    };
    static constexpr Entry kStatements[] = {
        {"if", &Parser::ParseIf},          {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock}, {"filter", &Parser::ParseFilterBlock},
        {"break", &Parser::ParseBreak},    {"continue", &Parser::ParseContinue},
        {"with", &Parser::ParseWith},      {"generation", &Parser::ParseGeneration},
    };
    JinjaNodePtr node = stream_.Make(JinjaNodeKind::kScope);
    for (const Entry& entry : kStatements) {
      if (name != entry.name) continue;
      if (!(this->*entry.parse)(node.get())) return false;
      body->push_back(std::move(node));
      return true;
    }
    return stream_.Fail("unknown tag '" + name.substr(0, 40) + "'");
  }

  // elif chains nest in `otherwise`; each level is one tree level, so they are bounded too.
  bool ParseIf(JinjaNode* node) {
    const JinjaTokenStream::Nesting nesting(stream_);
    node->kind = JinjaNodeKind::kIf;
    JinjaNodePtr test = expressions_.ParseTuple(false);
    if (test == nullptr || !stream_.Adopt(node, std::move(test)) || !ExpectTagEnd()) return false;
    std::string end;
    if (!ParseBody(&node->body, {"elif", "else", "endif"}, &end)) return false;
    if (end == "elif") {
      JinjaNodePtr chained = stream_.Make(JinjaNodeKind::kIf);
      if (!ParseIf(chained.get())) return false;
      node->otherwise.push_back(std::move(chained));
      return Measure(node);
    }
    if (end == "else") {
      if (!ExpectTagEnd() || !ParseBody(&node->otherwise, {"endif"}, &end)) return false;
    }
    return ExpectTagEnd() && Measure(node);
  }

  bool ParseFor(JinjaNode* node) {
    node->kind = JinjaNodeKind::kFor;
    node->target = expressions_.ParseTarget(false);
    if (node->target == nullptr) return false;
    if (!stream_.SkipName("in")) return stream_.Fail("expected 'in', found " + stream_.Describe());
    JinjaNodePtr items = expressions_.ParseTuple(false);
    if (items == nullptr || !stream_.Adopt(node, std::move(items))) return false;
    JinjaNodePtr filter;
    if (stream_.SkipName("if")) {
      filter = expressions_.Parse();
      if (filter == nullptr) return false;
    }
    if (!stream_.Adopt(node, std::move(filter))) return false;
    node->recursive = stream_.SkipName("recursive");
    std::string end;
    ++loops_;
    const bool parsed = ExpectTagEnd() && ParseBody(&node->body, {"else", "endfor"}, &end);
    --loops_;
    if (!parsed) return false;
    if (end == "else") {
      if (!ExpectTagEnd() || !ParseBody(&node->otherwise, {"endfor"}, &end)) return false;
    }
    return ExpectTagEnd() && Measure(node);
  }

  bool ParseSet(JinjaNode* node) {
    node->target = expressions_.ParseTarget(true);
    if (node->target == nullptr) return false;
    if (stream_.SkipOperator("=")) {
      node->kind = JinjaNodeKind::kSet;
      JinjaNodePtr value = expressions_.ParseTuple();
      return value != nullptr && stream_.Adopt(node, std::move(value)) && ExpectTagEnd();
    }
    node->kind = JinjaNodeKind::kSetBlock;
    JinjaNodePtr filters = expressions_.ParseFilters(nullptr, false);
    if (stream_.failed() || !stream_.Adopt(node, std::move(filters))) return false;
    return ParseEnclosed(node, "endset");
  }

  bool ParseParameters(JinjaNode* node) {
    if (!stream_.ExpectOperator("(")) return false;
    while (!stream_.AtOperator(")")) {
      JinjaParameter parameter;
      if (!stream_.ExpectName(&parameter.name)) return false;
      if (stream_.SkipOperator("=")) {
        parameter.value = expressions_.Parse();
        if (parameter.value == nullptr) return false;
      } else if (!node->parameters.empty() && node->parameters.back().value != nullptr) {
        return stream_.Fail("parameter without a default after one with a default");
      }
      node->parameters.push_back(std::move(parameter));
      if (!stream_.SkipOperator(",")) break;
    }
    return stream_.ExpectOperator(")");
  }

  bool ParseMacroBody(JinjaNode* node, const char* end) {
    JinjaNode* const outer = expressions_.macro;
    const int loops = loops_;
    expressions_.macro = node;
    loops_ = 0;
    const bool parsed = ParseEnclosed(node, end);
    expressions_.macro = outer;
    loops_ = loops;
    return parsed;
  }

  bool ParseMacro(JinjaNode* node) {
    node->kind = JinjaNodeKind::kMacro;
    return stream_.ExpectName(&node->text) && ParseParameters(node) &&
           ParseMacroBody(node, "endmacro");
  }

  bool ParseCallBlock(JinjaNode* node) {
    node->kind = JinjaNodeKind::kCallBlock;
    node->text = "caller";
    if (stream_.AtOperator("(") && !ParseParameters(node)) return false;
    JinjaNodePtr call = expressions_.Parse();
    if (call == nullptr) return false;
    if (call->kind != JinjaNodeKind::kCall) return stream_.Fail("expected a call after 'call'");
    return stream_.Adopt(node, std::move(call)) && ParseMacroBody(node, "endcall");
  }

  bool ParseFilterBlock(JinjaNode* node) {
    node->kind = JinjaNodeKind::kFilterBlock;
    JinjaNodePtr filters = expressions_.ParseFilters(nullptr, true);
    return filters != nullptr && stream_.Adopt(node, std::move(filters)) &&
           ParseEnclosed(node, "endfilter");
  }

  bool ParseWith(JinjaNode* node) {
    node->kind = JinjaNodeKind::kWith;
    while (!stream_.At(JinjaTokenKind::kStatementEnd)) {
      JinjaParameter parameter;
      if (!stream_.ExpectName(&parameter.name) || !stream_.ExpectOperator("=")) return false;
      parameter.value = expressions_.Parse();
      if (parameter.value == nullptr) return false;
      node->parameters.push_back(std::move(parameter));
      if (!stream_.SkipOperator(",")) break;
    }
    return ParseEnclosed(node, "endwith");
  }

  // Marks what the assistant wrote, for training; here only its scope matters.
  bool ParseGeneration(JinjaNode* node) {
    node->kind = JinjaNodeKind::kScope;
    return ParseEnclosed(node, "endgeneration");
  }

  bool ParseBreak(JinjaNode* node) { return ParseJump(node, JinjaNodeKind::kBreak); }
  bool ParseContinue(JinjaNode* node) { return ParseJump(node, JinjaNodeKind::kContinue); }
  bool ParseJump(JinjaNode* node, JinjaNodeKind kind) {
    if (loops_ == 0) return stream_.Fail("break or continue outside a loop");
    node->kind = kind;
    return ExpectTagEnd();
  }

  JinjaTokenStream stream_;
  JinjaExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

bool ParseJinja(std::string_view source, JinjaBody* body, std::string* error) {
  std::vector<JinjaToken> tokens;
  if (!LexJinja(source, &tokens, error)) return false;
  return Parser(std::move(tokens)).Run(body, error);
}

}  // namespace kairos
