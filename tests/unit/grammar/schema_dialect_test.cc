// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/schema_dialect.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

constexpr const char* k4 = "http://json-schema.org/draft-04/schema#";
constexpr const char* k7 = "http://json-schema.org/draft-07/schema#";
constexpr const char* k2019 = "https://json-schema.org/draft/2019-09/schema";

SchemaJson Named(const char* draft, const char* text) {
  SchemaJson schema = SchemaJson::parse(text);
  if (draft != nullptr) schema["$schema"] = draft;
  return schema;
}

TEST(SchemaDialect, EachDraftIsReadAsItMeansIt) {
  struct Case {
    const char* draft;
    const char* given;
    const char* read;
  };
  const Case cases[] = {
      {k4, R"({"minimum": 3, "exclusiveMinimum": true})", R"({"exclusiveMinimum": 3})"},
      {k4, R"({"minimum": 3, "exclusiveMinimum": false})", R"({"minimum": 3})"},
      {k4, R"({"exclusiveMaximum": true})", R"({})"},
      {k4, R"({"properties": {"a": {"maximum": 3, "exclusiveMaximum": true}}})",
       R"({"properties": {"a": {"exclusiveMaximum": 3}}})"},
      {k7, R"({"$ref": "#/definitions/a", "minLength": 3, "definitions": {"a": {"minLength": 1}}})",
       R"({"$ref": "#/definitions/a", "definitions": {"a": {"minLength": 1}}})"},
      {k2019, R"({"$ref": "#/$defs/a", "minLength": 3, "$defs": {"a": {}}})",
       R"({"$ref": "#/$defs/a", "minLength": 3, "$defs": {"a": {}}})"},
      {k7, R"({"additionalItems": false, "items": [{}]})",
       R"({"items": [{}], "additionalItems": false})"},
      {k7, R"({"additionalItems": false, "items": {}})", R"({"items": {}})"},
      {nullptr, R"({"maxItems": 2.0, "minLength": 1.5})", R"({"maxItems": 2, "minLength": 1.5})"},
      // Names of properties are no keywords.
      {k7, R"({"properties": {"$ref": {"type": "null"}, "prefixItems": {}, "const": {"$ref": "#",
       "minLength": 1}}})",
       R"({"properties": {"$ref": {"type": "null"}, "prefixItems": {}, "const": {"$ref": "#"}}})"},
      // Data is no schema.
      {k7, R"({"const": {"$ref": "#", "minLength": 1}})",
       R"({"const": {"$ref": "#", "minLength": 1}})"},
      // Neither are words of another draft's meaning where they hold what is pointed at.
      {k7, R"({"components": {"schemas": {"a": {"$ref": "#", "maxLength": 1}}}})",
       R"({"components": {"schemas": {"a": {"$ref": "#"}}}})"},
      {nullptr, R"({"uniqueItems": false, "propertyNames": {"type": "string"}, "then": {"a": 1},
       "unevaluatedItems": true, "dependentRequired": {}, "minContains": 2})", R"({})"},
  };
  for (const Case& one : cases) {
    SchemaJson schema = Named(one.draft, one.given);
    EXPECT_EQ(ReadInItsDraft(&schema), "") << one.given;
    // Also in this order, which decides how the grammar library reads them.
    EXPECT_EQ(schema.dump(), Named(one.draft, one.read).dump());
  }
}

TEST(SchemaDialect, WhatAnotherDraftAssertsIsRefusedByName) {
  struct Case {
    const char* draft;
    const char* schema;
    const char* words;
  };
  const Case cases[] = {
      {k4, R"({"exclusiveMinimum": 3})", "exclusiveMinimum: must be true or false in draft-04"},
      {k7, R"({"exclusiveMaximum": true})", "exclusiveMaximum: must be a number in draft-07"},
      {nullptr, R"({"exclusiveMaximum": true})", "exclusiveMaximum: must be a number in 2020-12"},
      {nullptr, R"({"items": [{}]})", "items: a list is prefixItems in 2020-12"},
      {nullptr, R"({"additionalItems": {}})", "additionalItems: says nothing in 2020-12"},
      {nullptr, R"({"anyOf": [{"dependencies": {"a": ["b"]}}]})", "dependencies: says nothing in"},
      {k7, R"({"prefixItems": [{}]})", "prefixItems: says nothing in draft-07"},
      {k7, R"({"unevaluatedItems": false})", "unevaluatedItems: says nothing in draft-07"},
      {k4, R"({"properties": {"a": {"const": 1}}})", "const: says nothing in draft-04"},
      {nullptr, R"({"type": "string", "maxLenght": 3})",
       "maxLenght: no keyword; did you mean maxLength?"},
      {nullptr, R"({"propertis": {"a": {}}})", "propertis: no keyword; did you mean properties?"},
      {k7, R"({"properties": {"a": {"minimun": 1}}})",
       "minimun: no keyword; did you mean minimum?"},
      {nullptr, R"({"$defs": {"a": {"require": ["b"]}}})",
       "require: no keyword; did you mean required?"},
      {k4, R"({"divisibleBy": 2})", "divisibleBy: a keyword of draft-03 alone"},
      {"http://json-schema.org/draft-03/schema#", "{}", "$schema: \"http://json-schema.org/draft-"},
      {k7, R"({"items": {"$schema": "https://json-schema.org/draft/2020-12/schema"}})",
       "inside a schema of draft-07"},
      {nullptr, R"({"$schema": 7})", "$schema: 7 is not supported"},
      {nullptr, R"({"$ref": "#/default", "default": {"$ref": "#"}})", "$ref: points into data"},
      {nullptr, R"({"$ref": "#/%64efault", "default": {"$ref": "#"}})", "$ref: points into data"},
      {nullptr, R"({"$defs": {"a": {"$id": "http://b/a", "$defs": {"c": {"$ref": "#/$defs/d"},
       "d": {}}}}})", "$id: inside a schema, beside references with fragments"},
  };
  for (const Case& one : cases) {
    SchemaJson schema = Named(one.draft, one.schema);
    const std::string fault = ReadInItsDraft(&schema);
    EXPECT_NE(fault.find(one.words), std::string::npos) << one.schema << ": " << fault;
  }
}

TEST(SchemaDialect, WordsThatAreNoSlipsArePassedOver) {
  for (const char* text : {R"({"properties": {"maxLenght": {}, "require": {"type": "string"}}})",
                           R"({"const": {"propertis": 1}, "default": {"minimun": 1}})",
                           R"({"x-order": 3, "example": 1, "nullable": true, "optional": true})",
                           R"({"discriminator": {"propertyName": "a"}, "enumNames": ["b"]})"}) {
    SchemaJson schema = SchemaJson::parse(text);
    EXPECT_EQ(ReadInItsDraft(&schema), "") << text;
  }
}

TEST(SchemaDialect, DraftsAreNamedInAllUsualWays) {
  for (const char* uri : {"http://json-schema.org/draft-07/schema", k7,
                          "https://json-schema.org/draft-07/schema#"}) {
    SchemaJson schema = Named(uri, R"({"items": [{}]})");
    EXPECT_EQ(ReadInItsDraft(&schema), "") << uri;
    EXPECT_EQ(schema["$schema"], k7);
  }
  SchemaJson schema = SchemaJson::parse(R"({"$ref": "#/properties/default",
                                            "properties": {"default": {}}})");
  EXPECT_EQ(ReadInItsDraft(&schema), "");
}

}  // namespace
}  // namespace kairos
