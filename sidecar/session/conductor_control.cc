// SPDX-License-Identifier: Apache-2.0
// The operators' half of the Conductor: control requests and figures.
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "sidecar/session/conductor.h"

namespace kairos {
namespace {

RequestKind KindOf(ControlVerb verb) {
  switch (verb) {
    case ControlVerb::kSessionList: return RequestKind::kSessionList;
    case ControlVerb::kSessionShow: return RequestKind::kSessionMessages;
    case ControlVerb::kSessionFork: return RequestKind::kSessionFork;
    case ControlVerb::kSessionRewind: return RequestKind::kSessionRewind;
    case ControlVerb::kSessionDelete: return RequestKind::kSessionDelete;
    case ControlVerb::kSessionContext: return RequestKind::kContextRead;
    case ControlVerb::kSessionVersion: return RequestKind::kVersionRead;
    default: return RequestKind::kSessionStat;
  }
}

}  // namespace

bool Conductor::TakeControl(uint64_t now_ns) {
  const std::optional<uint64_t> question = figures_desk_.TakeQuestion();
  if (question) figures_desk_.Reply(*question, Stats());
  std::optional<ControlRequest> request = parts_.control_requests.TryPop();
  if (!request) return question.has_value();
  OnControl(std::move(*request), now_ns);
  return true;
}

void Conductor::OnControl(ControlRequest&& control, uint64_t now_ns) {
  ControlReply simple;
  simple.ticket = control.ticket;
  switch (control.verb) {
    case ControlVerb::kPing:
      return control_replies_.Send(std::move(simple));
    case ControlVerb::kStats:
      simple.stats = Stats();
      return control_replies_.Send(std::move(simple));
    case ControlVerb::kModelShow:
      simple.text = ModelsJson();
      return control_replies_.Send(std::move(simple));
    case ControlVerb::kDrain:
      if (control.drain_timeout_ms) drain_timeout_ms_.store(*control.drain_timeout_ms);
      drain_requested_.store(true);
      pipeline_.Drain();
      simple.text = fmt::format("{{\"drain_timeout_ms\":{},\"turns_open\":{}}}",
                                drain_timeout_ms_.load(), pipeline_.turns_open());
      return control_replies_.Send(std::move(simple));
    case ControlVerb::kReload:
      // The main thread reads the file; TakeReloads() answers.
      if (uint64_t ticket = control.ticket; reloads_asked_.TryPush(std::move(ticket))) return;
      simple.code = KAIROS_UNAVAILABLE;
      simple.text = "too many reloads wait";
      return control_replies_.Send(std::move(simple));
    default:
      break;
  }
  Request request;
  request.kind = KindOf(control.verb);
  request.session = control.session;
  request.version = control.version;
  request.after = control.after;
  request.list_max = control.list_max;
  request.uid = control.uid;
  const uint64_t ticket = control.ticket;
  const auto answer = [this, ticket](OperationResult&& done) {
    ControlReply reply;
    reply.ticket = ticket;
    reply.code = done.code;
    reply.detail = done.detail;
    reply.text = std::move(done.text);
    reply.session = done.session;
    reply.version = done.version;
    reply.sessions = std::move(done.sessions);
    control_replies_.Send(std::move(reply));
  };
  if (control.verb == ControlVerb::kSessionWhy) {
    // A session that is there, however long ago its turns were.
    return operations_.Run(std::move(request), true, now_ns, [&, answer](OperationResult&& done) {
      if (done.code == 0) done.text = pipeline_.history().Json(control.session);
      answer(std::move(done));
    });
  }
  if (control.verb != ControlVerb::kSessionShow) {
    return operations_.Run(std::move(request), true, now_ns, answer);
  }
  // Show is the session's figures and its messages in one reply.
  Request stat = request;
  stat.kind = RequestKind::kSessionStat;
  operations_.Run(std::move(stat), true, now_ns, [&, answer](OperationResult&& figures) {
    if (figures.code != 0) return answer(std::move(figures));
    operations_.Run(
        std::move(request), true, now_ns,
        [answer, sessions = std::move(figures.sessions)](OperationResult&& done) mutable {
          done.sessions = std::move(sessions);
          answer(std::move(done));
        });
  });
}

void Conductor::FinishReload(ReloadOutcome&& outcome) {
  const bool sent = reloads_.TryPush(std::move(outcome));
  KAIROS_CHECK(sent);
  waker_.Wake();
}

bool Conductor::TakeReloads() {
  std::optional<ReloadOutcome> outcome = reloads_.TryPop();
  if (!outcome) return false;
  if (outcome->settings) {
    pipeline_.SetLimits(outcome->settings->turns);
    router_.SetLimits(outcome->settings->router, std::move(outcome->settings->grants));
    operations_.SetPhaseLimits(outcome->settings->phases);
    drain_timeout_ms_.store(outcome->settings->drain_timeout_ms);
    JournalCommand command;
    command.verb = JournalVerb::kSetLimits;
    command.limits = outcome->settings->catalog;
    journal_.Send(std::move(command));
  }
  for (const uint64_t ticket : outcome->tickets) {
    ControlReply reply;
    reply.ticket = ticket;
    reply.code = outcome->code;
    reply.text = outcome->text;
    control_replies_.Send(std::move(reply));
  }
  return true;
}

std::string Conductor::ModelsJson() const {
  std::string json = "[";
  for (const ModelHost& host : models_) {
    json += (json.size() > 1 ? "," : "") + host.parts.json;
  }
  return json + "]";
}

// What the models' engines and arenas hold, together and, where there are several, of each one.
Figures Conductor::ModelStats() const {
  Figures sums;
  Figures each;
  const bool several = std::next(models_.begin()) != models_.end();
  for (const ModelHost& host : models_) {
    const EngineCounters& engine = host.parts.engine.counters();
    const DeviceTier& device = host.device;
    const auto number = [](uint64_t value) { return static_cast<double>(value); };
    const Figures figures = {
        {"engine_steps_total", number(engine.steps.load())},
        {"engine_prefill_tokens_total", number(engine.prefill_tokens.load())},
        {"engine_decode_tokens_total", number(engine.decode_tokens.load())},
        {"engine_drafted_tokens_total", number(engine.drafted_tokens.load())},
        {"engine_accepted_tokens_total", number(engine.accepted_tokens.load())},
        {"engine_model_drafted_tokens_total", number(engine.model_drafted_tokens.load())},
        {"engine_model_accepted_tokens_total", number(engine.model_accepted_tokens.load())},
        {"engine_model_draft_seconds_total", number(engine.model_draft_ns.load()) * 1e-9},
        {"engine_step_seconds_total", number(engine.step_ns.load()) * 1e-9},
        {"engine_sequences_running", number(engine.sequences_running.load())},
        {"engine_sequences_waiting", number(engine.sequences_waiting.load())},
        {"kv_slots_total", number(device.pool().slots_total())},
        {"kv_slots_free", number(device.pool().slots_free())},
        {"kv_slots_cached", number(device.index().slots_cached())},
        {"kv_device_bytes_total", number(device.bytes_total())},
        {"kv_device_bytes_used", number(device.bytes_used())},
        {"kv_blocks_indexed", number(device.index().blocks_total())},
    };
    for (size_t i = 0; i < figures.size(); ++i) {
      const auto& [name, value] = figures[i];
      if (sums.size() == i) sums.emplace_back(name, 0.0);
      sums[i].second += value;
      if (several) each.emplace_back("model." + host.parts.name + "." + name, value);
    }
  }
  sums.insert(sums.end(), each.begin(), each.end());
  return sums;
}

Figures Conductor::Stats() const {
  const TurnCounters& turns = pipeline_.counters();
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  const double overhead =
      turns.turn_ns == 0 ? 0.0 : 1.0 - number(turns.model_ns) / number(turns.turn_ns);
  Figures figures = {
      {"sessions", number(router_.size())},
      {"clients", number(pipeline_.clients())},
      {"watchers", number(router_.watch().watchers())},
      {"turns_open", number(pipeline_.turns_open())},
      {"turns_done_total", number(turns.turns_done)},
      {"turns_refused_total", number(turns.turns_refused)},
      {"turns_cancelled_total", number(turns.turns_cancelled)},
      {"turns_replayed_total", number(turns.turns_replayed)},
      {"reads_not_changed_total", number(operations_.reads_not_changed())},
      {"tool_timeouts_total", number(operations_.tool_timeouts())},
      {"tokens_reused_total", number(turns.tokens_reused)},
      {"tokens_recomputed_total", number(turns.tokens_recomputed)},
      {"tokens_new_total", number(turns.tokens_new)},
      {"tokens_generated_total", number(turns.tokens_generated)},
      {"turn_seconds_total", number(turns.turn_ns) * 1e-9},
      {"model_seconds_total", number(turns.model_ns) * 1e-9},
      {"turn_overhead_share", overhead},
      {"catalog_bytes", number(parts_.journal.bytes_used())},
  };
  for (auto& figure : ModelStats()) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace kairos
