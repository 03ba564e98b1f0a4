// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/model_text.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/model/gguf.h"

namespace kairos {

std::string ModelJson(const GgufFile& file, const Model& model, const ModelPlace& place) {
  const auto text = [&](const char* key) { return std::string(file.String(key).value_or("")); };
  uint64_t weights = 0;
  std::map<std::string, uint64_t> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    weights += tensor.extents[0] * tensor.extents[1] * tensor.extents[2] * tensor.extents[3];
    ++tensors[GgufTypeName(tensor.type)];
  }
  nlohmann::ordered_json layer_us = nlohmann::ordered_json::object();
  for (const ThreadTiming& timing : place.timings) {
    if (timing.decode_ns != 0) layer_us[std::to_string(timing.threads)] = timing.decode_ns / 1000;
  }
  const HyperParameters& shape = model.parameters();
  const KvGeometry kv = model.kv_geometry();
  nlohmann::ordered_json json = {
      {"name", place.name},
      {"default", place.is_default},
      {"title", text("general.name")},
      {"file", place.path},
      {"file_bytes", file.file_bytes()},
      {"architecture", text("general.architecture")},
      {"weights", weights},
      {"tensors_by_type", tensors},
      {"layers", shape.layers},
      {"hidden", shape.hidden},
      {"heads", shape.heads},
      {"kv_heads", shape.kv_heads},
      {"context_tokens", shape.context},
      {"vocabulary_tokens", shape.vocabulary},
      {"tokenizer", text("tokenizer.ggml.model")},
      {"pre_tokenizer", text("tokenizer.ggml.pre")},
      {"chat_template",
       place.built_in_format.empty() ? "the model's" : "built-in " + place.built_in_format},
      {"wire_format", place.wire_format},
      {"fingerprint", model.FingerprintHex()},
      {"kernels", model.kernels().name},
      {"threads", place.threads},
      {"threads_from", place.timings.empty() ? "settings" : "measured"},
      {"layer_us_by_threads", layer_us},
      {"weight_bytes", model.weight_bytes()},
      {"kv_bytes", place.kv_slot_bytes * place.kv_slots},
      {"kv_block_bytes", place.kv_slot_bytes * kv.slots_per_block()},
      {"kv_block_window_bytes", place.kv_slot_bytes * kv.window_slots},
      {"kv_block_tokens", kBlockTokens},
      {"kv_blocks", place.kv_slots / kv.slots_per_block()},
      {"window_tokens", kv.window},
      {"draft_model", place.draft_path},
  };
  if (place.draft_model != nullptr) {
    json["draft_model_layers"] = place.draft_model->parameters().layers;
    json["draft_model_weight_bytes"] = place.draft_model->weight_bytes();
    json["draft_model_kv_bytes"] = place.draft_arena->slot_bytes() * place.draft_arena->slots();
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kairos
