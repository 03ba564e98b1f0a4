// SPDX-License-Identifier: Apache-2.0
// Grammars of replies, walked at random over a byte vocabulary: whatever the masks allow must be
// what the rules promise.
#include "sidecar/grammar/reply_grammar.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "sidecar/grammar/grammar_compiler.h"
#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kPlenty = 1u << 20;  // tokens left

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
   "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1,
   "maximum": 7}}, "required": ["unit", "days"], "additionalProperties": false}}},
  {"name": "stop"}])";

class ReplyGrammarTest : public testing::Test {
 protected:
  ReplyGrammarTest() {
    vocabulary_.AddMerge("z", "z");  // a vocabulary without merges is refused
    end_ = vocabulary_.Add("<|im_end|>", TokenKind::kControl);
    std::string error;
    tokenizer_ = vocabulary_.Build();
    compiler_ = GrammarCompiler::Create(*tokenizer_, &error).Take();
  }

  static MarkerKind KindOf(std::string_view) { return MarkerKind::kText; }

  Result<ReplyGrammar> Write(const ReplyRules& rules, std::string_view tools, std::string* error,
                             WireFamily family = WireFamily::kHermes) {
    return WriteReplyGrammar(WireFormatOf(family), rules, tools, &KindOf, error);
  }

  std::unique_ptr<TokenConstraint> Make(const ReplyRules& rules, std::string_view tools,
                                        WireFamily family = WireFamily::kHermes) {
    std::string error;
    Result<ReplyGrammar> reply = Write(rules, tools, &error, family);
    EXPECT_TRUE(reply.ok()) << error;
    if (!reply.ok() || reply->grammar.empty()) return nullptr;
    auto made = compiler_->Compile(reply->grammar, reply->is_prose, &error);
    EXPECT_TRUE(made.ok()) << error << "\n" << reply->grammar;
    return made.ok() ? (*made)->Start() : nullptr;
  }

  // A reply drawn evenly from what the masks allow, or at `bytes_max` from what ends soonest.
  std::string Walk(TokenConstraint& constraint, uint64_t seed, size_t bytes_max = 2000) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
    std::string text;
    while (text.size() < bytes_max) {
      EXPECT_TRUE(constraint.ComputeMask(mask, kPlenty));
      std::vector<TokenId> allowed;
      for (uint32_t token = 0; token < tokenizer_->vocabulary_size(); ++token) {
        if (mask[token / 32] >> (token % 32) & 1) allowed.push_back(static_cast<TokenId>(token));
      }
      EXPECT_FALSE(allowed.empty()) << text;
      if (allowed.empty()) return text;
      const bool may_end = std::find(allowed.begin(), allowed.end(), end_) != allowed.end();
      if (may_end && (allowed.size() == 1 || random() % 4 == 0)) return text;
      const TokenId token = allowed[random() % allowed.size()];
      if (token == end_) return text;
      EXPECT_TRUE(constraint.Consume(token));
      text += tokenizer_->TokenBytes(token, true);
    }
    ADD_FAILURE() << "no end: " << text;
    return text;
  }

  struct Reply {
    std::string text;
    uint32_t tokens = 0;  // the end among them
    bool ended = false;
  };
  // A reply of at most `limit` tokens drawn evenly from what the masks allow, in the way of the
  // engine: what leaves no time is drawn again, and after some draws it is what ends soonest. What
  // is forced is taken as it stands.
  Reply DrawEvenly(TokenConstraint& constraint, uint64_t seed, uint32_t limit) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
    std::vector<TokenId> forced;
    Reply reply;
    while (reply.tokens < limit) {
      EXPECT_TRUE(constraint.ComputeMask(mask, limit - reply.tokens));
      TokenId token = 0;
      for (int draws = 1;; ++draws) {
        std::vector<TokenId> allowed;
        for (uint32_t i = 0; i < tokenizer_->vocabulary_size(); ++i) {
          if (mask[i / 32] >> (i % 32) & 1) allowed.push_back(static_cast<TokenId>(i));
        }
        EXPECT_FALSE(allowed.empty());
        if (allowed.empty()) return reply;
        token = allowed[random() % allowed.size()];
        if (!constraint.IsShortOfTokens() || token == end_ || constraint.LeavesTimeToEnd(token)) {
          break;
        }
        mask[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
        if (draws == 8) constraint.LeaveSoonestEnd(mask);
      }
      forced = {token};
      do {
        for (const TokenId next : forced) {
          if (reply.tokens == limit) return reply;
          ++reply.tokens;
          reply.ended = next == end_;
          if (reply.ended) return reply;
          EXPECT_TRUE(constraint.Consume(next));
          reply.text += tokenizer_->TokenBytes(next, true);
        }
        constraint.Forced(&forced);
      } while (!forced.empty());
    }
    return reply;
  }

  bool Accepts(TokenConstraint& constraint, std::string_view text) {
    std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
    for (const TokenId token : tokenizer_->Encode(text, false).tokens) {
      if (!constraint.ComputeMask(mask, kPlenty)) return false;
      if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) return false;
      if (!constraint.Consume(token)) return false;
    }
    if (!constraint.ComputeMask(mask, kPlenty)) return false;
    return (mask[static_cast<size_t>(end_) / 32] >> (end_ % 32) & 1) != 0;
  }

  static void ExpectCall(std::string body) {
    const Json call = Json::parse(body, nullptr, false);
    ASSERT_TRUE(call.is_object()) << body;
    if (call["name"] == "stop") {
      EXPECT_EQ(call["arguments"], Json::object()) << body;
      return;
    }
    EXPECT_EQ(call["name"], "weather") << body;
    EXPECT_TRUE(call["arguments"]["unit"] == "C" || call["arguments"]["unit"] == "F") << body;
    EXPECT_GE(call["arguments"]["days"].get<int>(), 1) << body;
    EXPECT_LE(call["arguments"]["days"].get<int>(), 7) << body;
    EXPECT_EQ(call["arguments"].size(), 2u) << body;
  }

  TinyVocabulary vocabulary_;
  TokenId end_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

