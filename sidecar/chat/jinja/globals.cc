// SPDX-License-Identifier: Apache-2.0
// Functions a template can call by name.
#include <ctime>

#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"
#include "sidecar/chat/jinja/printer.h"

namespace kairos {

namespace {

constexpr size_t kTimeFormatBytesMax = 256;

JinjaValue Range(JinjaInterpreter& run, const JinjaValue&, const JinjaArguments& arguments) {
  JinjaHeap& heap = run.heap();
  const std::vector<JinjaValue>& given = arguments.positional;
  for (const JinjaValue& value : given) {
    if (!value.IsIntegral()) heap.Fail(std::string("range needs integers, not ") + TypeName(value));
  }
  if (given.empty() || given.size() > 3) heap.Fail("range takes one to three arguments");
  if (heap.failed()) return {};
  const int64_t start = given.size() == 1 ? 0 : given[0].AsInt();
  const int64_t stop = given.size() == 1 ? given[0].AsInt() : given[1].AsInt();
  const int64_t step = given.size() == 3 ? given[2].AsInt() : 1;
  if (step == 0) {
    heap.Fail("range step is zero");
    return {};
  }
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Distances in unsigned arithmetic, which cannot overflow.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(heap.limits().range_items)) {
    heap.Fail("range is limited to " + std::to_string(heap.limits().range_items) + " items");
    return {};
  }
  JinjaList* list = MakeList(heap, JinjaListForm::kRange, count);
  if (!heap.Step(count)) return {};
  int64_t value = start;
  for (uint64_t i = 0; i < count; ++i) {
    list->items.push_back(JinjaValue::Int(value));
    if (i + 1 < count) value += step;
  }
  return JinjaValue::Of(list);
}

// Members from one optional mapping, then from keywords.
template <typename Set>
void CollectMembers(JinjaInterpreter& run, const JinjaArguments& arguments, Set set) {
  for (const JinjaValue& value : arguments.positional) {
    if (value.Is(JinjaKind::kDict)) {
      for (const auto& [key, item] : value.dict->entries) set(key, item);
      continue;
    }
    for (const JinjaValue& pair : *IterateValue(run.heap(), value)) {
      const std::vector<JinjaValue>& parts = *IterateValue(run.heap(), pair);
      if (parts.size() != 2) run.heap().Fail("expected pairs of key and value");
      if (run.heap().failed()) return;
      set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) set(MakeText(run.heap(), name), value);
}

JinjaValue MakeNamespace(JinjaInterpreter& run, const JinjaValue&,
                         const JinjaArguments& arguments) {
  JinjaNamespace* space = run.heap().New<JinjaNamespace>();
  CollectMembers(run, arguments, [&](const JinjaValue& key, const JinjaValue& value) {
    if (!key.Is(JinjaKind::kString) || !run.heap().Allocate(64)) return;
    JinjaValue* member = space->Find(TextOf(key).text());
    if (member != nullptr) {
      *member = value;
    } else {
      space->members.emplace_back(TextOf(key).text(), value);
    }
  });
  return JinjaValue::Of(space);
}

JinjaValue MakeDict(JinjaInterpreter& run, const JinjaValue&, const JinjaArguments& arguments) {
  JinjaDict* dict = run.heap().New<JinjaDict>();
  CollectMembers(run, arguments, [&](const JinjaValue& key, const JinjaValue& value) {
    if (!run.heap().failed()) SetEntry(run.heap(), dict, key, value);
  });
  return JinjaValue::Of(dict);
}

JinjaValue UseJoiner(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  JinjaNamespace* state = self.space;
  JinjaValue* used = state->Find("used");
  if (IsTrue(*used)) return *state->Find("separator");
  *used = JinjaValue::Bool(true);
  return MakeText(run.heap(), "");
}

JinjaValue MakeJoiner(JinjaInterpreter& run, const JinjaValue&, const JinjaArguments& arguments) {
  const JinjaValue* separator = arguments.Find(0, "sep");
  JinjaNamespace* state = run.heap().New<JinjaNamespace>();
  state->members.emplace_back("used", JinjaValue::Bool(false));
  state->members.emplace_back("separator",
                              separator != nullptr ? *separator : MakeText(run.heap(), ", "));
  JinjaCallable* joiner = run.heap().New<JinjaCallable>();
  joiner->function = UseJoiner;
  joiner->self = JinjaValue::Of(state);
  return JinjaValue::Of(joiner);
}

JinjaValue MakeCycler(JinjaInterpreter& run, const JinjaValue&, const JinjaArguments& arguments) {
  if (arguments.positional.empty()) {
    run.heap().Fail("at least one item has to be provided");
    return {};
  }
  JinjaCycler* cycler = run.heap().New<JinjaCycler>();
  cycler->items = arguments.positional;
  return JinjaValue::Of(cycler);
}

JinjaValue RaiseException(JinjaInterpreter& run, const JinjaValue&,
                          const JinjaArguments& arguments) {
  MarkedText words;
  if (!arguments.positional.empty()) AppendString(run.heap(), arguments.positional[0], &words);
  run.heap().Fail("the template refuses: " + words.text().substr(0, 500));
  return {};
}

JinjaValue FormatNow(JinjaInterpreter& run, const JinjaValue&, const JinjaArguments& arguments) {
  const JinjaValue* format = arguments.Find(0, "format");
  if (format == nullptr || !format->Is(JinjaKind::kString) ||
      TextOf(*format).size() > kTimeFormatBytesMax) {
    run.heap().Fail("strftime_now needs a format of at most " +
                    std::to_string(kTimeFormatBytesMax) + " bytes");
    return {};
  }
  const time_t now = static_cast<time_t>(run.now_unix_s());
  struct tm parts = {};
  if (gmtime_r(&now, &parts) == nullptr) {
    run.heap().Fail("the session's clock is out of range");
    return {};
  }
  // A leading blank tells an empty result from one that did not fit.
  const std::string pattern = " " + TextOf(*format).text();
  std::string out(8192, '\0');
  out.resize(std::strftime(out.data(), out.size(), pattern.c_str(), &parts));
  if (out.empty()) {
    run.heap().Fail("strftime_now makes too much text");
    return {};
  }
  return MakeText(run.heap(), std::string_view(out).substr(1));
}

}  // namespace

JinjaFunction FindGlobal(std::string_view name) {
  static constexpr JinjaBuiltin kGlobals[] = {
      {"range", Range},
      {"namespace", MakeNamespace},
      {"dict", MakeDict},
      {"joiner", MakeJoiner},
      {"cycler", MakeCycler},
      {"raise_exception", RaiseException},
      {"strftime_now", FormatNow},
  };
  return FindBuiltin(kGlobals, name);
}

}  // namespace kairos
