// SPDX-License-Identifier: Apache-2.0
// Python's two ways to format: "%s" % values and "{}".format(values), and text search with a bound.
// Inserted text keeps its marks. Widths and precisions are capped.
#pragma once

#include <cstddef>
#include <string_view>

#include "sidecar/chat/jinja/value.h"

namespace kairos {

JinjaValue FormatPercent(JinjaHeap& heap, const MarkedText& pattern, const JinjaValue& values);
JinjaValue FormatBraces(JinjaHeap& heap, const MarkedText& pattern,
                        const JinjaArguments& arguments);

// Offset of `needle` in `text` at or after `from`, or npos. Charges what the search may cost.
size_t FindText(JinjaHeap& heap, std::string_view text, std::string_view needle, size_t from);

}  // namespace kairos
