// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/daemon.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "sidecar/chat/wire_format.h"
#include "sidecar/context/context_filter.h"
#include "sidecar/control/control_server.h"
#include "sidecar/daemon/model_text.h"
#include "sidecar/daemon/service_notify.h"
#include "sidecar/daemon/watchdog.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/engine/token_bytes.h"
#include "sidecar/metrics/metrics_server.h"
#include "sidecar/model/gguf.h"
#include "sidecar/preflight/host_checks.h"
#include "sidecar/preflight/instance_lock.h"
#include "sidecar/preflight/place_checks.h"
#include "sidecar/state/journal.h"

namespace kairos {
namespace {

// Runs work(), which returns false when there was nothing to do, until *stop; sleeps on `waker`
// between bursts. The second look after Prepare() closes the race with a push; Stop() interrupts,
// so that no look at *stop is needed there.
template <typename Work>
void RunUntil(const std::atomic<bool>& stop, Waker& waker, const Work& work, int sleep_ms) {
  while (!stop.load(std::memory_order_acquire)) {
    if (work()) continue;
    waker.Prepare();
    if (!work()) waker.Sleep(sleep_ms);
    waker.Finish();
  }
}

void NameThread(const char* name) { prctl(PR_SET_NAME, name); }

// Logs what is not as it should be. The exit status of the first finding that keeps the daemon from
// starting, with its words; else 0.
int Judge(const std::vector<Finding>& findings, std::string* error) {
  for (const Finding& finding : findings) {
    if (finding.exit_status != 0) {
      *error = FaultWords(finding);
      return finding.exit_status;
    }
    if (finding.severity == Severity::kOk) continue;
    LogWarn("daemon", "preflight check={} words=\"{}\" remedy=\"{}\"", finding.check, finding.words,
            finding.remedy);
  }
  return 0;
}

}  // namespace

// In the order they are built; destroyed in reverse.
struct Daemon::Body {
  DaemonOptions options;
  InstanceLock lock;
  std::unique_ptr<Journal> journal;
  std::vector<SessionRecord> sessions;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatRenderer> renderer;
  std::unique_ptr<GrammarCompiler> grammars;
  WireFamily wire_family = WireFamily::kChatMl;
  std::string model_json;
  std::unique_ptr<KvArena> arena;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<TextThread> text;
  SpscQueue<Request> requests{4096};
  SpscQueue<Reply> replies{16384};
  SpscQueue<ControlRequest> control_requests{256};
  SpscQueue<ControlReply> control_replies{256};
  Waker ingress_waker;
  Waker control_waker;
  std::vector<uint64_t> reload_tickets;     // of operators, not answered yet
  std::unique_ptr<Conductor> conductor;
  std::unique_ptr<RingIngress> ingress;
  std::unique_ptr<ControlServer> control;
  std::unique_ptr<MetricsServer> metrics;

