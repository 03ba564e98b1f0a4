// SPDX-License-Identifier: Apache-2.0
// Filters over sequences and mappings.
#include <algorithm>

#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"

namespace kairos {

namespace {

// Follows "a.b.0" from `value`, as filters with an attribute argument do. A given `fallback` takes
// the place of what is missing at every step, not only at the end.
JinjaValue FollowPath(JinjaInterpreter& run, JinjaValue value, const JinjaValue& path,
                      const JinjaValue* fallback = nullptr) {
  if (path.IsIntegral()) {
    value = run.GetItem(value, path);
    return fallback != nullptr && value.Is(JinjaKind::kUndefined) ? *fallback : value;
  }
  if (!path.Is(JinjaKind::kString)) {
    run.heap().Fail("an attribute must be a string or an integer");
    return {};
  }
  const std::string& text = TextOf(path).text();
  for (size_t at = 0; at <= text.size() && !run.heap().failed();) {
    const size_t end = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, end - at);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    const JinjaValue key = number ? JinjaValue::Int(std::stoi(part)) : MakeText(run.heap(), part);
    value = run.GetItem(value, key);
    if (fallback != nullptr && value.Is(JinjaKind::kUndefined)) value = *fallback;
    at = end + 1;
  }
  return value;
}

JinjaArguments Rest(const JinjaArguments& arguments, size_t skip) {
  JinjaArguments rest;
  for (size_t i = skip; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  rest.named = arguments.named;
  return rest;
}

JinjaValue First(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  if (self.Is(JinjaKind::kString)) return ElementAt(run.heap(), self, 0);
  const std::vector<JinjaValue>& items = *IterateValue(run.heap(), self);
  return items.empty() ? JinjaValue() : items.front();
}

JinjaValue Last(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  if (self.Is(JinjaKind::kString)) return ElementAt(run.heap(), self, -1);
  const std::vector<JinjaValue>& items = *IterateValue(run.heap(), self);
  return items.empty() ? JinjaValue() : items.back();
}

JinjaList* CopyOf(JinjaInterpreter& run, const JinjaValue& self, JinjaListForm form) {
  const std::vector<JinjaValue>& items = *IterateValue(run.heap(), self);
  JinjaList* out = MakeList(run.heap(), form, items.size());
  if (!run.heap().failed()) out->items = items;
  return out;
}

JinjaValue ToList(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return JinjaValue::Of(CopyOf(run, self, JinjaListForm::kList));
}

JinjaValue Items(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kGenerator);
  if (self.Is(JinjaKind::kUndefined)) return JinjaValue::Of(out);
  if (!self.Is(JinjaKind::kDict)) {
    run.heap().Fail("Can only get item pairs from a mapping.");
    return {};
  }
  for (const auto& [key, value] : self.dict->entries) {
    JinjaList* pair = MakeList(run.heap(), JinjaListForm::kTuple, 2);
    if (run.heap().failed()) break;
    pair->items = {key, value};
    out->items.push_back(JinjaValue::Of(pair));
  }
  return JinjaValue::Of(out);
}

JinjaValue Join(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* separator = arguments.Find(0, "d");
  const JinjaValue* attribute = arguments.Find(1, "attribute");
  std::vector<JinjaValue> items = *IterateValue(run.heap(), self);
  if (attribute != nullptr && !attribute->Is(JinjaKind::kNone)) {
    for (JinjaValue& item : items) item = FollowPath(run, item, *attribute);
  }
  const bool given = separator != nullptr && separator->Is(JinjaKind::kString);
  return run.heap().failed()
             ? JinjaValue()
             : JoinTexts(run.heap(), items, given ? TextOf(*separator) : MarkedText());
}

JinjaValue Map(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kGenerator);
  const JinjaValue* attribute = arguments.Find(SIZE_MAX, "attribute");
  const JinjaValue* fallback = arguments.Find(SIZE_MAX, "default");
  const bool named =
      !arguments.positional.empty() && arguments.positional[0].Is(JinjaKind::kString);
  if (attribute == nullptr && !named) {
    run.heap().Fail("map needs a filter name or an attribute");
    return {};
  }
  const JinjaArguments rest = Rest(arguments, 1);
  for (const JinjaValue& item : *IterateValue(run.heap(), self)) {
    if (!run.heap().Allocate(sizeof(JinjaValue))) break;
    out->items.push_back(attribute != nullptr
                             ? FollowPath(run, item, *attribute, fallback)
                             : run.ApplyFilter(TextOf(arguments.positional[0]).text(), item, rest));
  }
  return JinjaValue::Of(out);
}

