// SPDX-License-Identifier: Apache-2.0
// Walks a syntax tree with the semantics of jinja2's immutable sandbox: values cannot be changed,
// names with effects do not exist, every step and byte is charged to the heap. One rendering, one
// thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "sidecar/chat/jinja/syntax_tree.h"
#include "sidecar/chat/jinja/value.h"

namespace kairos {

using JinjaVariables = std::vector<std::pair<std::string_view, JinjaValue>>;

class JinjaInterpreter {
 public:
  // now_unix_s is what strftime_now sees (UTC).
  JinjaInterpreter(JinjaHeap& heap, int64_t now_unix_s) : heap_(heap), now_unix_s_(now_unix_s) {}

  // False when the heap has recorded a failure. Names in `variables` must outlive the call.
  bool Run(const JinjaBody& body, const JinjaVariables& variables, MarkedText* out);

  // For built-ins.
  JinjaHeap& heap() { return heap_; }
  int64_t now_unix_s() const { return now_unix_s_; }
  JinjaValue Call(const JinjaValue& callee, const JinjaArguments& arguments);
  JinjaValue ApplyFilter(std::string_view name, const JinjaValue& input,
                         const JinjaArguments& arguments);
  bool ApplyTest(std::string_view name, const JinjaValue& input, const JinjaArguments& arguments);
  // obj.name: methods first, then members. obj[key]: members first, then methods.
  JinjaValue GetAttribute(const JinjaValue& object, const std::string& name);
  JinjaValue GetItem(const JinjaValue& object, const JinjaValue& key);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class DepthGuard;

  Flow ExecuteBody(const JinjaBody& body, JinjaScope* scope);
  Flow Execute(const JinjaNode& node, JinjaScope* scope);
  Flow ExecuteFor(const JinjaNode& node, JinjaScope* scope, const JinjaValue& items,
                  uint32_t depth);
  const std::vector<JinjaValue>* FilterItems(const JinjaNode& node, JinjaScope* scope,
                                             const std::vector<JinjaValue>* items);
  void ExecuteSetBlock(const JinjaNode& node, JinjaScope* scope);
  void ExecuteCallBlock(const JinjaNode& node, JinjaScope* scope);
  void ExecuteWith(const JinjaNode& node, JinjaScope* scope);
  // What a body prints, as a value.
  JinjaValue Capture(const JinjaBody& body, JinjaScope* scope);
  void Emit(const JinjaValue& value);
  void Assign(const JinjaNode& target, const JinjaValue& value, JinjaScope* scope);

  JinjaValue Evaluate(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateName(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateList(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateDict(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateConcat(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateCompare(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateSubscript(const JinjaNode& node, JinjaScope* scope);
  JinjaValue EvaluateFilter(const JinjaNode& node, JinjaScope* scope);
  JinjaArguments EvaluateArguments(const JinjaNode& node, JinjaScope* scope);

  JinjaValue CallMacro(const JinjaCallable& macro, const JinjaArguments& arguments);
  bool BindParameters(const JinjaCallable& macro, const JinjaArguments& arguments,
                      JinjaScope* scope);
  JinjaValue CallLoop(JinjaLoop* loop, const JinjaArguments& arguments);
  JinjaValue LoopMember(JinjaLoop* loop, std::string_view name);
  JinjaValue BindMethod(const JinjaValue& object, std::string_view name);
  JinjaScope* NewScope(JinjaScope* parent);

  JinjaHeap& heap_;
  const int64_t now_unix_s_;
  uint32_t depth_ = 0;
  MarkedText* out_ = nullptr;
  const JinjaValue* captured_ = nullptr;  // input of a filter chain that stands on a block
};

}  // namespace kairos