  Counter conductor_rounds;
  Counter engine_rounds;
  Watchdog watchdog{NotifyService};
  std::atomic<bool> stop_front{false};      // ingress and control
  std::atomic<bool> stop_conductor{false};
  std::atomic<bool> stop_back{false};       // engine, text, journal
  std::vector<std::thread> front;
  std::thread conductor_thread;
  std::vector<std::thread> back;
};

bool Daemon::ReadFigures(Body& body, Figures* out) {
  constexpr uint64_t kLimitMs = 1000;
  std::optional<Figures> figures = body.conductor->ReadFigures(kLimitMs);
  if (!figures) return false;
  const IngressCounters& ingress = body.ingress->counters();
  const auto add = [&](const char* name, const Counter& counter) {
    figures->emplace_back(name, static_cast<double>(counter.value()));
  };
  add("clients", ingress.attachments);
  add("clients_attached_total", ingress.attached);
  add("clients_refused_total", ingress.attach_refused);
  add("requests_total", ingress.requests);
  add("requests_refused_total", ingress.refusals);
  add("slow_consumers_total", ingress.slow_consumers);
  add("lost_wakes_total", ingress.lost_wakes);
  *out = std::move(*figures);
  return true;
}

Daemon::Daemon() : body_(std::make_unique<Body>()) {}

Daemon::~Daemon() { Stop(true); }

bool Daemon::drain_requested() const {
  return body_->conductor != nullptr && body_->conductor->drain_requested();
}

int Daemon::OpenModel(const DaemonOptions& options, CheckedModel checked, std::string* error) {
  Body& body = *body_;
  const GgufFile& file = *checked.file;
  const KernelTable* kernels = ChooseKernels();
  const bool terminal = isatty(STDERR_FILENO) == 1;
  uint64_t shown = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    const uint64_t percent = total == 0 ? 100 : done * 100 / total;
    if (terminal && percent != shown) {
      std::fprintf(stderr, "\rloading model: %3u %%%s", static_cast<unsigned>(percent),
                   percent == 100 ? "\n" : "");
    }
    // A large model on a slow disk takes longer than a service manager waits unasked.
    if (percent != shown) {
      NotifyService(fmt::format("STATUS=loading model, {} %\nEXTEND_TIMEOUT_USEC=60000000",
                                percent));
    }
    shown = percent;
  };
  NotifyService("STATUS=loading model");
  Result<std::unique_ptr<Model>> model = Model::Load(file, *kernels, progress, error);
  if (!model.ok()) return kExitNoInput;
  body.model = model.Take();
  body.tokenizer = std::move(checked.tokenizer);
  const auto text_of = [&](TokenId token) {
    return token < 0 ? std::string() : std::string(body.tokenizer->TokenBytes(token, true));
  };
  const std::string source(file.String("tokenizer.chat_template").value_or(""));
  Result<std::unique_ptr<ChatRenderer>> renderer = ChatRenderer::Create(
      source, text_of(body.tokenizer->bos()), text_of(body.tokenizer->eos()), error);
  const bool own_template = renderer.ok() && !source.empty();
  if (!renderer.ok()) {
    // A template that cannot be used must not keep the model from being served.
    LogWarn("daemon", "template_refused reason=\"{}\" using=chatml", *error);
    renderer = ChatRenderer::Create("", text_of(body.tokenizer->bos()),
                                    text_of(body.tokenizer->eos()), error);
    if (!renderer.ok()) return kExitNoInput;
  }
  body.renderer = renderer.Take();
  Result<std::unique_ptr<GrammarCompiler>> grammars =
      GrammarCompiler::Create(*body.tokenizer, error);
  if (!grammars.ok()) return kExitNoInput;
  body.grammars = grammars.Take();
  ModelSigns signs;
  signs.architecture = file.String("general.architecture").value_or("");
  signs.template_source = source;
  signs.has_token = [&](std::string_view text) {
    return body.tokenizer->Encode(text, true).tokens.size() == 1;
  };
  body.wire_family = ChooseWireFamily(signs);
  const WireFormat& format = WireFormatOf(body.wire_family);
  body.text = std::make_unique<TextThread>(*body.renderer, *body.tokenizer, format, *body.grammars);

  LogInfo("daemon", "model_loaded kernels={} fingerprint={} weight_bytes={} wire_format={}",
          kernels->name, body.model->FingerprintHex(), body.model->weight_bytes(), format.name);
  if (const int code = OpenEngine(options, ReadTokenBytes(file), error); code != 0) return code;
  body.model_json = ModelJson(file, *body.model,
                              {ResolveModelPath(options.model), own_template, body.arena->slots(),
                               body.arena->slot_bytes()});
  return 0;
}

