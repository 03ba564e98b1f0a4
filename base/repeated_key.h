// SPDX-License-Identifier: Apache-2.0
// Keys that stand twice in one object of JSON text. Parsers keep one of the two values, most the
// last one; whoever wrote the other meant something by it.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace kairos {

// Empty, or the place of the first such key and the key, in words that begin with `root`, the name
// of the whole text: `constraint.properties: the key "a" is there twice`. Text that is no JSON has
// none; it nests less deep than the stack allows (base/json_depth.h).
std::string RepeatedKeyFault(std::string_view json, std::string_view root);

}  // namespace kairos
