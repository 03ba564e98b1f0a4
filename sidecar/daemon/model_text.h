// SPDX-License-Identifier: Apache-2.0
// What operators are told of a model that is served. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

class GgufFile;
class Model;

struct ModelPlace {
  std::string name;
  bool is_default = false;
  std::string path;
  bool own_template = false;  // false: ChatML in place of the model's chat template
  uint32_t kv_slots = 0;
  uint64_t kv_slot_bytes = 0;
};

// One JSON object; names end in their units.
std::string ModelJson(const GgufFile& file, const Model& model, const ModelPlace& place);

}  // namespace kairos