int Daemon::OpenEngine(const DaemonOptions& options, std::vector<std::string> token_bytes,
                       std::string* error) {
  Body& body = *body_;
  EngineOptions engine = options.engine;
  engine.token_bytes = std::move(token_bytes);
  for (uint32_t token = 0; token < body.tokenizer->vocabulary_size(); ++token) {
    const auto id = static_cast<TokenId>(token);
    if (body.tokenizer->IsEndOfGeneration(id)) engine.end_tokens.push_back(id);
  }
  const std::string_view stop = WireFormatOf(body.wire_family).stop;
  const std::vector<TokenId> stop_tokens = body.tokenizer->Encode(stop, true).tokens;
  if (stop_tokens.size() == 1) engine.end_tokens.push_back(stop_tokens[0]);
  const Result<uint32_t> slots = KvSlotCount(options.kv_bytes, body.model->kv_geometry(), error);
  if (!slots.ok()) return kExitConfig;
  Result<std::unique_ptr<KvArena>> arena = KvArena::Create(body.model->kv_geometry(), *slots);
  if (!arena.ok()) {
    *error = fmt::format("cannot reserve {} bytes of KV memory (kv.memory)", options.kv_bytes);
    return kExitOsError;
  }
  body.arena = arena.Take();
  Result<std::unique_ptr<Engine>> made = Engine::Create(*body.model, *body.arena, engine);
  if (!made.ok()) {
    *error = made.status().message();
    return kExitOsError;
  }
  body.engine = made.Take();
  LogInfo("daemon", "kv_reserved slots={} slot_bytes={}", *slots, body.arena->slot_bytes());
  return 0;
}

int Daemon::OpenState(const DaemonOptions& options, std::string* error) {
  Body& body = *body_;
  std::error_code ignored;  // Catalog::Open says what is wrong
  const std::filesystem::path folder =
      std::filesystem::path(options.catalog.path).parent_path();
  if (std::filesystem::create_directories(folder, ignored)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  }
  Result<std::unique_ptr<Catalog>> catalog = Catalog::Open(options.catalog, error);
  if (!catalog.ok()) {
    *error = "session catalog: " + *error;
    return kExitCannotCreate;
  }
  Result<std::vector<SessionRecord>> sessions = (*catalog)->LoadSessions();
  if (!sessions.ok()) {
    *error = std::string("cannot read the session catalog: ") + sessions.status().message();
    return kExitCannotCreate;
  }
  body.sessions = sessions.Take();
  LogInfo("daemon", "catalog_opened sessions={}", body.sessions.size());
  body.journal = std::make_unique<Journal>(catalog.Take());
  return 0;
}

ConductorSettings Daemon::SettingsOf(const DaemonOptions& options) const {
  ConductorSettings settings;
  settings.turns = options.turns;
  settings.turns.context_tokens = body_->model->parameters().context;
  settings.turns.slot_bytes = body_->arena->slot_bytes();
  settings.turns.sequences_max = options.engine.sequences_max;
  settings.router = options.router;
  settings.grants = options.grants;
  settings.phases = options.phases;
  settings.catalog = {options.catalog.bytes_max, options.catalog.versions_max};
  return settings;
}

bool Daemon::reload_requested() {
  Body& body = *body_;
  while (const std::optional<uint64_t> ticket = body.conductor->TakeReloadRequest()) {
    body.reload_tickets.push_back(*ticket);
  }
  return !body.reload_tickets.empty();
}

bool Daemon::CanFinishReload() {
  return body_->conductor->HasRoomForReload() && body_->ingress->HasRoomForLimits();
}

void Daemon::FinishReload(const DaemonOptions* changed, const Status& status, std::string text) {
  Body& body = *body_;
  ReloadOutcome outcome;
  outcome.tickets = std::exchange(body.reload_tickets, {});
  outcome.code = static_cast<int32_t>(status.code());
  outcome.text = std::move(text);
  if (changed != nullptr) {
    body.options.drain_timeout_ms = changed->drain_timeout_ms;
    body.ingress->ChangeLimits({changed->ingress.attachments_max,
                                changed->ingress.attachment.in_flight_max,
                                changed->ingress.spin_us});
    outcome.settings = SettingsOf(*changed);
  }
  body.conductor->FinishReload(std::move(outcome));
}

