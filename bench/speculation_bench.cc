// SPDX-License-Identifier: Apache-2.0
#include "bench/speculation_bench.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "bench/json_line.h"
#include "bench/peer_process.h"
#include "bench/sequence_slots.h"
#include "sidecar/chat/chat_renderer.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/chat/vocabulary.h"
#include "sidecar/chat/wire_format.h"
#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/engine/ngram_drafter.h"
#include "sidecar/grammar/grammar_compiler.h"
#include "sidecar/grammar/reply_grammar.h"
#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

constexpr uint32_t kDraftsMax = 16;
// The task of an answer that must be a call: much of it is forced, and the rest is guessed too.
constexpr const char* kForcedCall = "forced call";
// Messages before the first answer that is measured: an agent's conversation has begun.
constexpr size_t kHistoryMin = 3;
constexpr uint32_t kDraftBlocks = 1024;
constexpr uint32_t kContextMax = 4096;  // longer prompts are left out: prefill is not the subject

// One answer of a transcript and what came before it.
struct Answer {
  std::string task;  // "call" or "text"
  std::string tools_json;
  std::vector<TokenId> prompt;
  std::vector<TokenId> words;  // what the transcript says
};

// One generation of one engine.
struct Played {
  std::vector<TokenId> tokens;
  uint64_t decode_ns = 0;  // from the first token to the end
  uint64_t steps = 0;      // of the decode
};

struct Sums {
  double seconds_without = 0.0;
  double seconds_by_text = 0.0;  // with guesses from the text alone, where there is a draft model
  double seconds_with = 0.0;
  uint64_t tokens = 0;
  uint64_t steps_with = 0;
  uint64_t own_tokens = 0;  // of the transcript
  uint64_t own_steps = 0;
  double own_cost = 0.0;    // in steps without guesses
};

class SpeculationBench {
 public:
  explicit SpeculationBench(const SpeculationBenchOptions& options) : options_(options) {}

  int Run() {
    if (!Load() || !ReadAnswers()) return 1;
    if (!OpenEngine(0, nullptr, &plain_) || !OpenEngine(kDraftsMax, nullptr, &by_text_)) return 1;
    if (draft_ != nullptr && !OpenEngine(kDraftsMax, draft_.get(), &by_both_)) return 1;
    for (size_t i = 0; i < answers_.size(); ++i) {
      if (!options_.json) std::fprintf(stderr, "\ranswer %zu of %zu", i + 1, answers_.size());
      if (!PlayAll(answers_[i], answers_[i].task)) return 1;
      if (answers_[i].task == "call" && !PlayAll(answers_[i], kForcedCall)) return 1;
    }
    if (!options_.json) std::fprintf(stderr, "\n");
    for (const Answer& answer : answers_) PlayTranscript(answer);
    Sums all;
    for (const auto& [task, sums] : sums_) {
      Report(task, sums);
      if (task == kForcedCall) continue;  // its prompts are those of "call"
      all.seconds_without += sums.seconds_without;
      all.seconds_by_text += sums.seconds_by_text;
      all.seconds_with += sums.seconds_with;
      all.tokens += sums.tokens;
      all.steps_with += sums.steps_with;
      all.own_tokens += sums.own_tokens;
      all.own_steps += sums.own_steps;
      all.own_cost += sums.own_cost;
    }
    Report("", all);
    if (draft_ != nullptr) ReportModel();
    return 0;
  }

 private:
  struct Place {
    std::unique_ptr<KvArena> arena;
    std::unique_ptr<KvArena> draft_arena;
    std::unique_ptr<Engine> engine;
  };

  bool Fail(const std::string& words) const {
    std::fprintf(stderr, "kairos-bench speculation: %s\n", words.c_str());
    return false;
  }

  bool Load() {
    std::string error;
    auto file = GgufFile::Open(ModelFile(options_.model), &error);
    if (!file.ok()) return Fail("--model: " + error);
    const KernelTable* kernels = ChooseKernels();
    if (kernels == nullptr) return Fail("KAIROS_KERNELS names a tier that this machine lacks");
    auto model = Model::Load(**file, *kernels, {}, &error);
    if (!model.ok()) return Fail("--model: " + error);
    if (!options_.draft_model.empty() && !LoadDraft(**file, *kernels)) return false;
    auto tokenizer = Tokenizer::Create(**file, &error);
    if (!tokenizer.ok()) return Fail("--model: " + error);
    model_ = model.Take();
    tokenizer_ = tokenizer.Take();
    auto compiler = GrammarCompiler::Create(*tokenizer_, &error);
    if (!compiler.ok()) return Fail("--model: " + error);
    compiler_ = compiler.Take();
    const auto text = [&](TokenId token) {
      return token < 0 ? std::string() : std::string(tokenizer_->TokenBytes(token, true));
    };
    auto renderer = ChatRenderer::Create(
        std::string((*file)->String("tokenizer.chat_template").value_or("")),
        text(tokenizer_->bos()), text(tokenizer_->eos()), &error);
    if (!renderer.ok()) return Fail("--model: " + error);
    renderer_ = renderer.Take();
    return true;
  }

