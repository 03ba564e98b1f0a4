// SPDX-License-Identifier: Apache-2.0
// Weights of a model, packed for the kernels, and its hyper-parameters.
// Immutable after Load, any thread; keeps nothing of the GGUF file it was loaded from.
//
// Query and key rows are stored in the half-split order of the rope kernel; some architectures'
// files pair neighbouring rows. Scores do not change, because both sides of each dot are permuted
// alike.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "sidecar/device/device.h"
#include "sidecar/engine/kernels/kernel_table.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/hyper_parameters.h"

namespace kairos {

class GgufFile;

// Grows whenever the bits of a forward pass or the bytes of a KV slot change meaning: stored KV of
// another revision is then of another model.
inline constexpr uint32_t kForwardRevision = 1;
inline constexpr uint32_t kKvLayoutRevision = 1;

// Matrices that read the same activations; their outputs lie side by side in one row.
struct Projection {
  PackedMatrix parts[3];
  uint32_t count = 0;

  uint32_t rows() const;
  uint32_t panels() const;
  bool reads_quantized() const;  // some part wants 8-bit activations
  bool reads_float() const;      // some part wants float activations
};

struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  const float* feed_forward_norm = nullptr;
  // Null where the architecture has none.
  const float* biases[3] = {};                 // of queries, keys, values: [query_dim or kv_dim]
  const float* query_norm = nullptr;           // [head_dim]
  const float* key_norm = nullptr;
  const float* attention_post_norm = nullptr;  // [hidden]
  const float* feed_forward_post_norm = nullptr;
  Projection qkv;      // outputs: queries, keys, values
  Projection output;   // [hidden, query_dim]
  Projection gate_up;  // outputs: gate, up
  Projection down;     // [hidden, feed_forward]
};

// Bytes that the packed weights of a file take. INVALID_ARGUMENT, with words, where a tensor is of
// a type that cannot be packed or there is none.
Result<uint64_t> PackedWeightBytes(const GgufFile& file, std::string* error);

class Model {
 public:
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Packs the weights; takes about a second per gigabyte and core. `progress` may be empty. `error`
  // receives a sentence for people. `kernels` outlives the model. RESOURCE_EXHAUSTED where the
  // system refuses memory; other failures are the file's.
  static Result<std::unique_ptr<Model>> Load(const GgufFile& file, const KernelTable& kernels,
                                             const Progress& progress, std::string* error);

  const HyperParameters& parameters() const { return parameters_; }
  const KernelTable& kernels() const { return *kernels_; }
  const LayerWeights& layer(uint32_t index) const { return layers_[index]; }
  const PackedMatrix& embedding() const { return embedding_; }  // [vocabulary, hidden]
  const Projection& head() const { return head_; }              // [vocabulary, hidden]
  const float* output_norm() const { return output_norm_; }
  KvGeometry kv_geometry() const;

  // Of tensor bytes, effective hyper-parameters, vocabulary, and the two revisions above: equal
  // fingerprints mean that KV computed by one is KV of the other.
  const Hash128& fingerprint() const { return fingerprint_; }
  std::string FingerprintHex() const;                      // 32 digits
  uint64_t weight_bytes() const { return weight_bytes_; }  // read per decoded token, about

 private:
  friend class ModelLoader;
  Model() = default;

  HyperParameters parameters_;
  const KernelTable* kernels_ = nullptr;
  DeviceMemory memory_;
  std::vector<LayerWeights> layers_;
  PackedMatrix embedding_;
  Projection head_;
  const float* output_norm_ = nullptr;
  Hash128 fingerprint_;
  uint64_t weight_bytes_ = 0;
};

}  // namespace kairos
