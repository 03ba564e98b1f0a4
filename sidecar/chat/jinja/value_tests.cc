// SPDX-License-Identifier: Apache-2.0
// The tests behind "is".
#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"

namespace kairos {

namespace {

using Arguments = JinjaArguments;
using Value = JinjaValue;

template <JinjaKind kind>
Value IsKind(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.kind == kind);
}
Value IsDefined(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(!self.Is(JinjaKind::kUndefined));
}
Value IsNumber(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.IsNumber());
}
Value IsTrueConstant(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.Is(JinjaKind::kBool) && self.boolean);
}
Value IsFalseConstant(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.Is(JinjaKind::kBool) && !self.boolean);
}
Value IsIterable(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.Is(JinjaKind::kList) || self.Is(JinjaKind::kDict) ||
                     self.Is(JinjaKind::kString) || self.Is(JinjaKind::kUndefined) ||
                     self.Is(JinjaKind::kLoop));
}
Value IsSequence(JinjaInterpreter&, const Value& self, const Arguments&) {
  const bool list = self.Is(JinjaKind::kList) && self.list->form != JinjaListForm::kGenerator &&
                    self.list->form != JinjaListForm::kView;
  return Value::Bool(list || self.Is(JinjaKind::kDict) || self.Is(JinjaKind::kString));
}
Value IsCallable(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.Is(JinjaKind::kCallable) || self.Is(JinjaKind::kLoop));
}

template <bool odd>
Value HasParity(JinjaInterpreter& run, const Value& self, const Arguments&) {
  if (self.IsIntegral()) return Value::Bool((self.AsInt() % 2 != 0) == odd);
  run.heap().Fail(std::string("odd and even need an integer, not ") + TypeName(self));
  return {};
}

Value IsDivisible(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  const Value* by = arguments.Find(0, "num");
  if (by != nullptr && by->IsIntegral() && self.IsIntegral() && by->AsInt() != 0) {
    return Value::Bool(by->AsInt() == -1 || self.AsInt() % by->AsInt() == 0);
  }
  run.heap().Fail("divisibleby needs integers and a divisor other than zero");
  return {};
}

// The operator's spelling is found by name, so that one function serves all of them.
Value Compare(JinjaInterpreter& run, const Value& self, const Arguments& arguments,
              std::string_view op) {
  const Value* other = arguments.Find(0, "other");
  if (other != nullptr) return Value::Bool(ApplyComparison(run.heap(), op, self, *other));
  run.heap().Fail("the test needs a value to compare with");
  return {};
}
Value IsEqual(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, "==");
}
Value IsUnequal(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, "!=");
}
Value IsBelow(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, "<");
}
Value IsAtMost(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, "<=");
}
Value IsAbove(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, ">");
}
Value IsAtLeast(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, ">=");
}
Value IsContained(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  return Compare(run, self, arguments, "in");
}

Value IsSame(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  const Value* other = arguments.Find(0, "other");
  if (other == nullptr || other->kind != self.kind) return Value::Bool(false);
  const bool plain = self.IsNumber() || self.Is(JinjaKind::kNone) || self.Is(JinjaKind::kUndefined);
  return Value::Bool(plain ? AreEqual(run.heap(), self, *other) : self.list == other->list);
}

template <TextCase to>
Value HasCase(JinjaInterpreter& run, const Value& self, const Arguments& arguments) {
  if (!self.Is(JinjaKind::kString)) return Value::Bool(false);
  const JinjaFunction method = FindTextMethod(to == TextCase::kUpper ? "isupper" : "islower");
  return method(run, self, arguments);
}

Value IsFilterName(JinjaInterpreter&, const Value& self, const Arguments&) {
  if (!self.Is(JinjaKind::kString)) return Value::Bool(false);
  const std::string& name = TextOf(self).text();
  return Value::Bool(FindTextFilter(name) != nullptr || FindSequenceFilter(name) != nullptr);
}
Value IsTestName(JinjaInterpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.Is(JinjaKind::kString) && FindTest(TextOf(self).text()) != nullptr);
}

}  // namespace

JinjaFunction FindTest(std::string_view name) {
  static constexpr JinjaBuiltin kTests[] = {
      {"defined", IsDefined},
      {"undefined", IsKind<JinjaKind::kUndefined>},
      {"none", IsKind<JinjaKind::kNone>},
      {"string", IsKind<JinjaKind::kString>},
      {"mapping", IsKind<JinjaKind::kDict>},
      {"boolean", IsKind<JinjaKind::kBool>},
      {"integer", IsKind<JinjaKind::kInt>},
      {"float", IsKind<JinjaKind::kFloat>},
      {"number", IsNumber},
      {"true", IsTrueConstant},
      {"false", IsFalseConstant},
      {"iterable", IsIterable},
      {"sequence", IsSequence},
      {"callable", IsCallable},
      {"odd", HasParity<true>},
      {"even", HasParity<false>},
      {"divisibleby", IsDivisible},
      {"equalto", IsEqual},
      {"eq", IsEqual},
      {"==", IsEqual},
      {"ne", IsUnequal},
      {"!=", IsUnequal},
      {"lt", IsBelow},
      {"lessthan", IsBelow},
      {"<", IsBelow},
      {"le", IsAtMost},
      {"<=", IsAtMost},
      {"gt", IsAbove},
      {"greaterthan", IsAbove},
      {">", IsAbove},
      {"ge", IsAtLeast},
      {">=", IsAtLeast},
      {"in", IsContained},
      {"sameas", IsSame},
      {"lower", HasCase<TextCase::kLower>},
      {"upper", HasCase<TextCase::kUpper>},
      {"filter", IsFilterName},
      {"test", IsTestName},
  };
  return FindBuiltin(kTests, name);
}

}  // namespace kairos
