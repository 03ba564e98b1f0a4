// SPDX-License-Identifier: Apache-2.0
// Whether a model file can be served here: found, read, of a known kind, and small enough. It comes
// back opened, so that what was looked at is what is loaded. Any thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/chat/tokenizer.h"
#include "sidecar/model/gguf.h"
#include "sidecar/preflight/finding.h"

namespace kairos {

// The path of a model: itself where it names a file, else <cache>/kairos/models/<name>.gguf.
std::string ResolveModelPath(const std::string& name_or_path);

// What was looked at, to go on with. Both are null where something failed.
struct CheckedModel {
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Appends a finding on the file and, where it can be served, one each on kv.memory and memory.
CheckedModel CheckModel(const std::string& name_or_path, uint64_t kv_bytes,
                        std::vector<Finding>* findings);

}  // namespace kairos
