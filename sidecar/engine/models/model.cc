// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

constexpr uint64_t kAlignment = 64;
// Bytes of a tensor that are packed before their pages are given back.
constexpr uint64_t kReleaseStep = 4u << 20;

uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsWeightType(uint32_t gguf_type) {
  return std::ranges::find(WeightTypes(), static_cast<WeightType>(gguf_type)) !=
         WeightTypes().end();
}

enum class RowOrder { kAsStored, kHalfSplit };

// Row of the file that holds row `row` of half-split order, inside heads of `head_dim` rows.
uint32_t SourceRow(uint32_t row, uint32_t head_dim, RowOrder order) {
  if (order == RowOrder::kAsStored) return row;
  const uint32_t head = row / head_dim;
  const uint32_t index = row % head_dim;
  const uint32_t half = head_dim / 2;
  return head * head_dim + 2 * (index % half) + index / half;
}

}  // namespace

uint32_t Projection::rows() const {
  uint32_t total = 0;
  for (uint32_t i = 0; i < count; ++i) total += parts[i].rows;
  return total;
}

uint32_t Projection::panels() const {
  uint32_t total = 0;
  for (uint32_t i = 0; i < count; ++i) total += parts[i].panels();
  return total;
}

bool Projection::reads_quantized() const {
  for (uint32_t i = 0; i < count; ++i) {
    if (IsQuantized(parts[i].layout())) return true;
  }
  return false;
}

bool Projection::reads_float() const {
  for (uint32_t i = 0; i < count; ++i) {
    if (!IsQuantized(parts[i].layout())) return true;
  }
  return false;
}

Result<uint64_t> PackedWeightBytes(const GgufFile& file, std::string* error) {
  const Status refused(Code::kInvalidArgument, "model weights cannot be packed");
  uint64_t packed = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!IsWeightType(tensor.type)) {
      std::string known;
      for (const WeightType type : WeightTypes()) {
        known += (known.empty() ? "" : ", ");
        known += GgufTypeName(static_cast<uint32_t>(type));
      }
      *error = fmt::format("tensor {} has type {}; supported: {}", tensor.name,
                           GgufTypeName(tensor.type), known);
      return refused;
    }
    const uint64_t panels = (tensor.extents[1] + kPanelRows - 1) / kPanelRows;
    const bool matrix = tensor.dimensions == 2 && tensor.extents[0] % kGroupSize == 0 &&
                        tensor.extents[0] <= UINT32_MAX;
    packed += AlignUp(matrix ? panels * PanelBytes(static_cast<WeightType>(tensor.type),
                                                   static_cast<uint32_t>(tensor.extents[0]))
                             : tensor.bytes);
  }
  if (packed != 0) return packed;
  *error = "the model file holds no tensors";
  return refused;
}

// Fills a Model from a file; remembers the first problem.
class ModelLoader {
 public:
  ModelLoader(const GgufFile& file, const Model::Progress& progress, std::string* error)
      : file_(file), progress_(progress), error_(error) {}

  Status Fill(Model* model);

 private:
  bool Fail(std::string text) {
    *error_ = std::move(text);
    return false;
  }
  bool FailNotFinite(const std::string& name) {
    return Fail(
        fmt::format("tensor {} holds a scale or value that is infinite or not a number", name));
  }
  Status Reserve();
  const GgufTensor* Take(const std::string& name, uint64_t cols, uint64_t rows);
  bool Vector(const std::string& name, uint32_t count, const float** out);
  bool Biases(const std::string& prefix, LayerWeights* layer);
  bool Norms(const std::string& prefix, LayerWeights* layer);
  bool Matrix(const std::string& name, uint32_t cols, uint32_t rows, RowOrder order,
              PackedMatrix* out);
  bool Layer(uint32_t index, LayerWeights* layer);
  bool Ends();
  bool RopeFactors();
  bool NothingLeft();
  void Fingerprint();