int Daemon::OpenSockets(const DaemonOptions& options, std::string* error) {
  Body& body = *body_;
  const ConductorSettings settings = SettingsOf(options);
  ConductorOptions conductor;
  conductor.turns = settings.turns;
  conductor.router = settings.router;
  conductor.grants = settings.grants;
  conductor.phases = settings.phases;
  conductor.model = body.model->FingerprintHex();
  conductor.wire_family = body.wire_family;
  conductor.model_json = std::move(body.model_json);
  conductor.kv_slots = body.arena->slots();
  body.conductor = std::make_unique<Conductor>(
      Conductor::Parts{*body.engine, *body.journal, *body.text, *body.tokenizer, RuleFilter(),
                       body.requests, body.replies, body.ingress_waker, body.control_requests,
                       body.control_replies, body.control_waker},
      conductor, std::move(body.sessions));
  // A socket left over is replaced; one that somebody serves is not ours to take.
  std::vector<Finding> taken;
  for (const Finding& finding : {CheckEndpoint("socket", options.ingress.socket_path),
                                 CheckEndpoint("control_socket", options.control_endpoint)}) {
    if (finding.severity == Severity::kFail) taken.push_back(finding);
  }
  if (const int code = Judge(taken, error); code != 0) return code;
  Result<std::unique_ptr<RingIngress>> ingress =
      RingIngress::Create(options.ingress, body.requests, body.conductor->waker(), body.replies,
                          body.ingress_waker);
  if (!ingress.ok()) {
    *error = fmt::format("cannot listen on {}: {}", options.ingress.socket_path,
                         ingress.status().message());
    return kExitCannotCreate;
  }
  body.ingress = ingress.Take();
  if (!options.metrics_listen.empty()) {
    std::string words;
    Result<std::unique_ptr<MetricsServer>> metrics = MetricsServer::Create(
        options.metrics_listen, [&body](Figures* out) { return ReadFigures(body, out); }, &words);
    if (!metrics.ok()) {
      *error = fmt::format("metrics.listen: cannot listen on {}: {}", options.metrics_listen,
                           words);
      return kExitCannotCreate;
    }
    body.metrics = metrics.Take();
  }
  if (options.control_endpoint.empty()) return 0;
  Result<std::unique_ptr<ControlServer>> control = ControlServer::Create(
      options.control_endpoint, body.control_requests, body.conductor->waker(),
      body.control_replies, body.control_waker, error);
  if (!control.ok()) return kExitCannotCreate;
  body.control = control.Take();
  return 0;
}

int Daemon::Start(const DaemonOptions& options, std::string* error) {
  Body& body = *body_;
  body.options = options;
  std::vector<Finding> findings{CheckKernel(), CheckProcessor(),
                                CheckSocketFolder(options.ingress.socket_path)};
  CheckedModel model = CheckModel(options.model, options.kv_bytes, &findings);
  if (const int code = Judge(findings, error); code != 0) return code;
  // Segments hold prompts: processes of the same uid must not read them through procfs or a core.
  prctl(PR_SET_DUMPABLE, 0);
  switch (body.lock.Take(options.ingress.socket_path + ".lock", error)) {
    case InstanceLock::Outcome::kTaken: break;
    case InstanceLock::Outcome::kHeldByOther: return kExitAlreadyRunning;
    case InstanceLock::Outcome::kFailed: return kExitCannotCreate;
  }
  findings = {RaiseDescriptorLimit(options.ingress.attachments_max),
              CheckCatalog(options.catalog.path, options.catalog.bytes_max)};
  if (const int code = Judge(findings, error); code != 0) return code;
  // The quick things first: who waits for a model should not hear of a locked catalog after it.
  if (const int code = OpenState(options, error); code != 0) return code;
  if (const int code = OpenModel(options, std::move(model), error); code != 0) return code;
  if (const int code = OpenSockets(options, error); code != 0) return code;
  StartThreads();
  body.watchdog.Watch("conductor", body.conductor_rounds, body.conductor->waker());
  body.watchdog.Watch("engine", body.engine_rounds, body.engine->waker());
  body.watchdog.Start(Watchdog::PeriodNsFromEnvironment(), MonotonicNs());
  return 0;
}

