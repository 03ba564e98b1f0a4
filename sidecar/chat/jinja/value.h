// SPDX-License-Identifier: Apache-2.0
// Values of the template language, with Python's distinctions where a template can see them (tuple
// and list, generator and list, None and undefined). A value is a small handle; what it points to
// belongs to the rendering's JinjaHeap. Lists, dicts and strings never change after they are built.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sidecar/chat/jinja/heap.h"
#include "sidecar/chat/jinja/marked_text.h"

namespace kairos {

struct JinjaList;
struct JinjaDict;
struct JinjaNamespace;
struct JinjaCallable;
struct JinjaLoop;
struct JinjaCycler;
struct JinjaText;
struct JinjaNode;
struct JinjaScope;

enum class JinjaKind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kCallable,
  kLoop,
  kCycler,
};

struct JinjaValue {
  JinjaKind kind = JinjaKind::kUndefined;
  union {
    const std::string* hint;  // kUndefined: the name that was missing, or null
    bool boolean;
    int64_t integer;
    double real;
    const JinjaText* string;
    JinjaList* list;
    JinjaDict* dict;
    JinjaNamespace* space;
    JinjaCallable* callable;
    JinjaLoop* loop;
    JinjaCycler* cycler;
  };

  JinjaValue() : hint(nullptr) {}
  static JinjaValue None();
  static JinjaValue Bool(bool value);
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  static JinjaValue Of(const JinjaText* text);
  static JinjaValue Of(JinjaList* list);
  static JinjaValue Of(JinjaDict* dict);
  static JinjaValue Of(JinjaNamespace* space);
  static JinjaValue Of(JinjaCallable* callable);
  static JinjaValue Of(JinjaLoop* loop);
  static JinjaValue Of(JinjaCycler* cycler);

  bool Is(JinjaKind k) const { return kind == k; }
  bool IsNumber() const {
    return kind == JinjaKind::kInt || kind == JinjaKind::kFloat || kind == JinjaKind::kBool;
  }
  // Python counts True and False as integers.
  bool IsIntegral() const { return kind == JinjaKind::kInt || kind == JinjaKind::kBool; }
  int64_t AsInt() const { return kind == JinjaKind::kBool ? (boolean ? 1 : 0) : integer; }
  double AsReal() const { return kind == JinjaKind::kFloat ? real : static_cast<double>(AsInt()); }
};

struct JinjaText : JinjaObject {
  MarkedText marked;
};

enum class JinjaListForm : uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // dict.items() and its like: iterable and sized, not subscriptable
  kGenerator,  // what map, select and reverse give: always true, no size, empty after one pass
};

struct JinjaList : JinjaObject {
  JinjaListForm form = JinjaListForm::kList;
  bool consumed = false;  // kGenerator only
  std::vector<JinjaValue> items;
};

// Insertion-ordered. Only strings are indexed; other keys are compared one by one.
struct JinjaDict : JinjaObject {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  std::unordered_map<std::string_view, uint32_t> index;

  const JinjaValue* Find(std::string_view key) const;
  // An existing key keeps its place and takes the new value, as in Python.
  void SetString(JinjaValue key, JinjaValue value);
};

struct JinjaNamespace : JinjaObject {
  std::vector<std::pair<std::string, JinjaValue>> members;
  JinjaValue* Find(std::string_view name);
};

struct JinjaLoop : JinjaObject {
  const std::vector<JinjaValue>* items = nullptr;
  size_t index = 0;
  uint32_t depth = 1;
  const JinjaNode* recursive = nullptr;  // the for statement, when marked recursive
  JinjaScope* scope = nullptr;           // where that statement stands
  JinjaValue last_changed;               // loop.changed()
  bool has_changed = false;
};

struct JinjaCycler : JinjaObject {
  std::vector<JinjaValue> items;
  size_t at = 0;
};

struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;

  // The argument at `index`, or called `name`; null when neither was given.
  const JinjaValue* Find(size_t index, std::string_view name) const;
};

class JinjaInterpreter;
using JinjaFunction = JinjaValue (*)(JinjaInterpreter& run, const JinjaValue& self,
                                     const JinjaArguments& arguments);

// A function, a method with its receiver, a macro with the scope it was defined in, or a joiner.
struct JinjaCallable : JinjaObject {
  JinjaFunction function = nullptr;
  JinjaValue self;
  const JinjaNode* macro = nullptr;
  JinjaScope* scope = nullptr;
  bool joiner_used = false;
};

struct JinjaScope : JinjaObject {
  JinjaScope* parent = nullptr;
  std::vector<std::pair<std::string_view, JinjaValue>> variables;  // names live in the syntax tree

  JinjaValue* Find(std::string_view name);
  void Set(std::string_view name, JinjaValue value);
};

// Makers; each charges the heap.
JinjaValue MakeText(JinjaHeap& heap, std::string_view text, TextSource source = kTemplateSource);
JinjaValue MakeText(JinjaHeap& heap, MarkedText&& text);
JinjaList* MakeList(JinjaHeap& heap, JinjaListForm form, size_t reserve = 0);

// What Python calls the type, for messages.
const char* TypeName(const JinjaValue& value);
bool IsTrue(const JinjaValue& value);
inline const MarkedText& TextOf(const JinjaValue& value) { return value.string->marked; }

}  // namespace kairos
