// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/attention.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"

namespace kairos {
namespace {

// Above it one worker computes all runs of its queries in turn, so that a long prefill needs no
// memory for the partial results of the whole step.
constexpr uint64_t kPartialFloatsMax = 1u << 20;
constexpr uint32_t kBlocksPerSplit = kSplitTokens / kBlockTokens;
// Fewer new tokens than this are not worth waking the pool for.
constexpr uint32_t kStoreRowsForPool = 8;
// Queries of one call of the kernel.
constexpr uint32_t kQueriesMax = kBlockTokens;

}  // namespace

Attention::Attention(const Model& model, KvArena& arena, WorkerPool& pool)
    : model_(model),
      shape_(model.parameters()),
      kernels_(model.kernels()),
      arena_(arena),
      pool_(pool),
      qkv_width_(shape_.query_dim() + 2 * shape_.kv_dim()),
      geometry_(arena.geometry()),
      workers_(pool.threads()) {
  uint32_t full = 0;
  uint32_t windowed = geometry_.full_slots * geometry_.layers;
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const uint32_t at = shape_.sliding[layer] ? windowed++ : full++;
    places_.push_back({at / geometry_.layers, at % geometry_.layers});
  }
  for (WorkerScratch& worker : workers_) {
    worker.kernel.Reserve(AttentionScratchBytes(shape_.head_dim, shape_.group()));
    worker.row.Reserve(uint64_t{shape_.group()} * shape_.head_dim);
  }
  reaches_.emplace_back(shape_, false);
  if (shape_.window > 0) reaches_.emplace_back(shape_, true);
}

void Attention::Plan(std::span<const Segment> segments) {
  spans_.clear();
  scratch_spans_ = 0;
  uint32_t row = 0;
  uint32_t positions = 0;
  for (const Segment& segment : segments) {
    PlanSegment(segment, row);
    row += segment.count;
    positions = std::max(positions, segment.position + segment.count);
  }
  tiles_.Reserve(uint64_t{scratch_spans_} * shape_.kv_heads * 2 * HalfTileBytes(shape_.head_dim));
  PlanShared();
  for (Reach& reach : reaches_) {
    reach.rotary.Grow(positions);
    PlanItems(&reach);
  }
  const uint64_t countdowns = spans_.size() * shape_.kv_heads;
  if (countdowns > countdown_capacity_) {
    countdowns_ = std::make_unique<PartCountdown[]>(countdowns);
    countdown_capacity_ = countdowns;
  }
}

void Attention::PlanSegment(const Segment& segment, uint32_t row) {
  const bool starts_in_open = segment.position % kBlockTokens != 0;
  uint32_t position = segment.position;
  uint32_t left = segment.count;
  bool first = true;
  while (left > 0) {
    Span span;
    span.segment = &segment;
    span.row = row;
    span.position = position;
    span.count = std::min(left, kBlockTokens - position % kBlockTokens);
    if (segment.fidelity == Fidelity::kDefault) {
      const bool in_open = (first && starts_in_open) || (!span.fills() && !starts_in_open);
      if (!in_open) {
        span.scratch = static_cast<int32_t>(scratch_spans_++);
        span.moves_to_open = !span.fills();
      }
    }
    spans_.push_back(span);
    row += span.count;
    position += span.count;
    left -= span.count;
    first = false;
  }
}

// Sequences that share a prefix hold its first block in the same slot.
void Attention::PlanShared() {
  shared_.clear();
  covered_.assign(spans_.size(), 0);
  // With a window the runs that a span sees begin elsewhere for each.
  if (geometry_.full_slots == 0) return;
  std::map<std::pair<uint32_t, Fidelity>, std::vector<uint32_t>> by_first_slot;
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    const Segment& segment = *spans_[i].segment;
    if (spans_[i].block() < kBlocksPerSplit) continue;
    by_first_slot[{segment.slots[0].value, segment.fidelity}].push_back(i);
  }
  for (const auto& [slot, spans] : by_first_slot) {
    if (spans.size() > 1) ShareRuns(spans);
  }
}

