// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/operators.h"

#include <cmath>
#include <optional>

#include "sidecar/chat/jinja/characters.h"
#include "sidecar/chat/jinja/string_format.h"

namespace kairos {

namespace {

constexpr int64_t kExponentMax = 64;

JinjaValue FailTypes(JinjaHeap& heap, std::string_view op, const JinjaValue& a,
                     const JinjaValue& b) {
  if (a.Is(JinjaKind::kUndefined) || b.Is(JinjaKind::kUndefined)) {
    FailUndefined(heap, a.Is(JinjaKind::kUndefined) ? a : b);
  } else {
    heap.Fail("operator '" + std::string(op) + "' does not apply to " + TypeName(a) + " and " +
              TypeName(b));
  }
  return {};
}

// By reference: callers write `value` in the argument before it.
JinjaValue IntegerOrFail(JinjaHeap& heap, bool overflow, const int64_t& value) {
  if (!overflow) return JinjaValue::Int(value);
  heap.Fail("integer does not fit 64 bits");
  return {};
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

JinjaValue Power(JinjaHeap& heap, int64_t base, int64_t exponent) {
  if (exponent < 0) return JinjaValue::Float(std::pow(static_cast<double>(base), exponent));
  if (base == 1 || base == 0) return JinjaValue::Int(exponent == 0 ? 1 : base);
  if (base == -1) return JinjaValue::Int(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  bool overflow = exponent > kExponentMax;
  for (int64_t i = 0; i < exponent && !overflow; ++i) {
    overflow = __builtin_mul_overflow(result, base, &result);
  }
  return IntegerOrFail(heap, overflow, result);
}

JinjaValue IntegerOperation(JinjaHeap& heap, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") return IntegerOrFail(heap, __builtin_add_overflow(a, b, &result), result);
  if (op == "-") return IntegerOrFail(heap, __builtin_sub_overflow(a, b, &result), result);
  if (op == "*") return IntegerOrFail(heap, __builtin_mul_overflow(a, b, &result), result);
  if (op == "**") return Power(heap, a, b);
  if (b == 0) {
    heap.Fail("division by zero");
    return {};
  }
  if (op == "/") return JinjaValue::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == "%") return JinjaValue::Int(0);
    return IntegerOrFail(heap, __builtin_sub_overflow(int64_t{0}, a, &result), result);
  }
  const int64_t quotient = FloorDivide(a, b);
  return JinjaValue::Int(op == "//" ? quotient : a - quotient * b);
}

JinjaValue RealOperation(JinjaHeap& heap, std::string_view op, double a, double b) {
  if (op == "+") return JinjaValue::Float(a + b);
  if (op == "-") return JinjaValue::Float(a - b);
  if (op == "*") return JinjaValue::Float(a * b);
  if (op == "**") return JinjaValue::Float(std::pow(a, b));
  if (b == 0) {
    heap.Fail("division by zero");
    return {};
  }
  if (op == "/") return JinjaValue::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == "%") return JinjaValue::Float(remainder);
  return JinjaValue::Float(std::floor((a - remainder) / b + 0.5));
}

JinjaValue Repeat(JinjaHeap& heap, const JinjaValue& sequence, int64_t times) {
  if (times < 0) times = 0;
  const bool text = sequence.Is(JinjaKind::kString);
  const uint64_t size = text ? TextOf(sequence).size() : sequence.list->items.size();
  const uint64_t unit = text ? 1 : sizeof(JinjaValue);
  const uint64_t limit = heap.limits().heap_bytes;
  if (size != 0 && static_cast<uint64_t>(times) > limit / (size * unit)) {
    heap.Fail("repetition makes more than " + std::to_string(limit) + " bytes");
    return {};
  }
  if (size == 0) times = 0;
  if (!heap.Work(size * unit * static_cast<uint64_t>(times)) ||
      !heap.Step(static_cast<uint64_t>(times))) {
    return {};
  }
  if (text) {
    MarkedText out;
    for (int64_t i = 0; i < times; ++i) out.Append(TextOf(sequence));
    return MakeText(heap, std::move(out));
  }
  JinjaList* out = MakeList(heap, sequence.list->form, size * static_cast<uint64_t>(times));
  for (int64_t i = 0; i < times && !heap.failed(); ++i) {
    out->items.insert(out->items.end(), sequence.list->items.begin(), sequence.list->items.end());
  }
  return JinjaValue::Of(out);
}

bool IsSequence(const JinjaValue& value) {
  return value.Is(JinjaKind::kString) ||
         (value.Is(JinjaKind::kList) &&
          (value.list->form == JinjaListForm::kList || value.list->form == JinjaListForm::kTuple));
}

JinjaValue Concatenate(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b) {
  if (a.Is(JinjaKind::kString)) {
    MarkedText out = TextOf(a);
    if (!heap.Work(out.size() + TextOf(b).size())) return {};
    out.Append(TextOf(b));
    return MakeText(heap, std::move(out));
  }
  JinjaList* out = MakeList(heap, a.list->form, a.list->items.size() + b.list->items.size());
  if (heap.failed()) return {};
  out->items = a.list->items;
  out->items.insert(out->items.end(), b.list->items.begin(), b.list->items.end());
  return JinjaValue::Of(out);
}

bool SameSequenceType(const JinjaValue& a, const JinjaValue& b) {
  return IsSequence(a) && a.kind == b.kind &&
         (a.Is(JinjaKind::kString) || a.list->form == b.list->form);
}

// A slice's part, which must be an integer or absent.
std::optional<int64_t> SlicePart(JinjaHeap& heap, const JinjaValue& part) {
  if (part.Is(JinjaKind::kNone)) return std::nullopt;
  if (!part.IsIntegral()) {
    heap.Fail(std::string("slice indices must be integers, not ") + TypeName(part));
    return std::nullopt;
  }
  return part.AsInt();
}

std::vector<int64_t> SliceIndices(JinjaHeap& heap, const JinjaSlice& slice, int64_t size) {
  const int64_t step = SlicePart(heap, slice.step).value_or(1);
  if (step == 0) heap.Fail("slice step is zero");
  if (heap.failed()) return {};
  const bool back = step < 0;
  const auto place = [&](const JinjaValue& part, int64_t otherwise) {
    const std::optional<int64_t> given = SlicePart(heap, part);
    if (!given.has_value()) return otherwise;
    const int64_t low = back ? -1 : 0;
    const int64_t high = back ? size - 1 : size;
    if (*given < -size) return low;
    if (*given < 0) return *given + size;
    return *given > high ? high : *given;
  };
  const int64_t start = place(slice.start, back ? size - 1 : 0);
  const int64_t stop = place(slice.stop, back ? -1 : size);
  std::vector<int64_t> indices;
  if (!heap.Work(static_cast<uint64_t>(size) * 8)) return {};
  const int64_t stride = step > size ? size + 1 : step < -size ? -size - 1 : step;
  for (int64_t i = start; back ? i > stop : i < stop; i += stride) indices.push_back(i);
  return indices;
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

bool CompareLists(JinjaHeap& heap, const JinjaList& a, const JinjaList& b, uint32_t depth) {
  for (size_t i = 0; i < a.items.size() && i < b.items.size(); ++i) {
    if (!AreEqual(heap, a.items[i], b.items[i], depth)) {
      return IsLess(heap, a.items[i], b.items[i], depth);
    }
    if (heap.failed()) return false;
  }
  return a.items.size() < b.items.size();
}

bool EqualDicts(JinjaHeap& heap, const JinjaDict& a, const JinjaDict& b, uint32_t depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const JinjaValue* other = FindEntry(heap, b, key);
    if (other == nullptr || !AreEqual(heap, value, *other, depth)) return false;
  }
  return true;
}

bool EqualLists(JinjaHeap& heap, const JinjaList& a, const JinjaList& b, uint32_t depth) {
  if (&a == &b) return true;
  if (a.form != b.form || a.form == JinjaListForm::kGenerator) return false;
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!AreEqual(heap, a.items[i], b.items[i], depth)) return false;
  }
  return true;
}

}  // namespace