ReplyRules Rules(ToolChoice choice, std::string name = "") {
  ReplyRules rules;
  rules.tool_choice = choice;
  rules.tool_name = std::move(name);
  return rules;
}

ReplyRules Matching(ConstraintKind kind, std::string constraint) {
  ReplyRules rules;
  rules.kind = kind;
  rules.constraint = std::move(constraint);
  return rules;
}

// The calls of a reply in the Hermes format that is nothing else.
std::vector<std::string> CallsOf(const std::string& reply) {
  const std::string open = "<tool_call>\n";
  const std::string close = "\n</tool_call>";
  std::vector<std::string> calls;
  for (size_t at = 0; at < reply.size();) {
    const size_t end = reply.find(close, at);
    const bool whole = reply.compare(at, open.size(), open) == 0 && end != std::string::npos;
    EXPECT_TRUE(whole) << reply;
    if (!whole) break;
    calls.push_back(reply.substr(at + open.size(), end - at - open.size()));
    at = end + close.size();
    if (at == reply.size()) break;
    EXPECT_EQ(reply[at], '\n') << reply;
    ++at;
  }
  return calls;
}

TEST_F(ReplyGrammarTest, RequiredGivesOneOrMoreValidCallsAndNothingElse) {
  size_t most = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto constraint = Make(Rules(ToolChoice::kRequired), kTools);
    const std::vector<std::string> calls = CallsOf(Walk(*constraint, seed));
    ASSERT_GE(calls.size(), 1u);
    ASSERT_LE(calls.size(), static_cast<size_t>(kReplyCallsMax));
    most = std::max(most, calls.size());
    for (const std::string& call : calls) ExpectCall(call);
  }
  EXPECT_GT(most, 1u);
}

TEST_F(ReplyGrammarTest, NamedAndOneCallGiveExactlyOne) {
  ReplyRules one = Rules(ToolChoice::kRequired);
  one.one_call = true;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto named = CallsOf(Walk(*Make(Rules(ToolChoice::kNamed, "weather"), kTools), seed));
    ASSERT_EQ(named.size(), 1u);
    EXPECT_EQ(Json::parse(named[0])["name"], "weather");
    EXPECT_EQ(CallsOf(Walk(*Make(one, kTools), seed)).size(), 1u);
  }
}

TEST_F(ReplyGrammarTest, AutoTakesTextAndValidCallsButNoBrokenOne) {
  const std::string good =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"unit\": \"F\", \"days\": 3}}\n"
      "</tool_call>";
  const std::string bad =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"unit\": \"K\", \"days\": 3}}\n"
      "</tool_call>";
  const ReplyRules rules = Rules(ToolChoice::kAuto);
  for (const std::string& text :
       {std::string("It rains."), std::string("<tool"), std::string("a {\"b\": 1} c"), good,
        "I look.\n" + good, good + "\n" + good, "x" + good + " and then"}) {
    EXPECT_TRUE(Accepts(*Make(rules, kTools), text)) << text;
  }
  for (const std::string& text :
       {bad, "text " + bad, good + bad, std::string("<tool_call>"), good.substr(0, good.size() - 1),
        std::string("<tool_call>\n{\"name\": \"rain\", \"arguments\": {}}\n</tool_call>")}) {
    EXPECT_FALSE(Accepts(*Make(rules, kTools), text)) << text;
  }
}

TEST_F(ReplyGrammarTest, NoneTakesNoCall) {
  const ReplyRules rules = Rules(ToolChoice::kNone);
  EXPECT_TRUE(Accepts(*Make(rules, kTools), "It rains. <tool"));
  EXPECT_FALSE(Accepts(*Make(rules, kTools), "It <tool_call>"));
}

TEST_F(ReplyGrammarTest, ThoughtsComeBeforeWhatIsEnforcedWhereTheModelThinks) {
  const std::string call = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  ReplyRules rules = Rules(ToolChoice::kRequired);
  EXPECT_FALSE(Accepts(*Make(rules, kTools), "<think>\nhm\n</think>\n\n" + call));
  rules.in_reasoning = true;  // the prompt has opened it
  EXPECT_TRUE(Accepts(*Make(rules, kTools), "\nhm\n</think>\n\n" + call));
  EXPECT_FALSE(Accepts(*Make(rules, kTools), call));
  EXPECT_FALSE(Accepts(*Make(rules, kTools), "\nhm\n</think>\n\nSo."));
}

TEST_F(ReplyGrammarTest, FreeAndPlainTurnsAreNotConstrained) {
  std::string error;
  EXPECT_TRUE(Write(Rules(ToolChoice::kFree), kTools, &error)->grammar.empty());
  EXPECT_TRUE(Write(Rules(ToolChoice::kAuto), "", &error)->grammar.empty());
}

