// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/models/hyper_parameters.h"

#include <fmt/format.h>

#include <algorithm>
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

// Reads metadata of one architecture: keys are given without its prefix.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, const Architecture& architecture, std::string* error)
      : file_(file), architecture_(architecture), error_(error) {}

  std::string Key(std::string_view key) const {
    return fmt::format("{}.{}", architecture_.name, key);
  }

  bool failed() const { return failed_; }

  bool Fail(std::string text) {
    if (!failed_) *error_ = std::move(text);
    failed_ = true;
    return false;
  }
  // A required whole number in 1..max.
  uint32_t Required(std::string_view key, uint64_t max) {
    const std::optional<uint64_t> value = Unsigned(key);
    if (!value) {
      Fail(fmt::format("metadata {} is missing or not a whole number", Key(key)));
      return 0;
    }
    return Bounded(key, *value, max);
  }
  uint32_t Optional(std::string_view key, uint64_t fallback, uint64_t max) {
    return Bounded(key, Unsigned(key).value_or(fallback), max);
  }
  double Positive(std::string_view key, double fallback) {
    const double value = file_.Float(Key(key)).value_or(fallback);
    if (!std::isfinite(value) || value <= 0.0) {
      Fail(fmt::format("metadata {} must be above 0", Key(key)));
    }
    return value;
  }
  std::optional<uint64_t> Unsigned(std::string_view key) const { return file_.Unsigned(Key(key)); }
  std::string_view String(std::string_view key, std::string_view fallback) const {
    return file_.String(Key(key)).value_or(fallback);
  }
  std::optional<std::vector<int64_t>> IntegerArray(std::string_view key) const {
    return file_.IntegerArray(Key(key));
  }
  // A value that changes the output in a way that nothing here computes.
  void Refuse(std::string_view key, std::string_view what) {
    const double value = file_.Float(Key(key)).value_or(static_cast<double>(
        Unsigned(key).value_or(0)));
    if (value != 0.0) Fail(fmt::format("metadata {}: {} not supported", Key(key), what));
  }

 private:
  uint32_t Bounded(std::string_view key, uint64_t value, uint64_t max) {
    if (value == 0 || value > max) {
      Fail(fmt::format("metadata {} is {}; allowed: 1 to {}", Key(key), value, max));
      return 0;
    }
    return static_cast<uint32_t>(value);
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  std::string* error_;
  bool failed_ = false;
};

void ReadRope(KeyReader& keys, HyperParameters* out) {
  out->rope_base = keys.Positive("rope.freq_base", 10000.0);
  const std::string_view type = keys.String("rope.scaling.type", "none");
  const double linear = keys.Positive("rope.scale_linear", 1.0);
  const double factor = keys.Positive("rope.scaling.factor", linear);
  if (type == "linear") {
    out->rope_position_scale = 1.0 / factor;
  } else if (type == "none") {
    out->rope_position_scale = 1.0 / linear;
  } else {
    keys.Fail(fmt::format("metadata {} \"{}\" is not supported; supported: none, linear",
                          keys.Key("rope.scaling.type"), type));
  }
}

void ReadHeads(KeyReader& keys, HyperParameters* out) {
  out->heads = keys.Required("attention.head_count", kHeadsMax);
  if (keys.IntegerArray("attention.head_count_kv")) {
    keys.Fail(fmt::format("metadata {} differs by layer, which is not supported",
                          keys.Key("attention.head_count_kv")));
  }
  out->kv_heads = keys.Optional("attention.head_count_kv", out->heads, kHeadsMax);
  if (keys.failed()) return;
  if (out->heads % out->kv_heads != 0) {
    keys.Fail(fmt::format("{} {} is not a multiple of head_count_kv {}",
                          keys.Key("attention.head_count"), out->heads, out->kv_heads));
    return;
  }
  out->head_dim = keys.Optional("attention.key_length", out->hidden / out->heads, kHeadDimMax);
  if (out->head_dim % kGroupSize != 0) {
    keys.Fail(fmt::format("the head dimension is {}; supported: multiples of 32 up to {}",
                          out->head_dim, kHeadDimMax));
  }
  if (!keys.Unsigned("attention.key_length") && out->hidden % out->heads != 0) {
    keys.Fail(fmt::format("{} {} is not a multiple of head_count {}", keys.Key("embedding_length"),
                          out->hidden, out->heads));
  }
  const uint32_t values = keys.Optional("attention.value_length", out->head_dim, kHeadDimMax);
  const uint32_t rotated = keys.Optional("rope.dimension_count", out->head_dim, kHeadDimMax);
  if (values != out->head_dim || rotated != out->head_dim) {
    keys.Fail(
        fmt::format("head dimension {}, value length {} and rotated dimensions {} must be equal",
                    out->head_dim, values, rotated));
  }
  if (keys.failed()) return;
  const bool by_width = out->layers == out->architecture->layers_scaled_by_width;
  const float scaled = by_width ? static_cast<float>(out->hidden) / static_cast<float>(out->heads)
                                : static_cast<float>(out->head_dim);
  out->query_scale = 1.0f / std::sqrt(scaled);
}

