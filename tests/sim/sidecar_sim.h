// SPDX-License-Identifier: Apache-2.0
// The sidecar without threads, sockets or models: the real conductor, catalog, journal, text
// threads, renderers and tokenizers, fake engines and a clock that only the test moves. One seed is
// one run.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/session/conductor.h"
#include "tests/sim/fake_engine.h"
#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {

class SidecarSim {
 public:
  struct Outcome {
    std::vector<Reply> replies;
    std::string text;
    const Reply* last() const { return replies.empty() ? nullptr : &replies.back(); }
    bool final() const { return last() != nullptr && last()->kind == ReplyKind::kFinal; }
    const kairos_final_t& figures() const { return last()->final; }
  };

  // The default model is "tiny"; with `two_models` there is also "other", which has other tokens.
  // Without `chat_template` messages are rendered as ChatML.
  explicit SidecarSim(uint32_t kv_slots = 512, bool two_models = false,
                      const std::string& chat_template = "", const BlockLayout& layout = {})
      : kv_slots_(kv_slots), kv_layout_(layout) {
    char path[] = "/tmp/kairos-sim.XXXXXX";
    folder_ = mkdtemp(path);
    models_.push_back(std::make_unique<SimModel>("tiny", "z", chat_template));
    if (two_models) models_.push_back(std::make_unique<SimModel>("other", "l", chat_template));
    Boot();
  }
  ~SidecarSim() {
    Halt();
    [[maybe_unused]] const int status = std::system(("rm -rf " + folder_).c_str());
  }

  // As after kill -9: everything in memory is gone, the catalog stays.
  void Restart() {
    Halt();
    Boot();
  }
  // And the settings name only the first `count` models.
  void RestartWith(size_t count) {
    resident_ = count;
    Restart();
  }

  RequestId Send(Request request) {
    request.id = RequestId{++next_request_};
    request.received_ns = now_ns_ + ingress_ahead_ns;
    if (request.name_space.empty()) request.name_space = "default";
    if (request.attachment.value == 0) request.attachment = AttachmentId{1};
    EXPECT_TRUE(requests_->TryPush(std::move(request)));
    return RequestId{next_request_};
  }

  RequestId SendTurn(SessionId session, std::vector<ChatMessage> messages, uint32_t max_tokens = 20,
                     uint32_t flags = 0) {
    return Send(TurnOf(session, std::move(messages), max_tokens, flags));
  }

  static Request TurnOf(SessionId session, std::vector<ChatMessage> messages,
                        uint32_t max_tokens = 20, uint32_t flags = 0) {
    Request request;
    request.kind = RequestKind::kTurnSubmit;
    request.session = session;
    request.turn.emplace();
    request.turn->messages = std::move(messages);
    request.turn->max_tokens = max_tokens;
    request.turn->flags = flags;
    return request;
  }

  static Request Operation(RequestKind kind, SessionId session, uint64_t version = 0) {
    Request request;
    request.kind = kind;
    request.session = session;
    request.version = version;
    return request;
  }

