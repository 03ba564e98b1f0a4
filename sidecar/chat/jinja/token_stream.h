// SPDX-License-Identifier: Apache-2.0
// The parser's view of the tokens: look-ahead, expectations, nesting limit, first error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidecar/chat/jinja/lexer.h"
#include "sidecar/chat/jinja/syntax_tree.h"

namespace kairos {

inline constexpr uint32_t kJinjaNestingMax = 120;  // parser recursion
inline constexpr uint32_t kJinjaTreeDepthMax =
    250;  // long chains make deep trees without recursion

class JinjaTokenStream {
 public:
  explicit JinjaTokenStream(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  const JinjaToken& Peek(size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  const JinjaToken& Next() {
    const JinjaToken& token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool At(JinjaTokenKind kind) const { return Peek().kind == kind; }
  bool AtOperator(std::string_view op) const {
    return At(JinjaTokenKind::kOperator) && Peek().text == op;
  }
  bool AtName(std::string_view name, size_t ahead = 0) const {
    return Peek(ahead).kind == JinjaTokenKind::kName && Peek(ahead).text == name;
  }
  bool SkipOperator(std::string_view op) {
    if (!AtOperator(op)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!AtName(name)) return false;
    Next();
    return true;
  }
  bool ExpectOperator(std::string_view op) {
    if (SkipOperator(op)) return true;
    return Fail("expected '" + std::string(op) + "', found " + Describe());
  }
  bool ExpectName(std::string* name) {
    if (!At(JinjaTokenKind::kName)) return Fail("expected a name, found " + Describe());
    *name = Next().text;
    return true;
  }
  std::string Describe() const {
    switch (Peek().kind) {
      case JinjaTokenKind::kEnd:
        return "the end of the template";
      case JinjaTokenKind::kStatementEnd:
        return "'%}'";
      case JinjaTokenKind::kPrintEnd:
        return "'}}'";
      case JinjaTokenKind::kString:
        return "a string";
      case JinjaTokenKind::kData:
        return "text";
      default:
        return "'" + Peek().text.substr(0, 40) + "'";
    }
  }
  // Always false; the first reason is kept.
  bool Fail(const std::string& reason) {
    if (error_.empty()) error_ = "line " + std::to_string(Peek().line) + ": " + reason;
    return false;
  }
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

  JinjaNodePtr Make(JinjaNodeKind kind) const {
    auto node = std::make_unique<JinjaNode>();
    node->kind = kind;
    node->line = Peek().line;
    return node;
  }
  // Takes `child` into `parent`'s operands; null children are allowed and kept as null.
  bool Adopt(JinjaNode* parent, JinjaNodePtr child) {
    const uint32_t depth = child == nullptr ? 0 : child->depth;
    parent->kids.push_back(std::move(child));
    return Deepen(parent, depth);
  }
  bool Deepen(JinjaNode* parent, uint32_t child_depth) {
    if (child_depth + 1 > parent->depth) parent->depth = child_depth + 1;
    if (parent->depth <= kJinjaTreeDepthMax) return true;
    return Fail("nested deeper than " + std::to_string(kJinjaTreeDepthMax) + " levels");
  }

  class Nesting {
   public:
    explicit Nesting(JinjaTokenStream& stream) : stream_(stream) {
      if (++stream_.nesting_ > kJinjaNestingMax) {
        stream_.Fail("nested deeper than " + std::to_string(kJinjaNestingMax) + " levels");
      }
    }
    ~Nesting() { --stream_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    JinjaTokenStream& stream_;
  };

 private:
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  uint32_t nesting_ = 0;
  std::string error_;
};

}  // namespace kairos