  bool LoadDraft(const GgufFile& served, const KernelTable& kernels) {
    std::string error;
    auto file = GgufFile::Open(ModelFile(options_.draft_model), &error);
    if (!file.ok()) return Fail("--draft-model: " + error);
    const auto wanted = ReadVocabulary(served, &error);
    const auto given = ReadVocabulary(**file, &error);
    if (wanted.ok() && given.ok()) error = FirstDifference(*wanted, *given);
    if (!error.empty()) return Fail("--draft-model: has another vocabulary: " + error);
    auto draft = Model::Load(**file, kernels, {}, &error);
    if (!draft.ok()) return Fail("--draft-model: " + error);
    draft_ = draft.Take();
    return true;
  }

  bool OpenEngine(uint32_t drafts, const Model* draft, Place* place) {
    auto arena = KvArena::Create(model_->kv_geometry(), (kContextMax + 1024) / kBlockTokens + 2);
    if (!arena.ok()) return Fail(arena.status().message());
    place->arena = arena.Take();
    if (draft != nullptr) {
      const KvGeometry geometry = draft->kv_geometry();
      auto draft_arena = KvArena::Create(geometry, kDraftBlocks * geometry.slots_per_block());
      if (!draft_arena.ok()) return Fail(draft_arena.status().message());
      place->draft_arena = draft_arena.Take();
    }
    EngineOptions options;
    options.threads = options_.threads;
    options.step_budget_ns = 0;
    options.draft_tokens_max = drafts;
    for (uint32_t token = 0; token < tokenizer_->vocabulary_size(); ++token) {
      const auto id = static_cast<TokenId>(token);
      options.token_bytes.emplace_back(tokenizer_->TokenBytes(id, true));
      if (tokenizer_->IsEndOfGeneration(id)) options.end_tokens.push_back(id);
    }
    auto engine = Engine::Create(*model_, *place->arena, options,
                                 {draft, place->draft_arena.get()});
    if (!engine.ok()) return Fail(engine.status().message());
    place->engine = engine.Take();
    return true;
  }

  // ---- Transcripts ------------------------------------------------------------------------------

  static std::string CallText(const nlohmann::json& call) {
    return "<tool_call>\n" + call.dump() + "\n</tool_call>";
  }

  bool ReadAnswers() {
    std::ifstream file(options_.conversations);
    if (!file) return Fail("--conversations: cannot read " + options_.conversations);
    std::string line;
    for (uint32_t i = 0; i < options_.count && std::getline(file, line); ++i) {
      const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
      if (!row.is_object() || !row.contains("messages")) {
        return Fail("--conversations: line " + std::to_string(i + 1) + " has no messages");
      }
      if (!AddAnswers(row)) return false;
    }
    return !answers_.empty() || Fail("--conversations: no answer to measure");
  }

  bool AddAnswers(const nlohmann::json& row) {
    std::vector<ChatMessage> history;
    const std::string tools = row.contains("tools") ? row["tools"].dump() : "";
    for (const nlohmann::json& message : row["messages"]) {
      ChatMessage next;
      next.role = message.value("role", "");
      next.name = message.value("name", "");
      const bool calls = message.contains("tool_call");
      next.content = calls ? CallText(message["tool_call"]) : message.value("content", "");
      if (next.role == "assistant" && history.size() >= kHistoryMin) {
        RenderRequest request;
        request.added = history;
        request.tools_json = tools;
        std::string error;
        auto prompt = renderer_->Render(request, &error);
        if (!prompt.ok()) return Fail("the chat template refuses: " + error);
        Answer answer;
        answer.task = calls ? "call" : "text";
        answer.tools_json = tools;
        answer.prompt = tokenizer_->Encode(prompt->spans, TextPlace::kStart).tokens;
        answer.words = tokenizer_->Encode(next.content, false).tokens;
        if (answer.prompt.size() <= kContextMax) answers_.push_back(std::move(answer));
      }
      history.push_back(std::move(next));
    }
    return true;
  }