TEST_F(ReplyGrammarTest, LlamaCallsAreBareAndUseParameters) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto constraint = Make(Rules(ToolChoice::kNamed, "weather"), kTools, WireFamily::kLlama3);
    const Json call = Json::parse(Walk(*constraint, seed));
    EXPECT_EQ(call["name"], "weather");
    EXPECT_TRUE(call["parameters"].contains("unit"));
  }
  EXPECT_TRUE(Accepts(*Make(Rules(ToolChoice::kAuto), kTools, WireFamily::kLlama3), "It rains."));
  EXPECT_FALSE(Accepts(*Make(Rules(ToolChoice::kAuto), kTools, WireFamily::kLlama3), "{\"x\": 1}"));
}

TEST_F(ReplyGrammarTest, TextMatchesItsSchemaRegexOrGrammar) {
  const auto schema = Make(Matching(ConstraintKind::kJsonSchema,
                                    R"({"type": "object", "properties": {"b": {"type": "boolean"},
                                    "a": {"const": "x/\"y"}}, "required": ["b", "a"],
                                    "additionalProperties": false})"), "");
  const std::string text = Walk(*schema, 1);
  EXPECT_TRUE(text == R"({"b": true, "a": "x/\"y"})" || text == R"({"b": false, "a": "x/\"y"})")
      << text;
  const ReplyRules regex = Matching(ConstraintKind::kRegex, "[0-9]{2}/\\d\n?é+");
  EXPECT_TRUE(Accepts(*Make(regex, ""), "12/3\néé"));
  EXPECT_TRUE(Accepts(*Make(regex, ""), "12/3é"));
  EXPECT_FALSE(Accepts(*Make(regex, ""), "12/3"));
  EXPECT_FALSE(Accepts(*Make(regex, ""), "1/3é"));
  const ReplyRules lark = Matching(ConstraintKind::kLark, "start: \"a\" start \"b\" | \"c\"");
  EXPECT_TRUE(Accepts(*Make(lark, ""), "aacbb"));
  EXPECT_FALSE(Accepts(*Make(lark, ""), "aacb"));
}

TEST_F(ReplyGrammarTest, WithToolsAndAConstraintAReplyIsEither) {
  ReplyRules rules = Matching(ConstraintKind::kRegex, "yes|no");
  EXPECT_TRUE(Accepts(*Make(rules, kTools), "yes"));
  EXPECT_TRUE(Accepts(*Make(rules, kTools),
                      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(Accepts(*Make(rules, kTools), "maybe"));
}

TEST_F(ReplyGrammarTest, ForcedTokensAreThoseTheTokenizerMakes) {
  const auto constraint = Make(Matching(ConstraintKind::kRegex, "zzzz(a|b)"), "");
  std::vector<TokenId> forced;
  constraint->Forced(&forced);
  // "zz" is a token; the last one may still grow and is not forced.
  const std::vector<TokenId> whole = tokenizer_->Encode("zzzz", false).tokens;
  ASSERT_EQ(whole.size(), 2u);
  ASSERT_FALSE(forced.empty());
  ASSERT_LE(forced.size(), whole.size());
  for (size_t i = 0; i < forced.size(); ++i) EXPECT_EQ(forced[i], whole[i]);
  for (const TokenId token : forced) EXPECT_TRUE(constraint->Consume(token));
  const auto ends = Make(Matching(ConstraintKind::kRegex, "a"), "");
  EXPECT_TRUE(ends->Consume(tokenizer_->Encode("a", false).tokens[0]));
  ends->Forced(&forced);
  EXPECT_EQ(forced, std::vector<TokenId>{end_});
}

// What is counted is what Consume would take, wherever the text is, and counting leaves no trace.
TEST_F(ReplyGrammarTest, CountsWhatMayComeWithoutTakingIt) {
  const ReplyRules rules = Rules(ToolChoice::kRequired);
  std::vector<TokenId> reply =
      tokenizer_
          ->Encode("<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>", true)
          .tokens;
  reply.push_back(end_);
  const auto constraint = Make(rules, kTools);
  const auto untouched = Make(rules, kTools);
  std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
  std::vector<uint32_t> other(mask.size());
  std::mt19937_64 random(5);
  for (size_t at = 0; at + 1 < reply.size(); ++at) {
    const std::vector<TokenId> rest(reply.begin() + static_cast<ptrdiff_t>(at), reply.end());
    EXPECT_EQ(constraint->CountAllowed(rest), rest.size()) << at;
    std::vector<TokenId> spoilt = rest;
    const size_t wrong = random() % rest.size();
    spoilt[wrong] = tokenizer_->Encode("~", false).tokens[0];
    EXPECT_EQ(constraint->CountAllowed(spoilt), wrong) << at;
    ASSERT_TRUE(constraint->ComputeMask(mask, kPlenty));
    ASSERT_TRUE(untouched->ComputeMask(other, kPlenty));
    EXPECT_EQ(mask, other) << at;
    ASSERT_TRUE(constraint->Consume(reply[at]));
    ASSERT_TRUE(untouched->Consume(reply[at]));
  }
}

TEST_F(ReplyGrammarTest, RefusalsNameToolFieldAndKeyword) {
  struct Case {
    ReplyRules rules;
    std::string tools;
    std::string words;
  };
  const Case cases[] = {
      {Rules(ToolChoice::kRequired), "", "tool_choice: asks for a call, without tools"},
      {Rules(ToolChoice::kNamed, "rain"), std::string(kTools),
       "tool_choice: no tool is called \"rain\"; there are: weather, stop"},
      {Rules(ToolChoice::kAuto), "{}", "tools_json: must be a JSON array"},
      {Rules(ToolChoice::kAuto), "[1]", "tools_json: tool 0 has no name"},
      {Rules(ToolChoice::kAuto), R"([{"name": "a"}, {"function": {"name": "a"}}])",
       "tools_json[1].name: \"a\" is the name of tools_json[0], too"},
      {Rules(ToolChoice::kFree), R"([{"x": 1}, {"name": "a"}, {"function": {"name": "a"}}])",
       "tools_json[2].name: \"a\" is the name of tools_json[1], too"},
      {Rules(ToolChoice::kNone), R"([{"name": "a"}, {"name": "a"}])", "tools_json[1].name: \"a\""},
      {Rules(ToolChoice::kAuto), R"([{"name": "a", "parameters": {"type": "object",
       "properties": {"b": {"type": "null"}, "b": {"type": "string"}}}}])",
       "tools_json[0].parameters.properties: the key \"b\" is there twice"},
      {Rules(ToolChoice::kAuto), R"([{"name": "a", "parameters": {"required": ["b"],
       "properties": {"b": {"$ref": "#"}}}}])", "tool \"a\": $ref: nothing matches \"#\""},
      {Rules(ToolChoice::kAuto), R"([{"name": "a", "parameters": 3}])",
       "tool \"a\": must be a JSON object"},
      {Rules(ToolChoice::kAuto), R"([{"name": "a", "parameters": {"type": "array"}}])",
       "tool \"a\": \"type\" must be \"object\""},
      {Rules(ToolChoice::kAuto), R"([{"name": "a", "parameters": {"x-guidance": {}}}])",
       "\"x-guidance\" is not supported"},
      {Rules(ToolChoice::kAuto),
       R"([{"name": "a", "parameters": {"properties": {"b": {"items": [{}]}}}}])",
       "tool \"a\": items: a list is prefixItems in 2020-12"},
      {Matching(ConstraintKind::kJsonSchema, "{"), "", "constraint: the schema is not JSON"},
      {Matching(ConstraintKind::kJsonSchema, std::string(80, '[')), "", "nested deeper than 64"},
  };
  for (const Case& one : cases) {
    std::string error;
    const auto reply = Write(one.rules, one.tools, &error);
    EXPECT_EQ(reply.status().code(), Code::kInvalidArgument);
    EXPECT_NE(error.find(one.words), std::string::npos) << error;
  }
  std::string error;
  EXPECT_EQ(Write(Rules(ToolChoice::kAuto), kTools, &error, WireFamily::kFunctionGemma)
                .status().code(), Code::kUnimplemented);
}

