// SPDX-License-Identifier: Apache-2.0
// The drafts of JSON Schema. A schema names its own with "$schema"; without, it is 2020-12. What
// the drafts say differently is rewritten here, so that all who look at the schema afterwards, the
// grammar library too, may read it in one way.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace kairos {

// Properties are generated in the order in which the schema names them.
using SchemaJson = nlohmann::ordered_json;

// What stands under a keyword.
enum class SchemaPart : int32_t {
  kSchemas,  // a schema, a list of schemas, or something that no draft knows and $ref may point at
  kNamed,    // schemas by name
  kData,     // no schema, whatever it looks like
};
SchemaPart SchemaPartOf(std::string_view keyword);
// Whether it says what a value must be, in any draft.
bool Asserts(std::string_view keyword);

// Empty, or a keyword that seems to be a slip for one that asserts something: a draft would pass it
// over, and the client would get what it meant to rule out. `schema` is an object.
std::string MisspeltKeyword(const SchemaJson& schema);

// The fragment of a reference, less its escapes: "/a b" of "/a%20b".
std::string FragmentText(std::string_view fragment);

// Calls visit(schema) for every object that stands directly under the keyword where a schema may.
// Stops when it returns false, and then returns false.
template <typename Json, typename Visit>
bool EachSchemaUnder(std::string_view keyword, Json& value, const Visit& visit) {
  const auto visit_all = [&visit](auto&& self, Json& part) -> bool {
    if (part.is_object()) return visit(part);
    if (!part.is_array()) return true;
    for (Json& element : part) {
      if (!self(self, element)) return false;
    }
    return true;
  };
  const SchemaPart part = SchemaPartOf(keyword);
  if (part == SchemaPart::kData) return true;
  if (part != SchemaPart::kNamed || !value.is_object()) return visit_all(visit_all, value);
  for (Json& named : value) {
    if (!visit_all(visit_all, named)) return false;
  }
  return true;
}

// As above, for all keywords of `schema`, which is an object.
template <typename Json, typename Visit>
bool EachSubschema(Json& schema, const Visit& visit) {
  for (auto& [keyword, value] : schema.items()) {
    if (!EachSchemaUnder(keyword, value, visit)) return false;
  }
  return true;
}

// Empty, or why the schema cannot be read, which begins with the keyword. Afterwards:
//  - exclusiveMinimum and exclusiveMaximum are numbers (true and false in draft-04);
//  - a $ref stands alone where its draft ignores what stands beside it (until draft-07);
//  - additionalItems stands directly behind a list of items, or nowhere;
//  - keywords that assert nothing, as they are used, are gone;
//  - counts are integers, also where they were written as 2.0.
// Refused are misspelt keywords, keywords that assert something in other drafts only, unknown
// drafts, two drafts in one schema, and references for which the grammar library would take another
// target.
// `schema` is an object.
std::string ReadInItsDraft(SchemaJson* schema);

}  // namespace kairos
