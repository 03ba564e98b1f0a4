// SPDX-License-Identifier: Apache-2.0
// Whether model files can be served here: found, read, of a known kind, and small enough. They come
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

// A model that the settings name.
struct ModelToServe {
  std::string name;          // for clients
  std::string path;          // or the name of a fetched model
  uint64_t kv_bytes = 0;     // most that its KV may take
  std::string draft_path = "";  // of its draft model, as `path`; empty: it has none
  uint64_t draft_kv_bytes = 0;
};

// What was looked at, to go on with. All are null where something failed.
struct CheckedModel {
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<GgufFile> draft_file;  // null also where there is no draft model
};

// Whether the model brings a template for chats. kairosd says so itself once it has read the model.
Finding CheckChatTemplate(const ModelToServe& model, const GgufFile& file);

// Appends findings on the address space and the private memory of all. Where there is enough to
// open the files, also one on each and, where it can be served, on its KV memory and on its draft
// model, then one on the memory of all. The first model is the default one.
std::vector<CheckedModel> CheckModels(const std::vector<ModelToServe>& models,
                                      std::vector<Finding>* findings);

}  // namespace kairos