TEST_F(ReplyGrammarTest, UnsupportedKeywordsAreNamedByTheCompiler) {
  for (const auto& [keyword, value] : std::vector<std::pair<std::string, std::string>>{
           {"if", "{}, \"then\": {}"}, {"not", "{}"}, {"uniqueItems", "true"},
           {"dependentRequired", R"({"a": ["b"]})"}, {"propertyNames", R"({"minLength": 1})"},
           {"contains", "{}"}, {"unevaluatedProperties", "false"}}) {
    const std::string schema = fmt::format(R"({{"type": "object", "{}": {}}})", keyword, value);
    std::string error;
    const auto reply = Write(Matching(ConstraintKind::kJsonSchema, schema), "", &error);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(compiler_->Compile(reply->grammar, false, &error).status().code(),
              Code::kInvalidArgument);
    EXPECT_NE(error.find(keyword), std::string::npos) << keyword << ": " << error;
    ASSERT_EQ(reply->parts.size(), 1u);
    EXPECT_FALSE(compiler_->Compile(reply->parts[0].grammar, false, &error).ok());
  }
}

TEST_F(ReplyGrammarTest, RefusedReferencesAndPatternsAreNamedByTheirKeyword) {
  for (const auto& [schema, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"$ref": "#/$defs/a"})", "$ref: "}, {R"({"$ref": "http://a/b.json"})", "$ref: "},
           {R"({"type": "string", "pattern": "^(?!a)b"})", "pattern: "}}) {
    std::string error;
    const auto reply = Write(Matching(ConstraintKind::kJsonSchema, schema), "", &error);
    ASSERT_TRUE(reply.ok());
    EXPECT_FALSE(compiler_->Compile(reply->grammar, false, &error).ok());
    EXPECT_TRUE(error.starts_with(words)) << error;
  }
}

