// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/loaded_model.h"

#include <utility>

#include "base/log.h"
#include "sidecar/chat/fallback_format.h"
#include "sidecar/daemon/model_text.h"
#include "sidecar/device/device.h"
#include "sidecar/model/gguf.h"
#include "sidecar/preflight/host_checks.h"

namespace kairos {

namespace {

int RefuseForMemory(const std::string& words, std::string* error) {
  *error = words + "\n  " + RemedyForRefusedMemory(ReadCommitLimit());
  return kExitOsError;
}

}  // namespace

int LoadedModel::LoadWeights(const GgufFile& file, const std::string& name,
                             const Progress& progress, std::unique_ptr<Model>* model,
                             std::string* error) {
  uint64_t told = 0;
  const auto tell = [&](uint64_t done, uint64_t total) {
    const uint64_t percent = total == 0 ? 100 : done * 100 / total;
    if (percent != told) progress(percent);
    told = percent;
  };
  LogInfo("daemon", "model_loading model={} file_bytes={}", name, file.file_bytes());
  Result<std::unique_ptr<Model>> loaded = Model::Load(file, *ChooseKernels(), tell, error);
  if (!loaded.ok()) {
    // Not the file's fault, and gone perhaps when it is tried again.
    const bool refused = loaded.status().code() == Code::kResourceExhausted;
    return refused ? RefuseForMemory(name + ": " + *error, error) : kExitNoInput;
  }
  *model = loaded.Take();
  return 0;
}

int LoadedModel::Load(const EngineOptions& options, bool is_default, const Progress& progress,
                      std::string* error) {
  if (int code = LoadWeights(*file_, place_.name, progress, &model_, error); code != 0) return code;
  if (const int code = OpenChat(error); code != 0) return code;
  LogInfo("daemon",
          "model_loaded model={} kernels={} fingerprint={} weight_bytes={} wire_format={}",
          place_.name, model_->kernels().name, model_->FingerprintHex(), model_->weight_bytes(),
          format_->name);
  if (const int code = OpenDraft(progress, error); code != 0) return code;
  if (const int code = OpenEngine(options, error); code != 0) return code;
  json_ = ModelJson(*file_, *model_,
                    {place_.name, is_default, ResolveModelPath(place_.path), built_in_format_,
                     format_->name, arena_->slots(), arena_->slot_bytes(), threads_, timings_,
                     draft_model_ == nullptr ? "" : ResolveModelPath(place_.draft_path),
                     draft_model_.get(), draft_arena_.get()});
  file_.reset();
  return 0;
}

int LoadedModel::ReserveKv(uint64_t bytes, const Model& model, const std::string& setting,
                           std::unique_ptr<KvArena>* arena, std::string* error) {
  const Result<uint32_t> slots = KvSlotCount(bytes, model.kv_geometry(), error, setting);
  if (!slots.ok()) return kExitConfig;
  Result<std::unique_ptr<KvArena>> made = KvArena::Create(model.kv_geometry(), *slots);
  if (!made.ok()) {
    return RefuseForMemory(
        fmt::format("{}: the system refuses {} bytes of KV memory", place_.name, bytes), error);
  }
  *arena = made.Take();
  return 0;
}

int LoadedModel::OpenDraft(const Progress& progress, std::string* error) {
  if (draft_file_ == nullptr) return 0;
  const std::string name = place_.draft_path;
  if (int code = LoadWeights(*draft_file_, name, progress, &draft_model_, error); code != 0) {
    return code;
  }
  draft_file_.reset();
  const int code = ReserveKv(place_.draft_kv_bytes, *draft_model_, "engine.draft_kv_memory",
                             &draft_arena_, error);
  if (code != 0) return code;
  LogInfo("daemon",
          "draft_model_loaded model={} draft_model={} weight_bytes={} slots={} slot_bytes={}",
          place_.name, name, draft_model_->weight_bytes(), draft_arena_->slots(),
          draft_arena_->slot_bytes());
  return 0;
}

int LoadedModel::OpenChat(std::string* error) {
  const auto text_of = [&](TokenId token) {
    return token < 0 ? std::string() : std::string(tokenizer_->TokenBytes(token, true));
  };
  const std::string source(file_->String("tokenizer.chat_template").value_or(""));
  const std::string bos = text_of(tokenizer_->bos());
  const std::string eos = text_of(tokenizer_->eos());
  const HasToken has_token = [&](std::string_view text) {
    return tokenizer_->Encode(text, true).tokens.size() == 1;
  };
  Result<std::unique_ptr<ChatRenderer>> renderer =
      ChatRenderer::Create(source, bos, eos, error, has_token);
  if (source.empty() || !renderer.ok()) built_in_format_ = FallbackFormatOf("", has_token).name;
  if (source.empty()) {
    LogWarn("daemon", "template_missing model={} using={} words={}", place_.name, built_in_format_,
            "the model brings no chat template, so it may be a base model: answers may be poor");
  }
  if (!renderer.ok()) {
    // A template that cannot be used must not keep the model from being served.
    LogWarn("daemon", "template_refused model={} reason={} using={}", place_.name, *error,
            built_in_format_);
    renderer = ChatRenderer::Create("", bos, eos, error, has_token);
    if (!renderer.ok()) return kExitNoInput;
  }
  renderer_ = renderer.Take();
  Result<std::unique_ptr<GrammarCompiler>> grammars = GrammarCompiler::Create(*tokenizer_, error);
  if (!grammars.ok()) return kExitNoInput;
  grammars_ = grammars.Take();
  ModelSigns signs;
  signs.architecture = file_->String("general.architecture").value_or("");
  signs.template_source = source;
  signs.has_token = has_token;
  format_ = &WireFormatOf(ChooseWireFamily(signs));
  text_ = std::make_unique<TextThread>(*renderer_, *tokenizer_, *format_);
  grammar_ = std::make_unique<GrammarThread>(*grammars_);
  return 0;
}

int LoadedModel::OpenEngine(EngineOptions options, std::string* error) {
  options.token_bytes.reserve(tokenizer_->vocabulary_size());
  for (uint32_t token = 0; token < tokenizer_->vocabulary_size(); ++token) {
    const auto id = static_cast<TokenId>(token);
    if (tokenizer_->IsEndOfGeneration(id)) options.end_tokens.push_back(id);
    options.token_bytes.emplace_back(tokenizer_->TokenBytes(id, true));
  }
  const std::vector<TokenId> stop_tokens = tokenizer_->Encode(format_->stop, true).tokens;
  if (stop_tokens.size() == 1) options.end_tokens.push_back(stop_tokens[0]);
  const int code = ReserveKv(place_.kv_bytes, *model_, "kv.memory", &arena_, error);
  if (code != 0) return code;
  kv_layout_ = KvBlockLayout(arena_->geometry(), options.chunk_tokens_max);
  if (options.threads == 0) options.threads = MeasuredThreads();
  threads_ = options.threads;
  Result<std::unique_ptr<Engine>> made = Engine::Create(
      *model_, *arena_, options, {draft_model_.get(), draft_arena_.get()});
  if (!made.ok()) {
    const Status& status = made.status();
    *error = status.code() == Code::kResourceExhausted ? WordsForRefusedThread(status)
                                                       : status.message();
    return kExitOsError;
  }
  engine_ = made.Take();
  LogInfo("daemon", "kv_reserved model={} slots={} slot_bytes={}", place_.name, arena_->slots(),
          arena_->slot_bytes());
  return 0;
}

uint32_t LoadedModel::MeasuredThreads() {
  const uint32_t cores = HostDevice().properties().compute_units;
  timings_ = MeasureThreads(*model_, *arena_, cores);
  const uint32_t threads = ChooseThreads(timings_);
  std::string figures;
  for (const ThreadTiming& timing : timings_) {
    figures += fmt::format("{}{}:{}/{}", figures.empty() ? "" : ",", timing.threads,
                           timing.decode_ns / 1000, timing.prefill_ns / 1000);
  }
  LogInfo("daemon", "threads_chosen model={} threads={} cores={} layer_decode_prefill_us={}",
          place_.name, threads, cores, figures);
  return threads;
}

ModelParts LoadedModel::Parts() const {
  return {place_.name,     model_->FingerprintHex(), json_,      model_->parameters().context,
          arena_->slots(), arena_->slot_bytes(),     kv_layout_, *format_,
          *tokenizer_,     *text_,                   *grammar_,  *engine_};
}

}  // namespace kairos
