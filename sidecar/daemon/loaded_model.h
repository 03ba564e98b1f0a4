// SPDX-License-Identifier: Apache-2.0
// One model in memory with all that serves it: weights, tokenizer, template, grammars, KV arena and
// engine. Models share no part of it, so that what one computes does not depend on the others.
// Owner: the main thread builds it; its engine, text and grammar threads then own what they run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shm/counters.h"
#include "sidecar/chat/chat_renderer.h"
#include "sidecar/chat/wire_format.h"
#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/engine/thread_choice.h"
#include "sidecar/grammar/grammar_compiler.h"
#include "sidecar/preflight/model_check.h"
#include "sidecar/session/model_host.h"
#include "sidecar/session/text_thread.h"

namespace kairos {

class LoadedModel {
 public:
  // Percent of the weights that are read.
  using Progress = std::function<void(uint64_t percent)>;

  LoadedModel(ModelToServe place, CheckedModel checked)
      : place_(std::move(place)), file_(std::move(checked.file)),
        tokenizer_(std::move(checked.tokenizer)), draft_file_(std::move(checked.draft_file)) {}

  // Reads the weights, reserves KV memory, makes the engine and starts its workers. 0, or the exit
  // status with *error in words for people. Blocks for seconds. `options` is the settings' part;
  // without threads, their number is measured.
  int Load(const EngineOptions& options, bool is_default, const Progress& progress,
           std::string* error);

  // What the conductor needs of it; refers to this object.
  ModelParts Parts() const;
  const std::string& name() const { return place_.name; }
  std::string fingerprint() const { return model_->FingerprintHex(); }
  Engine& engine() { return *engine_; }
  TextThread& text() { return *text_; }
  GrammarThread& grammar() { return *grammar_; }
  // Of the engine thread, for the watchdog.
  Counter& rounds() { return rounds_; }

 private:
  int OpenChat(std::string* error);
  // Reads weights; 0, or the exit status.
  int LoadWeights(const GgufFile& file, const std::string& name, const Progress& progress,
                  std::unique_ptr<Model>* model, std::string* error);
  int ReserveKv(uint64_t bytes, const Model& model, const std::string& setting,
                std::unique_ptr<KvArena>* arena, std::string* error);
  int OpenDraft(const Progress& progress, std::string* error);
  int OpenEngine(EngineOptions options, std::string* error);
  uint32_t MeasuredThreads();

  const ModelToServe place_;
  std::unique_ptr<GgufFile> file_;  // until it is loaded
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ChatRenderer> renderer_;
  std::string built_in_format_;  // empty: the model's own template is used
  std::unique_ptr<GrammarCompiler> grammars_;
  const WireFormat* format_ = nullptr;
  std::unique_ptr<TextThread> text_;
  std::unique_ptr<GrammarThread> grammar_;
  std::unique_ptr<KvArena> arena_;
  std::unique_ptr<GgufFile> draft_file_;  // as file_; null without a draft model, as the next two
  std::unique_ptr<Model> draft_model_;
  std::unique_ptr<KvArena> draft_arena_;
  BlockLayout kv_layout_;
  uint32_t threads_ = 0;
  std::vector<ThreadTiming> timings_;  // empty: the settings name the threads
  std::unique_ptr<Engine> engine_;
  std::string json_;
  Counter rounds_;
};

}  // namespace kairos