// Clients have no fuel and no options of the library.
TEST_F(ReplyGrammarTest, RefusalsOfTheGrammarLibraryAreInTermsOfOurs) {
  const auto refusal_of = [this](const ReplyRules& rules, const std::string& tools) {
    std::string error;
    const auto reply = Write(rules, tools, &error);
    EXPECT_TRUE(reply.ok()) << error;
    EXPECT_FALSE(compiler_->Compile(reply->grammar, false, &error).ok());
    return error;
  };
  const std::string overlap = refusal_of(
      Matching(ConstraintKind::kJsonSchema,
               R"({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 1}]})"), "");
  EXPECT_TRUE(overlap.starts_with("oneOf: cannot be enforced")) << overlap;
  EXPECT_EQ(overlap.find("coerce"), std::string::npos) << overlap;
  const std::string keyword =
      refusal_of(Matching(ConstraintKind::kJsonSchema, R"({"not": {"type": "null"}})"), "");
  EXPECT_EQ(keyword, "keywords that cannot be enforced: [\"not\"]");
  const std::string names = refusal_of(
      Matching(ConstraintKind::kJsonSchema,
               R"({"$ref": "#/$defs/fuel", "$defs": {"fuel": {"$ref": "#/panic/coerce_one_of"}}})"),
      "");
  EXPECT_TRUE(names.starts_with("$ref: ")) << "names of a client's: " << names;
  Json tools = Json::array();
  for (int i = 0; i < 20; ++i) {
    Json properties;
    for (int j = 0; j < 40; ++j) properties[fmt::format("p{}", j)] = {{"type", "integer"}};
    tools.push_back({{"name", fmt::format("t{}", i)},
                     {"parameters", {{"type", "object"}, {"properties", properties}}}});
  }
  const std::string work = refusal_of(Rules(ToolChoice::kRequired), tools.dump());
  EXPECT_TRUE(work.starts_with(kTooMuchWork)) << work;
  EXPECT_NE(work.find("use fewer"), std::string::npos) << work;
}

TEST_F(ReplyGrammarTest, OneCallUnderAutoIsTextOrOneCall) {
  const std::string call =
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  ReplyRules rules = Rules(ToolChoice::kAuto);
  rules.one_call = true;
  EXPECT_TRUE(Accepts(*Make(rules, kTools), "It rains."));
  EXPECT_TRUE(Accepts(*Make(rules, kTools), "I look.\n" + call));
  rules.kind = ConstraintKind::kRegex;
  rules.constraint = "yes|no";
  EXPECT_TRUE(Accepts(*Make(rules, kTools), call));
  EXPECT_TRUE(Accepts(*Make(rules, kTools), "no"));
  EXPECT_FALSE(Accepts(*Make(rules, kTools), call + "\n" + call));
}

TEST_F(ReplyGrammarTest, ToolsMayBeDescribedInParts) {
  const std::string_view tools = R"([{"name": "a", "parameters": {"type": "object",
      "properties": {"x": {"type": "boolean"}}, "required": ["x", "y"]}},
      {"name": "b", "parameters": {"type": "object", "properties": {"x": {"type": "boolean"}},
       "allOf": [{"properties": {"z": {"type": "boolean"}}, "required": ["z"]}]}}])";
  EXPECT_NE(Make(Rules(ToolChoice::kRequired), tools), nullptr);
}

// What would take the sidecar's stack, minutes or exactness is refused before it is compiled.
TEST_F(ReplyGrammarTest, WhatCannotBeEnforcedIsRefusedBeforeItIsCompiled) {
  std::string chain = R"({"$ref": "#/$defs/a0", "$defs": {)";
  for (int i = 0; i < 3000; ++i) {
    chain += fmt::format(R"("a{}": {{"$ref": "#/$defs/a{}"}}, )", i, i + 1);
  }
  chain += R"("a3000": {"type": "null"}}})";
  std::string rules = "start: r0\n";
  for (int i = 0; i < 3000; ++i) rules += fmt::format("r{}: r{}\n", i, i + 1);
  std::string doubling = "start: T20\nT0: \"a\"\n";
  for (int i = 0; i < 20; ++i) doubling += fmt::format("T{}: T{} T{}\n", i + 1, i, i);
  const auto many = [](const char* keyword, int count) {
    std::string schema = fmt::format(R"({{"{}": {{"a": {{}})", keyword);
    for (int i = 1; i < count; ++i) schema += fmt::format(R"(, "a{}": {{}})", i);
    return schema + "}}";
  };
  struct Case {
    ConstraintKind kind;
    std::string constraint;
    std::string words;
  };
  const Case cases[] = {
      {ConstraintKind::kJsonSchema, R"({"const": -9223372036854775808})", "const: -92"},
      {ConstraintKind::kJsonSchema, R"({"enum": [1, 9007199254740993]})", "enum: 9007199254740993"},
      {ConstraintKind::kJsonSchema, R"({"const": 18446744073709551615})", "beyond 2^53"},
      {ConstraintKind::kJsonSchema, R"({"const": 123456789.12345679})", "more than 15 digits"},
      {ConstraintKind::kJsonSchema, R"({"type": "number", "minimum": 1e19})", "minimum: "},
      {ConstraintKind::kJsonSchema, R"({"type": "integer", "multipleOf": 99999999})", "multipleOf"},
      {ConstraintKind::kJsonSchema, R"({"pattern": "^[\\x00-\\x1f]{4}$"})", "control characters"},
      {ConstraintKind::kJsonSchema, R"({"pattern": "(a?){999999}"})", "repetitions"},
      {ConstraintKind::kJsonSchema, chain, "more than 256 references"},
      {ConstraintKind::kRegex, std::string(250'000, 'a'), "at most 4096"},
      {ConstraintKind::kRegex, "((a{0,100}){100}){100}", "repetitions"},
      {ConstraintKind::kRegex, "(ab){5000}", "no text under 8192"},
      {ConstraintKind::kJsonSchema, R"({"const": ")" + std::string(9000, 'a') + "\"}",
       "const: a text of 9000 bytes"},
      {ConstraintKind::kJsonSchema, R"({"minLength": 9000})", "minLength: 9000 is above 8192"},
      {ConstraintKind::kJsonSchema, many("properties", 2001), "properties: more than 2000"},
      {ConstraintKind::kJsonSchema, many("patternProperties", 33), "patternProperties: 33"},
      {ConstraintKind::kLark, "start: %json {\"minLength\": 9000}", "%json"},
      {ConstraintKind::kLark, doubling, "repetitions"},
      {ConstraintKind::kLark, "start: T\nT: \"a\" ~ 200000", "repetitions"},
      {ConstraintKind::kLark, "start: \"a\" <|im_end|> \"b\"", "<|im_end|>: stands for a token"},
      {ConstraintKind::kLark, "start: <[1-9]>", "<[1-9]>: stands for a token"},
      {ConstraintKind::kLark, "%llguidance {}\nstart: \"a\"", "%llguidance: is not supported"},
      {ConstraintKind::kLark, "start: %regex {\"substring_chars\": \"ab\"}", "%regex: is not"},
      {ConstraintKind::kLark, "start[temperature=0.5]: \"a\"", "start[temperature]: attributes"},
      {ConstraintKind::kLark, "start: a::0x1\na::_: \"b\"", "a: parameters of rules"},
      {ConstraintKind::kLark, "start: \"a\" start", "nothing matches rule \"start\""},
      {ConstraintKind::kJsonSchema, R"({"type": "object", "properties": {"a": {"$ref": "#"}},
       "required": ["a"]})", "constraint: $ref: nothing matches \"#\""},
      {ConstraintKind::kJsonSchema, R"({"properties": {"a": {}, "a": true}})",
       "constraint.properties: the key \"a\" is there twice"},
      {ConstraintKind::kLark, rules, "at most 8192"},
  };
  for (const Case& one : cases) {
    std::string error;
    EXPECT_FALSE(Write(Matching(one.kind, one.constraint), "", &error).ok());
    EXPECT_NE(error.find(one.words), std::string::npos) << one.words << ": " << error;
  }
}