// Run after run, as long as some spans still agree with the first of them.
void Attention::ShareRuns(std::vector<uint32_t> spans) {
  const uint32_t halves = spans_[spans[0]].segment->fidelity == Fidelity::kExact ? 2 : 1;
  const uint32_t per_block = geometry_.slots_per_block() * halves;
  // Slots of layers with a window are not read together, and may be there for some only.
  const auto holds_same = [&](const SlotId* a, const SlotId* b) {
    for (uint32_t block = 0; block < kBlocksPerSplit; ++block, a += per_block, b += per_block) {
      if (!std::equal(a, a + geometry_.full_slots * halves, b)) return false;
    }
    return true;
  };
  for (uint32_t split = 0;; ++split) {
    const uint64_t at = uint64_t{split} * kBlocksPerSplit * per_block;
    const SlotId* const first = spans_[spans[0]].segment->slots + at;
    std::erase_if(spans, [&](uint32_t i) {
      return spans_[i].block() < (split + 1) * kBlocksPerSplit ||
             !holds_same(spans_[i].segment->slots + at, first);
    });
    if (spans.size() < 2) return;
    SharedRun run;
    run.split = split;
    uint32_t queries = 0;
    for (const uint32_t i : spans) {
      if (queries + spans_[i].count > kQueriesMax) {
        shared_.push_back(std::exchange(run, {split, {}}));
        queries = 0;
      }
      queries += spans_[i].count;
      run.spans.push_back(i);
      covered_[i] = split + 1;
    }
    shared_.push_back(std::move(run));
  }
}

void Attention::PlanItems(Reach* reach) {
  reach->items.clear();
  reach->partial_rows.clear();
  uint64_t partial_rows = 0;
  for (const Span& span : spans_) {
    reach->partial_rows.push_back(partial_rows);
    partial_rows += uint64_t{span.count} * shape_.heads * reach->splits(span);
  }
  const bool share = partial_rows * shape_.head_dim <= kPartialFloatsMax;
  const bool share_runs = share && reach->window == 0;
  for (uint32_t i = 0; share_runs && i < shared_.size(); ++i) {
    for (uint32_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
      reach->items.push_back({i, kv_head, kSharedSplit});
    }
  }
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    for (uint32_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
      if (share) {
        const uint32_t begin = share_runs ? covered_[i] : 0;
        for (uint32_t split = begin; split < reach->splits(spans_[i]); ++split) {
          reach->items.push_back({i, kv_head, split});
        }
      } else {
        reach->items.push_back({i, kv_head, kAllSplits});
      }
    }
  }
  // Long items first: the last one to finish is then short.
  if (!share) std::reverse(reach->items.begin(), reach->items.end());
  if (share) {
    maxima_.Reserve(partial_rows);
    sums_.Reserve(partial_rows);
    values_.Reserve(partial_rows * shape_.head_dim);
  }
}

Attention::Tiles Attention::SlotTiles(SlotId k, SlotId v, uint32_t layer, uint32_t kv_head) const {
  KAIROS_DCHECK(k.value < arena_.slots() && v.value < arena_.slots());
  const uint64_t offset = (uint64_t{places_[layer].layer} * shape_.kv_heads + kv_head) *
                          HalfTileBytes(shape_.head_dim);
  return {arena_.slot(k) + offset, arena_.slot(v) + offset};
}

Attention::Tiles Attention::OpenTiles(const Segment& segment, uint32_t layer,
                                      uint32_t kv_head) const {
  const SlotId* const slots = segment.open + 2 * places_[layer].slot;
  return SlotTiles(slots[0], slots[1], layer, kv_head);
}

