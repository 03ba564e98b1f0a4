// SPDX-License-Identifier: Apache-2.0
// One forward pass of a step: all rows of all segments through every layer, in real batched matrix
// products, then logits of the rows that will be sampled.
// Belongs to the engine thread. Every row's bits depend on its own sequence alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidecar/engine/activations.h"
#include "sidecar/engine/attention.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/engine/segment.h"
#include "sidecar/engine/worker_pool.h"

namespace kairos {

class Forward {
 public:
  Forward(const Model& model, KvArena& arena, WorkerPool& pool);

  // Computes the segments and stores their KV. Tokens are below the vocabulary; slots are valid.
  void Run(std::span<const Segment> segments);
  // For measuring: the rows through `count` layers from `first` on, the first following the last.
  // No logits; what is in the segments' slots afterwards means nothing.
  void RunLayers(std::span<const Segment> segments, uint32_t first, uint32_t count);
  // Logits [vocabulary] of wanted row `index`, in order of segments and tokens; writable, valid
  // until the next Run.
  float* logits(uint32_t index) {
    return logits_.data() + uint64_t{index} * model_.parameters().vocabulary;
  }
  // Of the last Run: runs of KV that were read once for several sequences.
  uint32_t shared_runs() const { return attention_.shared_runs(); }

 private:
  struct Tile {  // one worker's piece of a product
    uint32_t row = 0;
    uint32_t rows = 0;
    uint32_t panel = 0;
    uint32_t panels = 0;
  };
  struct Grid {
    uint32_t row_blocks = 0;
    uint32_t rows = 0;
    uint32_t panels = 0;
    uint32_t panel_step = 0;

    uint32_t items() const { return row_blocks * ((panels + panel_step - 1) / panel_step); }
    Tile tile(uint32_t item) const;
  };

  struct Rows {
    uint32_t all = 0;
    uint32_t logits = 0;  // of them, those whose logits are wanted
  };

  Rows Begin(std::span<const Segment> segments);
  void RunLayer(uint32_t index, uint32_t rows);
  void Reserve(uint32_t rows, uint32_t logit_rows);
  Grid PlanGrid(uint32_t rows, uint32_t panels, uint32_t panel_multiple) const;
  template <typename Task>
  void ForRows(uint32_t rows, Task&& task);
  void Embed(std::span<const Segment> segments);
  void Norm(uint32_t rows, const float* weight, const Projection& reader);
  void Multiply(const PackedMatrix& matrix, const Activations& x, const Tile& tile, float* out,
                uint64_t out_stride) const;
  void Project(const Projection& projection, const Activations& x, uint32_t rows, float* out);
  // With `post_norm` the result is normed before it is added.
  void ProjectAndAdd(const Projection& projection, const Activations& x, uint32_t rows,
                     const float* post_norm);
  void GateUp(const LayerWeights& layer, uint32_t rows);
  void Head(std::span<const Segment> segments, uint32_t logit_rows);

  const Model& model_;
  const HyperParameters& shape_;
  const KernelTable& kernels_;
  WorkerPool& pool_;
  Attention attention_;
  AlignedBuffer<float> hidden_;  // [rows, hidden]
  AlignedBuffer<float> qkv_;     // [rows, query_dim + 2 * kv_dim]
  AlignedBuffer<float> projected_;  // [rows, hidden], of architectures with post norms
  AlignedBuffer<float> logits_;     // [logit rows, vocabulary]
  Activations normed_;           // [rows, hidden]
  Activations attended_;         // [rows, query_dim]
  Activations gated_;            // [rows, feed_forward]
  Activations sampled_;          // [logit rows, hidden]
  std::vector<const TokenId*> row_tokens_;
  std::vector<uint32_t> logit_sources_;
  std::vector<AlignedBuffer<float>> workers_;
};

}  // namespace kairos
