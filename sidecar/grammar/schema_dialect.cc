// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/schema_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "base/edit_distance.h"
#include "base/printable_text.h"

namespace kairos {
namespace {

enum class Draft : int32_t { k4, k6, k7, k2019, k2020 };

struct DraftName {
  Draft draft;
  const char* name;
  const char* uri;
};
constexpr DraftName kDrafts[] = {
    {Draft::k4, "draft-04", "http://json-schema.org/draft-04/schema#"},
    {Draft::k6, "draft-06", "http://json-schema.org/draft-06/schema#"},
    {Draft::k7, "draft-07", "http://json-schema.org/draft-07/schema#"},
    {Draft::k2019, "2019-09", "https://json-schema.org/draft/2019-09/schema"},
    {Draft::k2020, "2020-12", "https://json-schema.org/draft/2020-12/schema"},
};

const char* NameOf(Draft draft) { return kDrafts[static_cast<size_t>(draft)].name; }

// Keywords that assert something in these drafts. Those of draft-03 alone never do here.
struct Assertion {
  std::string_view keyword;
  Draft first;
  Draft last;
  bool known = true;  // to any draft that is read
};
constexpr Assertion kAssertions[] = {
    {"const", Draft::k6, Draft::k2020},
    {"contains", Draft::k6, Draft::k2020},
    {"propertyNames", Draft::k6, Draft::k2020},
    {"if", Draft::k7, Draft::k2020},
    {"then", Draft::k7, Draft::k2020},
    {"else", Draft::k7, Draft::k2020},
    {"dependencies", Draft::k4, Draft::k7},
    {"additionalItems", Draft::k4, Draft::k2019},
    {"dependentRequired", Draft::k2019, Draft::k2020},
    {"dependentSchemas", Draft::k2019, Draft::k2020},
    {"minContains", Draft::k2019, Draft::k2020},
    {"maxContains", Draft::k2019, Draft::k2020},
    {"unevaluatedItems", Draft::k2019, Draft::k2020},
    {"unevaluatedProperties", Draft::k2019, Draft::k2020},
    {"$recursiveRef", Draft::k2019, Draft::k2019},
    {"prefixItems", Draft::k2020, Draft::k2020},
    {"$dynamicRef", Draft::k2020, Draft::k2020},
    {"divisibleBy", Draft::k4, Draft::k4, false},
    {"disallow", Draft::k4, Draft::k4, false},
    {"extends", Draft::k4, Draft::k4, false},
};

constexpr std::string_view kAlwaysAssert[] = {
    "type", "enum", "allOf", "anyOf", "oneOf", "not", "items", "minItems", "maxItems",
    "uniqueItems", "properties", "additionalProperties", "patternProperties", "required",
    "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
// Words of other languages of schemas that are near to one above.
constexpr std::string_view kSayNothing[] = {"optional", "requires", "patterns", "formats",
                                            "multiple"};

std::vector<std::string_view> AssertingKeywords() {
  std::vector<std::string_view> keywords(std::begin(kAlwaysAssert), std::end(kAlwaysAssert));
  for (const Assertion& one : kAssertions) {
    if (one.known) keywords.push_back(one.keyword);
  }
  return keywords;
}

constexpr size_t kSlipsFrom = 7;  // letters of a keyword
constexpr size_t kSlipsMax = 2;

// What a $ref until draft-07 does not ignore: what only names or holds, and so may be pointed at.
constexpr std::string_view kBesideReference[] = {"$ref", "$schema", "$id", "id", "definitions",
                                                 "$defs", "$comment", "title", "description"};

constexpr double kCountMax = 1e15;

bool IsOneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Of two ways to write it, http and https, with and without an empty fragment.
std::optional<Draft> DraftOf(std::string_view uri) {
  const auto core = [](std::string_view text) {
    text.remove_prefix(std::min(text.find("://"), text.size()));
    return text.substr(0, text.find_last_not_of('#') + 1);
  };
  const bool is_web = uri.starts_with("http://") || uri.starts_with("https://");
  for (const DraftName& one : kDrafts) {
    if (is_web && core(uri) == core(one.uri)) return one.draft;
  }
  return std::nullopt;
}

bool IsAnything(const SchemaJson& schema) {
  return schema == SchemaJson(true) || (schema.is_object() && schema.empty());
}

// Names of properties are strings anyhow.
bool IsAnyName(const SchemaJson& schema) {
  return IsAnything(schema) || schema == SchemaJson{{"type", "string"}};
}

bool IsEmptyMap(const SchemaJson& value) { return value.is_object() && value.empty(); }

class DraftReader {
 public:
  std::string Read(SchemaJson* root) {
    if (const auto named = root->find("$schema"); named != root->end()) {
      const std::optional<Draft> draft =
          named->is_string() ? DraftOf(named->get_ref<const std::string&>()) : std::nullopt;
      if (!draft) {
        return fmt::format("$schema: {} is not supported; draft-04, draft-06, draft-07, 2019-09 "
                           "and 2020-12 are", named->dump());
      }
      draft_ = *draft;
    }
    std::string fault = ReadSchema(root, true);
    if (fault.empty() && inner_base_ && points_inside_) {
      fault = fmt::format("{}: inside a schema, beside references with fragments, is not supported",
                          draft_ == Draft::k4 ? "id" : "$id");
    }
    return fault;
  }

 private:
  std::string ReadSchema(SchemaJson* schema, bool is_root) {
    std::string fault = SchemaNameFault(schema);
    if (fault.empty()) fault = LookAtReferences(schema, is_root);
    if (fault.empty()) fault = ForeignKeywordFault(*schema);
    if (fault.empty()) fault = ReadBound(schema, "minimum", "exclusiveMinimum");
    if (fault.empty()) fault = ReadBound(schema, "maximum", "exclusiveMaximum");
    if (fault.empty()) fault = ReadItems(schema);
    if (!fault.empty()) return fault;
    DropIdle(schema);
    WriteCounts(schema);
    EachSubschema(*schema, [&](SchemaJson& part) {
      fault = ReadSchema(&part, false);
      return fault.empty();
    });
    return fault;
  }

  std::string SchemaNameFault(SchemaJson* schema) const {
    const auto named = schema->find("$schema");
    if (named == schema->end()) return "";
    if (!named->is_string() || DraftOf(named->get_ref<const std::string&>()) != draft_) {
      return fmt::format("$schema: {} inside a schema of {}", named->dump(), NameOf(draft_));
    }
    *named = kDrafts[static_cast<size_t>(draft_)].uri;
    return "";
  }

  std::string LookAtReferences(SchemaJson* schema, bool is_root) {
    const auto id = schema->find(draft_ == Draft::k4 ? "id" : "$id");
    if (!is_root && id != schema->end() && id->is_string()) {
      inner_base_ |= !id->get_ref<const std::string&>().starts_with('#');
    }
    const auto reference = schema->find("$ref");
    if (reference == schema->end() || !reference->is_string()) return "";
    const std::string uri = reference->get<std::string>();
    const size_t fragment = uri.find('#');
    points_inside_ |= fragment != std::string::npos && fragment + 1 < uri.size();
    if (fragment != std::string::npos && PointsIntoData(uri.substr(fragment + 1))) {
      return "$ref: points into data, which is no schema";
    }
    if (draft_ > Draft::k7) return "";
    SchemaJson alone = SchemaJson::object();
    for (auto& [keyword, value] : schema->items()) {
      // Keywords of no draft may hold schemas that are pointed at.
      if (IsOneOf(keyword, kBesideReference) || !Asserts(keyword)) alone[keyword] = value;
    }
    *schema = std::move(alone);
    return "";
  }

  static bool PointsIntoData(std::string_view pointer) {
    const std::string plain = FragmentText(pointer);
    bool named = false;  // the segment is a name that the client gave
    for (size_t at = 0; at < plain.size();) {
      const size_t end = std::min(plain.find('/', at), plain.size());
      const SchemaPart part = SchemaPartOf(std::string_view(plain).substr(at, end - at));
      if (!named && part == SchemaPart::kData) return true;
      named = !named && part == SchemaPart::kNamed;
      at = end + 1;
    }
    return false;
  }

  std::string ForeignKeywordFault(const SchemaJson& schema) const {
    for (const Assertion& one : kAssertions) {
      if (!schema.contains(one.keyword)) continue;
      if (!one.known) return fmt::format("{}: a keyword of draft-03 alone", one.keyword);
      if (draft_ >= one.first && draft_ <= one.last) continue;
      return fmt::format("{}: says nothing in {}, which the schema {}; it does from {} to {}",
                         one.keyword, NameOf(draft_),
                         draft_ == Draft::k2020 ? "is by default" : "names with $schema",
                         NameOf(one.first), NameOf(one.last));
    }
    return "";
  }

  std::string ReadBound(SchemaJson* schema, const char* bound, const char* exclusive) const {
    const auto found = schema->find(exclusive);
    if (found == schema->end()) return "";
    if (draft_ != Draft::k4) {
      return found->is_number() ? "" : fmt::format("{}: must be a number in {}", exclusive,
                                                   NameOf(draft_));
    }
    if (!found->is_boolean()) {
      return fmt::format("{}: must be true or false in draft-04", exclusive);
    }
    const bool is_exclusive = found->get<bool>() && schema->contains(bound);
    if (!is_exclusive) {
      schema->erase(exclusive);
      return "";
    }
    *found = (*schema)[bound];
    schema->erase(bound);
    return "";
  }

  std::string ReadItems(SchemaJson* schema) const {
    const auto items = schema->find("items");
    const bool is_list = items != schema->end() && items->is_array();
    if (draft_ == Draft::k2020) {
      return is_list ? "items: a list is prefixItems in 2020-12; name an earlier draft with "
                       "$schema, or rename it" : "";
    }
    const auto others = schema->find("additionalItems");
    if (others == schema->end()) return "";
    SchemaJson rest = std::move(*others);
    schema->erase(others);
    if (!is_list) return "";
    SchemaJson ordered = SchemaJson::object();
    for (auto& [keyword, value] : schema->items()) {
      const bool is_items = keyword == "items";
      ordered[keyword] = std::move(value);
      if (is_items) ordered["additionalItems"] = std::move(rest);
    }
    *schema = std::move(ordered);
    return "";
  }

  // What many programs write although it says nothing, and the grammar library does not know.
  static void DropIdle(SchemaJson* schema) {
    const auto drop = [schema](const char* keyword, auto&& is_idle) {
      const auto found = schema->find(keyword);
      if (found != schema->end() && is_idle(*found)) schema->erase(found);
    };
    const auto always = [](const SchemaJson&) { return true; };
    drop("uniqueItems", [](const SchemaJson& value) { return value == SchemaJson(false); });
    drop("propertyNames", IsAnyName);
    drop("unevaluatedProperties", IsAnything);
    drop("unevaluatedItems", IsAnything);
    for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
      drop(keyword, IsEmptyMap);
    }
    if (!schema->contains("then") && !schema->contains("else")) drop("if", always);
    if (!schema->contains("if")) {
      drop("then", always);
      drop("else", always);
    }
    if (!schema->contains("contains")) {
      drop("minContains", always);
      drop("maxContains", always);
    }
  }

  // 2.0 counts as 2 does.
  static void WriteCounts(SchemaJson* schema) {
    for (const char* keyword : {"minLength", "maxLength", "minItems", "maxItems", "minProperties",
                                "maxProperties"}) {
      const auto found = schema->find(keyword);
      if (found == schema->end() || !found->is_number_float()) continue;
      const double value = found->get<double>();
      if (value >= 0 && value <= kCountMax && std::floor(value) == value) {
        *found = static_cast<uint64_t>(value);
      }
    }
  }

  Draft draft_ = Draft::k2020;
  bool inner_base_ = false;     // something inside has an id of its own
  bool points_inside_ = false;  // something refers to a part of a schema
};

}  // namespace

SchemaPart SchemaPartOf(std::string_view keyword) {
  constexpr std::string_view kNamed[] = {"properties", "patternProperties", "definitions", "$defs",
                                         "dependentSchemas", "dependencies"};
  constexpr std::string_view kData[] = {"const", "enum", "default", "examples"};
  if (IsOneOf(keyword, kNamed)) return SchemaPart::kNamed;
  return IsOneOf(keyword, kData) ? SchemaPart::kData : SchemaPart::kSchemas;
}

bool Asserts(std::string_view keyword) {
  return IsOneOf(keyword, kAlwaysAssert) ||
         std::any_of(std::begin(kAssertions), std::end(kAssertions),
                     [&](const Assertion& one) { return one.keyword == keyword; });
}

std::string FragmentText(std::string_view fragment) {
  std::string plain;
  for (size_t i = 0; i < fragment.size(); ++i) {
    uint8_t value = 0;
    const bool is_escape =
        fragment[i] == '%' && i + 2 < fragment.size() &&
        std::from_chars(&fragment[i] + 1, &fragment[i] + 3, value, 16).ec == std::errc();
    plain += is_escape ? static_cast<char>(value) : fragment[i];
    if (is_escape) i += 2;
  }
  return plain;
}

std::string MisspeltKeyword(const SchemaJson& schema) {
  for (const auto& [keyword, value] : schema.items()) {
    if (Asserts(keyword) || IsOneOf(keyword, kSayNothing)) continue;
    for (const std::string_view meant : AssertingKeywords()) {
      // Short words are near to many others that are meant as they stand.
      if (meant.size() < kSlipsFrom ||
          EditDistance(std::string_view(keyword).substr(0, 100), meant) > kSlipsMax) {
        continue;
      }
      return fmt::format("{}: no keyword; did you mean {}?", Printable(keyword), meant);
    }
  }
  std::string fault;
  for (const auto& [keyword, value] : schema.items()) {
    // What stands under other words may be anything.
    if (!Asserts(keyword) && keyword != "$defs" && keyword != "definitions") continue;
    const bool is_clean = EachSchemaUnder(keyword, value, [&fault](const SchemaJson& part) {
      fault = MisspeltKeyword(part);
      return fault.empty();
    });
    if (!is_clean) break;
  }
  return fault;
}

std::string ReadInItsDraft(SchemaJson* schema) {
  std::string fault = MisspeltKeyword(*schema);
  return fault.empty() ? DraftReader().Read(schema) : fault;
}

}  // namespace kairos