  const GgufFile& file_;
  const Model::Progress& progress_;
  std::string* error_;
  Model* model_ = nullptr;
  uint64_t used_bytes_ = 0;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  std::unordered_set<std::string_view> taken_;
  std::vector<uint64_t> digests_;
};

Status ModelLoader::Reserve() {
  for (const GgufTensor& tensor : file_.tensors()) total_bytes_ += tensor.bytes;
  KAIROS_ASSIGN_OR_RETURN(const uint64_t packed, PackedWeightBytes(file_, error_));
  Result<DeviceMemory> memory = HostDevice().Allocate(packed);
  if (!memory.ok()) {
    Fail(fmt::format("the system refuses {} bytes of memory for the weights", packed));
    return memory.status();
  }
  model_->memory_ = memory.Take();
  return Status();
}

const GgufTensor* ModelLoader::Take(const std::string& name, uint64_t cols, uint64_t rows) {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) {
    Fail(fmt::format("tensor {} is missing", name));
    return nullptr;
  }
  if (tensor->extents[0] != cols || tensor->extents[1] != rows || tensor->extents[2] != 1 ||
      tensor->extents[3] != 1) {
    Fail(fmt::format("tensor {} has shape [{}, {}, {}, {}]; expected [{}, {}]", name,
                     tensor->extents[0], tensor->extents[1], tensor->extents[2], tensor->extents[3],
                     cols, rows));
    return nullptr;
  }
  taken_.insert(tensor->name);
  const Hash128 hash = HashBytes128(tensor->data, tensor->bytes, tensor->type);
  digests_.insert(digests_.end(), {HashBytes(name.data(), name.size()), hash.low, hash.high});
  // While the file's pages and the packed weights are both in memory, it counts twice.
  file_.ReleasePages({tensor->data, tensor->bytes});
  done_bytes_ += tensor->bytes;
  if (progress_) progress_(done_bytes_, total_bytes_);
  return tensor;
}

bool ModelLoader::Vector(const std::string& name, uint32_t count, const float** out) {
  const GgufTensor* tensor = Take(name, count, 1);
  if (tensor == nullptr) return false;
  if (tensor->type != static_cast<uint32_t>(WeightType::kF32)) {
    return Fail(fmt::format("tensor {} has type {}; supported here: F32", name,
                            GgufTypeName(tensor->type)));
  }
  uint8_t* target = model_->memory_.data() + used_bytes_;
  std::memcpy(target, tensor->data, tensor->bytes);
  used_bytes_ += AlignUp(tensor->bytes);
  const float* values = reinterpret_cast<const float*>(target);
  *out = values;
  const bool finite =
      std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
  return finite || FailNotFinite(name);
}

bool ModelLoader::Matrix(const std::string& name, uint32_t cols, uint32_t rows, RowOrder order,
                         PackedMatrix* out) {
  const GgufTensor* tensor = Take(name, cols, rows);
  if (tensor == nullptr) return false;
  out->type = static_cast<WeightType>(tensor->type);
  out->rows = rows;
  out->cols = cols;
  out->panel_bytes = PanelBytes(out->type, cols);
  out->data = model_->memory_.data() + used_bytes_;
  const uint64_t row_bytes = tensor->bytes / rows;
  uint8_t* target = model_->memory_.data() + used_bytes_;
  uint64_t released = 0;
  for (uint32_t panel = 0; panel < out->panels(); ++panel) {
    const uint8_t* sources[kPanelRows] = {};
    for (uint32_t i = 0; i < kPanelRows && panel * kPanelRows + i < rows; ++i) {
      const uint32_t row = SourceRow(panel * kPanelRows + i, model_->parameters_.head_dim, order);
      sources[i] = tensor->data + row * row_bytes;
    }
    uint8_t* packed = target + panel * out->panel_bytes;
    PackPanel(out->type, sources, cols, packed);
    if (!PanelIsFinite(out->type, cols, packed)) return FailNotFinite(name);
    const uint64_t read = std::min<uint64_t>((panel + 1) * kPanelRows, rows) * row_bytes;
    if (read - released < kReleaseStep && read < tensor->bytes) continue;
    file_.ReleasePages({tensor->data + released, read - released});
    released = read;
  }
  used_bytes_ += AlignUp(out->panels() * out->panel_bytes);
  return true;
}

