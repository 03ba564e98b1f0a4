// SPDX-License-Identifier: Apache-2.0
// Methods of dicts and lists. Those that would change their object exist only to refuse, as the
// immutable sandbox of the reference does.
#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"

namespace kairos {

namespace {

JinjaValue Get(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  if (arguments.positional.empty()) {
    run.heap().Fail("get needs a key");
    return {};
  }
  const JinjaValue* found = FindEntry(run.heap(), *self.dict, arguments.positional[0]);
  if (found != nullptr) return *found;
  const JinjaValue* fallback = arguments.Find(1, "default");
  return fallback != nullptr ? *fallback : JinjaValue::None();
}

JinjaValue Items(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kView, self.dict->entries.size());
  for (const auto& [key, value] : self.dict->entries) {
    JinjaList* pair = MakeList(run.heap(), JinjaListForm::kTuple, 2);
    if (run.heap().failed()) break;
    pair->items = {key, value};
    out->items.push_back(JinjaValue::Of(pair));
  }
  return JinjaValue::Of(out);
}

JinjaValue Keys(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kView, self.dict->entries.size());
  for (const auto& [key, value] : self.dict->entries) out->items.push_back(key);
  return JinjaValue::Of(out);
}

JinjaValue Values(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kView, self.dict->entries.size());
  for (const auto& [key, value] : self.dict->entries) out->items.push_back(value);
  return JinjaValue::Of(out);
}

// Nothing can change a value, so a copy is the value.
JinjaValue Copy(JinjaInterpreter&, const JinjaValue& self, const JinjaArguments&) { return self; }

JinjaValue Count(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  int64_t count = 0;
  if (arguments.positional.empty()) run.heap().Fail("count needs a value");
  if (run.heap().failed()) return {};
  for (const JinjaValue& item : self.list->items) {
    count += AreEqual(run.heap(), item, arguments.positional[0]) ? 1 : 0;
  }
  return JinjaValue::Int(count);
}

JinjaValue Index(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  if (arguments.positional.empty()) run.heap().Fail("index needs a value");
  for (size_t i = 0; i < self.list->items.size() && !run.heap().failed(); ++i) {
    if (AreEqual(run.heap(), self.list->items[i], arguments.positional[0])) {
      return JinjaValue::Int(static_cast<int64_t>(i));
    }
  }
  run.heap().Fail("value is not in list");
  return {};
}

JinjaValue Refuse(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  run.heap().Fail(std::string("the sandbox refuses methods that change a ") + TypeName(self));
  return {};
}

}  // namespace

JinjaFunction FindContainerMethod(JinjaKind kind, std::string_view name) {
  static constexpr JinjaBuiltin kDictMethods[] = {
      {"get", Get},      {"items", Items},       {"keys", Keys},  {"values", Values},
      {"copy", Copy},    {"update", Refuse},     {"pop", Refuse}, {"popitem", Refuse},
      {"clear", Refuse}, {"setdefault", Refuse},
  };
  static constexpr JinjaBuiltin kListMethods[] = {
      {"count", Count},    {"index", Index},   {"copy", Copy},    {"append", Refuse},
      {"extend", Refuse},  {"insert", Refuse}, {"pop", Refuse},   {"remove", Refuse},
      {"reverse", Refuse}, {"sort", Refuse},   {"clear", Refuse},
  };
  return kind == JinjaKind::kDict ? FindBuiltin(kDictMethods, name)
                                  : FindBuiltin(kListMethods, name);
}

}  // namespace kairos