  // One round of every thread.
  void Round() {
    now_ns_ += 1'000'000;
    conductor_->DoWork(now_ns_);
    for (const auto& model : models_) {
      if (model->text != nullptr) model->text->DoWork();
      if (model->grammar != nullptr && !compiler_stalls) model->grammar->DoWork();
    }
    journal_->DoWork();
    for (const auto& model : models_) {
      if (model->engine != nullptr) model->engine->DoWork(now_ns_);
    }
    conductor_->DoWork(now_ns_);
    while (std::optional<Reply> reply = replies_->TryPop()) {
      if (reply->kind == ReplyKind::kDetached) {
        ++detached;
        continue;
      }
      Outcome& outcome = outcomes_[reply->id.value];
      outcome.text += reply->kind == ReplyKind::kText ? reply->text : "";
      outcome.replies.push_back(std::move(*reply));
    }
  }
  // Nothing happens for a while.
  void Pass(uint64_t ms) {
    now_ns_ += ms * 1'000'000;
    Rounds(8);
  }
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) Round();
  }
  const Outcome& Settle(RequestId request) {
    Rounds(200);
    return outcomes_[request.value];
  }
  const Outcome& Play(SessionId session, std::vector<ChatMessage> messages,
                      uint32_t max_tokens = 20, uint32_t flags = 0) {
    return Settle(SendTurn(session, std::move(messages), max_tokens, flags));
  }
  const Outcome& Run(Request request) { return Settle(Send(std::move(request))); }
  const Outcome& outcome(RequestId request) { return outcomes_[request.value]; }

  SessionId Create(int32_t fidelity = 0) {
    Request request = Operation(RequestKind::kSessionCreate, SessionId{});
    request.fidelity = fidelity;
    return Run(std::move(request)).last()->session;
  }
  std::string Messages(SessionId session, uint64_t version = 0) {
    return Run(Operation(RequestKind::kSessionMessages, session, version)).last()->text;
  }

  // As `kairosctl reload` with settings that are good.
  ControlReply Reload(ConductorSettings settings) {
    ControlRequest ask;
    ask.verb = ControlVerb::kReload;
    ask.ticket = 5;
    EXPECT_TRUE(control_requests_->TryPush(std::move(ask)));
    Round();
    ReloadOutcome outcome;
    if (const auto ticket = conductor_->TakeReloadRequest()) outcome.tickets.push_back(*ticket);
    outcome.text = "[]";
    settings.catalog = {1u << 30, 64};
    outcome.settings = std::move(settings);
    conductor_->FinishReload(std::move(outcome));
    Round();
    std::optional<ControlReply> reply = control_replies_->TryPop();
    EXPECT_TRUE(reply.has_value());
    return reply.value_or(ControlReply{});
  }

  FakeEngine& engine(size_t model = 0) { return *models_[model]->engine; }
  Conductor& conductor() { return *conductor_; }
  TokenId end_token() const { return models_[0]->end_token; }
  int detached = 0;
  bool compiler_stalls = false;  // as with a grammar that takes long

 private:
  struct SimModel {
    // `letter` twice is one token.
    SimModel(std::string model_name, const std::string& letter, const std::string& chat_template)
        : name(std::move(model_name)) {
      vocabulary.AddMerge(letter, letter);  // a vocabulary without merges is refused
      vocabulary.Add("<|im_start|>", TokenKind::kControl);
      end_token = vocabulary.Add("<|im_end|>", TokenKind::kControl);
      std::string error;
      tokenizer = vocabulary.Build();
      renderer = ChatRenderer::Create(chat_template, "", "<|im_end|>", &error).Take();
    }

    std::string name;
    TinyVocabulary vocabulary;
    TokenId end_token = 0;
    std::unique_ptr<Tokenizer> tokenizer;
    std::unique_ptr<ChatRenderer> renderer;
    std::unique_ptr<GrammarCompiler> grammars;
    std::unique_ptr<TextThread> text;
    std::unique_ptr<GrammarThread> grammar;
    std::unique_ptr<FakeEngine> engine;
  };

  ModelParts BootModel(SimModel& model) const {
    std::string error;
    const WireFormat& format = WireFormatOf(WireFamily::kChatMl);
    model.grammars = GrammarCompiler::Create(*model.tokenizer, &error).Take();
    model.text = std::make_unique<TextThread>(*model.renderer, *model.tokenizer, format);
    model.grammar = std::make_unique<GrammarThread>(*model.grammars);
    model.engine = std::make_unique<FakeEngine>(model.end_token, kv_layout_);
    return {model.name, "print of " + model.name, "{\"name\":\"" + model.name + "\"}",
            4096,       kv_slots_,                1024,
            kv_layout_, format,                   *model.tokenizer,
            *model.text, *model.grammar,          *model.engine};
  }

  void Boot() {
    std::string error;
    CatalogOptions catalog_options;
    catalog_options.path = folder_ + "/catalog.db";
    auto catalog = Catalog::Open(catalog_options, &error);
    ASSERT_TRUE(catalog.ok()) << error;
    std::vector<SessionRecord> sessions = (*catalog)->LoadSessions().Take();
    journal_ = std::make_unique<Journal>(catalog.Take());
    requests_ = std::make_unique<SpscQueue<Request>>(256);
    replies_ = std::make_unique<SpscQueue<Reply>>(8192);
    control_requests_ = std::make_unique<SpscQueue<ControlRequest>>(16);
    control_replies_ = std::make_unique<SpscQueue<ControlReply>>(16);
    ConductorOptions options;
    for (size_t i = 0; i < std::min(resident_, models_.size()); ++i) {
      options.models.push_back(BootModel(*models_[i]));
    }
    conductor_ = std::make_unique<Conductor>(
        Conductor::Parts{*journal_, RuleFilter(), *requests_, *replies_, ingress_waker_,
                         *control_requests_, *control_replies_, control_waker_},
        options, std::move(sessions));
  }
  void Halt() {
    conductor_.reset();
    for (const auto& model : models_) {
      model->engine.reset();
      model->text.reset();
      model->grammar.reset();
    }
    journal_.reset();
  }

  uint32_t kv_slots_;
  BlockLayout kv_layout_;
  std::string folder_;
  size_t resident_ = 2;
  std::vector<std::unique_ptr<SimModel>> models_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<SpscQueue<Request>> requests_;
  std::unique_ptr<SpscQueue<Reply>> replies_;
  std::unique_ptr<SpscQueue<ControlRequest>> control_requests_;
  std::unique_ptr<SpscQueue<ControlReply>> control_replies_;
  Waker ingress_waker_;
  Waker control_waker_;
  std::unique_ptr<Conductor> conductor_;
  std::map<uint64_t, Outcome> outcomes_;
  uint64_t next_request_ = 0;

 public:
  uint64_t ingress_ahead_ns = 0;  // how much later than the conductor ingress read the clock

 private:
  uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace kairos