bool ModelLoader::Biases(const std::string& prefix, LayerWeights* layer) {
  const HyperParameters& p = model_->parameters_;
  return !p.architecture->qkv_bias ||
         (Vector(prefix + "attn_q.bias", p.query_dim(), &layer->biases[0]) &&
          Vector(prefix + "attn_k.bias", p.kv_dim(), &layer->biases[1]) &&
          Vector(prefix + "attn_v.bias", p.kv_dim(), &layer->biases[2]));
}

bool ModelLoader::Norms(const std::string& prefix, LayerWeights* layer) {
  const HyperParameters& p = model_->parameters_;
  const Architecture& architecture = *p.architecture;
  if (!Vector(prefix + "attn_norm.weight", p.hidden, &layer->attention_norm) ||
      !Vector(prefix + "ffn_norm.weight", p.hidden, &layer->feed_forward_norm)) {
    return false;
  }
  if (architecture.head_norms &&
      (!Vector(prefix + "attn_q_norm.weight", p.head_dim, &layer->query_norm) ||
       !Vector(prefix + "attn_k_norm.weight", p.head_dim, &layer->key_norm))) {
    return false;
  }
  return !architecture.post_norms ||
         (Vector(prefix + "post_attention_norm.weight", p.hidden, &layer->attention_post_norm) &&
          Vector(prefix + "post_ffw_norm.weight", p.hidden, &layer->feed_forward_post_norm));
}

bool ModelLoader::Layer(uint32_t index, LayerWeights* layer) {
  const HyperParameters& p = model_->parameters_;
  const std::string prefix = fmt::format("blk.{}.", index);
  const auto as_stored = RowOrder::kAsStored;
  const RowOrder order =
      p.architecture->pairs_neighbours ? RowOrder::kHalfSplit : RowOrder::kAsStored;
  layer->qkv.count = 3;
  layer->output.count = 1;
  layer->gate_up.count = 2;
  layer->down.count = 1;
  return Norms(prefix, layer) && Biases(prefix, layer) &&
         Matrix(prefix + "attn_q.weight", p.hidden, p.query_dim(), order, &layer->qkv.parts[0]) &&
         Matrix(prefix + "attn_k.weight", p.hidden, p.kv_dim(), order, &layer->qkv.parts[1]) &&
         Matrix(prefix + "attn_v.weight", p.hidden, p.kv_dim(), as_stored, &layer->qkv.parts[2]) &&
         Matrix(prefix + "attn_output.weight", p.query_dim(), p.hidden, as_stored,
                &layer->output.parts[0]) &&
         Matrix(prefix + "ffn_gate.weight", p.hidden, p.feed_forward, as_stored,
                &layer->gate_up.parts[0]) &&
         Matrix(prefix + "ffn_up.weight", p.hidden, p.feed_forward, as_stored,
                &layer->gate_up.parts[1]) &&
         Matrix(prefix + "ffn_down.weight", p.feed_forward, p.hidden, as_stored,
                &layer->down.parts[0]);
}

bool ModelLoader::Ends() {
  const HyperParameters& p = model_->parameters_;
  if (!Matrix("token_embd.weight", p.hidden, p.vocabulary, RowOrder::kAsStored,
              &model_->embedding_)) {
    return false;
  }
  model_->head_.count = 1;
  model_->head_.parts[0] = model_->embedding_;
  if (file_.FindTensor("output.weight") != nullptr &&
      !Matrix("output.weight", p.hidden, p.vocabulary, RowOrder::kAsStored,
              &model_->head_.parts[0])) {
    return false;
  }
  return Vector("output_norm.weight", p.hidden, &model_->output_norm_);
}

