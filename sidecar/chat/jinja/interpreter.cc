// SPDX-License-Identifier: Apache-2.0
// Statements, macros and loops. Expressions are in evaluator.cc.
#include "sidecar/chat/jinja/interpreter.h"

#include "base/check.h"
#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/depth_guard.h"
#include "sidecar/chat/jinja/operators.h"
#include "sidecar/chat/jinja/printer.h"

namespace kairos {

bool JinjaInterpreter::Run(const JinjaBody& body, const JinjaVariables& variables,
                           MarkedText* out) {
  JinjaScope* scope = NewScope(nullptr);
  for (const auto& [name, value] : variables) scope->Set(name, value);
  out_ = out;
  ExecuteBody(body, scope);
  out_ = nullptr;
  return !heap_.failed();
}

JinjaScope* JinjaInterpreter::NewScope(JinjaScope* parent) {
  JinjaScope* scope = heap_.New<JinjaScope>();
  scope->parent = parent;
  return scope;
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteBody(const JinjaBody& body, JinjaScope* scope) {
  const DepthGuard guard(*this);
  for (const JinjaNodePtr& node : body) {
    if (heap_.failed()) return Flow::kNext;
    const Flow flow = Execute(*node, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

JinjaInterpreter::Flow JinjaInterpreter::Execute(const JinjaNode& node, JinjaScope* scope) {
  if (!heap_.Step()) return Flow::kNext;
  heap_.set_line(node.line);
  switch (node.kind) {
    case JinjaNodeKind::kData:
      Emit(JinjaValue::Of(&node.literal));
      break;
    case JinjaNodeKind::kPrint:
      Emit(Evaluate(*node.kids[0], scope));
      break;
    case JinjaNodeKind::kIf:
      return ExecuteBody(IsTrue(Evaluate(*node.kids[0], scope)) ? node.body : node.otherwise,
                         scope);
    case JinjaNodeKind::kFor:
      return ExecuteFor(node, scope, Evaluate(*node.kids[0], scope), 1);
    case JinjaNodeKind::kSet:
      Assign(*node.target, Evaluate(*node.kids[0], scope), scope);
      break;
    case JinjaNodeKind::kSetBlock:
      ExecuteSetBlock(node, scope);
      break;
    case JinjaNodeKind::kMacro: {
      JinjaCallable* macro = heap_.New<JinjaCallable>();
      macro->macro = &node;
      macro->scope = scope;
      scope->Set(node.text, JinjaValue::Of(macro));
      break;
    }
    case JinjaNodeKind::kCallBlock:
      ExecuteCallBlock(node, scope);
      break;
    case JinjaNodeKind::kFilterBlock: {
      const JinjaValue text = Capture(node.body, NewScope(scope));
      const JinjaValue* outer = captured_;
      captured_ = &text;
      Emit(Evaluate(*node.kids[0], scope));
      captured_ = outer;
      break;
    }
    case JinjaNodeKind::kWith:
      ExecuteWith(node, scope);
      break;
    case JinjaNodeKind::kScope:
      return ExecuteBody(node.body, NewScope(scope));
    case JinjaNodeKind::kBreak:
      return Flow::kBreak;
    case JinjaNodeKind::kContinue:
      return Flow::kContinue;
    default:
      KAIROS_CHECK(false);
  }
  return Flow::kNext;
}

void JinjaInterpreter::Emit(const JinjaValue& value) {
  if (heap_.failed()) return;
  AppendString(heap_, value, out_);
  if (out_->size() > heap_.limits().output_bytes) {
    heap_.Fail("printed more than " + std::to_string(heap_.limits().output_bytes) + " bytes");
  }
}

JinjaValue JinjaInterpreter::Capture(const JinjaBody& body, JinjaScope* scope) {
  MarkedText text;
  MarkedText* const outer = out_;
  out_ = &text;
  ExecuteBody(body, scope);
  out_ = outer;
  return MakeText(heap_, std::move(text));
}

void JinjaInterpreter::ExecuteSetBlock(const JinjaNode& node, JinjaScope* scope) {
  JinjaValue value = Capture(node.body, NewScope(scope));
  if (node.kids[0] != nullptr) {
    const JinjaValue text = value;
    const JinjaValue* outer = captured_;
    captured_ = &text;
    value = Evaluate(*node.kids[0], scope);
    captured_ = outer;
  }
  Assign(*node.target, value, scope);
}

void JinjaInterpreter::ExecuteCallBlock(const JinjaNode& node, JinjaScope* scope) {
  JinjaCallable* caller = heap_.New<JinjaCallable>();
  caller->macro = &node;
  caller->scope = scope;
  const JinjaNode& call = *node.kids[0];
  const JinjaValue callee = Evaluate(*call.kids[0], scope);
  JinjaArguments arguments = EvaluateArguments(call, scope);
  arguments.named.emplace_back("caller", JinjaValue::Of(caller));
  Emit(Call(callee, arguments));
}

void JinjaInterpreter::ExecuteWith(const JinjaNode& node, JinjaScope* scope) {
  JinjaScope* inner = NewScope(scope);
  for (const JinjaParameter& parameter : node.parameters) {
    inner->Set(parameter.name, Evaluate(*parameter.value, scope));
  }
  ExecuteBody(node.body, inner);
}

void JinjaInterpreter::Assign(const JinjaNode& target, const JinjaValue& value, JinjaScope* scope) {
  if (heap_.failed()) return;
  if (target.kind == JinjaNodeKind::kName) {
    heap_.Allocate(sizeof(JinjaValue) * 2);
    scope->Set(target.text, value);
    return;
  }
  if (target.kind == JinjaNodeKind::kAttribute) {
    const JinjaValue* object = scope->Find(target.kids[0]->text);
    if (object == nullptr || !object->Is(JinjaKind::kNamespace)) {
      heap_.Fail("cannot assign attribute on a non-namespace object");
      return;
    }
    JinjaValue* member = object->space->Find(target.text);
    heap_.Allocate(64);
    if (member != nullptr) {
      *member = value;
    } else {
      object->space->members.emplace_back(target.text, value);
    }
    return;
  }
  const std::vector<JinjaValue>& items = *IterateValue(heap_, value);
  if (heap_.failed()) return;
  if (items.size() != target.kids.size()) {
    heap_.Fail("expected " + std::to_string(target.kids.size()) + " values to unpack, got " +
               std::to_string(items.size()));
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.kids[i], items[i], scope);
}

const std::vector<JinjaValue>* JinjaInterpreter::FilterItems(const JinjaNode& node,
                                                             JinjaScope* scope,
                                                             const std::vector<JinjaValue>* items) {
  if (node.kids[1] == nullptr) return items;
  JinjaList* kept = MakeList(heap_, JinjaListForm::kList);
  JinjaScope* inner = NewScope(scope);
  for (const JinjaValue& item : *items) {
    if (!heap_.Allocate(sizeof(JinjaValue))) break;
    inner->variables.clear();
    Assign(*node.target, item, inner);
    if (IsTrue(Evaluate(*node.kids[1], inner))) kept->items.push_back(item);
  }
  return &kept->items;
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteFor(const JinjaNode& node, JinjaScope* scope,
                                                    const JinjaValue& iterable, uint32_t depth) {
  const std::vector<JinjaValue>* items = IterateValue(heap_, iterable);
  items = FilterItems(node, scope, items);
  if (heap_.failed()) return Flow::kNext;
  if (items->empty()) return ExecuteBody(node.otherwise, NewScope(scope));
  JinjaLoop* loop = heap_.New<JinjaLoop>();
  loop->items = items;
  loop->depth = depth;
  loop->recursive = node.recursive ? &node : nullptr;
  loop->scope = scope;
  for (loop->index = 0; loop->index < items->size(); ++loop->index) {
    JinjaScope* inner = NewScope(scope);  // a new one each time: a macro may keep it
    Assign(*node.target, (*items)[loop->index], inner);
    inner->Set("loop", JinjaValue::Of(loop));
    if (heap_.failed()) break;
    if (ExecuteBody(node.body, inner) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

JinjaValue JinjaInterpreter::Call(const JinjaValue& callee, const JinjaArguments& arguments) {
  const DepthGuard guard(*this);
  if (!heap_.Step()) return {};
  switch (callee.kind) {
    case JinjaKind::kCallable:
      if (callee.callable->macro != nullptr) return CallMacro(*callee.callable, arguments);
      return callee.callable->function(*this, callee.callable->self, arguments);
    case JinjaKind::kLoop:
      return CallLoop(callee.loop, arguments);
    case JinjaKind::kUndefined:
      FailUndefined(heap_, callee);
      return {};
    default:
      heap_.Fail(std::string("'") + TypeName(callee) + "' object is not callable");
      return {};
  }
}

bool JinjaInterpreter::BindParameters(const JinjaCallable& macro, const JinjaArguments& arguments,
                                      JinjaScope* scope) {
  const JinjaNode& node = *macro.macro;
  JinjaList* varargs = MakeList(heap_, JinjaListForm::kTuple);
  JinjaDict* kwargs = heap_.New<JinjaDict>();
  const size_t count = node.parameters.size();
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < count) {
      scope->Set(node.parameters[i].name, arguments.positional[i]);
    } else {
      varargs->items.push_back(arguments.positional[i]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    const JinjaParameter* found = nullptr;
    for (const JinjaParameter& parameter : node.parameters) {
      if (parameter.name == name) found = &parameter;
    }
    if (found != nullptr) {
      scope->Set(found->name, value);
    } else if (name == "caller") {
      scope->Set("caller", value);
    } else if (node.takes_kwargs) {
      SetEntry(heap_, kwargs, MakeText(heap_, name), value);
    } else {
      heap_.Fail("macro '" + node.text + "' takes no argument '" + name + "'");
    }
  }
  if (!varargs->items.empty() && !node.takes_varargs) {
    heap_.Fail("macro '" + node.text + "' takes at most " + std::to_string(count) + " arguments");
  }
  if (node.takes_varargs) scope->Set("varargs", JinjaValue::Of(varargs));
  if (node.takes_kwargs) scope->Set("kwargs", JinjaValue::Of(kwargs));
  return !heap_.failed();
}

JinjaValue JinjaInterpreter::CallMacro(const JinjaCallable& macro,
                                       const JinjaArguments& arguments) {
  JinjaScope* scope = NewScope(macro.scope);
  if (!BindParameters(macro, arguments, scope)) return {};
  for (const JinjaParameter& parameter : macro.macro->parameters) {
    bool bound = false;
    for (const auto& [name, value] : scope->variables) bound = bound || name == parameter.name;
    if (bound) continue;
    JinjaValue value;
    value.hint = &parameter.name;
    if (parameter.value != nullptr) value = Evaluate(*parameter.value, scope);
    scope->Set(parameter.name, value);
  }
  return Capture(macro.macro->body, scope);
}

JinjaValue JinjaInterpreter::CallLoop(JinjaLoop* loop, const JinjaArguments& arguments) {
  if (loop->recursive == nullptr || arguments.positional.size() != 1) {
    heap_.Fail("only a recursive loop can be called, with what to loop over");
    return {};
  }
  MarkedText text;
  MarkedText* const outer = out_;
  out_ = &text;
  ExecuteFor(*loop->recursive, loop->scope, arguments.positional[0], loop->depth + 1);
  out_ = outer;
  return MakeText(heap_, std::move(text));
}

}  // namespace kairos