// 16-bit tiles of `block`: of the span's own block, or of an earlier one of an exact sequence.
Attention::Tiles Attention::HalfTiles(const Span& span, uint32_t block, uint32_t layer,
                                      uint32_t kv_head) const {
  const Segment& segment = *span.segment;
  if (segment.fidelity == Fidelity::kExact) {
    const SlotId* const slots =
        segment.slots + 2 * (uint64_t{block} * geometry_.slots_per_block() + places_[layer].slot);
    return SlotTiles(slots[0], slots[1], layer, kv_head);
  }
  if (span.scratch < 0) return OpenTiles(segment, layer, kv_head);
  const uint64_t tile_bytes = HalfTileBytes(shape_.head_dim);
  uint8_t* k = tiles_.data() +
               (static_cast<uint64_t>(span.scratch) * shape_.kv_heads + kv_head) * 2 * tile_bytes;
  return {k, k + tile_bytes};
}

uint8_t* Attention::SealedTile(const Span& span, uint32_t block, uint32_t layer,
                               uint32_t kv_head) const {
  const Place& place = places_[layer];
  const SlotId id =
      span.segment->slots[uint64_t{block} * geometry_.slots_per_block() + place.slot];
  KAIROS_DCHECK(id.value < arena_.slots());
  return arena_.slot(id) +
         (uint64_t{place.layer} * shape_.kv_heads + kv_head) * SealedTileBytes(shape_.head_dim);
}

// Makes the span's queries of this KV head and its key ready (bias, norm, rotation), stores key and
// value, seals a full block.
void Attention::StoreSpan(const Span& span, uint32_t layer, uint32_t kv_head,
                          const RotaryTable& rotary, float* qkv) {
  const LayerWeights& weights = model_.layer(layer);
  const uint32_t d = shape_.head_dim;
  const uint32_t group = shape_.group();
  const Tiles tiles = HalfTiles(span, span.block(), layer, kv_head);
  for (uint32_t i = 0; i < span.count; ++i) {
    const uint32_t position = span.position + i;
    float* row = qkv + uint64_t{span.row + i} * qkv_width_;
    float* queries = row + kv_head * group * d;
    float* key = row + shape_.query_dim() + kv_head * d;
    float* value = row + shape_.query_dim() + shape_.kv_dim() + kv_head * d;
    if (weights.biases[0] != nullptr) {
      kernels_.add(queries, weights.biases[0] + kv_head * group * d, group * d);
      kernels_.add(key, weights.biases[1] + kv_head * d, d);
      kernels_.add(value, weights.biases[2] + kv_head * d, d);
    }
    if (weights.query_norm != nullptr) {
      for (uint32_t g = 0; g < group; ++g) {
        float* query = queries + uint64_t{g} * d;
        kernels_.rms_norm(query, weights.query_norm, shape_.norm_epsilon, d, query);
      }
      kernels_.rms_norm(key, weights.key_norm, shape_.norm_epsilon, d, key);
    }
    kernels_.rope(queries, group, d, rotary.cos(position), rotary.sin(position));
    kernels_.rope(key, 1, d, rotary.cos(position), rotary.sin(position));
    for (uint32_t j = 0; j < group * d; ++j) queries[j] *= shape_.query_scale;
    kernels_.store_half(key, value, d, position % kBlockTokens, tiles.k, tiles.v);
  }
  if (span.segment->fidelity == Fidelity::kDefault && span.fills()) {
    kernels_.seal_tile(tiles.k, tiles.v, d, SealedTile(span, span.block(), layer, kv_head));
  }
}

// Blocks [first, first + count) of the span's sequence as the blocks of one run.
void Attention::SetBlocks(const Span& span, uint32_t layer, uint32_t kv_head, uint32_t first,
                          uint32_t count, AttentionSplit* work) const {
  work->block_count = count;
  for (uint32_t i = 0; i < count; ++i) {
    if (span.segment->fidelity == Fidelity::kDefault) {
      work->sealed[i] = SealedTile(span, first + i, layer, kv_head);
    } else {
      const Tiles tiles = HalfTiles(span, first + i, layer, kv_head);
      work->half_k[i] = tiles.k;
      work->half_v[i] = tiles.v;
    }
  }
}

