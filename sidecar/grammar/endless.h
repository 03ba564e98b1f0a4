// SPDX-License-Identifier: Apache-2.0
// Grammars and schemas of which no text ever ends, since they require themselves: a rule each of
// whose alternatives names it again, a schema that is a required property of its own. Replies
// would go on until their tokens are used up, and match nothing.
// Pure; any thread. The time that it takes grows with the size of what is looked at.
#pragma once

#include <span>
#include <string>

#include "sidecar/grammar/lark_text.h"
#include "sidecar/grammar/schema_dialect.h"

namespace kairos {

// Empty, or which rule is so. Names that are not defined are taken to end.
std::string EndlessFault(std::span<const LarkDefinition> definitions);
// Empty, or which reference leads to such a schema. The schema is read in its draft; what it refers
// to elsewhere, or by anchors, is taken to end.
std::string EndlessFault(const SchemaJson& schema);

}  // namespace kairos