  // ---- What the model says ----------------------------------------------------------------------

  // One call of one of the tools, whatever the model would rather say.
  std::shared_ptr<CompiledGrammar> CallGrammar(const std::string& tools_json) {
    std::shared_ptr<CompiledGrammar>& grammar = grammars_[tools_json];
    if (grammar != nullptr) return grammar;
    ReplyRules rules;
    rules.tool_choice = ToolChoice::kRequired;
    rules.one_call = true;
    std::string error;
    const auto kind_of = [](std::string_view) { return MarkerKind::kText; };
    auto reply =
        WriteReplyGrammar(WireFormatOf(WireFamily::kHermes), rules, tools_json, kind_of, &error);
    if (!reply.ok()) return nullptr;
    auto compiled = compiler_->Compile(reply->grammar, reply->is_prose, &error);
    if (compiled.ok()) grammar = compiled.Take();
    return grammar;
  }

  bool Play(Place* place, const Answer& answer, const std::string& task, Played* out) {
    SequenceSpec spec;
    if (task == kForcedCall) {
      const auto grammar = CallGrammar(answer.tools_json);
      if (grammar == nullptr) return Fail("tools that cannot be enforced");
      spec.constraint = grammar->Start();
    }
    spec.id = SequenceId{++next_id_};
    spec.tokens = answer.prompt;
    spec.max_new_tokens = options_.max_tokens;
    TakeSlots(model_->kv_geometry(), spec.tokens.size() + spec.max_new_tokens, 0, &spec);
    Engine& engine = *place->engine;
    if (!engine.Submit(std::move(spec))) return Fail("the engine takes no more");
    uint64_t first_ns = 0;
    const uint64_t first_steps = engine.counters().steps.load();
    uint64_t steps_before = first_steps;
    for (bool finished = false; !finished;) {
      if (!engine.DoWork(MonotonicNs())) return Fail("the engine stopped early");
      while (auto event = engine.PollEvent()) {
        if (event->kind == EngineEvent::Kind::kFinished) {
          finished = true;
          continue;
        }
        if (first_ns == 0) {
          first_ns = event->time_ns;
          steps_before = engine.counters().steps.load();
        }
        out->tokens.push_back(event->token);
        out->decode_ns = event->time_ns - first_ns;
      }
    }
    out->steps = engine.counters().steps.load() - steps_before;
    return true;
  }

