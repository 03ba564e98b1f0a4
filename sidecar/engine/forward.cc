// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/forward.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kairos {
namespace {

// Rows of one piece of a product: their 8-bit activations stay in the second-level cache.
constexpr uint32_t kRowBlock = 128;
// Pieces per worker: enough for a slow worker to shed some, few enough to claim cheaply.
constexpr uint32_t kPiecesPerWorker = 4;
constexpr uint32_t kPanelsOfPieceMax = 16;
// Below it one thread does a row-wise stage faster than a pool can be told of it.
constexpr uint32_t kRowsForPool = 8;
constexpr uint32_t kRowsOfItem = 4;

// Panels [begin, begin + count) as a matrix of their own.
PackedMatrix PanelsOf(const PackedMatrix& matrix, uint32_t begin, uint32_t count) {
  PackedMatrix view = matrix;
  view.rows = std::min(matrix.rows - begin * kPanelRows, count * kPanelRows);
  view.data = matrix.data + begin * matrix.panel_bytes;
  return view;
}

}  // namespace

Forward::Tile Forward::Grid::tile(uint32_t item) const {
  const uint32_t row_block = item % row_blocks;
  const uint32_t step = item / row_blocks;
  Tile tile;
  tile.row = row_block * kRowBlock;
  tile.rows = std::min(kRowBlock, rows - tile.row);
  tile.panel = step * panel_step;
  tile.panels = std::min(panel_step, panels - tile.panel);
  return tile;
}

Forward::Forward(const Model& model, KvArena& arena, WorkerPool& pool)
    : model_(model),
      shape_(model.parameters()),
      kernels_(model.kernels()),
      pool_(pool),
      attention_(model, arena, pool),
      workers_(pool.threads()) {
  const uint64_t piece = uint64_t{kRowBlock} * 2 * kPanelsOfPieceMax * kPanelRows;
  for (AlignedBuffer<float>& worker : workers_) {
    worker.Reserve(std::max<uint64_t>(piece, shape_.hidden));
  }
}

void Forward::Reserve(uint32_t rows, uint32_t logit_rows) {
  hidden_.Reserve(uint64_t{rows} * shape_.hidden);
  if (shape_.architecture->post_norms) projected_.Reserve(uint64_t{rows} * shape_.hidden);
  qkv_.Reserve(uint64_t{rows} * (shape_.query_dim() + 2 * shape_.kv_dim()));
  logits_.Reserve(uint64_t{logit_rows} * shape_.vocabulary);
  normed_.Reserve(rows, shape_.hidden);
  attended_.Reserve(rows, shape_.query_dim());
  gated_.Reserve(rows, shape_.feed_forward);
  sampled_.Reserve(logit_rows, shape_.hidden);
}

Forward::Grid Forward::PlanGrid(uint32_t rows, uint32_t panels, uint32_t panel_multiple) const {
  Grid grid;
  grid.rows = rows;
  grid.panels = panels;
  grid.row_blocks = (rows + kRowBlock - 1) / kRowBlock;
  const uint32_t pieces = pool_.active() * kPiecesPerWorker;
  uint32_t step = (panels * grid.row_blocks + pieces - 1) / pieces;
  step = std::clamp(step, panel_multiple, kPanelsOfPieceMax);
  grid.panel_step = step / panel_multiple * panel_multiple;
  return grid;
}

template <typename Task>
void Forward::ForRows(uint32_t rows, Task&& task) {
  if (rows < kRowsForPool) {
    for (uint32_t row = 0; row < rows; ++row) task(row, 0u);
    return;
  }
  pool_.Run((rows + kRowsOfItem - 1) / kRowsOfItem, [&](uint32_t item, uint32_t worker) {
    const uint32_t end = std::min(rows, (item + 1) * kRowsOfItem);
    for (uint32_t row = item * kRowsOfItem; row < end; ++row) task(row, worker);
  });
}