void FailUndefined(JinjaHeap& heap, const JinjaValue& value) {
  heap.Fail(value.hint == nullptr ? "value is undefined" : "'" + *value.hint + "' is undefined");
}

JinjaValue ApplyBinary(JinjaHeap& heap, std::string_view op, const JinjaValue& left,
                       const JinjaValue& right) {
  if (left.IsIntegral() && right.IsIntegral()) {
    return IntegerOperation(heap, op, left.AsInt(), right.AsInt());
  }
  if (left.IsNumber() && right.IsNumber()) {
    return RealOperation(heap, op, left.AsReal(), right.AsReal());
  }
  if (op == "+" && SameSequenceType(left, right)) return Concatenate(heap, left, right);
  if (op == "*" && IsSequence(left) && right.IsIntegral()) {
    return Repeat(heap, left, right.AsInt());
  }
  if (op == "*" && IsSequence(right) && left.IsIntegral()) {
    return Repeat(heap, right, left.AsInt());
  }
  if (op == "%" && left.Is(JinjaKind::kString)) return FormatPercent(heap, TextOf(left), right);
  return FailTypes(heap, op, left, right);
}

JinjaValue ApplyUnary(JinjaHeap& heap, std::string_view op, const JinjaValue& operand) {
  if (op == "not") return JinjaValue::Bool(!IsTrue(operand));
  if (!operand.IsNumber()) return FailTypes(heap, op, operand, operand);
  const bool negate = op == "-";
  if (operand.IsIntegral()) return IntegerOperation(heap, op, 0, operand.AsInt());
  return JinjaValue::Float(negate ? -operand.real : operand.real);
}

