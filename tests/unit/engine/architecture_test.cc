// SPDX-License-Identifier: Apache-2.0
// Every architecture against transformers, on tiny random models that another project's converter
// wrote (tools/make_architecture_goldens.py), and against itself in every way to run it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sidecar/model/gguf.h"
#include "tests/support/forward_logits.h"

namespace kairos {
namespace {

constexpr char kFolder[] = "tests/goldens/architectures/";

struct Golden {
  std::vector<TokenId> tokens;
  std::map<uint32_t, std::vector<float>> logits;  // by position
};

Golden ReadGolden(const std::string& name) {
  Golden golden;
  std::ifstream file(kFolder + name + ".txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "tokens") {
      for (TokenId token; words >> token;) golden.tokens.push_back(token);
    } else {
      uint32_t position = 0;
      words >> position;
      for (float value; words >> value;) golden.logits[position].push_back(value);
    }
  }
  return golden;
}

std::unique_ptr<Model> LoadGolden(const std::string& name, const KernelTable& kernels) {
  std::string error;
  auto file = GgufFile::Open(kFolder + name + ".gguf", &error);
  if (!file.ok()) {
    ADD_FAILURE() << error;
    return nullptr;
  }
  auto model = Model::Load(**file, kernels, {}, &error);
  if (!model.ok()) {
    ADD_FAILURE() << error;
    return nullptr;
  }
  return model.Take();
}

class Architectures : public testing::TestWithParam<const char*> {};

TEST_P(Architectures, GivesTheLogitsOfTransformers) {
  const Golden golden = ReadGolden(GetParam());
  ASSERT_EQ(golden.tokens.size(), 300u);
  ASSERT_GE(golden.logits.size(), 15u);
  const auto model = LoadGolden(GetParam(), *FindKernels("scalar"));
  ASSERT_NE(model, nullptr);
  const uint32_t vocabulary = model->parameters().vocabulary;
  const auto got = AllLogits(*model, golden.tokens, 512, Fidelity::kExact, 1);
  float largest = 0.0f, error = 0.0f;
  for (const auto& [position, want] : golden.logits) {
    ASSERT_EQ(want.size(), vocabulary);
    for (uint32_t i = 0; i < vocabulary; ++i) {
      const float value = got[uint64_t{position} * vocabulary + i];
      ASSERT_TRUE(std::isfinite(value));
      largest = std::max(largest, std::fabs(want[i]));
      error = std::max(error, std::fabs(value - want[i]));
    }
  }
  EXPECT_LT(error, 1e-3f * largest);
  std::printf("%s: greatest error %.1e of the largest logit, %.2f\n", GetParam(), error / largest,
              largest);
}

TEST_P(Architectures, GivesTheSameBitsForEveryChunkingThreadCountAndTier) {
  const Golden golden = ReadGolden(GetParam());
  const auto scalar = LoadGolden(GetParam(), *FindKernels("scalar"));
  ASSERT_NE(scalar, nullptr);
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    const auto want = AllLogits(*scalar, golden.tokens, 512, fidelity, 1);
    for (const char* name : {"avx2", "avx_vnni", "avx512_vnni"}) {
      if (FindKernels(name) == nullptr) continue;
      const auto model = LoadGolden(GetParam(), *FindKernels(name));
      for (const uint32_t chunk : {1u, 7u, 32u, 45u, 300u}) {
        SCOPED_TRACE(testing::Message() << name << " chunk " << chunk);
        EXPECT_TRUE(AllLogits(*model, golden.tokens, chunk, fidelity, chunk % 2 + 1) == want);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Architectures,
                         testing::Values("llama3", "mistral", "qwen2", "qwen3", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ArchitectureOfAFile, NamesTheLayersWithAWindow) {
  const auto model = LoadGolden("gemma3", *FindKernels("scalar"));
  ASSERT_NE(model, nullptr);
  const HyperParameters& shape = model->parameters();
  EXPECT_EQ(shape.window, 40u);
  EXPECT_EQ(shape.sliding, (std::vector<bool>{true, true, true, true, true, false, true}));
  EXPECT_EQ(shape.window_rope_base, 10000.0);
  EXPECT_EQ(shape.rope_base, 1000000.0);
}

}  // namespace
}  // namespace kairos
