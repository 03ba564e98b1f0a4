// SPDX-License-Identifier: Apache-2.0
// What of a client's JSON schema or pattern is let through to the grammar library: what it cannot
// keep exactly, or would take unbounded time, memory or stack over, is refused by name.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace kairos {

// Properties are generated in the order in which the schema names them.
using SchemaJson = nlohmann::ordered_json;

// Empty, or why the schema cannot be enforced.
std::string SchemaFault(const SchemaJson& schema);
// Empty, or why the regular expression cannot be enforced.
std::string RegexFault(std::string_view regex);
// JSON numbers have no limit; the programs that read them do. Where a schema names none, integers
// stay what every reader holds exactly, and others are decimals below 10^18.
void BoundNumbers(SchemaJson* schema);

}  // namespace kairos