bool ApplyComparison(JinjaHeap& heap, std::string_view op, const JinjaValue& left,
                     const JinjaValue& right) {
  if (op == "==") return AreEqual(heap, left, right);
  if (op == "!=") return !AreEqual(heap, left, right);
  if (op == "<") return IsLess(heap, left, right);
  if (op == ">") return IsLess(heap, right, left);
  if (op == "in") return IsIn(heap, left, right);
  if (op == "not in") return !IsIn(heap, left, right);
  const bool strict = op == "<=" ? IsLess(heap, left, right) : IsLess(heap, right, left);
  return strict || (!heap.failed() && AreEqual(heap, left, right));
}

bool AreEqual(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b, uint32_t depth) {
  if (depth > heap.limits().value_depth) heap.Fail("values nested too deep to compare");
  if (!heap.Step()) return false;
  if (a.IsNumber() && b.IsNumber()) {
    return a.IsIntegral() && b.IsIntegral() ? a.AsInt() == b.AsInt() : a.AsReal() == b.AsReal();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case JinjaKind::kUndefined:
    case JinjaKind::kNone:
      return true;
    case JinjaKind::kString:
      return TextOf(a).size() == TextOf(b).size() && heap.Work(TextOf(a).size()) &&
             TextOf(a).text() == TextOf(b).text();
    case JinjaKind::kList:
      return EqualLists(heap, *a.list, *b.list, depth + 1);
    case JinjaKind::kDict:
      return a.dict == b.dict || EqualDicts(heap, *a.dict, *b.dict, depth + 1);
    default:
      return a.callable == b.callable;
  }
}

bool IsLess(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b, uint32_t depth) {
  if (depth > heap.limits().value_depth) heap.Fail("values nested too deep to compare");
  if (!heap.Step()) return false;
  if (a.IsNumber() && b.IsNumber()) {
    return a.IsIntegral() && b.IsIntegral() ? a.AsInt() < b.AsInt() : a.AsReal() < b.AsReal();
  }
  if (a.Is(JinjaKind::kString) && b.Is(JinjaKind::kString)) {
    return heap.Work(TextOf(a).size()) && TextOf(a).text() < TextOf(b).text();
  }
  if (SameSequenceType(a, b)) return CompareLists(heap, *a.list, *b.list, depth + 1);
  FailTypes(heap, "<", a, b);
  return false;
}

bool IsIn(JinjaHeap& heap, const JinjaValue& item, const JinjaValue& container) {
  switch (container.kind) {
    case JinjaKind::kUndefined:
      return false;
    case JinjaKind::kString:
      if (!item.Is(JinjaKind::kString)) break;
      // find() may look at every byte once per byte of the needle in the worst case.
      if (!heap.Work(TextOf(container).size() * 4)) return false;
      return FindText(heap, TextOf(container).text(), TextOf(item).text(), 0) != std::string::npos;
    case JinjaKind::kDict:
      return FindEntry(heap, *container.dict, item) != nullptr;
    case JinjaKind::kList:
      for (const JinjaValue& candidate : *IterateValue(heap, container)) {
        if (AreEqual(heap, candidate, item)) return true;
        if (heap.failed()) return false;
      }
      return false;
    default:
      break;
  }
  FailTypes(heap, "in", item, container);
  return false;
}