// As agents send them: the schemas of draft-07 and draft-04, with what 2020-12 says otherwise.
TEST_F(ReplyGrammarTest, SchemasOfEarlierDraftsMeanWhatTheySay) {
  const std::string seventh = "\"$schema\": \"http://json-schema.org/draft-07/schema#\", ";
  const auto pair = Make(Matching(ConstraintKind::kJsonSchema, "{" + seventh +
      R"("type": "array", "additionalItems": false, "minItems": 2, "anyOf": [{}],
         "items": [{"type": "boolean"}, {"$ref": "#/definitions/n", "minimum": 5}],
         "definitions": {"n": {"type": "integer", "minimum": 2, "maximum": 3}}})"), "");
  EXPECT_TRUE(Accepts(*pair, "[true, 2]"));
  const auto long_pair = Make(Matching(ConstraintKind::kJsonSchema, "{" + seventh +
      R"("type": "array", "additionalItems": false, "anyOf": [{}], "items": [{}]})"), "");
  EXPECT_FALSE(Accepts(*long_pair, "[1, 2]"));
  const auto above = Make(Matching(ConstraintKind::kJsonSchema,
      R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer",
          "minimum": 3, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": false})"), "");
  EXPECT_FALSE(Accepts(*above, "3"));
  const auto below = Make(Matching(ConstraintKind::kJsonSchema,
      R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer",
          "minimum": 3, "maximum": 5, "exclusiveMaximum": false})"), "");
  EXPECT_TRUE(Accepts(*below, "5"));
}

// A property may have the name of a keyword that holds data; what is said of it counts.
TEST_F(ReplyGrammarTest, LimitsHoldInsidePropertiesWithNamesOfKeywords) {
  std::string error;
  EXPECT_FALSE(Write(Matching(ConstraintKind::kJsonSchema,
                              R"({"properties": {"default": {"pattern": "(a?){999999}"}}})"), "",
                     &error).ok());
  EXPECT_NE(error.find("repetitions"), std::string::npos) << error;
  const ReplyRules rules = Matching(ConstraintKind::kJsonSchema,
      R"({"type": "object", "properties": {"enum": {"type": "integer"}}, "required": ["enum"],
          "additionalProperties": false})");
  EXPECT_FALSE(Accepts(*Make(rules, ""), R"({"enum": 9007199254740992})"));
}

// A client's grammar stands apart from what the sidecar writes beside it.
TEST_F(ReplyGrammarTest, AClientsGrammarCannotReferToOthers) {
  for (const char* grammar : {"start: @reply \"x\"", "start: @text", "start: @tool_0"}) {
    std::string error;
    const auto reply = Write(Matching(ConstraintKind::kLark, grammar), kTools, &error);
    ASSERT_TRUE(reply.ok());
    const auto made = compiler_->Compile(reply->grammar, reply->is_prose, &error);
    EXPECT_FALSE(made.ok()) << grammar;
  }
}

