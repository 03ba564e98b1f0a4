// SPDX-License-Identifier: Apache-2.0
// Template source to a syntax tree. Bounded in nesting; says line and reason when it refuses.
#pragma once

#include <string>
#include <string_view>

#include "sidecar/chat/jinja/syntax_tree.h"

namespace kairos {

// False with *error when the source is not a template of the supported language.
bool ParseJinja(std::string_view source, JinjaBody* body, std::string* error);

}  // namespace kairos
