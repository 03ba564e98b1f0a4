// SPDX-License-Identifier: Apache-2.0
// Loading: what is refused and how it is said, and what makes two models the same.
#include "sidecar/engine/models/model.h"

#include <gtest/gtest.h>

#include <functional>

#include "sidecar/model/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

std::string ErrorOf(const std::vector<uint8_t>& image) {
  std::string error;
  const auto file = GgufFile::Parse(image, &error);
  if (!file.ok()) return error;
  return Model::Load(**file, *FindKernels("scalar"), {}, &error).ok() ? "loaded" : error;
}

// Metadata of a sound model, changed by the test, and no tensors.
struct Metadata {
  std::string architecture = "llama";
  uint32_t layers = 2, hidden = 128, feed_forward = 192, heads = 4, kv_heads = 2, context = 256;
  uint32_t vocabulary = 64;
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};
};

std::string ErrorOfMetadata(const std::function<void(Metadata&)>& change) {
  Metadata m;
  change(m);
  GgufWriter writer;
  writer.String("general.architecture", m.architecture);
  writer.Unsigned("llama.block_count", m.layers);
  writer.Unsigned("llama.context_length", m.context);
  writer.Unsigned("llama.embedding_length", m.hidden);
  writer.Unsigned("llama.feed_forward_length", m.feed_forward);
  writer.Unsigned("llama.attention.head_count", m.heads);
  writer.Unsigned("llama.attention.head_count_kv", m.kv_heads);
  writer.Unsigned("llama.vocab_size", m.vocabulary);
  m.more(writer);
  return ErrorOf(writer.Finish());
}

TEST(Model, RefusesMetadataThatMakesNoSense) {
  struct Case {
    const char* part;
    std::function<void(Metadata&)> change;
  };
  const std::vector<Case> cases = {
      {"architecture \"mamba\" is not supported; supported: llama, qwen2, qwen3, gemma3",
       [](Metadata& m) { m.architecture = "mamba"; }},
      {"metadata gemma3.block_count is missing", [](Metadata& m) { m.architecture = "gemma3"; }},
      {"llama.final_logit_softcapping: capped logits are not supported",
       [](Metadata& m) {
         m.more = [](GgufWriter& w) { w.Float("llama.final_logit_softcapping", 30.0f); };
       }},
      {"llama.attention.sliding_window is 99999999; allowed",
       [](Metadata& m) {
         m.more = [](GgufWriter& w) { w.Unsigned("llama.attention.sliding_window", 99999999); };
       }},
      {"llama.block_count is 0", [](Metadata& m) { m.layers = 0; }},
      {"llama.block_count is 5000", [](Metadata& m) { m.layers = 5000; }},
      {"llama.context_length is 0", [](Metadata& m) { m.context = 0; }},
      {"head_count 4 is not a multiple of head_count_kv 3", [](Metadata& m) { m.kv_heads = 3; }},
      {"head_count_kv is 0", [](Metadata& m) { m.kv_heads = 0; }},
      {"the head dimension is 40", [](Metadata& m) { m.hidden = 160; }},
      {"must be multiples of 32", [](Metadata& m) { m.feed_forward = 100; }},
      {"llama.vocab_size is 0", [](Metadata& m) { m.vocabulary = 0; }},
      {"tokenizer.ggml.tokens has 1 entries",
       [](Metadata& m) {
         m.more = [](GgufWriter& w) { w.StringArray("tokenizer.ggml.tokens", {"a"}); };
       }},
      {"scaling.type \"yarn\" is not supported",
       [](Metadata& m) {
         m.more = [](GgufWriter& w) { w.String("llama.rope.scaling.type", "yarn"); };
       }},
      {"rotated dimensions 16",
       [](Metadata& m) {
         m.more = [](GgufWriter& w) { w.Unsigned("llama.rope.dimension_count", 16); };
       }},
      {"freq_base must be above 0",
       [](Metadata& m) { m.more = [](GgufWriter& w) { w.Float("llama.rope.freq_base", -1.0f); }; }},
      {"mixtures of experts",
       [](Metadata& m) { m.more = [](GgufWriter& w) { w.Unsigned("llama.expert_count", 8); }; }},
      {"split over several files",
       [](Metadata& m) { m.more = [](GgufWriter& w) { w.Unsigned("split.count", 2); }; }},
      {"holds no tensors", [](Metadata&) {}},
  };
  for (const Case& c : cases) {
    const std::string error = ErrorOfMetadata(c.change);
    EXPECT_NE(error.find(c.part), std::string::npos)
        << "wanted: " << c.part << "\ngot:    " << error;
  }
}

TEST(Model, NamesTheTensorOfAnUnsupportedType) {
  const std::string error = ErrorOfMetadata([](Metadata& m) {
    m.more = [](GgufWriter& w) {
      w.Tensor("blk.0.attn_q.weight", 10, {256, 1}, std::vector<uint8_t>(84));
    };
  });
  EXPECT_EQ(error,
            "tensor blk.0.attn_q.weight has type Q2_K; supported: F32, F16, BF16, Q4_0, Q4_1, "
            "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K");
}

TEST(Model, NamesMissingMisshapenAndUnknownTensors) {
  TinyShape shape;
  const auto with = [&](const std::function<void(TinyShape&)>& change, const char* from,
                        const char* to) {
    TinyShape changed = shape;
    change(changed);
    auto image = BuildTinyGguf(changed);
    const std::string find = from;
    auto at = std::search(image.begin(), image.end(), find.begin(), find.end());
    if (at != image.end()) std::copy(to, to + find.size(), at);
    return ErrorOf(image);
  };
  const auto same = [](TinyShape&) {};
  EXPECT_EQ(with(same, "-", "-"), "loaded");
  EXPECT_EQ(with(same, "blk.1.attn_k.weight", "blk.7.attn_k.weight"),
            "tensor blk.1.attn_k.weight is missing");
  EXPECT_NE(
      with([](TinyShape& s) { s.rope_factors = true; }, "rope_freqs.weight", "rope_other.weight")
          .find("tensor rope_other.weight is not part of a llama model"),
      std::string::npos);
}

TEST(Model, RefusesInfiniteScalesByTensor) {
  for (const char* name : {"blk.0.ffn_up.weight", "token_embd.weight"}) {
    EXPECT_EQ(
        ErrorOf(BuildTinyGguf(TinyShape(), name)),
        std::string("tensor ") + name + " holds a scale or value that is infinite or not a number");
  }
}

TEST(Model, FingerprintsDependOnWeightsAndShapeAndNothingElse) {
  const TinyShape shape;
  TinyShape other_weights = shape;
  other_weights.seed = 2;
  const auto a = LoadTinyModel(shape, "scalar");
  const auto b = LoadTinyModel(shape, "scalar");
  const auto c = LoadTinyModel(other_weights, "scalar");
  EXPECT_EQ(a->FingerprintHex(), b->FingerprintHex());
  EXPECT_NE(a->FingerprintHex(), c->FingerprintHex());
  EXPECT_EQ(a->FingerprintHex().size(), 32u);
}

}  // namespace
}  // namespace kairos
