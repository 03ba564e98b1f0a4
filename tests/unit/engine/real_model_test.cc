// SPDX-License-Identifier: Apache-2.0
// The engine on real weights, where they are present.
#include <gtest/gtest.h>

#include "sidecar/chat/tokenizer.h"
#include "sidecar/model/gguf.h"
#include "tests/support/engine_harness.h"

namespace kairos {
namespace {

// "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
const std::vector<TokenId> kPrompt = {1,    4093, 198, 1780, 314, 260, 3575, 282,
                                      4649, 47,   2,   198,  1,   520, 9531, 198};
constexpr TokenId kTurnEnd = 2;

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = TestModelPath();
    if (path.empty()) GTEST_SKIP() << "no model file; set KAIROS_TEST_MODEL or run tools/model";
    std::string error;
    auto file = GgufFile::Open(path, &error);
    ASSERT_TRUE(file.ok()) << error;
    const KernelTable* kernels = ChooseKernels();
    ASSERT_NE(kernels, nullptr);
    auto model = Model::Load(**file, *kernels, {}, &error);
    ASSERT_TRUE(model.ok()) << error;
    model_ = model.Take();
    const auto tokenizer = Tokenizer::Create(**file, &error);
    ASSERT_TRUE(tokenizer.ok()) << error;
    for (uint32_t token = 0; token < (*tokenizer)->vocabulary_size(); ++token) {
      options_.token_bytes.emplace_back(
          (*tokenizer)->TokenBytes(static_cast<TokenId>(token), true));
    }
    options_.end_tokens = {kTurnEnd};
  }

  std::string Text(const std::vector<TokenId>& tokens) const {
    std::string text;
    for (const TokenId token : tokens) text += options_.token_bytes[static_cast<size_t>(token)];
    return text;
  }

  std::unique_ptr<Model> model_;
  EngineOptions options_;
};

TEST_F(RealModel, NamesTheCapitalOfFranceWhenDecodingGreedily) {
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    EngineHarness harness(*model_, options_, 64);
    const SequenceResult result = harness.RunAlone(harness.Spec(kPrompt, 48, fidelity));
    const std::string text = Text(result.tokens);
    EXPECT_NE(text.find("Paris"), std::string::npos) << text;
    RecordProperty("text", text);
    std::printf("%s\n", text.c_str());
    ASSERT_TRUE(result.finished);
    EXPECT_EQ(result.finished->computed, kPrompt.size() + result.tokens.size() - 1);
  }
}

TEST_F(RealModel, StopsAtAStopStringThatStraddlesTokens) {
  EngineHarness harness(*model_, options_, 64);
  SequenceSpec spec = harness.Spec(kPrompt, 48);
  spec.sampling.stops = {"e is Par"};
  const SequenceResult result = harness.RunAlone(std::move(spec));
  ASSERT_TRUE(result.finished);
  EXPECT_EQ(result.finished->cause, FinishCause::kStopString) << Text(result.tokens);
  EXPECT_NE(Text(result.tokens).find("e is Par"), std::string::npos);
}

}  // namespace
}  // namespace kairos
