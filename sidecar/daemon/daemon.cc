// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/daemon.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "sidecar/context/context_filter.h"
#include "sidecar/control/control_server.h"
#include "sidecar/daemon/loaded_model.h"
#include "sidecar/daemon/service_notify.h"
#include "sidecar/daemon/watchdog.h"
#include "sidecar/metrics/metrics_server.h"
#include "sidecar/preflight/address_check.h"
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
    LogWarn("daemon", "preflight check={} words={} remedy={}", finding.check, finding.words,
            finding.remedy);
  }
  return 0;
}

// What must hold before anything is made.
std::vector<Finding> HostFindings(const DaemonOptions& options) {
  return {CheckKernel(), CheckProcessor(),
          RaiseDescriptorLimit(options.ingress.attachments_max, options.models.size()),
          CheckSocketFolder(options.ingress.socket_path, options.ingress.socket_mode)};
}

// Of the sockets' paths those that are not free. One left over from a killed kairosd is replaced;
// one that somebody serves is not ours to take.
std::vector<Finding> TakenEndpoints(const DaemonOptions& options) {
  std::vector<Finding> taken;
  for (const Finding& finding : {CheckEndpoint("socket", options.ingress.socket_path),
                                 CheckEndpoint("control_socket", options.control_endpoint)}) {
    if (finding.severity == Severity::kFail) taken.push_back(finding);
  }
  return taken;
}

// The same, and what is said of the metrics port.
std::vector<Finding> TakenPlaces(const DaemonOptions& options) {
  std::vector<Finding> found = TakenEndpoints(options);
  if (!options.metrics_listen.empty()) {
    found.push_back(CheckListenAddress(options.metrics_listen));
  }
  return found;
}

}  // namespace

int JudgeStart(const DaemonOptions& options, std::string* error) {
  std::vector<Finding> findings = HostFindings(options);
  std::string pid;
  if (CheckInstance(options.ingress.socket_path, &pid); pid.empty()) {
    for (Finding& finding : TakenPlaces(options)) findings.push_back(std::move(finding));
  }
  findings.push_back(CheckCatalog(options.catalog.path, options.catalog.bytes_max));
  CheckModels(options.models, &findings);
  return Judge(findings, error);
}

// In the order they are built; destroyed in reverse.
struct Daemon::Body {
  DaemonOptions options;
  InstanceLock lock;
  std::unique_ptr<Journal> journal;
  std::vector<SessionRecord> sessions;
  std::vector<std::unique_ptr<LoadedModel>> models;  // the default one first
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
  Watchdog watchdog{NotifyService};
  std::atomic<bool> stop_front{false};      // ingress and control
  std::atomic<bool> stop_conductor{false};
  std::atomic<bool> stop_back{false};       // engine, text, journal
  std::vector<std::thread> front;
  std::vector<std::thread> middle;          // conductor
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
  add("clients_attached_total", ingress.attached);
  add("clients_refused_total", ingress.attach_refused);
  add("client_ring_bytes", ingress.ring_bytes);
  add("requests_total", ingress.requests);
  add("requests_refused_total", ingress.refusals);
  add("slow_consumers_total", ingress.slow_consumers);
  add("flood_pauses_total", ingress.pauses);
  add("lost_wakes_total", ingress.lost_wakes);
  *out = std::move(*figures);
  return true;
}

Daemon::Daemon() : body_(std::make_unique<Body>()) {}

Daemon::~Daemon() { Stop(true); }

bool Daemon::drain_requested() const {
  return body_->conductor != nullptr && body_->conductor->drain_requested();
}

int Daemon::OpenModels(std::vector<CheckedModel> checked, std::string* error) {
  Body& body = *body_;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  for (size_t i = 0; i < checked.size(); ++i) {
    auto model = std::make_unique<LoadedModel>(body.options.models[i], std::move(checked[i]));
    const std::string what = checked.size() == 1
                                 ? "loading model"
                                 : fmt::format("loading model {} of {}, {}", i + 1, checked.size(),
                                               model->name());
    NotifyService("STATUS=" + what);
    const auto progress = [&](uint64_t percent) {
      if (terminal) {
        std::fprintf(stderr, "\r%s: %3u %%%s", what.c_str(), static_cast<unsigned>(percent),
                     percent == 100 ? "\n" : "");
      }
      // A large model on a slow disk takes longer than a service manager waits unasked.
      NotifyService(fmt::format("STATUS={}, {} %\nEXTEND_TIMEOUT_USEC=60000000", what, percent));
    };
    const int code = model->Load(body.options.engine, i == 0, progress, error);
    if (code != 0) return code;
    for (const auto& other : body.models) {
      if (other->fingerprint() != model->fingerprint()) continue;
      // A session could not tell them apart.
      *error = fmt::format("[[extra_model]] {}: is the same model as {}", model->name(),
                           other->name());
      return kExitConfig;
    }
    body.models.push_back(std::move(model));
  }
  return 0;
}