void Forward::Embed(std::span<const Segment> segments) {
  row_tokens_.clear();
  for (const Segment& segment : segments) {
    for (uint32_t i = 0; i < segment.count; ++i) row_tokens_.push_back(segment.tokens + i);
  }
  const bool scaled = shape_.architecture->scaled_embedding;
  const float scale = std::sqrt(static_cast<float>(shape_.hidden));
  ForRows(static_cast<uint32_t>(row_tokens_.size()), [&](uint32_t row, uint32_t) {
    const TokenId token = *row_tokens_[row];
    KAIROS_DCHECK(token >= 0 && static_cast<uint32_t>(token) < shape_.vocabulary);
    float* hidden = hidden_.data() + uint64_t{row} * shape_.hidden;
    DequantizePackedRow(model_.embedding(), static_cast<uint32_t>(token), hidden);
    for (uint32_t i = 0; scaled && i < shape_.hidden; ++i) hidden[i] *= scale;
  });
}

void Forward::Norm(uint32_t rows, const float* weight, const Projection& reader) {
  normed_.SetReader(reader);
  ForRows(rows, [&](uint32_t row, uint32_t worker) {
    float* normed = workers_[worker].data();
    kernels_.rms_norm(hidden_.data() + uint64_t{row} * shape_.hidden, weight, shape_.norm_epsilon,
                      shape_.hidden, normed);
    normed_.Write(kernels_, row, 0, shape_.hidden, normed);
  });
}

void Forward::Multiply(const PackedMatrix& matrix, const Activations& x, const Tile& tile,
                       float* out, uint64_t out_stride) const {
  const uint32_t end = tile.panel + tile.panels;
  if (!IsQuantized(matrix.layout())) {
    kernels_.matmul_float(matrix, tile.panel, end, x.floats(tile.row), x.cols(), tile.rows, out,
                          out_stride);
  } else {
    kernels_.matmul_quantized(matrix, tile.panel, end, x.quantized(tile.row), tile.rows, out,
                              out_stride);
  }
}

void Forward::Project(const Projection& projection, const Activations& x, uint32_t rows,
                      float* out) {
  const uint64_t width = projection.rows();
  const Grid grid = PlanGrid(rows, projection.panels(), 1);
  pool_.Run(grid.items(), [&](uint32_t item, uint32_t) {
    const Tile tile = grid.tile(item);
    uint32_t first_panel = 0;
    uint32_t first_row = 0;
    for (uint32_t i = 0; i < projection.count; ++i) {
      const PackedMatrix& part = projection.parts[i];
      const uint32_t begin = std::max(tile.panel, first_panel);
      const uint32_t end = std::min(tile.panel + tile.panels, first_panel + part.panels());
      if (begin < end) {
        const Tile piece{tile.row, tile.rows, begin - first_panel, end - begin};
        Multiply(part, x, piece, out + tile.row * width + first_row, width);
      }
      first_panel += part.panels();
      first_row += part.rows;
    }
  });
}

void Forward::ProjectAndAdd(const Projection& projection, const Activations& x, uint32_t rows,
                            const float* post_norm) {
  if (post_norm != nullptr) {
    Project(projection, x, rows, projected_.data());
    ForRows(rows, [&](uint32_t row, uint32_t) {
      float* added = projected_.data() + uint64_t{row} * shape_.hidden;
      kernels_.rms_norm(added, post_norm, shape_.norm_epsilon, shape_.hidden, added);
      kernels_.add(hidden_.data() + uint64_t{row} * shape_.hidden, added, shape_.hidden);
    });
    return;
  }
  const PackedMatrix& matrix = projection.parts[0];
  const Grid grid = PlanGrid(rows, matrix.panels(), 1);
  pool_.Run(grid.items(), [&](uint32_t item, uint32_t worker) {
    const Tile tile = grid.tile(item);
    const PackedMatrix view = PanelsOf(matrix, tile.panel, tile.panels);
    float* out = workers_[worker].data();
    Multiply(view, x, {tile.row, tile.rows, 0, tile.panels}, out, view.rows);
    for (uint32_t i = 0; i < tile.rows; ++i) {
      kernels_.add(
          hidden_.data() + uint64_t{tile.row + i} * shape_.hidden + tile.panel * kPanelRows,
          out + uint64_t{i} * view.rows, view.rows);
    }
  });
}

