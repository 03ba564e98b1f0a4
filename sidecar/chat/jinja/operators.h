// SPDX-License-Identifier: Apache-2.0
// Python's operators on template values. Failures (wrong types, overflow past 64 bits) are recorded
// in the heap; the result is then undefined.
#pragma once

#include <string_view>
#include <vector>

#include "sidecar/chat/jinja/value.h"

namespace kairos {

JinjaValue ApplyBinary(JinjaHeap& heap, std::string_view op, const JinjaValue& left,
                       const JinjaValue& right);
JinjaValue ApplyUnary(JinjaHeap& heap, std::string_view op, const JinjaValue& operand);
// op is == != < <= > >= in "not in".
bool ApplyComparison(JinjaHeap& heap, std::string_view op, const JinjaValue& left,
                     const JinjaValue& right);
bool AreEqual(JinjaHeap& heap, const JinjaValue& left, const JinjaValue& right, uint32_t depth = 0);
// Whether left sorts before right; a failure for types without an order.
bool IsLess(JinjaHeap& heap, const JinjaValue& left, const JinjaValue& right, uint32_t depth = 0);
bool IsIn(JinjaHeap& heap, const JinjaValue& item, const JinjaValue& container);

// What iterating gives: list items, dict keys, characters; a failure for the rest. Exhausts
// generators. Never null; lives as long as the heap.
const std::vector<JinjaValue>* IterateValue(JinjaHeap& heap, const JinjaValue& value);

struct JinjaSlice {
  JinjaValue start, stop, step;  // None where omitted
};
JinjaValue ApplySlice(JinjaHeap& heap, const JinjaValue& object, const JinjaSlice& slice);
// Element at a Python index; undefined when there is none.
JinjaValue ElementAt(JinjaHeap& heap, const JinjaValue& object, int64_t index);

// Sets `key` in `dict`, comparing as Python does; a failure when the key cannot be hashed.
void SetEntry(JinjaHeap& heap, JinjaDict* dict, const JinjaValue& key, const JinjaValue& value);
const JinjaValue* FindEntry(JinjaHeap& heap, const JinjaDict& dict, const JinjaValue& key);

void FailUndefined(JinjaHeap& heap, const JinjaValue& value);

}  // namespace kairos
