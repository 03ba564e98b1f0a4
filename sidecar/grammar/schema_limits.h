// SPDX-License-Identifier: Apache-2.0
// What of a client's schema, pattern or grammar is let through to the grammar library: what it
// cannot keep exactly, or would take unbounded time, memory or stack over, is refused by name.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "sidecar/grammar/schema_dialect.h"

namespace kairos {

// Empty, or why the schema cannot be enforced. All of these take schemas read in their draft.
std::string SchemaFault(const SchemaJson& schema);
// Empty, or why the regular expression or the Lark grammar cannot be enforced.
std::string RegexFault(std::string_view regex);
std::string LarkFault(std::string_view grammar);
// JSON numbers have no limit; the programs that read them do. Where a schema names none, integers
// stay what every reader holds exactly, and others are decimals below 10^18. Not inside values of
// whose parts the schema says nothing at all.
void BoundNumbers(SchemaJson* schema);

}  // namespace kairos
