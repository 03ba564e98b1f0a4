// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_model.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "sidecar/model/gguf.h"
#include "tests/support/gguf_writer.h"

namespace kairos {
namespace {

using Matrix = std::vector<std::vector<double>>;

uint16_t ToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const int32_t exponent = static_cast<int32_t>((bits >> 23) & 0xff) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3ff));
}

double FromHalf(const uint8_t* data) {
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

void PutHalf(std::vector<uint8_t>* out, float value) {
  const uint16_t bits = ToHalf(value);
  out->push_back(static_cast<uint8_t>(bits));
  out->push_back(static_cast<uint8_t>(bits >> 8));
}

// Random weights of one tensor in GGUF's own layout, about normal with deviation 1 / sqrt(cols).
std::vector<uint8_t> RandomTensor(uint32_t type, uint64_t cols, uint64_t rows,
                                  std::mt19937_64* random) {
  std::vector<uint8_t> out;
  const float size = 1.7f / std::sqrt(static_cast<float>(cols));
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  if (type == 0) {
    for (uint64_t i = 0; i < cols * rows; ++i) {
      const float value = size * (2.0f * uniform(*random) - 1.0f);
      const std::string bytes = BytesOf(value);
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
  }
  for (uint64_t block = 0; block < cols * rows / 32; ++block) {
    const float scale = size * (0.5f + uniform(*random));
    if (type == 8) {
      PutHalf(&out, scale / 127.0f);
      for (int i = 0; i < 32; ++i) out.push_back(static_cast<uint8_t>((*random)() % 255 - 127));
    } else {
      PutHalf(&out, scale / 7.5f);
      if (type == 3) PutHalf(&out, -scale);
      for (int i = 0; i < 16; ++i) out.push_back(static_cast<uint8_t>((*random)()));
    }
  }
  return out;
}

std::vector<uint8_t> NormTensor(uint64_t cols, std::mt19937_64* random) {
  std::vector<uint8_t> out;
  std::uniform_real_distribution<float> uniform(0.6f, 1.4f);
  for (uint64_t i = 0; i < cols; ++i) {
    const std::string bytes = BytesOf(uniform(*random));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

// Rows of a tensor as doubles, decoded here from the format's definition.
Matrix Decode(const GgufTensor& tensor) {
  Matrix out(tensor.extents[1], std::vector<double>(tensor.extents[0]));
  const uint8_t* at = tensor.data;
  for (auto& row : out) {
    for (uint64_t col = 0; col < row.size();) {
      if (tensor.type == 0) {
        float value;
        std::memcpy(&value, at, sizeof(value));
        row[col++] = value;
        at += 4;
        continue;
      }
      const double scale = FromHalf(at);
      if (tensor.type == 8) {
        for (int i = 0; i < 32; ++i) row[col + i] = scale * static_cast<int8_t>(at[2 + i]);
        at += 34;
      } else {
        const double offset = tensor.type == 3 ? FromHalf(at + 2) : -8.0 * scale;
        const uint8_t* nibbles = at + (tensor.type == 3 ? 4 : 2);
        for (int i = 0; i < 16; ++i) {
          row[col + i] = scale * (nibbles[i] & 15) + offset;
          row[col + 16 + i] = scale * (nibbles[i] >> 4) + offset;
        }
        at += tensor.type == 3 ? 20 : 18;
      }
      col += 32;
    }
  }
  return out;
}

std::vector<double> Apply(const Matrix& matrix, const std::vector<double>& x) {
  std::vector<double> out(matrix.size());
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) out[i] += matrix[i][j] * x[j];
  }
  return out;
}

std::vector<double> RmsNorm(const std::vector<double>& x, const std::vector<double>& weight) {
  double sum = 0.0;
  for (const double value : x) sum += value * value;
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
  return out;
}

}  // namespace

std::vector<uint8_t> BuildTinyGguf(const TinyShape& shape, const std::string& break_tensor,
                                   const std::function<void(GgufWriter*)>& add_values) {
  std::mt19937_64 random(shape.seed);
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.Unsigned("llama.block_count", shape.layers);
  writer.Unsigned("llama.context_length", shape.context);
  writer.Unsigned("llama.embedding_length", shape.hidden);
  writer.Unsigned("llama.feed_forward_length", shape.feed_forward);
  writer.Unsigned("llama.attention.head_count", shape.heads);
  writer.Unsigned("llama.attention.head_count_kv", shape.kv_heads);
  writer.Unsigned("llama.attention.key_length", shape.head_dim);
  writer.Unsigned("llama.attention.value_length", shape.head_dim);
  writer.Unsigned("llama.vocab_size", shape.vocabulary);
  writer.Float("llama.rope.freq_base", 10000.0f);
  writer.Float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (add_values) add_values(&writer);
  const auto matrix = [&](const std::string& name, uint32_t type, uint64_t cols, uint64_t rows) {
    std::vector<uint8_t> data = RandomTensor(type, cols, rows, &random);
    if (name == break_tensor) data[type == 0 ? 2 : 0] = 0x80, data[type == 0 ? 3 : 1] = 0x7f;
    writer.Tensor(name, type, {cols, rows}, data);
  };
  const uint64_t queries = uint64_t{shape.heads} * shape.head_dim;
  const uint64_t keys = uint64_t{shape.kv_heads} * shape.head_dim;
  matrix("token_embd.weight", shape.embedding_type, shape.hidden, shape.vocabulary);
  for (uint32_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    writer.Tensor(prefix + "attn_norm.weight", 0, {shape.hidden},
                  NormTensor(shape.hidden, &random));
    writer.Tensor(prefix + "ffn_norm.weight", 0, {shape.hidden}, NormTensor(shape.hidden, &random));
    matrix(prefix + "attn_q.weight", shape.matrix_type, shape.hidden, queries);
    matrix(prefix + "attn_k.weight", shape.matrix_type, shape.hidden, keys);
    matrix(prefix + "attn_v.weight", shape.matrix_type, shape.hidden, keys);
    matrix(prefix + "attn_output.weight", shape.matrix_type, queries, shape.hidden);
    matrix(prefix + "ffn_gate.weight", shape.matrix_type, shape.hidden, shape.feed_forward);
    matrix(prefix + "ffn_up.weight", shape.matrix_type, shape.hidden, shape.feed_forward);
    matrix(prefix + "ffn_down.weight", shape.matrix_type, shape.feed_forward, shape.hidden);
  }
  writer.Tensor("output_norm.weight", 0, {shape.hidden}, NormTensor(shape.hidden, &random));
  if (shape.separate_head)
    matrix("output.weight", shape.matrix_type, shape.hidden, shape.vocabulary);
  if (shape.rope_factors) {
    writer.Tensor("rope_freqs.weight", 0, {shape.head_dim / 2},
                  NormTensor(shape.head_dim / 2, &random));
  }
  return writer.Finish();
}

std::unique_ptr<Model> LoadTinyModel(const TinyShape& shape, const char* kernels) {
  const std::vector<uint8_t> image = BuildTinyGguf(shape);
  std::string error;
  auto file = GgufFile::Parse(image, &error);
  const KernelTable* table = kernels == nullptr ? ChooseKernels() : FindKernels(kernels);
  if (file.ok() && table != nullptr) {
    auto model = Model::Load(**file, *table, {}, &error);
    if (model.ok()) return model.Take();
  }
  std::fprintf(stderr, "tiny model: %s\n", error.c_str());
  std::abort();
}

struct ReferenceModel::Weights {
  std::map<std::string, Matrix> tensors;
  const Matrix& at(const std::string& name) const { return tensors.at(name); }
  const std::vector<double>& row(const std::string& name) const { return tensors.at(name)[0]; }
};

ReferenceModel::ReferenceModel(const TinyShape& shape, const std::vector<uint8_t>& gguf)
    : weights_(std::make_unique<Weights>()), shape_(shape) {
  std::string error;
  auto file = GgufFile::Parse(gguf, &error);
  for (const GgufTensor& tensor : (*file)->tensors()) {
    weights_->tensors[std::string(tensor.name)] = Decode(tensor);
  }
}

ReferenceModel::~ReferenceModel() = default;

std::vector<std::vector<double>> ReferenceModel::Forward(const std::vector<TokenId>& tokens) const {
  const Weights& w = *weights_;
  const uint32_t d = shape_.head_dim;
  const uint32_t group = shape_.heads / shape_.kv_heads;
  const size_t count = tokens.size();
  // Neighbouring pairs rotate together, as GGUF files of this architecture have them.
  const auto rotate = [&](std::vector<double>* x, size_t position) {
    for (size_t head = 0; head < x->size() / d; ++head) {
      for (uint32_t i = 0; i < d / 2; ++i) {
        double frequency = std::pow(10000.0, -2.0 * i / d);
        if (shape_.rope_factors) frequency /= w.row("rope_freqs.weight")[i];
        const double angle = static_cast<double>(position) * frequency;
        double& a = (*x)[head * d + 2 * i];
        double& b = (*x)[head * d + 2 * i + 1];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = rotated;
      }
    }
  };
  Matrix hidden;
  for (const TokenId token : tokens)
    hidden.push_back(w.at("token_embd.weight")[static_cast<size_t>(token)]);
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    Matrix q(count), k(count), v(count);
    for (size_t t = 0; t < count; ++t) {
      const auto normed = RmsNorm(hidden[t], w.row(p + "attn_norm.weight"));
      q[t] = Apply(w.at(p + "attn_q.weight"), normed);
      k[t] = Apply(w.at(p + "attn_k.weight"), normed);
      v[t] = Apply(w.at(p + "attn_v.weight"), normed);
      rotate(&q[t], t);
      rotate(&k[t], t);
    }
    for (size_t t = 0; t < count; ++t) {
      std::vector<double> attended(q[t].size());
      for (uint32_t head = 0; head < shape_.heads; ++head) {
        const size_t q_at = head * d;
        const size_t kv_at = head / group * d;
        std::vector<double> weights(t + 1);
        double best = -1e300, sum = 0.0;
        for (size_t s = 0; s <= t; ++s) {
          for (uint32_t i = 0; i < d; ++i) weights[s] += q[t][q_at + i] * k[s][kv_at + i];
          weights[s] /= std::sqrt(static_cast<double>(d));
          best = std::max(best, weights[s]);
        }
        for (double& weight : weights) sum += weight = std::exp(weight - best);
        for (size_t s = 0; s <= t; ++s) {
          for (uint32_t i = 0; i < d; ++i) attended[q_at + i] += weights[s] / sum * v[s][kv_at + i];
        }
      }
      const auto projected = Apply(w.at(p + "attn_output.weight"), attended);
      for (size_t i = 0; i < projected.size(); ++i) hidden[t][i] += projected[i];
      const auto normed = RmsNorm(hidden[t], w.row(p + "ffn_norm.weight"));
      auto gate = Apply(w.at(p + "ffn_gate.weight"), normed);
      const auto up = Apply(w.at(p + "ffn_up.weight"), normed);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
      const auto down = Apply(w.at(p + "ffn_down.weight"), gate);
      for (size_t i = 0; i < down.size(); ++i) hidden[t][i] += down[i];
    }
  }
  Matrix logits;
  for (size_t t = 0; t < count; ++t) {
    logits.push_back(Apply(w.at(shape_.separate_head ? "output.weight" : "token_embd.weight"),
                           RmsNorm(hidden[t], w.row("output_norm.weight"))));
  }
  return logits;
}

}  // namespace kairos
