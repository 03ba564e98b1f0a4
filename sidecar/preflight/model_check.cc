// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/model_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/hyper_parameters.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/preflight/host_checks.h"

namespace kairos {

namespace {

// `key` is the setting that names the model.
Finding Refuse(const std::string& key, const std::string& words, std::string remedy) {
  return {"model", Severity::kFail, key + ": " + words, std::move(remedy), kExitNoInput};
}

Finding NotOpened(const std::string& key, const std::string& name, const std::string& path,
                  const std::string& error) {
  const bool is_name = name.find('/') == std::string::npos;
  if (access(path.c_str(), F_OK) != 0) {
    return Refuse(key,
                  is_name ? fmt::format("no file and no fetched model is called {} ({})", name,
                                        error)
                          : error,
                  "`tools/model list` shows the names, `tools/model fetch NAME` fetches one; or "
                  "name a GGUF file");
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Refuse(key, error, "let this user read the file and its folders (chmod, chown)");
  }
  return Refuse(key, error, "fetch the file again, or serve another model");
}

Result<std::unique_ptr<Tokenizer>> Read(const GgufFile& file, HyperParameters* shape,
                                        uint64_t* weight_bytes, std::string* error) {
  KAIROS_ASSIGN_OR_RETURN(*shape, ReadHyperParameters(file, error));
  KAIROS_ASSIGN_OR_RETURN(*weight_bytes, PackedWeightBytes(file, error));
  return Tokenizer::Create(file, error);
}

// `key` is where the settings say how much.
Finding CheckKv(uint64_t kv_bytes, const HyperParameters& shape, const std::string& key) {
  Finding found{"kv.memory", Severity::kOk, "", "", 0};
  const KvGeometry geometry =
      KvGeometryOf(shape.kv_heads, shape.head_dim, shape.window, shape.sliding);
  const Result<uint32_t> slots = KvSlotCount(kv_bytes, geometry, &found.words);
  if (slots.ok()) {
    found.words = fmt::format("{} hold {} blocks of 32 tokens", BytesWords(kv_bytes),
                              *slots / geometry.slots_per_block());
  } else {
    found.severity = Severity::kFail;
    found.remedy = "raise " + key;
    found.exit_status = kExitConfig;
  }
  return found;
}

// Appends what is found; adds the size of the weights to *weight_bytes.
CheckedModel CheckModel(const ModelToServe& model, const std::string& key,
                        const std::string& kv_key, uint64_t* weight_bytes,
                        std::vector<Finding>* findings) {
  if (model.path.empty()) {
    findings->push_back({"model", Severity::kFail, key + ": no model is named",
                         "give it a GGUF file, or a name that `tools/model list` shows",
                         kExitConfig});
    return {};
  }
  const std::string path = ResolveModelPath(model.path);
  std::string error;
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path, &error);
  if (!file.ok()) {
    findings->push_back(NotOpened(key, model.path, path, error));
    return {};
  }
  HyperParameters shape;
  uint64_t weights = 0;
  Result<std::unique_ptr<Tokenizer>> tokenizer = Read(**file, &shape, &weights, &error);
  if (!tokenizer.ok()) {
    findings->push_back(Refuse(key, path + ": " + error,
                               "serve another model; the README says under Limits what is served"));
    return {};
  }
  findings->push_back({"model", Severity::kOk,
                       fmt::format("{}: {} layers, context of {} tokens, weights of {}", path,
                                   shape.layers, shape.context, BytesWords(weights)),
                       "", 0});
  findings->push_back(CheckKv(model.kv_bytes, shape, kv_key));
  if (findings->back().severity == Severity::kFail) return {};
  *weight_bytes += weights;
  return {file.Take(), tokenizer.Take()};
}

uint64_t FileBytes(const ModelToServe& model) {
  struct stat status {};
  const bool known = stat(ResolveModelPath(model.path).c_str(), &status) == 0;
  return known ? static_cast<uint64_t>(status.st_size) : 0;
}

// Weights and KV of all models. Weights take about what their file does.
uint64_t PrivateBytesOf(const std::vector<ModelToServe>& models) {
  uint64_t bytes = 0;
  for (const ModelToServe& model : models) bytes += FileBytes(model) + model.kv_bytes;
  return bytes;
}

// What the models take at most while they are loaded one after the other: the files of those to
// come, weights and KV of those that are there.
uint64_t AddressSpaceOf(const std::vector<ModelToServe>& models) {
  std::vector<uint64_t> file_bytes;
  uint64_t files = 0;
  for (const ModelToServe& model : models) {
    file_bytes.push_back(FileBytes(model));
    files += file_bytes.back();
  }
  uint64_t most = 0;
  uint64_t loaded = 0;
  for (size_t i = 0; i < models.size(); ++i) {
    loaded += file_bytes[i] + models[i].kv_bytes;
    most = std::max(most, files + loaded);
    files -= file_bytes[i];
  }
  return most;
}

}  // namespace

std::string ResolveModelPath(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || access(name_or_path.c_str(), R_OK) == 0) {
    return name_or_path;
  }
  std::string cache;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != '\0') {
    cache = base;
  } else if (const char* home = std::getenv("HOME"); home != nullptr) {
    cache = std::string(home) + "/.cache";
  }
  return cache + "/kairos/models/" + name_or_path + ".gguf";
}

Finding CheckChatTemplate(const ModelToServe& model, const GgufFile& file) {
  Finding found{"chat_template", Severity::kOk, model.name + " brings a chat template", "", 0};
  if (!file.String("tokenizer.chat_template").value_or("").empty()) return found;
  found.severity = Severity::kWarn;
  found.words = model.name +
                " brings no chat template, so it may be a base model: answers may be poor, and a "
                "built-in format is used";
  found.remedy = "serve a model that was taught to chat; such ones are called Instruct, Chat or it";
  return found;
}

std::vector<CheckedModel> CheckModels(const std::vector<ModelToServe>& models,
                                      std::vector<Finding>* findings) {
  findings->push_back(CheckAddressSpace(AddressSpaceOf(models)));
  if (findings->back().severity == Severity::kFail) return {};
  findings->push_back(CheckPrivateMemory(PrivateBytesOf(models), ReadCommitLimit()));
  if (findings->back().severity == Severity::kFail) return {};
  std::vector<CheckedModel> checked;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  bool all = true;
  for (const ModelToServe& model : models) {
    const std::string extra = " of [[extra_model]] " + model.name;
    const std::string key = checked.empty() ? "model" : "path" + extra;
    const std::string kv_key = checked.empty() ? "kv.memory" : "kv_memory" + extra;
    checked.push_back(CheckModel(model, key, kv_key, &weight_bytes, findings));
    kv_bytes += model.kv_bytes;
    all &= checked.back().file != nullptr;
  }
  if (all) findings->push_back(CheckMemory(weight_bytes, kv_bytes));
  return checked;
}

}  // namespace kairos