// Which layers see only the latest tokens.
void ReadWindow(KeyReader& keys, HyperParameters* out) {
  const Architecture& architecture = *out->architecture;
  out->sliding.assign(out->layers, false);
  if (keys.Unsigned("attention.sliding_window").value_or(0) == 0) return;
  out->window = keys.Required("attention.sliding_window", kContextMax);
  if (keys.IntegerArray("attention.sliding_window_pattern")) {
    keys.Fail(fmt::format("metadata {} lists layers, which is not supported",
                          keys.Key("attention.sliding_window_pattern")));
  }
  const uint32_t every = static_cast<uint32_t>(
      std::min<uint64_t>(keys.Unsigned("attention.sliding_window_pattern")
                             .value_or(architecture.full_layer_every),
                         kLayersMax + 1));
  for (uint32_t i = 0; i < out->layers; ++i) {
    out->sliding[i] = every == 0 || (i + 1) % every != 0;
  }
  if (architecture.window_rope_base > 0.0) {
    out->window_rope_base = keys.Positive("rope.freq_base_swa", architecture.window_rope_base);
  }
}

}  // namespace

Result<HyperParameters> ReadHyperParameters(const GgufFile& file, std::string* error) {
  const Status refused(Code::kInvalidArgument, "model not supported or malformed");
  const std::string_view name = file.String("general.architecture").value_or("");
  const Architecture* architecture = FindArchitecture(name);
  if (architecture == nullptr) {
    *error = fmt::format("architecture \"{}\" is not supported; supported: {}", name.substr(0, 40),
                         SupportedArchitectures());
    return Status(Code::kUnimplemented, "model architecture not supported");
  }
  if (file.Unsigned("split.count").value_or(1) > 1) {
    *error = "the model is split over several files; merge them into one";
    return Status(Code::kUnimplemented, "split models are not supported");
  }
  KeyReader keys(file, *architecture, error);
  HyperParameters out;
  out.architecture = architecture;
  out.layers = keys.Required("block_count", kLayersMax);
  out.hidden = keys.Required("embedding_length", kWidthMax);
  out.feed_forward = keys.Required("feed_forward_length", kWidthMax);
  out.context = keys.Required("context_length", kContextMax);
  if (keys.failed()) return refused;
  ReadHeads(keys, &out);
  ReadRope(keys, &out);
  ReadWindow(keys, &out);
  keys.Refuse("attn_logit_softcapping", "capped scores are");
  keys.Refuse("final_logit_softcapping", "capped logits are");
  out.norm_epsilon = static_cast<float>(keys.Positive("attention.layer_norm_rms_epsilon", 1e-5));
  if (out.hidden % kGroupSize != 0 || out.feed_forward % kGroupSize != 0) {
    keys.Fail(fmt::format("{} {} and feed_forward_length {} must be multiples of {}",
                          keys.Key("embedding_length"), out.hidden, out.feed_forward, kGroupSize));
  }
  keys.Refuse("expert_count", "mixtures of experts are");
  const std::optional<std::vector<std::string_view>> tokens =
      file.StringArray("tokenizer.ggml.tokens");
  const uint64_t token_count = tokens ? tokens->size() : 0;
  out.vocabulary = keys.Optional("vocab_size", token_count, kVocabularyMax);
  if (tokens && token_count != out.vocabulary) {
    keys.Fail(fmt::format("{} is {} but tokenizer.ggml.tokens has {} entries",
                          keys.Key("vocab_size"), out.vocabulary, token_count));
  }
  if (keys.failed()) return refused;
  return out;
}

}  // namespace kairos
