// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/wire_format.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace kairos {
namespace {

WireFamily Choose(std::string_view architecture, std::string_view source,
                  std::set<std::string, std::less<>> tokens = {}) {
  ModelSigns signs;
  signs.architecture = architecture;
  signs.template_source = source;
  signs.has_token = [&](std::string_view text) { return tokens.contains(text); };
  return ChooseWireFamily(signs);
}

TEST(WireFamilyChoice, TakesTaggedJsonWhereTheTemplateTeachesIt) {
  EXPECT_EQ(Choose("qwen2", "<|im_start|>{% if tools %}<tool_call>{% endif %}"),
            WireFamily::kHermes);
  EXPECT_EQ(Choose("llama", "<|start_header_id|> <tool_call>"), WireFamily::kHermes);
}

TEST(WireFamilyChoice, KnowsQwenWithoutATemplateByItsTokenOrArchitecture) {
  EXPECT_EQ(Choose("qwen3", "", {"<tool_call>"}), WireFamily::kHermes);
  EXPECT_EQ(Choose("qwen3", "<|im_start|>", {"<tool_call>"}), WireFamily::kHermes);
  EXPECT_EQ(Choose("qwen3", ""), WireFamily::kHermes);
}

TEST(WireFamilyChoice, KnowsLlama3ByItsHeadersOrItsPythonTag) {
  EXPECT_EQ(Choose("llama", "<|start_header_id|>"), WireFamily::kLlama3);
  EXPECT_EQ(Choose("llama", "{{ '<|python_tag|>' }}"), WireFamily::kLlama3);
  EXPECT_EQ(Choose("llama", "", {"<|python_tag|>"}), WireFamily::kLlama3);
}

TEST(WireFamilyChoice, KnowsGemma3ByItsTurnsOrItsArchitecture) {
  EXPECT_EQ(Choose("gemma3", "<start_of_turn>"), WireFamily::kGemma3);
  EXPECT_EQ(Choose("gemma3", ""), WireFamily::kGemma3);
}

TEST(WireFamilyChoice, KnowsFunctionGemmaByItsMarkers) {
  EXPECT_EQ(Choose("gemma3", "<start_of_turn><start_function_call>"), WireFamily::kFunctionGemma);
  EXPECT_EQ(Choose("gemma3", "<start_of_turn>", {"<start_function_call>"}),
            WireFamily::kFunctionGemma);
}

TEST(WireFamilyChoice, IsChatMlWhereNothingTells) {
  EXPECT_EQ(Choose("llama", "<|im_start|>"), WireFamily::kChatMl);
  EXPECT_EQ(Choose("", ""), WireFamily::kChatMl);
  EXPECT_EQ(ChooseWireFamily(ModelSigns{}), WireFamily::kChatMl);
}

TEST(WireFormat, IsFoundByItsNameAndByItsFamily) {
  for (const WireFormat& format : WireFormats()) {
    ASSERT_FALSE(format.name.empty());
    EXPECT_EQ(FindWireFamily(format.name), format.family);
    EXPECT_EQ(&WireFormatOf(format.family), &format);
  }
  EXPECT_EQ(FindWireFamily("Hermes"), std::nullopt);
  EXPECT_EQ(FindWireFamily(""), std::nullopt);
}

// What ToolStream and whoever else reads the table rely on.
TEST(WireFormat, KeepsTheRulesOfItsTable) {
  for (const WireFormat& format : WireFormats()) {
    SCOPED_TRACE(format.name);
    std::vector<std::string_view> opens{format.reasoning_open, format.stop};
    ASSERT_FALSE(format.blocks.empty());
    for (const CallBlock& block : format.blocks) {
      opens.push_back(block.open);
      const bool has_keys = !format.arguments_keys.empty();
      EXPECT_TRUE(has_keys || block.style != CallStyle::kJson);
      const bool has_marks = !format.call_prefix.empty() && !format.string_quote.empty();
      EXPECT_TRUE(has_marks || block.style != CallStyle::kKeyed);
      EXPECT_TRUE(!format.program_argument.empty() || block.style != CallStyle::kProgram);
      // A bare block has nothing to be told by but where it stands.
      const bool is_bare = block.open.empty();
      EXPECT_TRUE(!is_bare || (block.close.empty() && !block.is_certain &&
                               block.place != CallPlace::kAnywhere));
    }
    EXPECT_EQ(format.reasoning_open.empty(), format.reasoning_close.empty());
    for (size_t i = 0; i < opens.size(); ++i) {
      for (const char byte : opens[i]) EXPECT_TRUE(byte > ' ' && byte < 0x7f) << opens[i];
      for (size_t j = 0; j < opens.size(); ++j) {
        if (i == j || opens[i].empty() || opens[j].empty()) continue;
        EXPECT_FALSE(opens[j].starts_with(opens[i])) << opens[i] << " " << opens[j];
      }
    }
  }
}

}  // namespace
}  // namespace kairos