  // Without guesses, with those from the text, and with those of a draft model as well; in turns
  // which comes first, so that none gains by the order.
  bool PlayAll(const Answer& answer, const std::string& task) {
    std::vector<Place*> places{&plain_, &by_text_};
    if (draft_ != nullptr) places.push_back(&by_both_);
    std::vector<Played> played(places.size());
    const size_t first = rounds_++ % places.size();
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t at = (first + i) % places.size();
      if (!Play(places[at], answer, task, &played[at])) return false;
      if (played[at].tokens != played[first].tokens) {
        return Fail("guessing changed what the model says");
      }
    }
    const Played& with = played.back();
    if (with.tokens.size() < 2) return true;
    Sums& sums = sums_[task];
    sums.seconds_without += static_cast<double>(played[0].decode_ns) * 1e-9;
    sums.seconds_by_text += static_cast<double>(played[1].decode_ns) * 1e-9;
    sums.seconds_with += static_cast<double>(with.decode_ns) * 1e-9;
    sums.tokens += with.tokens.size() - 1;
    sums.steps_with += with.steps;
    return true;
  }

  // ---- What the transcript says -----------------------------------------------------------------

  // Steps that the transcript's words would take. A guessed token is taken to cost a tenth of a
  // step, which is what the engine assumes at first.
  void PlayTranscript(const Answer& answer) {
    StepCost cost;
    cost.Observe(1, 0, 1'000'000);
    std::vector<TokenId> tokens = answer.prompt;
    NgramDrafter drafter;
    Sums& sums = sums_[answer.task];
    DraftRecord& record = records_[answer.task];
    for (size_t at = 0; at < answer.words.size();) {
      const NgramDrafter::Guess guess = drafter.Look(tokens, kDraftsMax);
      const size_t left = answer.words.size() - at;
      const auto most = static_cast<uint32_t>(std::min(guess.tokens.size(), left - 1));
      DraftProposal proposal(most, record.Chance(guess.match));
      PlanDrafts(cost, 1, {&proposal, 1});
      uint32_t right = 0;
      while (right < proposal.grant() && guess.tokens[right] == answer.words[at + right]) ++right;
      if (proposal.grant() > 0) {
        record.Observe(guess.match, right, right == proposal.grant());
      } else if (!guess.tokens.empty()) {
        const bool would = guess.tokens[0] == answer.words[at];
        record.Observe(guess.match, would ? 1 : 0, would);
      }
      ++sums.own_steps;
      sums.own_cost += 1.0 + proposal.grant() * cost.DraftNs() / cost.BaseNs(1);
      sums.own_tokens += right + 1;
      tokens.insert(tokens.end(), answer.words.begin() + static_cast<ptrdiff_t>(at),
                    answer.words.begin() + static_cast<ptrdiff_t>(at + right + 1));
      at += right + 1;
    }
  }

  // ---- Report -----------------------------------------------------------------------------------

  void Line(const char* metric, double value, const char* unit, const std::string& task) const {
    JsonLine line(metric, value, unit);
    if (!task.empty()) line.Param("task", task);
    line.Print();
  }

  void Report(const std::string& task, const Sums& sums) const {
    const auto ratio = [](double a, double b) { return b > 0.0 ? a / b : 0.0; };
    const double speedup = ratio(sums.seconds_without, sums.seconds_with);
    const double said = ratio(static_cast<double>(sums.tokens),
                              static_cast<double>(sums.steps_with));
    const double written = ratio(static_cast<double>(sums.own_tokens),
                                 static_cast<double>(sums.own_steps));
    const double expected = ratio(static_cast<double>(sums.own_tokens), sums.own_cost);
    const double by_text = ratio(sums.seconds_without, sums.seconds_by_text);
    if (options_.json) {
      Line("engine.speculation_speedup", speedup, "ratio", task);
      if (draft_ != nullptr) Line("engine.speculation_speedup_by_text", by_text, "ratio", task);
      Line("engine.speculation_tokens_per_step", said, "tokens", task);
      if (sums.own_tokens == 0) return;
      Line("engine.speculation_transcript_tokens_per_step", written, "tokens", task);
      Line("engine.speculation_transcript_speedup", expected, "ratio", task);
      return;
    }
    std::printf(
        "%-11s what the model says: %.2f times as fast, %.2f tokens a step (%llu tokens, %.1f ms "
        "each without)%s",
        task.empty() ? "all" : task.c_str(), speedup, said,
        static_cast<unsigned long long>(sums.tokens),
        1e3 * ratio(sums.seconds_without, static_cast<double>(sums.tokens)),
        sums.own_tokens == 0 ? "\n" : "; ");
    if (sums.own_tokens > 0) {
      std::printf(
          "the transcript's own words: %.2f tokens a step, %.2f times as fast where a guessed "
          "token costs a tenth of a step\n",
          written, expected);
    }
    if (draft_ == nullptr) return;
    std::printf("            %.2f times as fast with the text's guesses alone\n", by_text);
  }

  // What the draft model's guesses came to.
  void ReportModel() const {
    const EngineCounters& counters = by_both_.engine->counters();
    const auto drafted = static_cast<double>(counters.model_drafted_tokens.load());
    const auto accepted = static_cast<double>(counters.model_accepted_tokens.load());
    const double time_share = static_cast<double>(counters.model_draft_ns.load()) /
                              static_cast<double>(counters.step_ns.load());
    const double right_share = drafted > 0.0 ? accepted / drafted : 0.0;
    if (options_.json) {
      Line("engine.draft_model_guesses", drafted, "tokens", "");
      Line("engine.draft_model_right", right_share, "ratio", "");
      Line("engine.draft_model_time", time_share, "ratio", "");
      return;
    }
    std::printf("draft model: %.0f guesses checked, %.0f %% of them right; %.1f %% of the steps' "
                "time, prefill included\n",
                drafted, 100.0 * right_share, 100.0 * time_share);
  }

  const SpeculationBenchOptions options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatRenderer> renderer_;
  std::vector<Answer> answers_;
  std::unique_ptr<Model> draft_;  // null without one
  Place plain_;
  Place by_text_;
  Place by_both_;
  std::map<std::string, Sums> sums_;  // by task
  std::map<std::string, DraftRecord> records_;
  std::unique_ptr<GrammarCompiler> compiler_;
  std::map<std::string, std::shared_ptr<CompiledGrammar>> grammars_;  // by tools
  uint64_t next_id_ = 0;
  uint64_t rounds_ = 0;
};

}  // namespace

int RunSpeculationBench(const SpeculationBenchOptions& options) {
  return SpeculationBench(options).Run();
}

}  // namespace kairos
