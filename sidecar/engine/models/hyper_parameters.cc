// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/models/hyper_parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "sidecar/engine/kernels/kernel_table.h"
#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kWidthMax = 1u << 20;
constexpr uint64_t kVocabularyMax = 1u << 24;
constexpr uint64_t kContextMax = 1u << 24;
constexpr uint64_t kHeadsMax = 4096;

class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string* error) : file_(file), error_(error) {}

  bool failed() const { return failed_; }

  bool Fail(std::string text) {
    if (!failed_) *error_ = std::move(text);
    failed_ = true;
    return false;
  }
  // A required whole number in 1..max.
  uint32_t Required(const char* key, uint64_t max) {
    const std::optional<uint64_t> value = file_.Unsigned(key);
    if (!value) {
      Fail(fmt::format("metadata {} is missing or not a whole number", key));
      return 0;
    }
    return Bounded(key, *value, max);
  }
  uint32_t Optional(const char* key, uint64_t fallback, uint64_t max) {
    return Bounded(key, file_.Unsigned(key).value_or(fallback), max);
  }
  double Positive(const char* key, double fallback) {
    const double value = file_.Float(key).value_or(fallback);
    if (!std::isfinite(value) || value <= 0.0)
      Fail(fmt::format("metadata {} must be above 0", key));
    return value;
  }

 private:
  uint32_t Bounded(const char* key, uint64_t value, uint64_t max) {
    if (value == 0 || value > max) {
      Fail(fmt::format("metadata {} is {}; allowed: 1 to {}", key, value, max));
      return 0;
    }
    return static_cast<uint32_t>(value);
  }

  const GgufFile& file_;
  std::string* error_;
  bool failed_ = false;
};

void ReadRope(const GgufFile& file, KeyReader& keys, HyperParameters* out) {
  out->rope_base = keys.Positive("llama.rope.freq_base", 10000.0);
  const std::string_view type = file.String("llama.rope.scaling.type").value_or("none");
  const double linear = keys.Positive("llama.rope.scale_linear", 1.0);
  const double factor = keys.Positive("llama.rope.scaling.factor", linear);
  if (type == "linear") {
    out->rope_position_scale = 1.0 / factor;
  } else if (type == "none") {
    out->rope_position_scale = 1.0 / linear;
  } else {
    keys.Fail(
        fmt::format("metadata llama.rope.scaling.type \"{}\" is not supported; supported: "
                    "none, linear",
                    type));
  }
}

void ReadHeads(const GgufFile& file, KeyReader& keys, HyperParameters* out) {
  out->heads = keys.Required("llama.attention.head_count", kHeadsMax);
  if (file.IntegerArray("llama.attention.head_count_kv")) {
    keys.Fail("metadata llama.attention.head_count_kv differs by layer, which is not supported");
  }
  out->kv_heads = keys.Optional("llama.attention.head_count_kv", out->heads, kHeadsMax);
  if (keys.failed()) return;
  if (out->heads % out->kv_heads != 0) {
    keys.Fail(fmt::format("llama.attention.head_count {} is not a multiple of head_count_kv {}",
                          out->heads, out->kv_heads));
    return;
  }
  out->head_dim =
      keys.Optional("llama.attention.key_length", out->hidden / out->heads, kHeadDimMax);
  if (out->head_dim % kGroupSize != 0) {
    keys.Fail(fmt::format("the head dimension is {}; supported: multiples of 32 up to {}",
                          out->head_dim, kHeadDimMax));
  }
  if (!file.Unsigned("llama.attention.key_length") && out->hidden % out->heads != 0) {
    keys.Fail(fmt::format("llama.embedding_length {} is not a multiple of head_count {}",
                          out->hidden, out->heads));
  }
  const uint32_t values = keys.Optional("llama.attention.value_length", out->head_dim, kHeadDimMax);
  const uint32_t rotated = keys.Optional("llama.rope.dimension_count", out->head_dim, kHeadDimMax);
  if (values != out->head_dim || rotated != out->head_dim) {
    keys.Fail(
        fmt::format("head dimension {}, value length {} and rotated dimensions {} must be equal",
                    out->head_dim, values, rotated));
  }
}

}  // namespace

Result<HyperParameters> ReadHyperParameters(const GgufFile& file, std::string* error) {
  KeyReader keys(file, error);
  const Status refused(Code::kInvalidArgument, "model not supported or malformed");
  const std::string_view architecture = file.String("general.architecture").value_or("");
  if (architecture != "llama") {
    *error = fmt::format("architecture \"{}\" is not supported; supported: llama",
                         architecture.substr(0, 40));
    return Status(Code::kUnimplemented, "model architecture not supported");
  }
  if (file.Unsigned("split.count").value_or(1) > 1) {
    *error = "the model is split over several files; merge them into one";
    return Status(Code::kUnimplemented, "split models are not supported");
  }
  HyperParameters out;
  out.layers = keys.Required("llama.block_count", kLayersMax);
  out.hidden = keys.Required("llama.embedding_length", kWidthMax);
  out.feed_forward = keys.Required("llama.feed_forward_length", kWidthMax);
  out.context = keys.Required("llama.context_length", kContextMax);
  if (keys.failed()) return refused;
  ReadHeads(file, keys, &out);
  ReadRope(file, keys, &out);
  out.norm_epsilon =
      static_cast<float>(keys.Positive("llama.attention.layer_norm_rms_epsilon", 1e-5));
  if (out.hidden % kGroupSize != 0 || out.feed_forward % kGroupSize != 0) {
    keys.Fail(
        fmt::format("llama.embedding_length {} and feed_forward_length {} must be multiples of {}",
                    out.hidden, out.feed_forward, kGroupSize));
  }
  if (file.Unsigned("llama.expert_count").value_or(0) > 0) {
    keys.Fail("metadata llama.expert_count: mixtures of experts are not supported");
  }
  const std::optional<std::vector<std::string_view>> tokens =
      file.StringArray("tokenizer.ggml.tokens");
  const uint64_t token_count = tokens ? tokens->size() : 0;
  out.vocabulary = keys.Optional("llama.vocab_size", token_count, kVocabularyMax);
  if (tokens && token_count != out.vocabulary) {
    keys.Fail(fmt::format("llama.vocab_size is {} but tokenizer.ggml.tokens has {} entries",
                          out.vocabulary, token_count));
  }
  if (keys.failed()) return refused;
  return out;
}

}  // namespace kairos