// select, reject, selectattr, rejectattr: `by_attribute` tests a member, `keep` what passes.
JinjaValue Choose(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments,
                  bool by_attribute, bool keep) {
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kGenerator);
  const size_t at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < at) {
    run.heap().Fail("missing the attribute to select by");
    return {};
  }
  const bool tested = arguments.positional.size() > at;
  if (tested && !arguments.positional[at].Is(JinjaKind::kString)) {
    run.heap().Fail("a test's name must be a string");
    return {};
  }
  const JinjaArguments rest = Rest(arguments, at + 1);
  for (const JinjaValue& item : *IterateValue(run.heap(), self)) {
    if (!run.heap().Allocate(sizeof(JinjaValue))) break;
    const JinjaValue subject = by_attribute ? FollowPath(run, item, arguments.positional[0]) : item;
    const bool passed = tested
                            ? run.ApplyTest(TextOf(arguments.positional[at]).text(), subject, rest)
                            : IsTrue(subject);
    if (passed == keep) out->items.push_back(item);
  }
  return JinjaValue::Of(out);
}

JinjaValue Select(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return Choose(run, self, arguments, false, true);
}
JinjaValue Reject(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return Choose(run, self, arguments, false, false);
}
JinjaValue SelectAttribute(JinjaInterpreter& run, const JinjaValue& self,
                           const JinjaArguments& arguments) {
  return Choose(run, self, arguments, true, true);
}
JinjaValue RejectAttribute(JinjaInterpreter& run, const JinjaValue& self,
                           const JinjaArguments& arguments) {
  return Choose(run, self, arguments, true, false);
}

JinjaValue Folded(JinjaInterpreter& run, const JinjaValue& value, bool case_sensitive) {
  if (case_sensitive || !value.Is(JinjaKind::kString)) return value;
  return ChangeCase(run.heap(), TextOf(value), TextCase::kLower);
}

struct Keyed {
  JinjaValue key;
  JinjaValue item;
};

// Merge sort: unlike std::sort it stays in bounds when a comparison fails half way.
void SortKeyed(JinjaInterpreter& run, std::vector<Keyed>* keyed, bool reverse) {
  std::stable_sort(keyed->begin(), keyed->end(), [&run, reverse](const Keyed& a, const Keyed& b) {
    if (run.heap().failed()) return false;
    return reverse ? IsLess(run.heap(), b.key, a.key) : IsLess(run.heap(), a.key, b.key);
  });
}

bool Flag(const JinjaArguments& arguments, size_t index, std::string_view name) {
  const JinjaValue* value = arguments.Find(index, name);
  return value != nullptr && IsTrue(*value);
}

std::vector<Keyed> KeyedItems(JinjaInterpreter& run, const JinjaValue& self,
                              const JinjaValue* attribute, bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (const JinjaValue& item : *IterateValue(run.heap(), self)) {
    if (!run.heap().Allocate(sizeof(Keyed))) break;
    const bool by = attribute != nullptr && !attribute->Is(JinjaKind::kNone);
    keyed.push_back(
        {Folded(run, by ? FollowPath(run, item, *attribute) : item, case_sensitive), item});
  }
  return keyed;
}

JinjaValue Sort(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  std::vector<Keyed> keyed =
      KeyedItems(run, self, arguments.Find(2, "attribute"), Flag(arguments, 1, "case_sensitive"));
  SortKeyed(run, &keyed, Flag(arguments, 0, "reverse"));
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kList, keyed.size());
  for (const Keyed& entry : keyed) out->items.push_back(entry.item);
  return JinjaValue::Of(out);
}

JinjaValue DictSort(JinjaInterpreter& run, const JinjaValue& self,
                    const JinjaArguments& arguments) {
  if (!self.Is(JinjaKind::kDict)) {
    run.heap().Fail(std::string("dictsort needs a dict, not ") + TypeName(self));
    return {};
  }
  const JinjaValue* by = arguments.Find(1, "by");
  const bool by_value =
      by != nullptr && by->Is(JinjaKind::kString) && TextOf(*by).text() == "value";
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict->entries) {
    JinjaList* pair = MakeList(run.heap(), JinjaListForm::kTuple, 2);
    if (run.heap().failed()) return {};
    pair->items = {key, value};
    keyed.push_back({Folded(run, by_value ? value : key, Flag(arguments, 0, "case_sensitive")),
                     JinjaValue::Of(pair)});
  }
  SortKeyed(run, &keyed, Flag(arguments, 2, "reverse"));
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kList, keyed.size());
  for (const Keyed& entry : keyed) out->items.push_back(entry.item);
  return JinjaValue::Of(out);
}

JinjaValue Unique(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const std::vector<Keyed> keyed =
      KeyedItems(run, self, arguments.Find(1, "attribute"), Flag(arguments, 0, "case_sensitive"));
  JinjaDict* seen = run.heap().New<JinjaDict>();
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kGenerator);
  for (const Keyed& entry : keyed) {
    if (run.heap().failed()) break;
    if (FindEntry(run.heap(), *seen, entry.key) != nullptr) continue;
    SetEntry(run.heap(), seen, entry.key, JinjaValue::None());
    out->items.push_back(entry.item);
  }
  return JinjaValue::Of(out);
}