const std::vector<JinjaValue>* IterateValue(JinjaHeap& heap, const JinjaValue& value) {
  if (value.Is(JinjaKind::kList)) {
    if (value.list->form != JinjaListForm::kGenerator) return &value.list->items;
    if (!value.list->consumed) {
      value.list->consumed = true;
      return &value.list->items;
    }
    return &MakeList(heap, JinjaListForm::kList)->items;
  }
  JinjaList* list = MakeList(heap, JinjaListForm::kList);
  if (value.Is(JinjaKind::kDict)) {
    if (!heap.Allocate(value.dict->entries.size() * sizeof(JinjaValue))) return &list->items;
    for (const auto& [key, unused] : value.dict->entries) list->items.push_back(key);
  } else if (value.Is(JinjaKind::kString)) {
    const MarkedText& text = TextOf(value);
    for (size_t at = 0; at < text.size() && heap.Step();) {
      const size_t bytes = CharacterAt(text.text(), at).bytes;
      MarkedText character;
      character.AppendSlice(text, at, at + bytes);
      list->items.push_back(MakeText(heap, std::move(character)));
      at += bytes;
    }
  } else if (!value.Is(JinjaKind::kUndefined)) {
    heap.Fail(std::string("'") + TypeName(value) + "' object is not iterable");
  }
  return &list->items;
}

JinjaValue ApplySlice(JinjaHeap& heap, const JinjaValue& object, const JinjaSlice& slice) {
  if (object.Is(JinjaKind::kUndefined)) {
    FailUndefined(heap, object);
    return {};
  }
  if (object.Is(JinjaKind::kString)) {
    const MarkedText& text = TextOf(object);
    if (!heap.Work(text.size() * 4)) return {};
    const std::vector<size_t> offsets = CharacterOffsets(text.text());
    MarkedText out;
    for (const int64_t i : SliceIndices(heap, slice, static_cast<int64_t>(offsets.size()) - 1)) {
      const size_t at = static_cast<size_t>(i);
      out.AppendSlice(text, offsets[at], offsets[at + 1]);
    }
    return MakeText(heap, std::move(out));
  }
  if (!object.Is(JinjaKind::kList) || object.list->form == JinjaListForm::kView ||
      object.list->form == JinjaListForm::kGenerator) {
    return {};
  }
  const std::vector<JinjaValue>& items = object.list->items;
  JinjaList* out = MakeList(heap, object.list->form);
  for (const int64_t i : SliceIndices(heap, slice, static_cast<int64_t>(items.size()))) {
    out->items.push_back(items[static_cast<size_t>(i)]);
  }
  if (!heap.Allocate(out->items.size() * sizeof(JinjaValue))) return {};
  return JinjaValue::Of(out);
}

JinjaValue ElementAt(JinjaHeap& heap, const JinjaValue& object, int64_t index) {
  if (object.Is(JinjaKind::kList)) {
    if (object.list->form == JinjaListForm::kView ||
        object.list->form == JinjaListForm::kGenerator) {
      return {};
    }
    const int64_t size = static_cast<int64_t>(object.list->items.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return {};
    return object.list->items[static_cast<size_t>(index)];
  }
  const MarkedText& text = TextOf(object);
  if (!heap.Work(text.size())) return {};
  if (index < 0) index += static_cast<int64_t>(CountCharacters(text.text()));
  if (index < 0) return {};
  size_t at = 0;
  for (; at < text.size() && index > 0; --index) at += CharacterAt(text.text(), at).bytes;
  if (at >= text.size()) return {};
  MarkedText out;
  out.AppendSlice(text, at, at + CharacterAt(text.text(), at).bytes);
  return MakeText(heap, std::move(out));
}

void SetEntry(JinjaHeap& heap, JinjaDict* dict, const JinjaValue& key, const JinjaValue& value) {
  if (!heap.Allocate(sizeof(JinjaValue) * 2 + 48)) return;
  if (key.Is(JinjaKind::kString)) {
    dict->SetString(key, value);
    return;
  }
  if (key.Is(JinjaKind::kDict) ||
      (key.Is(JinjaKind::kList) && key.list->form != JinjaListForm::kTuple)) {
    heap.Fail(std::string("unhashable type: '") + TypeName(key) + "'");
    return;
  }
  for (auto& [old_key, old_value] : dict->entries) {
    if (AreEqual(heap, old_key, key)) {
      old_value = value;
      return;
    }
  }
  dict->entries.emplace_back(key, value);
}

const JinjaValue* FindEntry(JinjaHeap& heap, const JinjaDict& dict, const JinjaValue& key) {
  if (key.Is(JinjaKind::kString)) return dict.Find(TextOf(key).text());
  if (dict.index.size() == dict.entries.size()) return nullptr;
  for (const auto& [candidate, value] : dict.entries) {
    if (AreEqual(heap, candidate, key)) return &value;
  }
  return nullptr;
}

}  // namespace kairos