void Attention::RunSplit(const Span& span, const Reach& reach, uint32_t layer, uint32_t kv_head,
                         uint32_t split, const float* qkv, const Partials& at,
                         void* scratch) const {
  const uint32_t rows = span.count * shape_.group();
  AttentionSplit work;
  work.head_dim = shape_.head_dim;
  work.group = shape_.group();
  work.query_count = span.count;
  work.queries = qkv + uint64_t{span.row} * qkv_width_ + kv_head * shape_.group() * shape_.head_dim;
  work.query_stride = qkv_width_;
  const uint32_t run = reach.first_split(span) + split;
  const uint32_t first_visible = reach.first_token(span) / kBlockTokens;
  const uint32_t first = std::max(run * kBlocksPerSplit, first_visible);
  const uint32_t end = std::min(span.block(), (run + 1) * kBlocksPerSplit);
  if (reach.window > 0) {
    work.hidden_tokens = static_cast<int32_t>(span.position + 1) -
                         static_cast<int32_t>(reach.window) -
                         static_cast<int32_t>(first * kBlockTokens);
  }
  SetBlocks(span, layer, kv_head, first, end - first, &work);
  if (split + 1 == reach.splits(span)) {
    const Tiles own = HalfTiles(span, span.block(), layer, kv_head);
    work.own_k = own.k;
    work.own_v = own.v;
    work.own_first = span.position % kBlockTokens;
  }
  work.maxima = at.maxima + uint64_t{split} * rows;
  work.sums = at.sums + uint64_t{split} * rows;
  work.values = at.values + uint64_t{split} * rows * shape_.head_dim;
  work.scratch = scratch;
  kernels_.attention_split(work);
}

void Attention::Merge(const Span& span, uint32_t splits, uint32_t kv_head, const Partials& from,
                      float* row_scratch, Activations* out) const {
  const uint32_t d = shape_.head_dim;
  const uint32_t group = shape_.group();
  for (uint32_t i = 0; i < span.count; ++i) {
    kernels_.attention_merge(from.maxima + i * group, from.sums + i * group,
                             from.values + uint64_t{i} * group * d, splits,
                             uint64_t{span.count} * group, group, d, row_scratch, d);
    out->Write(kernels_, span.row + i, kv_head * group * d, group * d, row_scratch);
  }
}

Attention::Partials Attention::PartialsOf(const Reach& reach, uint32_t span,
                                          uint32_t kv_head) const {
  const uint64_t rows =
      uint64_t{spans_[span].count} * shape_.group() * reach.splits(spans_[span]);
  const uint64_t at = reach.partial_rows[span] + kv_head * rows;
  return {maxima_.data() + at, sums_.data() + at, values_.data() + at * shape_.head_dim};
}

void Attention::FinishRun(const Reach& reach, uint32_t span, uint32_t kv_head, uint32_t worker,
                          Activations* out) {
  if (!countdowns_[span * shape_.kv_heads + kv_head].FinishOne()) return;
  Merge(spans_[span], reach.splits(spans_[span]), kv_head, PartialsOf(reach, span, kv_head),
        workers_[worker].row.data(), out);
}