JinjaValue Reverse(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  if (self.Is(JinjaKind::kString)) {
    return ApplySlice(run.heap(), self,
                      {JinjaValue::None(), JinjaValue::None(), JinjaValue::Int(-1)});
  }
  JinjaList* out = CopyOf(run, self, JinjaListForm::kGenerator);
  std::reverse(out->items.begin(), out->items.end());
  return JinjaValue::Of(out);
}

JinjaValue Extreme(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments,
                   bool largest) {
  const std::vector<Keyed> keyed =
      KeyedItems(run, self, arguments.Find(1, "attribute"), Flag(arguments, 0, "case_sensitive"));
  if (keyed.empty()) return {};
  const Keyed* best = &keyed[0];
  for (const Keyed& entry : keyed) {
    const bool better = largest ? IsLess(run.heap(), best->key, entry.key)
                                : IsLess(run.heap(), entry.key, best->key);
    if (better) best = &entry;
  }
  return best->item;
}

JinjaValue Minimum(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return Extreme(run, self, arguments, false);
}
JinjaValue Maximum(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return Extreme(run, self, arguments, true);
}

JinjaValue Sum(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* attribute = arguments.Find(0, "attribute");
  const JinjaValue* start = arguments.Find(1, "start");
  JinjaValue total = start != nullptr ? *start : JinjaValue::Int(0);
  for (const Keyed& entry : KeyedItems(run, self, attribute, true)) {
    if (run.heap().failed()) break;
    total = ApplyBinary(run.heap(), "+", total, entry.key);
  }
  return total;
}

JinjaValue Batch(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* count = arguments.Find(0, "linecount");
  const JinjaValue* fill = arguments.Find(1, "fill_with");
  if (count == nullptr || !count->IsIntegral() || count->AsInt() < 1 || count->AsInt() > 100'000) {
    run.heap().Fail("batch needs a size of 1 to 100000");
    return {};
  }
  const size_t size = static_cast<size_t>(count->AsInt());
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kGenerator);
  JinjaList* row = nullptr;
  for (const JinjaValue& item : *IterateValue(run.heap(), self)) {
    if (!run.heap().Allocate(sizeof(JinjaValue))) break;
    if (row == nullptr || row->items.size() == size) {
      row = MakeList(run.heap(), JinjaListForm::kList);
      out->items.push_back(JinjaValue::Of(row));
    }
    row->items.push_back(item);
  }
  while (row != nullptr && fill != nullptr && row->items.size() < size &&
         run.heap().Allocate(sizeof(JinjaValue))) {
    row->items.push_back(*fill);
  }
  return JinjaValue::Of(out);
}

JinjaValue GroupBy(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* attribute = arguments.Find(0, "attribute");
  if (attribute == nullptr) {
    run.heap().Fail("groupby needs an attribute");
    return {};
  }
  std::vector<Keyed> keyed = KeyedItems(run, self, attribute, false);
  SortKeyed(run, &keyed, false);
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kList);
  JinjaList* members = nullptr;
  const JinjaValue* key = nullptr;
  for (const Keyed& entry : keyed) {
    if (run.heap().failed()) break;
    if (key == nullptr || !AreEqual(run.heap(), *key, entry.key)) {
      JinjaList* group = MakeList(run.heap(), JinjaListForm::kTuple);
      members = MakeList(run.heap(), JinjaListForm::kList);
      group->items = {FollowPath(run, entry.item, *attribute), JinjaValue::Of(members)};
      out->items.push_back(JinjaValue::Of(group));
      key = &entry.key;
    }
    members->items.push_back(entry.item);
  }
  return JinjaValue::Of(out);
}

JinjaValue Attribute(JinjaInterpreter& run, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  const JinjaValue* name = arguments.Find(0, "name");
  if (name == nullptr || !name->Is(JinjaKind::kString)) {
    run.heap().Fail("attr needs a name");
    return {};
  }
  // Real attributes only: a dict's members are not reachable this way.
  if (self.Is(JinjaKind::kDict) &&
      FindContainerMethod(self.kind, TextOf(*name).text()) == nullptr) {
    return {};
  }
  return run.GetAttribute(self, TextOf(*name).text());
}

}  // namespace

JinjaFunction FindSequenceFilter(std::string_view name) {
  static constexpr JinjaBuiltin kFilters[] = {
      {"first", First},
      {"last", Last},
      {"list", ToList},
      {"items", Items},
      {"join", Join},
      {"map", Map},
      {"select", Select},
      {"reject", Reject},
      {"selectattr", SelectAttribute},
      {"rejectattr", RejectAttribute},
      {"sort", Sort},
      {"dictsort", DictSort},
      {"unique", Unique},
      {"reverse", Reverse},
      {"min", Minimum},
      {"max", Maximum},
      {"sum", Sum},
      {"batch", Batch},
      {"groupby", GroupBy},
      {"attr", Attribute},
  };
  return FindBuiltin(kFilters, name);
}

}  // namespace kairos