// A number could go on for ever; with one token left it ends where it is a number that counts.
TEST_F(ReplyGrammarTest, AValueEndsWhereItMayWhenTokensRunShort) {
  const auto seven = Make(Matching(ConstraintKind::kJsonSchema,
                                   R"({"type": "integer", "multipleOf": 7, "minimum": 0})"), "");
  std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
  const TokenId digit = tokenizer_->Encode("7", false).tokens[0];
  ASSERT_TRUE(seven->Consume(digit));
  ASSERT_TRUE(seven->ComputeMask(mask, 1000));
  EXPECT_FALSE(seven->IsShortOfTokens());
  ASSERT_TRUE(seven->ComputeMask(mask, 2));
  ASSERT_TRUE(seven->IsShortOfTokens());
  EXPECT_TRUE(seven->LeavesTimeToEnd(digit));  // 77
  EXPECT_FALSE(seven->LeavesTimeToEnd(tokenizer_->Encode("1", false).tokens[0]));
  EXPECT_TRUE(seven->LeavesTimeToEnd(end_));
  ASSERT_TRUE(seven->ComputeMask(mask, 1));
  ASSERT_TRUE(seven->IsShortOfTokens());
  EXPECT_FALSE(seven->LeavesTimeToEnd(digit));
  seven->LeaveSoonestEnd(mask);
  for (uint32_t token = 0; token < tokenizer_->vocabulary_size(); ++token) {
    EXPECT_EQ(mask[token / 32] >> (token % 32) & 1, token == static_cast<uint32_t>(end_));
  }
  const auto prose = Make(Rules(ToolChoice::kAuto), kTools);
  ASSERT_TRUE(prose->ComputeMask(mask, 1));
  EXPECT_NE(mask[static_cast<size_t>(digit) / 32] >> (digit % 32) & 1, 0u);
  EXPECT_TRUE(prose->LeavesTimeToEnd(digit));
}

TEST_F(ReplyGrammarTest, NumbersStayWithinWhatReadersHold) {
  const ReplyRules rules = Matching(
      ConstraintKind::kJsonSchema,
      R"({"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1})");
  EXPECT_TRUE(Accepts(*Make(rules, ""), "[9007199254740991, null, -5]"));
  EXPECT_FALSE(Accepts(*Make(rules, ""), "[9007199254740992]"));
  const ReplyRules number = Matching(ConstraintKind::kJsonSchema, R"({"type": "number"})");
  EXPECT_TRUE(Accepts(*Make(number, ""), "-12345678901234567.25"));
  EXPECT_FALSE(Accepts(*Make(number, ""), "1e999"));
  const ReplyRules untyped = Matching(ConstraintKind::kJsonSchema, R"({"minLength": 1})");
  EXPECT_TRUE(Accepts(*Make(untyped, ""), "12.5"));
  EXPECT_TRUE(Accepts(*Make(untyped, ""), "\"a\""));
  EXPECT_FALSE(Accepts(*Make(untyped, ""), "1e999"));
  EXPECT_FALSE(Accepts(*Make(Matching(ConstraintKind::kJsonSchema, "true"), ""), "1e999"));
  const ReplyRules half =
      Matching(ConstraintKind::kJsonSchema, R"({"type": "integer", "minimum": 0})");
  EXPECT_TRUE(Accepts(*Make(half, ""), "9007199254740991"));
  EXPECT_FALSE(Accepts(*Make(half, ""), "9007199254740992"));
}

// However few tokens are left, a reply that can be ended in time is.
TEST_F(ReplyGrammarTest, RepliesEndWithinTheirTokens) {
  const std::string schema = R"({"type": "object", "properties": {
    "text": {"type": "string"}, "list": {"type": "array", "items": {"type": "object",
      "properties": {"n": {"type": "number"}}, "required": ["n"],
      "additionalProperties": false}},
    "kind": {"enum": ["first", "second"]}}, "required": ["text", "list", "kind"],
    "additionalProperties": false})";
  for (const uint32_t limit : {45u, 70u, 120u, 200u, 600u}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto constraint = Make(Matching(ConstraintKind::kJsonSchema, schema), "");
      const Reply reply = DrawEvenly(*constraint, seed, limit);
      EXPECT_TRUE(reply.ended) << limit << " tokens, seed " << seed << ": " << reply.text;
      EXPECT_TRUE(Json::parse(reply.text, nullptr, false).is_object()) << reply.text;
    }
  }
}

// As long as there are tokens for all that may be chosen, what is chosen is as it would be with
// many more: the limit does not decide in the model's place.
TEST_F(ReplyGrammarTest, FewTokensDoNotChoose) {
  const std::string schema = R"({"type": "object", "properties": {
    "city": {"enum": ["Lisbon", "Oslo", "Ouagadougou"]}, "days": {"enum": [1, 12, 365]},
    "home": {"type": "boolean"}}, "required": ["city", "days", "home"],
    "additionalProperties": false})";
  const ReplyRules rules = Matching(ConstraintKind::kJsonSchema, schema);
  std::set<std::string> texts;
  uint32_t most = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Reply reply = DrawEvenly(*Make(rules, ""), seed, 4000);
    ASSERT_TRUE(reply.ended);
    texts.insert(reply.text);
    most = std::max(most, reply.tokens);
  }
  EXPECT_GT(texts.size(), 9u);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    EXPECT_EQ(DrawEvenly(*Make(rules, ""), seed, most + 8).text,
              DrawEvenly(*Make(rules, ""), seed, 4000).text);
  }
}