// Gate and up of the same columns in one piece, so that their product is quantised while in cache.
void Forward::GateUp(const LayerWeights& layer, uint32_t rows) {
  gated_.SetReader(layer.down);
  const auto activate = shape_.architecture->activation == Activation::kGeluTanh
                            ? kernels_.gelu_multiply
                            : kernels_.silu_multiply;
  const Grid grid = PlanGrid(rows, layer.gate_up.parts[0].panels(), kGroupSize / kPanelRows);
  pool_.Run(grid.items(), [&](uint32_t item, uint32_t worker) {
    const Tile tile = grid.tile(item);
    const Tile piece{tile.row, tile.rows, 0, tile.panels};
    const uint32_t width = tile.panels * kPanelRows;
    float* gate = workers_[worker].data();
    float* up = gate + uint64_t{tile.rows} * width;
    Multiply(PanelsOf(layer.gate_up.parts[0], tile.panel, tile.panels), normed_, piece, gate,
             width);
    Multiply(PanelsOf(layer.gate_up.parts[1], tile.panel, tile.panels), normed_, piece, up, width);
    activate(gate, up, tile.rows * width, gate);
    for (uint32_t i = 0; i < tile.rows; ++i) {
      gated_.Write(kernels_, tile.row + i, tile.panel * kPanelRows, width,
                   gate + uint64_t{i} * width);
    }
  });
}

void Forward::Head(std::span<const Segment> segments, uint32_t logit_rows) {
  logit_sources_.clear();
  uint32_t row = 0;
  for (const Segment& segment : segments) {
    row += segment.count;
    for (uint32_t i = segment.logit_rows; i > 0; --i) logit_sources_.push_back(row - i);
  }
  sampled_.SetReader(model_.head());
  ForRows(logit_rows, [&](uint32_t index, uint32_t worker) {
    float* normed = workers_[worker].data();
    kernels_.rms_norm(hidden_.data() + uint64_t{logit_sources_[index]} * shape_.hidden,
                      model_.output_norm(), shape_.norm_epsilon, shape_.hidden, normed);
    sampled_.Write(kernels_, index, 0, shape_.hidden, normed);
  });
  Project(model_.head(), sampled_, logit_rows, logits_.data());
}

Forward::Rows Forward::Begin(std::span<const Segment> segments) {
  Rows rows;
  for (const Segment& segment : segments) {
    KAIROS_CHECK(segment.count > 0 && segment.logit_rows <= segment.count);
    rows.all += segment.count;
    rows.logits += segment.logit_rows;
  }
  Reserve(rows.all, rows.logits);
  attention_.Plan(segments);
  Embed(segments);
  return rows;
}

void Forward::RunLayer(uint32_t index, uint32_t rows) {
  const LayerWeights& layer = model_.layer(index);
  Norm(rows, layer.attention_norm, layer.qkv);
  Project(layer.qkv, normed_, rows, qkv_.data());
  attended_.SetReader(layer.output);
  attention_.RunLayer(index, qkv_.data(), &attended_);
  ProjectAndAdd(layer.output, attended_, rows, layer.attention_post_norm);
  Norm(rows, layer.feed_forward_norm, layer.gate_up);
  GateUp(layer, rows);
  ProjectAndAdd(layer.down, gated_, rows, layer.feed_forward_post_norm);
}

void Forward::Run(std::span<const Segment> segments) {
  const Rows rows = Begin(segments);
  for (uint32_t i = 0; i < shape_.layers; ++i) RunLayer(i, rows.all);
  if (rows.logits > 0) Head(segments, rows.logits);
}

void Forward::RunLayers(std::span<const Segment> segments, uint32_t first, uint32_t count) {
  const Rows rows = Begin(segments);
  for (uint32_t i = 0; i < count; ++i) RunLayer((first + i) % shape_.layers, rows.all);
}

}  // namespace kairos
