// SPDX-License-Identifier: Apache-2.0
// What operators are told of a model that is served. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/engine/thread_choice.h"

namespace kairos {

class GgufFile;
class KvArena;
class Model;

struct ModelPlace {
  std::string name;
  bool is_default = false;
  std::string path;
  std::string built_in_format;  // in place of the model's chat template; empty: its own is used
  std::string_view wire_format;  // of its calls and reasoning
  uint32_t kv_slots = 0;
  uint64_t kv_slot_bytes = 0;
  uint32_t threads = 0;
  std::vector<ThreadTiming> timings;  // that chose `threads`; empty: the settings did
  std::string draft_path;             // of the draft model; empty: there is none
  const Model* draft_model = nullptr;
  const KvArena* draft_arena = nullptr;
};

// One JSON object; names end in their units.
std::string ModelJson(const GgufFile& file, const Model& model, const ModelPlace& place);

}  // namespace kairos