// Where the usual way is too long another may do: of two tools the one that takes less, text in
// place of a call, a value of an enum in place of a longer one.
TEST_F(ReplyGrammarTest, WhatCanBeEndedInTimeIsWhateverTheUsualWayIs) {
  const std::string tools = R"([
    {"name": "book", "parameters": {"type": "object", "properties": {"n": {"type": "integer"},
     "note": {"type": "string"}}, "required": ["n", "note"], "additionalProperties": false}},
    {"name": "noop"}])";
  const ReplyRules required = Rules(ToolChoice::kRequired);
  const ReplyRules text =
      Matching(ConstraintKind::kJsonSchema, R"({"enum": [[1, 2, 3, 4, 5, 6, 7, 8], "b", true]})");
  const ReplyRules either = Matching(ConstraintKind::kJsonSchema, R"({"type": "boolean"})");
  struct Case {
    const ReplyRules* rules;
    std::string_view tools;
    std::string shortest;
  };
  for (const Case& one : {Case{&required, tools, R"({"name": "noop", "arguments": {}})"},
                          Case{&text, "", "true"}, Case{&either, tools, "true"}}) {
    uint32_t least = 4000;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Reply reply = DrawEvenly(*Make(*one.rules, one.tools), seed, 4000);
      ASSERT_TRUE(reply.ended);
      if (reply.text.find(one.shortest) != std::string::npos) {
        least = std::min(least, reply.tokens);
      }
    }
    ASSERT_LT(least, 4000u) << "never said";
    for (uint32_t limit = least; limit < least + 80; limit += 1 + limit / 16) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        const Reply reply = DrawEvenly(*Make(*one.rules, one.tools), seed, limit);
        EXPECT_TRUE(reply.ended) << limit << " tokens, " << least << " do: " << reply.text;
      }
    }
  }
}

// A model that begins no end of its own is asked for one only when it is due.
TEST_F(ReplyGrammarTest, ATextIsEndedNoEarlierThanItMust) {
  const auto words = Make(Matching(ConstraintKind::kRegex, "[a-z]+"), "");
  const TokenId a = tokenizer_->Encode("a", false).tokens[0];
  std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
  for (uint32_t left = 40; left > 1; --left) {
    ASSERT_TRUE(words->ComputeMask(mask, left));
    ASSERT_TRUE(words->LeavesTimeToEnd(a)) << left;
    ASSERT_TRUE(words->Consume(a));
  }
  ASSERT_TRUE(words->ComputeMask(mask, 1));
  EXPECT_FALSE(words->LeavesTimeToEnd(a));
}

// A call that could not be ended is not begun.
TEST_F(ReplyGrammarTest, NoCallIsBegunWithoutTheTokensForIt) {
  for (const uint32_t limit : {4u, 30u, 80u}) {
    int calls = 0;
    for (uint64_t seed = 0; seed < 30; ++seed) {
      const auto constraint = Make(Rules(ToolChoice::kAuto), kTools);
      std::string begun;
      std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
      const std::vector<TokenId> marker = tokenizer_->Encode("<tool_call>", true).tokens;
      bool is_refused = false;
      for (size_t i = 0; i < marker.size() && !is_refused; ++i) {
        ASSERT_TRUE(constraint->ComputeMask(mask, limit - static_cast<uint32_t>(i)));
        is_refused = constraint->IsShortOfTokens() && !constraint->LeavesTimeToEnd(marker[i]);
        if (!is_refused) {
          ASSERT_TRUE(constraint->Consume(marker[i]));
        }
      }
      if (is_refused) continue;
      ++calls;
      const Reply reply =
          DrawEvenly(*constraint, seed, limit - static_cast<uint32_t>(marker.size()));
      EXPECT_NE(reply.text.find("</tool_call>"), std::string::npos) << reply.text;
    }
    EXPECT_EQ(calls, limit == 80 ? 30 : 0) << limit;
  }
}

// A grammar is compiled once for many turns; copies do not disturb each other.
TEST_F(ReplyGrammarTest, CopiesOfOneGrammarGoTheirOwnWay) {
  std::string error;
  const std::string grammar =
      Write(Matching(ConstraintKind::kRegex, "(ab|cd)+"), "", &error)->grammar;
  GrammarCache cache;
  EXPECT_EQ(cache.Start(grammar), nullptr);
  cache.Keep(grammar, compiler_->Compile(grammar, false, &error).Take());
  const auto first = cache.Start(grammar);
  const auto second = cache.Start(grammar);
  const TokenId a = tokenizer_->Encode("a", false).tokens[0];
  const TokenId c = tokenizer_->Encode("c", false).tokens[0];
  EXPECT_TRUE(first->Consume(a));
  EXPECT_TRUE(second->Consume(c));
  std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
  ASSERT_TRUE(first->ComputeMask(mask, kPlenty));
  EXPECT_EQ(mask[static_cast<size_t>(a) / 32] >> (a % 32) & 1, 0u);
  // It is compiled anew now and then, and those that were begun go on.
  int starts = 0;
  while (cache.Start(grammar) != nullptr) ASSERT_LT(++starts, 10'000);
  EXPECT_GT(starts, 100);
  EXPECT_FALSE(second->Consume(a));
}

TEST_F(ReplyGrammarTest, TheCacheKeepsWhatWasUsedLately) {
  GrammarCache cache;
  std::string error;
  for (int i = 0; i < 40; ++i) {
    const std::string grammar =
        Write(Matching(ConstraintKind::kRegex, fmt::format("a{}", i)), "", &error)->grammar;
    cache.Keep(grammar, compiler_->Compile(grammar, false, &error).Take());
    const std::string zero = Write(Matching(ConstraintKind::kRegex, "a0"), "", &error)->grammar;
    EXPECT_NE(cache.Start(zero), nullptr) << i;
  }
  const std::string one = Write(Matching(ConstraintKind::kRegex, "a1"), "", &error)->grammar;
  EXPECT_EQ(cache.Start(one), nullptr);
}

}  // namespace
}  // namespace kairos
