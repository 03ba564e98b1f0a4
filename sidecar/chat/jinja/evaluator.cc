// SPDX-License-Identifier: Apache-2.0
// Expressions of JinjaInterpreter.
#include "base/check.h"
#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/depth_guard.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"
#include "sidecar/chat/jinja/printer.h"

namespace kairos {

namespace {

JinjaValue Missing(const std::string* name) {
  JinjaValue value;
  value.hint = name;
  return value;
}

JinjaValue LoopCycle(JinjaInterpreter& run, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  if (arguments.positional.empty()) {
    run.heap().Fail("loop.cycle needs at least one item");
    return {};
  }
  return arguments.positional[self.loop->index % arguments.positional.size()];
}

JinjaValue LoopChanged(JinjaInterpreter& run, const JinjaValue& self,
                       const JinjaArguments& arguments) {
  JinjaList* now = MakeList(run.heap(), JinjaListForm::kTuple);
  now->items = arguments.positional;
  const JinjaValue value = JinjaValue::Of(now);
  JinjaLoop* loop = self.loop;
  const bool same = loop->has_changed && AreEqual(run.heap(), loop->last_changed, value);
  loop->has_changed = true;
  loop->last_changed = value;
  return JinjaValue::Bool(!same);
}

JinjaValue CyclerNext(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  JinjaCycler* cycler = self.cycler;
  const JinjaValue value = cycler->items[cycler->at];
  cycler->at = (cycler->at + 1) % cycler->items.size();
  return run.heap().failed() ? JinjaValue() : value;
}

JinjaValue CyclerReset(JinjaInterpreter&, const JinjaValue& self, const JinjaArguments&) {
  self.cycler->at = 0;
  return JinjaValue::None();
}

}  // namespace

JinjaValue JinjaInterpreter::Evaluate(const JinjaNode& node, JinjaScope* scope) {
  const DepthGuard guard(*this);
  if (!heap_.Step()) return {};
  switch (node.kind) {
    case JinjaNodeKind::kText:
      return JinjaValue::Of(&node.literal);
    case JinjaNodeKind::kConstant:
      return node.constant;
    case JinjaNodeKind::kName:
      return EvaluateName(node, scope);
    case JinjaNodeKind::kList:
    case JinjaNodeKind::kTuple:
      return EvaluateList(node, scope);
    case JinjaNodeKind::kDict:
      return EvaluateDict(node, scope);
    case JinjaNodeKind::kUnary:
      return ApplyUnary(heap_, node.text, Evaluate(*node.kids[0], scope));
    case JinjaNodeKind::kBinary: {
      const JinjaValue left = Evaluate(*node.kids[0], scope);
      const JinjaValue right = Evaluate(*node.kids[1], scope);
      return heap_.failed() ? JinjaValue() : ApplyBinary(heap_, node.text, left, right);
    }
    case JinjaNodeKind::kConcat:
      return EvaluateConcat(node, scope);
    case JinjaNodeKind::kAnd: {
      const JinjaValue left = Evaluate(*node.kids[0], scope);
      return IsTrue(left) ? Evaluate(*node.kids[1], scope) : left;
    }
    case JinjaNodeKind::kOr: {
      const JinjaValue left = Evaluate(*node.kids[0], scope);
      return IsTrue(left) ? left : Evaluate(*node.kids[1], scope);
    }
    case JinjaNodeKind::kCompare:
      return EvaluateCompare(node, scope);
    case JinjaNodeKind::kCondition: {
      if (IsTrue(Evaluate(*node.kids[0], scope))) return Evaluate(*node.kids[1], scope);
      return node.kids[2] == nullptr ? JinjaValue() : Evaluate(*node.kids[2], scope);
    }
    case JinjaNodeKind::kAttribute:
      return GetAttribute(Evaluate(*node.kids[0], scope), node.text);
    case JinjaNodeKind::kSubscript:
      return EvaluateSubscript(node, scope);
    case JinjaNodeKind::kCall: {
      const JinjaValue callee = Evaluate(*node.kids[0], scope);
      const JinjaArguments arguments = EvaluateArguments(node, scope);
      return heap_.failed() ? JinjaValue() : Call(callee, arguments);
    }
    case JinjaNodeKind::kFilter:
      return EvaluateFilter(node, scope);
    case JinjaNodeKind::kTest: {
      const JinjaValue input = Evaluate(*node.kids[0], scope);
      const JinjaArguments arguments = EvaluateArguments(node, scope);
      return JinjaValue::Bool(!heap_.failed() && ApplyTest(node.text, input, arguments));
    }
    default:
      KAIROS_CHECK(false);
  }
  return {};
}

JinjaValue JinjaInterpreter::EvaluateName(const JinjaNode& node, JinjaScope* scope) {
  const JinjaValue* found = scope->Find(node.text);
  if (found != nullptr) return *found;
  const JinjaFunction function = FindGlobal(node.text);
  if (function == nullptr) return Missing(&node.text);
  JinjaCallable* callable = heap_.New<JinjaCallable>();
  callable->function = function;
  return JinjaValue::Of(callable);
}

JinjaValue JinjaInterpreter::EvaluateList(const JinjaNode& node, JinjaScope* scope) {
  const JinjaListForm form =
      node.kind == JinjaNodeKind::kTuple ? JinjaListForm::kTuple : JinjaListForm::kList;
  JinjaList* list = MakeList(heap_, form, node.kids.size());
  for (const JinjaNodePtr& kid : node.kids) list->items.push_back(Evaluate(*kid, scope));
  return JinjaValue::Of(list);
}

JinjaValue JinjaInterpreter::EvaluateDict(const JinjaNode& node, JinjaScope* scope) {
  JinjaDict* dict = heap_.New<JinjaDict>();
  for (size_t i = 0; i + 1 < node.kids.size() && !heap_.failed(); i += 2) {
    const JinjaValue key = Evaluate(*node.kids[i], scope);
    SetEntry(heap_, dict, key, Evaluate(*node.kids[i + 1], scope));
  }
  return JinjaValue::Of(dict);
}

JinjaValue JinjaInterpreter::EvaluateConcat(const JinjaNode& node, JinjaScope* scope) {
  MarkedText text;
  for (const JinjaNodePtr& kid : node.kids) {
    AppendString(heap_, Evaluate(*kid, scope), &text);
    if (heap_.failed()) return {};
  }
  return MakeText(heap_, std::move(text));
}

JinjaValue JinjaInterpreter::EvaluateCompare(const JinjaNode& node, JinjaScope* scope) {
  JinjaValue left = Evaluate(*node.kids[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    const JinjaValue right = Evaluate(*node.kids[i + 1], scope);
    if (heap_.failed()) return {};
    if (!ApplyComparison(heap_, node.operators[i], left, right)) return JinjaValue::Bool(false);
    left = right;
  }
  return JinjaValue::Bool(true);
}

JinjaValue JinjaInterpreter::EvaluateSubscript(const JinjaNode& node, JinjaScope* scope) {
  const JinjaValue object = Evaluate(*node.kids[0], scope);
  const JinjaNode& index = *node.kids[1];
  if (index.kind != JinjaNodeKind::kSlice) {
    const JinjaValue key = Evaluate(index, scope);
    return heap_.failed() ? JinjaValue() : GetItem(object, key);
  }
  JinjaSlice slice;
  JinjaValue* const parts[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    *parts[i] = index.kids[i] == nullptr ? JinjaValue::None() : Evaluate(*index.kids[i], scope);
  }
  return heap_.failed() ? JinjaValue() : ApplySlice(heap_, object, slice);
}

JinjaValue JinjaInterpreter::EvaluateFilter(const JinjaNode& node, JinjaScope* scope) {
  const JinjaValue input = node.kids[0] == nullptr ? *captured_ : Evaluate(*node.kids[0], scope);
  const JinjaArguments arguments = EvaluateArguments(node, scope);
  return heap_.failed() ? JinjaValue() : ApplyFilter(node.text, input, arguments);
}

JinjaArguments JinjaInterpreter::EvaluateArguments(const JinjaNode& node, JinjaScope* scope) {
  using Form = JinjaArgumentNode::Form;
  JinjaArguments out;
  for (const JinjaArgumentNode& argument : node.arguments) {
    const JinjaValue value = Evaluate(*argument.value, scope);
    if (heap_.failed()) break;
    if (argument.form == Form::kPositional) {
      out.positional.push_back(value);
    } else if (argument.form == Form::kKeyword) {
      out.named.emplace_back(argument.keyword, value);
    } else if (argument.form == Form::kStar) {
      const std::vector<JinjaValue>& items = *IterateValue(heap_, value);
      if (!heap_.Allocate(items.size() * sizeof(JinjaValue))) break;
      out.positional.insert(out.positional.end(), items.begin(), items.end());
    } else if (value.Is(JinjaKind::kDict)) {
      for (const auto& [key, item] : value.dict->entries) {
        if (!key.Is(JinjaKind::kString)) heap_.Fail("keywords must be strings");
        if (heap_.failed() || !heap_.Allocate(64)) break;
        out.named.emplace_back(TextOf(key).text(), item);
      }
    } else {
      heap_.Fail("argument after ** must be a mapping");
    }
  }
  return out;
}

JinjaValue JinjaInterpreter::ApplyFilter(std::string_view name, const JinjaValue& input,
                                         const JinjaArguments& arguments) {
  JinjaFunction function = FindTextFilter(name);
  if (function == nullptr) function = FindSequenceFilter(name);
  if (function != nullptr) return heap_.Step() ? function(*this, input, arguments) : JinjaValue();
  heap_.Fail("unknown filter '" + std::string(name.substr(0, 40)) + "'");
  return {};
}

bool JinjaInterpreter::ApplyTest(std::string_view name, const JinjaValue& input,
                                 const JinjaArguments& arguments) {
  const JinjaFunction function = FindTest(name);
  if (function != nullptr) return heap_.Step() && IsTrue(function(*this, input, arguments));
  heap_.Fail("unknown test '" + std::string(name.substr(0, 40)) + "'");
  return false;
}

JinjaValue JinjaInterpreter::BindMethod(const JinjaValue& object, std::string_view name) {
  JinjaFunction function = nullptr;
  if (object.Is(JinjaKind::kString)) {
    function = FindTextMethod(name);
  } else if (object.Is(JinjaKind::kDict) || object.Is(JinjaKind::kList)) {
    function = FindContainerMethod(object.kind, name);
  } else if (object.Is(JinjaKind::kLoop)) {
    function = name == "cycle" ? LoopCycle : name == "changed" ? LoopChanged : nullptr;
  } else if (object.Is(JinjaKind::kCycler)) {
    function = name == "next" ? CyclerNext : name == "reset" ? CyclerReset : nullptr;
  }
  if (function == nullptr) return {};
  JinjaCallable* method = heap_.New<JinjaCallable>();
  method->function = function;
  method->self = object;
  return JinjaValue::Of(method);
}

JinjaValue JinjaInterpreter::LoopMember(JinjaLoop* loop, std::string_view name) {
  const int64_t size = static_cast<int64_t>(loop->items->size());
  const int64_t index = static_cast<int64_t>(loop->index);
  if (name == "index") return JinjaValue::Int(index + 1);
  if (name == "index0") return JinjaValue::Int(index);
  if (name == "first") return JinjaValue::Bool(index == 0);
  if (name == "last") return JinjaValue::Bool(index + 1 == size);
  if (name == "length") return JinjaValue::Int(size);
  if (name == "revindex") return JinjaValue::Int(size - index);
  if (name == "revindex0") return JinjaValue::Int(size - index - 1);
  if (name == "depth") return JinjaValue::Int(loop->depth);
  if (name == "depth0") return JinjaValue::Int(loop->depth - 1);
  if (name == "previtem" && index > 0) return (*loop->items)[loop->index - 1];
  if (name == "nextitem" && index + 1 < size) return (*loop->items)[loop->index + 1];
  return BindMethod(JinjaValue::Of(loop), name);
}

JinjaValue JinjaInterpreter::GetAttribute(const JinjaValue& object, const std::string& name) {
  if (heap_.failed()) return {};
  JinjaValue found;
  switch (object.kind) {
    case JinjaKind::kUndefined:
      FailUndefined(heap_, object);
      return {};
    case JinjaKind::kDict: {
      found = BindMethod(object, name);
      if (!found.Is(JinjaKind::kUndefined)) return found;
      const JinjaValue* member = object.dict->Find(name);
      return member != nullptr ? *member : Missing(&name);
    }
    case JinjaKind::kNamespace: {
      const JinjaValue* member = object.space->Find(name);
      return member != nullptr ? *member : Missing(&name);
    }
    case JinjaKind::kLoop:
      found = LoopMember(object.loop, name);
      break;
    case JinjaKind::kCycler:
      if (name == "current") return object.cycler->items[object.cycler->at];
      found = BindMethod(object, name);
      break;
    case JinjaKind::kCallable:
      if (name == "name" && object.callable->macro != nullptr) {
        return MakeText(heap_, object.callable->macro->text);
      }
      break;
    default:
      found = BindMethod(object, name);
      break;
  }
  return found.Is(JinjaKind::kUndefined) ? Missing(&name) : found;
}

JinjaValue JinjaInterpreter::GetItem(const JinjaValue& object, const JinjaValue& key) {
  if (object.Is(JinjaKind::kUndefined)) {
    FailUndefined(heap_, object);
    return {};
  }
  if (object.Is(JinjaKind::kDict)) {
    const JinjaValue* found = FindEntry(heap_, *object.dict, key);
    if (found != nullptr) return *found;
  } else if (key.IsIntegral() && (object.Is(JinjaKind::kList) || object.Is(JinjaKind::kString))) {
    return ElementAt(heap_, object, key.AsInt());
  }
  if (!key.Is(JinjaKind::kString)) return {};
  if (object.Is(JinjaKind::kNamespace) || object.Is(JinjaKind::kLoop)) {
    return GetAttribute(object, TextOf(key).text());
  }
  const JinjaValue method = BindMethod(object, TextOf(key).text());
  return method.Is(JinjaKind::kUndefined) ? Missing(&TextOf(key).text()) : method;
}

}  // namespace kairos