int Daemon::OpenState(const DaemonOptions& options, std::string* error) {
  Body& body = *body_;
  const Finding place = CheckCatalog(options.catalog.path, options.catalog.bytes_max);
  if (place.exit_status != 0) return Judge({place}, error);
  std::error_code ignored;  // Catalog::Open says what is wrong
  const std::filesystem::path folder =
      std::filesystem::path(options.catalog.path).parent_path();
  if (std::filesystem::create_directories(folder, ignored)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  }
  Result<std::unique_ptr<Catalog>> catalog = Catalog::Open(options.catalog, error);
  if (!catalog.ok()) {
    const Finding held = CheckCatalogFree(options.catalog.path);
    const bool is_full = catalog.status().code() == Code::kResourceExhausted;
    if (held.severity == Severity::kFail) {
      *error = FaultWords(held);
    } else if (is_full && place.severity == Severity::kFail) {
      *error = FaultWords(place);
    } else {
      *error = FaultWords(CatalogFault(options.catalog.path, catalog.status(), *error));
    }
    return kExitCannotCreate;
  }
  std::ignore = Judge({place}, error);  // a warning at most
  Result<std::vector<SessionRecord>> sessions = (*catalog)->LoadSessions();
  if (!sessions.ok()) {
    const Status& status = sessions.status();
    return Judge({CatalogFault(options.catalog.path, status,
                               options.catalog.path + ": " + status.message())},
                 error);
  }
  body.sessions = sessions.Take();
  LogInfo("daemon", "catalog_opened sessions={}", body.sessions.size());
  body.journal = std::make_unique<Journal>(catalog.Take());
  return 0;
}

