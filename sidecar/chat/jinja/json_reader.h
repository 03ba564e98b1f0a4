// SPDX-License-Identifier: Apache-2.0
// JSON text to template values. The only file that sees the JSON library; its exceptions end here.
#pragma once

#include <string>
#include <string_view>

#include "sidecar/chat/jinja/value.h"

namespace kairos {

inline constexpr uint32_t kJsonDepthMax = 64;

// Every string in the result carries `source`. False with *error (offset and reason) for text that
// is not one JSON value, or is nested deeper than kJsonDepthMax. Integers past 64 bits become
// reals.
bool ReadJson(JinjaHeap& heap, std::string_view text, TextSource source, JinjaValue* value,
              std::string* error);

}  // namespace kairos
