// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/endless.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

std::string OfLark(std::string_view grammar) {
  const std::vector<LarkWord> words = LarkWords(grammar);
  return EndlessFault(LarkDefinitions(words));
}

TEST(Endless, RulesThatRequireThemselvesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"start: \"a\" start", "\"start\""},
      {"start: \"a\" | b\nb: \"x\" b", "\"b\""},
      {"start: a\na: \"(\" b \")\"\nb: a | \"[\" a \"]\"", "\"start\""},
      {"start: (\"a\" | \"b\") start+", "\"start\""},
      {"start: \"x\" start{2,3}", "\"start\""},
      {"start: T start ~ 2\nT: /x/", "\"start\""},
  };
  for (const auto& [grammar, name] : cases) {
    const std::string fault = OfLark(grammar);
    EXPECT_NE(fault.find(std::string("nothing matches rule ") + name), std::string::npos)
        << grammar << ": " << fault;
  }
}

TEST(Endless, RulesWithAWayOutAreNot) {
  for (const char* grammar :
       {"start: \"a\" start | \"b\"", "start: \"a\" start?", "start: \"a\" start*",
        "start: \"a\" [start]", "start: \"a\" start{0,3}", "start: \"a\" (start | \"b\")",
        "start: \"a\" start ~ 0..2", "start: a -> start\na: \"b\"", "start: \"a\"\n  | start",
        "start: b\nb: (\"c\" b)? \"d\"", "start: unknown", "start:", ""}) {
    EXPECT_EQ(OfLark(grammar), "") << grammar;
  }
}

std::string OfSchema(std::string_view json) {
  return EndlessFault(SchemaJson::parse(json.begin(), json.end()));
}

TEST(Endless, SchemasThatRequireThemselvesAreNamed) {
  for (const char* schema :
       {R"({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref":
            "#/$defs/a"}}})",
        R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})",
        R"({"type": ["array"], "prefixItems": [true, {"$ref": "#"}], "minItems": 2})",
        R"({"anyOf": [{"$ref": "#"}, {"type": "object", "required": ["a"],
            "additionalProperties": {"$ref": "#"}}]})",
        R"({"properties": {"b": {"$ref": "#/$defs/a%20c"}}, "$defs": {"a c": {"allOf": [{},
            {"$ref": "#/$defs/a%20c"}]}}})"}) {
    const std::string fault = OfSchema(schema);
    EXPECT_NE(fault.find("$ref: nothing matches \"#"), std::string::npos) << schema << fault;
  }
}

TEST(Endless, SchemasWithAWayOutAreNot) {
  for (const char* schema :
       {R"({"type": "object", "properties": {"x": {"$ref": "#"}}})",
        R"({"properties": {"x": {"$ref": "#"}}, "required": ["x"]})",
        R"({"type": ["object", "null"], "properties": {"x": {"$ref": "#"}}, "required": ["x"]})",
        R"({"type": "array", "items": {"$ref": "#"}})",
        R"({"type": "array", "prefixItems": [true, {"$ref": "#"}], "minItems": 1})",
        R"({"type": "object", "required": ["x"], "properties": {"x": {"anyOf": [{"$ref": "#"},
            {"type": "null"}]}}})",
        R"({"$ref": "http://a/b"})", R"({"$ref": "#/no/such"})", R"({"$ref": "#anchor"})"}) {
    EXPECT_EQ(OfSchema(schema), "") << schema;
  }
}

}  // namespace
}  // namespace kairos