void Daemon::StartThreads() {
  Body& body = *body_;
  body.back.emplace_back([&body] {
    NameThread("kairos-engine");
    RunUntil(body.stop_back, body.engine->waker(),
             [&body] {
               body.engine_rounds.Add();
               return body.engine->DoWork(MonotonicNs());
             },
             -1);
  });
  body.back.emplace_back([&body] {
    NameThread("kairos-text");
    RunUntil(body.stop_back, body.text->waker(), [&body] { return body.text->DoWork(); }, -1);
  });
  body.back.emplace_back([&body] {
    NameThread("kairos-journal");
    RunUntil(body.stop_back, body.journal->waker(), [&body] { return body.journal->DoWork(); }, -1);
  });
  body.conductor_thread = std::thread([&body] {
    NameThread("kairos-conduct");
    Conductor& conductor = *body.conductor;
    while (!body.stop_conductor.load(std::memory_order_acquire)) {
      body.conductor_rounds.Add();
      if (conductor.DoWork(MonotonicNs())) continue;
      conductor.waker().Prepare();
      if (!conductor.DoWork(MonotonicNs())) conductor.waker().Sleep(conductor.SleepMs());
      conductor.waker().Finish();
    }
  });
  body.front.emplace_back([&body] {
    NameThread("kairos-ingress");
    uint64_t now_ns = MonotonicNs();
    while (!body.stop_front.load(std::memory_order_acquire)) {
      now_ns = body.ingress->DoWork(now_ns) == 0 ? body.ingress->Wait(now_ns) : MonotonicNs();
    }
  });
  if (body.control == nullptr) return;
  body.front.emplace_back([&body] {
    NameThread("kairos-control");
    while (!body.stop_front.load(std::memory_order_acquire)) body.control->DoWork(250);
  });
}

void Daemon::LookAfterThreads() { body_->watchdog.Look(MonotonicNs()); }

void Daemon::Stop(bool now) {
  Body& body = *body_;
  if (body.front.empty()) return;
  NotifyService("STOPPING=1\nSTATUS=draining");
  body.ingress->SetDraining(true);
  body.conductor->RequestDrain();
  const auto wait_idle = [&body, this](uint64_t limit_ms) {
    const uint64_t until_ns = MonotonicNs() + limit_ms * 1'000'000;
    while (body.conductor->turns_open() > 0 && MonotonicNs() < until_ns) {
      LookAfterThreads();
      usleep(5'000);
    }
  };
  if (!now) wait_idle(body.options.drain_timeout_ms);
  // What is still open is cancelled; cancelled turns are committed like any other.
  body.conductor->RequestCancelAll();
  wait_idle(2'000);
  // One more moment for ingress to hand the last records over.
  for (int i = 0; i < 40 && !body.replies.empty(); ++i) usleep(5'000);
  usleep(20'000);

  body.stop_front.store(true, std::memory_order_release);
  body.ingress_waker.Interrupt();
  body.control_waker.Interrupt();
  for (std::thread& thread : body.front) thread.join();
  body.front.clear();
  body.metrics.reset();
  body.stop_conductor.store(true, std::memory_order_release);
  body.conductor->waker().Interrupt();
  body.conductor_thread.join();
  body.stop_back.store(true, std::memory_order_release);
  body.engine->waker().Interrupt();
  body.text->waker().Interrupt();
  body.journal->waker().Interrupt();
  for (std::thread& thread : body.back) thread.join();
  body.back.clear();
  while (body.journal->DoWork()) {
  }
  unlink(body.options.ingress.socket_path.c_str());
}

}  // namespace kairos