bool ModelLoader::RopeFactors() {
  if (file_.FindTensor("rope_freqs.weight") == nullptr) return true;
  const uint32_t half = model_->parameters_.head_dim / 2;
  const float* factors = nullptr;
  if (!Vector("rope_freqs.weight", half, &factors)) return false;
  for (uint32_t i = 0; i < half; ++i) {
    if (!(factors[i] > 0.0f)) return Fail("tensor rope_freqs.weight must be above 0 everywhere");
  }
  model_->parameters_.rope_factors.assign(factors, factors + half);
  return true;
}

bool ModelLoader::NothingLeft() {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (!taken_.contains(tensor.name)) {
      return Fail(
          fmt::format("tensor {} is not part of a {} model as this program knows it; "
                      "leaving it out would change the output",
                      tensor.name, model_->parameters_.architecture->name));
    }
  }
  return true;
}

void ModelLoader::Fingerprint() {
  const HyperParameters& p = model_->parameters_;
  digests_.insert(digests_.end(), {kForwardRevision, kKvLayoutRevision, p.layers, p.hidden,
                                   p.feed_forward, p.heads, p.kv_heads, p.head_dim, p.vocabulary});
  const double numbers[] = {p.norm_epsilon, p.rope_base, p.rope_position_scale};
  digests_.push_back(HashBytes(numbers, sizeof(numbers)));
  // Plain llama models keep the fingerprint that they had when there was no other kind.
  if (p.architecture->name != "llama" || p.window != 0) {
    const double kind[] = {static_cast<double>(p.window), p.window_rope_base, p.query_scale};
    digests_.push_back(HashBytes(p.architecture->name.data(), p.architecture->name.size()));
    digests_.push_back(HashBytes(kind, sizeof(kind)));
    for (const bool slides : p.sliding) digests_.push_back(slides);
  }
  uint64_t chain = 0;
  for (const std::string_view token :
       file_.StringArray("tokenizer.ggml.tokens").value_or(std::vector<std::string_view>())) {
    chain = HashChain(chain, HashBytes(token.data(), token.size()));
  }
  digests_.push_back(chain);
  model_->fingerprint_ = HashBytes128(digests_.data(), digests_.size() * sizeof(uint64_t));
}

Status ModelLoader::Fill(Model* model) {
  const Status refused(Code::kInvalidArgument, "model not supported or malformed");
  model_ = model;
  KAIROS_ASSIGN_OR_RETURN(model->parameters_, ReadHyperParameters(file_, error_));
  KAIROS_RETURN_IF_ERROR(Reserve());
  if (!Ends()) return refused;
  model->layers_.resize(model->parameters_.layers);
  for (uint32_t i = 0; i < model->parameters_.layers; ++i) {
    if (!Layer(i, &model->layers_[i])) return refused;
  }
  if (!RopeFactors() || !NothingLeft()) return refused;
  Fingerprint();
  model->weight_bytes_ = used_bytes_;
  file_.ReleasePages();
  return Status();
}

Result<std::unique_ptr<Model>> Model::Load(const GgufFile& file, const KernelTable& kernels,
                                           const Progress& progress, std::string* error) {
  std::unique_ptr<Model> model(new Model);
  model->kernels_ = &kernels;
  KAIROS_RETURN_IF_ERROR(ModelLoader(file, progress, error).Fill(model.get()));
  return model;
}

KvGeometry Model::kv_geometry() const {
  return KvGeometryOf(parameters_.kv_heads, parameters_.head_dim, parameters_.window,
                      parameters_.sliding);
}

std::string Model::FingerprintHex() const {
  return fmt::format("{:016x}{:016x}", fingerprint_.high, fingerprint_.low);
}

}  // namespace kairos
