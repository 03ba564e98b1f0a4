// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/value.h"

namespace kairos {

namespace {

JinjaValue OfKind(JinjaKind kind) {
  JinjaValue value;
  value.kind = kind;
  return value;
}

}  // namespace

JinjaValue JinjaValue::None() { return OfKind(JinjaKind::kNone); }

JinjaValue JinjaValue::Bool(bool value) {
  JinjaValue v = OfKind(JinjaKind::kBool);
  v.boolean = value;
  return v;
}

JinjaValue JinjaValue::Int(int64_t value) {
  JinjaValue v = OfKind(JinjaKind::kInt);
  v.integer = value;
  return v;
}

JinjaValue JinjaValue::Float(double value) {
  JinjaValue v = OfKind(JinjaKind::kFloat);
  v.real = value;
  return v;
}

JinjaValue JinjaValue::Of(const JinjaText* text) {
  JinjaValue v = OfKind(JinjaKind::kString);
  v.string = text;
  return v;
}

JinjaValue JinjaValue::Of(JinjaList* list) {
  JinjaValue v = OfKind(JinjaKind::kList);
  v.list = list;
  return v;
}

JinjaValue JinjaValue::Of(JinjaDict* dict) {
  JinjaValue v = OfKind(JinjaKind::kDict);
  v.dict = dict;
  return v;
}

JinjaValue JinjaValue::Of(JinjaNamespace* space) {
  JinjaValue v = OfKind(JinjaKind::kNamespace);
  v.space = space;
  return v;
}

JinjaValue JinjaValue::Of(JinjaCallable* callable) {
  JinjaValue v = OfKind(JinjaKind::kCallable);
  v.callable = callable;
  return v;
}

JinjaValue JinjaValue::Of(JinjaLoop* loop) {
  JinjaValue v = OfKind(JinjaKind::kLoop);
  v.loop = loop;
  return v;
}

JinjaValue JinjaValue::Of(JinjaCycler* cycler) {
  JinjaValue v = OfKind(JinjaKind::kCycler);
  v.cycler = cycler;
  return v;
}

const JinjaValue* JinjaDict::Find(std::string_view key) const {
  const auto it = index.find(key);
  return it == index.end() ? nullptr : &entries[it->second].second;
}

void JinjaDict::SetString(JinjaValue key, JinjaValue value) {
  const auto [it, added] = index.emplace(TextOf(key).text(), static_cast<uint32_t>(entries.size()));
  if (added) {
    entries.emplace_back(key, value);
  } else {
    entries[it->second].second = value;
  }
}

JinjaValue* JinjaNamespace::Find(std::string_view name) {
  for (auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

const JinjaValue* JinjaArguments::Find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

JinjaValue* JinjaScope::Find(std::string_view name) {
  for (JinjaScope* scope = this; scope != nullptr; scope = scope->parent) {
    for (auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void JinjaScope::Set(std::string_view name, JinjaValue value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = value;
      return;
    }
  }
  variables.emplace_back(name, value);
}

JinjaValue MakeText(JinjaHeap& heap, std::string_view text, TextSource source) {
  if (!heap.Allocate(text.size())) return {};
  JinjaText* object = heap.New<JinjaText>();
  object->marked.Append(text, source);
  return JinjaValue::Of(object);
}

JinjaValue MakeText(JinjaHeap& heap, MarkedText&& text) {
  if (!heap.Allocate(text.size() + text.runs().size() * sizeof(MarkedText::Run))) return {};
  JinjaText* object = heap.New<JinjaText>();
  object->marked = std::move(text);
  return JinjaValue::Of(object);
}

JinjaList* MakeList(JinjaHeap& heap, JinjaListForm form, size_t reserve) {
  JinjaList* list = heap.New<JinjaList>();
  list->form = form;
  if (heap.Allocate(reserve * sizeof(JinjaValue))) list->items.reserve(reserve);
  return list;
}

const char* TypeName(const JinjaValue& value) {
  switch (value.kind) {
    case JinjaKind::kUndefined:
      return "Undefined";
    case JinjaKind::kNone:
      return "NoneType";
    case JinjaKind::kBool:
      return "bool";
    case JinjaKind::kInt:
      return "int";
    case JinjaKind::kFloat:
      return "float";
    case JinjaKind::kString:
      return "str";
    case JinjaKind::kDict:
      return "dict";
    case JinjaKind::kNamespace:
      return "Namespace";
    case JinjaKind::kCallable:
      return "function";
    case JinjaKind::kLoop:
      return "LoopContext";
    case JinjaKind::kCycler:
      return "Cycler";
    case JinjaKind::kList:
      break;
  }
  switch (value.list->form) {
    case JinjaListForm::kTuple:
      return "tuple";
    case JinjaListForm::kRange:
      return "range";
    case JinjaListForm::kView:
      return "dict view";
    case JinjaListForm::kGenerator:
      return "generator";
    case JinjaListForm::kList:
      break;
  }
  return "list";
}

bool IsTrue(const JinjaValue& value) {
  switch (value.kind) {
    case JinjaKind::kUndefined:
    case JinjaKind::kNone:
      return false;
    case JinjaKind::kBool:
      return value.boolean;
    case JinjaKind::kInt:
      return value.integer != 0;
    case JinjaKind::kFloat:
      return value.real != 0;
    case JinjaKind::kString:
      return !value.string->marked.empty();
    case JinjaKind::kList:
      return value.list->form == JinjaListForm::kGenerator || !value.list->items.empty();
    case JinjaKind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

}  // namespace kairos
