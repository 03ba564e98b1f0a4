// SPDX-License-Identifier: Apache-2.0
// Attention of one step over the KV arena: stores new keys and values, seals blocks that fill, and
// fans (sequence, block of queries, KV head, 256-token run) out over the worker pool.
//
// 1. A query reads its own block in 16 bits and every earlier block sealed (16 bits when exact).
//    Blocks that fill inside the step are sealed before any later block of the layer attends, so
//    the result does not depend on how a prompt was cut into steps.
// 2. 16-bit tiles of a block that both begins and fills in this step live in scratch for one layer.
//    The unfinished last block lives in the open slots; when the step starts inside an older open
//    block, it is built in scratch and copied over after that layer's queries are done.
// 3. Runs are merged in order, whoever computed them.
// 4. Whole runs that several sequences hold in the same slots (a shared prefix) are read once for
//    the queries of all of them. A query's result does not depend on the others beside it.
// 5. In layers with a window, blocks and runs that no query of a span sees are skipped. Their share
//    of a query's result would be exactly nothing, so this too does not depend on the cut.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sidecar/engine/activations.h"
#include "sidecar/engine/aligned_buffer.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/engine/models/rotary_table.h"
#include "sidecar/engine/segment.h"
#include "sidecar/engine/worker_pool.h"

namespace kairos {

class Attention {
 public:
  Attention(const Model& model, KvArena& arena, WorkerPool& pool);

  // Before the layers of a step. `segments` stay valid until the step ends; rows of the step are
  // the segments' tokens in order.
  void Plan(std::span<const Segment> segments);
  // `qkv` [rows, query_dim + 2 * kv_dim] float, keys and queries rotated in place. Writes the
  // layer's KV and the attention result, [rows, query_dim], to `out`.
  void RunLayer(uint32_t layer, float* qkv, Activations* out);
  // Runs of this step that several sequences share.
  uint32_t shared_runs() const { return static_cast<uint32_t>(shared_.size()); }

 private:
  // Tokens of one segment that lie in one block.
  struct Span {
    const Segment* segment = nullptr;
    uint32_t row = 0;
    uint32_t position = 0;
    uint32_t count = 0;
    int32_t scratch = -1;        // index of its 16-bit tiles in scratch, or -1: in slots
    bool moves_to_open = false;  // scratch is copied to the open slots after the layer

    uint32_t block() const { return position / kBlockTokens; }
    bool fills() const { return position % kBlockTokens + count == kBlockTokens; }
  };
  struct Item {
    uint32_t span = 0;  // or, for kSharedSplit, the index of a shared run
    uint32_t kv_head = 0;
    uint32_t split = 0;  // of those it sees; kAllSplits: one worker does them all
  };
  // A whole run that lies in the same slots for all these spans.
  struct SharedRun {
    uint32_t split = 0;
    std::vector<uint32_t> spans;
  };
  // How far back the layers of one kind look, and the work of a step that follows from it.
  struct Reach {
    Reach(const HyperParameters& shape, bool sliding)
        : window(sliding ? shape.window : 0), rotary(shape, sliding) {}

    // The first token that some query of the span sees, and its run.
    uint32_t first_token(const Span& span) const {
      return window == 0 || span.position < window ? 0 : span.position - window + 1;
    }
    uint32_t first_split(const Span& span) const { return first_token(span) / kSplitTokens; }
    uint32_t splits(const Span& span) const {
      return span.position / kSplitTokens - first_split(span) + 1;
    }

    uint32_t window;  // 0: everything
    RotaryTable rotary;
    std::vector<Item> items;
    std::vector<uint64_t> partial_rows;  // of each span: first row of its partial results
  };
  struct Tiles {
    uint8_t* k = nullptr;
    uint8_t* v = nullptr;
  };
  // Results of the runs of one (span, KV head): run-major, then query, then head of the group.
  struct Partials {
    float* maxima = nullptr;
    float* sums = nullptr;
    float* values = nullptr;
  };
  struct WorkerScratch {
    AlignedBuffer<uint8_t> kernel;
    AlignedBuffer<float> partials;
    AlignedBuffer<float> row;
    AlignedBuffer<float> queries;  // of a shared run, gathered
  };
  static constexpr uint32_t kAllSplits = 0xffffffffu;
  static constexpr uint32_t kSharedSplit = 0xfffffffeu;

  void PlanSegment(const Segment& segment, uint32_t row);
  void PlanItems(Reach* reach);
  void PlanShared();
  void ShareRuns(std::vector<uint32_t> spans);
  Reach& reach(uint32_t layer) { return reaches_[shape_.sliding[layer] ? reaches_.size() - 1 : 0]; }
  Tiles OpenTiles(const Segment& segment, uint32_t layer, uint32_t kv_head) const;
  Tiles HalfTiles(const Span& span, uint32_t block, uint32_t layer, uint32_t kv_head) const;
  uint8_t* SealedTile(const Span& span, uint32_t block, uint32_t layer, uint32_t kv_head) const;
  // Where the KV of a layer lies.
  struct Place {
    uint32_t slot;   // of those of a block
    uint32_t layer;  // in the slot
  };
  Tiles SlotTiles(SlotId k, SlotId v, uint32_t layer, uint32_t kv_head) const;
  void StoreSpan(const Span& span, uint32_t layer, uint32_t kv_head, const RotaryTable& rotary,
                 float* qkv);
  void SetBlocks(const Span& span, uint32_t layer, uint32_t kv_head, uint32_t first,
                 uint32_t count, AttentionSplit* work) const;
  void RunSplit(const Span& span, const Reach& reach, uint32_t layer, uint32_t kv_head,
                uint32_t split, const float* qkv, const Partials& at, void* scratch) const;
  // Where the partial results of (span, KV head) begin in the buffers that workers share.
  Partials PartialsOf(const Reach& reach, uint32_t span, uint32_t kv_head) const;
  void RunShared(const SharedRun& run, const Reach& reach, uint32_t layer, uint32_t kv_head,
                 uint32_t worker, const float* qkv, Activations* out);
  // One of the runs of (span, KV head) is done; after the last one they are merged.
  void FinishRun(const Reach& reach, uint32_t span, uint32_t kv_head, uint32_t worker,
                 Activations* out);
  void Merge(const Span& span, uint32_t splits, uint32_t kv_head, const Partials& from,
             float* row_scratch, Activations* out) const;
  void RunItem(const Item& item, const Reach& reach, uint32_t layer, uint32_t worker,
               const float* qkv, Activations* out);
  void MoveToOpen(const Span& span, uint32_t layer);

  const Model& model_;
  const HyperParameters& shape_;
  const KernelTable& kernels_;
  KvArena& arena_;
  WorkerPool& pool_;
  uint32_t qkv_width_;
  const KvGeometry geometry_;
  std::vector<Place> places_;   // of each layer
  std::vector<Reach> reaches_;  // of layers that see everything, then of those with a window
  std::vector<Span> spans_;
  std::vector<SharedRun> shared_;
  std::vector<uint32_t> covered_;  // of each span: leading runs that shared_ has
  uint32_t scratch_spans_ = 0;
  AlignedBuffer<uint8_t> tiles_;
  AlignedBuffer<float> maxima_;
  AlignedBuffer<float> sums_;
  AlignedBuffer<float> values_;
  std::unique_ptr<PartCountdown[]> countdowns_;  // [span, kv_head]
  uint64_t countdown_capacity_ = 0;
  std::vector<WorkerScratch> workers_;
};

}  // namespace kairos
