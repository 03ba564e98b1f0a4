// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/model_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "sidecar/chat/vocabulary.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/hyper_parameters.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/preflight/host_checks.h"

namespace kairos {

namespace {

// Which settings say what of a model.
struct Keys {
  std::string model;
  std::string kv;
  std::string draft_model;
  std::string draft_kv;
};

// What is read of a file; without a file where something failed.
struct OpenedModel {
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
  HyperParameters shape;
  uint64_t weight_bytes = 0;
};

// `check` is the finding's, `key` the setting that names the model.
Finding Refuse(const char* check, const std::string& key, const std::string& words,
               std::string remedy) {
  return {check, Severity::kFail, key + ": " + words, std::move(remedy), kExitNoInput};
}

Finding NotOpened(const char* check, const std::string& key, const std::string& name,
                  const std::string& path, const std::string& error) {
  const bool is_name = name.find('/') == std::string::npos;
  if (access(path.c_str(), F_OK) != 0) {
    return Refuse(check, key,
                  is_name ? fmt::format("no file and no fetched model is called {} ({})", name,
                                        error)
                          : error,
                  "`tools/model list` shows the names, `tools/model fetch NAME` fetches one; or "
                  "name a GGUF file");
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Refuse(check, key, error, "let this user read the file and its folders (chmod, chown)");
  }
  return Refuse(check, key, error, "fetch the file again, or serve another model");
}

Status Read(const GgufFile& file, OpenedModel* model, std::string* error) {
  KAIROS_ASSIGN_OR_RETURN(model->shape, ReadHyperParameters(file, error));
  KAIROS_ASSIGN_OR_RETURN(model->weight_bytes, PackedWeightBytes(file, error));
  KAIROS_ASSIGN_OR_RETURN(model->tokenizer, Tokenizer::Create(file, error));
  return {};
}

// Appends what is found.
OpenedModel OpenModel(const char* check, const std::string& key, const std::string& name,
                      std::vector<Finding>* findings) {
  const std::string path = ResolveModelPath(name);
  std::string error;
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path, &error);
  if (!file.ok()) {
    findings->push_back(NotOpened(check, key, name, path, error));
    return {};
  }
  OpenedModel model;
  if (!Read(**file, &model, &error).ok()) {
    findings->push_back(Refuse(check, key, path + ": " + error,
                               "serve another model; the README says under Limits what is served"));
    return {};
  }
  findings->push_back({check, Severity::kOk,
                       fmt::format("{}: {} layers, context of {} tokens, weights of {}", path,
                                   model.shape.layers, model.shape.context,
                                   BytesWords(model.weight_bytes)),
                       "", 0});
  model.file = file.Take();
  return model;
}

// `key` is where the settings say how much.
Finding CheckKv(const char* check, uint64_t kv_bytes, const HyperParameters& shape,
                const std::string& key) {
  Finding found{check, Severity::kOk, "", "", 0};
  const KvGeometry geometry =
      KvGeometryOf(shape.kv_heads, shape.head_dim, shape.window, shape.sliding);
  const Result<uint32_t> slots = KvSlotCount(kv_bytes, geometry, &found.words, check);
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

// The draft model of a served one, opened; null where it cannot be used.
std::unique_ptr<GgufFile> CheckDraft(const ModelToServe& model, const GgufFile& served,
                                     const Keys& keys, uint64_t* weight_bytes,
                                     std::vector<Finding>* findings) {
  constexpr const char* kCheck = "draft_model";
  OpenedModel draft = OpenModel(kCheck, keys.draft_model, model.draft_path, findings);
  if (draft.file == nullptr) return nullptr;
  std::string error;
  const Result<Vocabulary> wanted = ReadVocabulary(served, &error);
  const Result<Vocabulary> given = ReadVocabulary(*draft.file, &error);
  if (wanted.ok() && given.ok()) error = FirstDifference(*wanted, *given);
  if (!error.empty()) {
    findings->back() = Refuse(kCheck, keys.draft_model,
                              fmt::format("{}: has not the vocabulary of {}: {}",
                                          ResolveModelPath(model.draft_path), model.name, error),
                              "name a smaller model of the same family, or none");
    return nullptr;
  }
  findings->push_back(
      CheckKv("engine.draft_kv_memory", model.draft_kv_bytes, draft.shape, keys.draft_kv));
  if (findings->back().severity == Severity::kFail) return nullptr;
  *weight_bytes += draft.weight_bytes;
  return std::move(draft.file);
}

// Appends what is found; adds the size of the weights to *weight_bytes.
CheckedModel CheckModel(const ModelToServe& model, const Keys& keys, uint64_t* weight_bytes,
                        std::vector<Finding>* findings) {
  if (model.path.empty()) {
    findings->push_back({"model", Severity::kFail, keys.model + ": no model is named",
                         "give it a GGUF file, or a name that `tools/model list` shows",
                         kExitConfig});
    return {};
  }
  OpenedModel served = OpenModel("model", keys.model, model.path, findings);
  if (served.file == nullptr) return {};
  findings->push_back(CheckKv("kv.memory", model.kv_bytes, served.shape, keys.kv));
  if (findings->back().severity == Severity::kFail) return {};
  *weight_bytes += served.weight_bytes;
  CheckedModel checked;
  if (!model.draft_path.empty()) {
    checked.draft_file = CheckDraft(model, *served.file, keys, weight_bytes, findings);
    if (checked.draft_file == nullptr) return {};
  }
  checked.file = std::move(served.file);
  checked.tokenizer = std::move(served.tokenizer);
  return checked;
}

uint64_t FileBytes(const std::string& name) {
  struct stat status {};
  const bool known = stat(ResolveModelPath(name).c_str(), &status) == 0;
  return known ? static_cast<uint64_t>(status.st_size) : 0;
}

// With its draft model's.
uint64_t FileBytes(const ModelToServe& model) {
  return FileBytes(model.path) + (model.draft_path.empty() ? 0 : FileBytes(model.draft_path));
}

uint64_t KvBytes(const ModelToServe& model) { return model.kv_bytes + model.draft_kv_bytes; }

// Weights and KV of all models. Weights take about what their file does.
uint64_t PrivateBytesOf(const std::vector<ModelToServe>& models) {
  uint64_t bytes = 0;
  for (const ModelToServe& model : models) bytes += FileBytes(model) + KvBytes(model);
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
    loaded += file_bytes[i] + KvBytes(models[i]);
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
    Keys keys{"path" + extra, "kv_memory" + extra, "draft_model" + extra, "engine.draft_kv_memory"};
    if (checked.empty()) keys = {"model", "kv.memory", "engine.draft_model", keys.draft_kv};
    checked.push_back(CheckModel(model, keys, &weight_bytes, findings));
    kv_bytes += KvBytes(model);
    all &= checked.back().file != nullptr;
  }
  if (all) findings->push_back(CheckMemory(weight_bytes, kv_bytes));
  return checked;
}

}  // namespace kairos