// Queries of all spans side by side, through the kernel once, and the results to where each span's
// are expected. Copying them costs little beside the run's keys and values.
void Attention::RunShared(const SharedRun& run, const Reach& reach, uint32_t layer,
                          uint32_t kv_head, uint32_t worker, const float* qkv, Activations* out) {
  const uint32_t group = shape_.group();
  const uint64_t width = uint64_t{group} * shape_.head_dim;  // of one query's heads
  WorkerScratch& scratch = workers_[worker];
  float* const queries = scratch.queries.Reserve(kQueriesMax * width);
  float* const floats = scratch.partials.Reserve(kQueriesMax * (2 * group + width));
  AttentionSplit work;
  work.head_dim = shape_.head_dim;
  work.group = group;
  work.queries = queries;
  work.query_stride = width;
  work.maxima = floats;
  work.sums = floats + kQueriesMax * group;
  work.values = floats + 2 * kQueriesMax * group;
  work.scratch = scratch.kernel.data();
  for (const uint32_t i : run.spans) {
    const Span& span = spans_[i];
    for (uint32_t q = 0; q < span.count; ++q) {
      std::memcpy(queries + work.query_count++ * width,
                  qkv + uint64_t{span.row + q} * qkv_width_ + kv_head * width,
                  width * sizeof(float));
    }
  }
  SetBlocks(spans_[run.spans[0]], layer, kv_head, run.split * kBlocksPerSplit, kBlocksPerSplit,
            &work);
  kernels_.attention_split(work);
  uint64_t row = 0;
  for (const uint32_t i : run.spans) {
    const uint64_t rows = uint64_t{spans_[i].count} * group;
    const Partials to = PartialsOf(reach, i, kv_head);
    std::copy_n(work.maxima + row, rows, to.maxima + run.split * rows);
    std::copy_n(work.sums + row, rows, to.sums + run.split * rows);
    std::copy_n(work.values + row * shape_.head_dim, rows * shape_.head_dim,
                to.values + run.split * rows * shape_.head_dim);
    row += rows;
    FinishRun(reach, i, kv_head, worker, out);
  }
}

void Attention::RunItem(const Item& item, const Reach& reach, uint32_t layer, uint32_t worker,
                        const float* qkv, Activations* out) {
  if (item.split == kSharedSplit) {
    return RunShared(shared_[item.span], reach, layer, item.kv_head, worker, qkv, out);
  }
  const Span& span = spans_[item.span];
  WorkerScratch& scratch = workers_[worker];
  if (item.split != kAllSplits) {
    RunSplit(span, reach, layer, item.kv_head, item.split, qkv,
             PartialsOf(reach, item.span, item.kv_head), scratch.kernel.data());
    return FinishRun(reach, item.span, item.kv_head, worker, out);
  }
  const uint32_t splits = reach.splits(span);
  const uint64_t rows = uint64_t{span.count} * shape_.group() * splits;
  float* floats = scratch.partials.Reserve(rows * (2 + shape_.head_dim));
  const Partials partials = {floats, floats + rows, floats + 2 * rows};
  for (uint32_t split = 0; split < splits; ++split) {
    RunSplit(span, reach, layer, item.kv_head, split, qkv, partials, scratch.kernel.data());
  }
  Merge(span, splits, item.kv_head, partials, scratch.row.data(), out);
}

void Attention::MoveToOpen(const Span& span, uint32_t layer) {
  for (uint32_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
    const Tiles from = HalfTiles(span, span.block(), layer, kv_head);
    const Tiles to = OpenTiles(*span.segment, layer, kv_head);
    std::memcpy(to.k, from.k, HalfTileBytes(shape_.head_dim));
    std::memcpy(to.v, from.v, HalfTileBytes(shape_.head_dim));
  }
}

void Attention::RunLayer(uint32_t layer, float* qkv, Activations* out) {
  const Reach& reach = this->reach(layer);
  const uint32_t heads = shape_.kv_heads;
  const uint32_t stores = static_cast<uint32_t>(spans_.size()) * heads;
  uint32_t rows = 0;
  for (const Span& span : spans_) rows += span.count;
  const auto store = [&](uint32_t item, uint32_t) {
    StoreSpan(spans_[item / heads], layer, item % heads, reach.rotary, qkv);
  };
  if (rows < kStoreRowsForPool) {
    for (uint32_t i = 0; i < stores; ++i) store(i, 0);
  } else {
    pool_.Run(stores, store);
  }
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    for (uint32_t head = 0; head < heads; ++head) {
      countdowns_[i * heads + head].Reset(reach.splits(spans_[i]));
    }
  }
  pool_.Run(static_cast<uint32_t>(reach.items.size()), [&](uint32_t item, uint32_t worker) {
    RunItem(reach.items[item], reach, layer, worker, qkv, out);
  });
  for (const Span& span : spans_) {
    if (span.moves_to_open) MoveToOpen(span, layer);
  }
}

}  // namespace kairos