ConductorSettings Daemon::SettingsOf(const DaemonOptions& options) {
  ConductorSettings settings;
  settings.turns = options.turns;
  settings.turns.sequences_max = options.engine.sequences_max;
  settings.router = options.router;
  settings.grants = options.grants;
  settings.phases = options.phases;
  settings.drain_timeout_ms = options.drain_timeout_ms;
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
    body.ingress->ChangeLimits({changed->ingress.attachments_max,
                                changed->ingress.attachments_per_process_max,
                                changed->ingress.ring_memory_max,
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
  conductor.drain_timeout_ms = settings.drain_timeout_ms;
  for (const auto& model : body.models) conductor.models.push_back(model->Parts());
  body.conductor = std::make_unique<Conductor>(
      Conductor::Parts{*body.journal, RuleFilter(), body.requests, body.replies,
                       body.ingress_waker, body.control_requests, body.control_replies,
                       body.control_waker},
      conductor, std::move(body.sessions));
  // libzmq ends the process where it is refused one of its two. All that are still to come are
  // counted, so that none of them stands at the very limit.
  constexpr uint32_t kOfLibzmq = 2;
  constexpr uint32_t kOfOurOwn = 4;
  const uint32_t of_models = 3 * static_cast<uint32_t>(body.models.size());
  if (const Status status = TryThreads(kOfLibzmq + kOfOurOwn + of_models); !status.ok()) {
    *error = WordsForRefusedThread(status);
    return kExitOsError;
  }
  // Once more: loading the models took its time.
  if (const int code = Judge(TakenEndpoints(options), error); code != 0) return code;
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
      // Somebody may have taken it since the first look.
      const int code = Judge({CheckListenAddress(options.metrics_listen)}, error);
      if (code != 0) return code;
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
  std::vector<Finding> findings = HostFindings(options);
  std::vector<CheckedModel> models = CheckModels(options.models, &findings);
  if (const int code = Judge(findings, error); code != 0) return code;
  // Segments hold prompts: processes of the same uid must not read them through procfs or a core.
  prctl(PR_SET_DUMPABLE, 0);
  switch (body.lock.Take(options.ingress.socket_path + ".lock",
                         SocketFolderMode(options.ingress.socket_mode), error)) {
    case InstanceLock::Outcome::kTaken: break;
    case InstanceLock::Outcome::kHeldByOther: return kExitAlreadyRunning;
    case InstanceLock::Outcome::kFailed: return kExitCannotCreate;
  }
  if (const int code = Judge(TakenPlaces(options), error); code != 0) return code;
  // The quick things first: who waits for a model should not hear of a locked catalog after it.
  if (const int code = OpenState(options, error); code != 0) return code;
  if (const int code = OpenModels(std::move(models), error); code != 0) return code;
  if (const int code = OpenSockets(options, error); code != 0) return code;
  if (const int code = StartThreads(error); code != 0) return code;
  body.watchdog.Watch("conductor", body.conductor_rounds, body.conductor->waker());
  for (const auto& model : body.models) {
    body.watchdog.Watch("engine", model->rounds(), model->engine().waker());
  }
  body.watchdog.Start(Watchdog::PeriodNsFromEnvironment(), MonotonicNs());
  return 0;
}

int Daemon::StartThreads(std::string* error) {
  Body& body = *body_;
  Status status;
  const auto start = [&status](std::vector<std::thread>* threads, std::function<void()> work) {
    std::thread thread;
    if (status.ok()) status = StartThread(std::move(work), &thread);
    if (thread.joinable()) threads->push_back(std::move(thread));
  };
  for (size_t i = 0; i < body.models.size(); ++i) {
    LoadedModel& model = *body.models[i];
    // "kairos-engine" is the default model's, "kairos-engine-2" the next one's.
    const std::string suffix = i == 0 ? "" : fmt::format("-{}", i + 1);
    start(&body.back, [&body, &model, suffix] {
      NameThread(("kairos-engine" + suffix).c_str());
      RunUntil(body.stop_back, model.engine().waker(),
               [&] {
                 model.rounds().Add();
                 return model.engine().DoWork(MonotonicNs());
               },
               -1);
    });
    start(&body.back, [&body, &model, suffix] {
      NameThread(("kairos-text" + suffix).c_str());
      RunUntil(body.stop_back, model.text().waker(), [&] { return model.text().DoWork(); }, -1);
    });
    start(&body.back, [&body, &model, suffix] {
      NameThread(("kairos-grammar" + suffix).c_str());
      RunUntil(body.stop_back, model.grammar().waker(),
               [&] { return model.grammar().DoWork(); }, -1);
    });
  }
  start(&body.back, [&body] {
    NameThread("kairos-journal");
    RunUntil(body.stop_back, body.journal->waker(), [&body] { return body.journal->DoWork(); }, -1);
  });
  start(&body.middle, [&body] {
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
  start(&body.front, [&body] {
    NameThread("kairos-ingress");
    uint64_t now_ns = MonotonicNs();
    while (!body.stop_front.load(std::memory_order_acquire)) {
      now_ns = body.ingress->DoWork(now_ns) == 0 ? body.ingress->Wait(now_ns) : MonotonicNs();
    }
  });
  if (body.control != nullptr) {
    start(&body.front, [&body] {
      NameThread("kairos-control");
      while (!body.stop_front.load(std::memory_order_acquire)) body.control->DoWork(250);
    });
  }
  if (status.ok()) return 0;
  *error = WordsForRefusedThread(status);
  EndThreads();
  return kExitOsError;
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
  if (!now) wait_idle(body.conductor->drain_timeout_ms());
  // What is still open is cancelled; cancelled turns are committed like any other.
  body.conductor->RequestCancelAll();
  wait_idle(2'000);
  // One more moment for ingress to hand the last records over.
  for (int i = 0; i < 40 && !body.replies.empty(); ++i) usleep(5'000);
  usleep(20'000);
  EndThreads();
}

void Daemon::EndThreads() {
  Body& body = *body_;
  body.stop_front.store(true, std::memory_order_release);
  body.ingress_waker.Interrupt();
  body.control_waker.Interrupt();
  for (std::thread& thread : body.front) thread.join();
  body.front.clear();
  body.metrics.reset();
  body.stop_conductor.store(true, std::memory_order_release);
  body.conductor->waker().Interrupt();
  for (std::thread& thread : body.middle) thread.join();
  body.middle.clear();
  body.stop_back.store(true, std::memory_order_release);
  for (const auto& model : body.models) {
    model->engine().waker().Interrupt();
    model->text().waker().Interrupt();
    model->grammar().waker().Interrupt();
  }
  body.journal->waker().Interrupt();
  for (std::thread& thread : body.back) thread.join();
  body.back.clear();
  while (body.journal->DoWork()) {
  }
  unlink(body.options.ingress.socket_path.c_str());
}

}  // namespace kairos
