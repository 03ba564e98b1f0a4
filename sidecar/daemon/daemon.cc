// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/daemon.h"

#include <sys/prctl.h>
#include <sys/resource.h>
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
#include "sidecar/context/context_filter.h"
#include "sidecar/control/control_server.h"
#include "sidecar/daemon/instance_lock.h"
#include "sidecar/daemon/service_notify.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/engine/token_bytes.h"
#include "sidecar/model/gguf.h"
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

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
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

// In the order they are built; destroyed in reverse.
struct Daemon::Body {
  DaemonOptions options;
  InstanceLock lock;
  std::unique_ptr<Journal> journal;
  std::vector<SessionRecord> sessions;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatRenderer> renderer;
  std::unique_ptr<KvArena> arena;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<TextThread> text;
  SpscQueue<Request> requests{4096};
  SpscQueue<Reply> replies{16384};
  SpscQueue<ControlRequest> control_requests{256};
  SpscQueue<ControlReply> control_replies{256};
  Waker ingress_waker;
  Waker control_waker;
  std::unique_ptr<Conductor> conductor;
  std::unique_ptr<RingIngress> ingress;
  std::unique_ptr<ControlServer> control;

  std::atomic<bool> stop_front{false};      // ingress and control
  std::atomic<bool> stop_conductor{false};
  std::atomic<bool> stop_back{false};       // engine, text, journal
  std::vector<std::thread> front;
  std::thread conductor_thread;
  std::vector<std::thread> back;
};

Daemon::Daemon() : body_(std::make_unique<Body>()) {}

Daemon::~Daemon() { Stop(true); }

bool Daemon::drain_requested() const {
  return body_->conductor != nullptr && body_->conductor->drain_requested();
}

int Daemon::OpenModel(const DaemonOptions& options, std::string* error) {
  Body& body = *body_;
  const std::string path = ResolveModelPath(options.model);
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path, error);
  if (!file.ok()) {
    if (options.model.find('/') == std::string::npos && access(path.c_str(), F_OK) != 0) {
      *error = fmt::format("no file and no fetched model is called {}; see `tools/model list` ({})",
                           options.model, *error);
    }
    return kExitNoInput;
  }
  const KernelTable* kernels = ChooseKernels();
  if (kernels == nullptr) {
    *error = "KAIROS_KERNELS names kernels that this processor does not have";
    return kExitConfig;
  }
  const bool terminal = isatty(STDERR_FILENO) == 1;
  uint64_t shown = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    const uint64_t percent = total == 0 ? 100 : done * 100 / total;
    if (terminal && percent != shown) {
      std::fprintf(stderr, "\rloading model: %3u %%%s", static_cast<unsigned>(percent),
                   percent == 100 ? "\n" : "");
    }
    shown = percent;
  };
  NotifyService("STATUS=loading model");
  Result<std::unique_ptr<Model>> model = Model::Load(**file, *kernels, progress, error);
  if (!model.ok()) return kExitNoInput;
  body.model = model.Take();
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(**file, error);
  if (!tokenizer.ok()) return kExitNoInput;
  body.tokenizer = tokenizer.Take();
  const auto text_of = [&](TokenId token) {
    return token < 0 ? std::string() : std::string(body.tokenizer->TokenBytes(token, true));
  };
  const std::string source((*file)->String("tokenizer.chat_template").value_or(""));
  Result<std::unique_ptr<ChatRenderer>> renderer = ChatRenderer::Create(
      source, text_of(body.tokenizer->bos()), text_of(body.tokenizer->eos()), error);
  if (!renderer.ok()) {
    // A template that cannot be used must not keep the model from being served.
    LogWarn("daemon", "template_refused reason=\"{}\" using=chatml", *error);
    renderer = ChatRenderer::Create("", text_of(body.tokenizer->bos()),
                                    text_of(body.tokenizer->eos()), error);
    if (!renderer.ok()) return kExitNoInput;
  }
  body.renderer = renderer.Take();
  body.text = std::make_unique<TextThread>(*body.renderer, *body.tokenizer);

  LogInfo("daemon", "model_loaded kernels={} fingerprint={} weight_bytes={}", kernels->name,
          body.model->FingerprintHex(), body.model->weight_bytes());
  return OpenEngine(options, ReadTokenBytes(**file), error);
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
  const uint64_t slot_bytes = SlotBytes(body.model->kv_geometry());
  const uint64_t slots = options.kv_bytes / slot_bytes;
  if (slots < 4 || slots > 0xfffffff0u) {
    *error = fmt::format("kv.memory of {} bytes holds {} blocks of {} bytes; at least 4 are needed",
                         options.kv_bytes, slots, slot_bytes);
    return kExitConfig;
  }
  Result<std::unique_ptr<KvArena>> arena =
      KvArena::Create(body.model->kv_geometry(), static_cast<uint32_t>(slots));
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
  LogInfo("daemon", "kv_reserved slots={} slot_bytes={}", slots, slot_bytes);
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

int Daemon::OpenSockets(const DaemonOptions& options, std::string* error) {
  Body& body = *body_;
  ConductorOptions conductor;
  conductor.turns = options.turns;
  conductor.turns.context_tokens = body.model->parameters().context;
  conductor.turns.slot_bytes = body.arena->slot_bytes();
  conductor.turns.sequences_max = options.engine.sequences_max;
  conductor.router = options.router;
  conductor.grants = options.grants;
  conductor.model = body.model->FingerprintHex();
  conductor.kv_slots = body.arena->slots();
  body.conductor = std::make_unique<Conductor>(
      Conductor::Parts{*body.engine, *body.journal, *body.text, *body.tokenizer, RuleFilter(),
                       body.requests, body.replies, body.ingress_waker, body.control_requests,
                       body.control_replies, body.control_waker},
      conductor, std::move(body.sessions));
  Result<std::unique_ptr<RingIngress>> ingress =
      RingIngress::Create(options.ingress, body.requests, body.conductor->waker(), body.replies,
                          body.ingress_waker);
  if (!ingress.ok()) {
    *error = fmt::format("cannot listen on {}: {}", options.ingress.socket_path,
                         ingress.status().message());
    return kExitCannotCreate;
  }
  body.ingress = ingress.Take();
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
  RaiseDescriptorLimit();
  // Segments hold prompts: processes of the same uid must not read them through procfs or a core.
  prctl(PR_SET_DUMPABLE, 0);
  switch (body.lock.Take(options.ingress.socket_path + ".lock", error)) {
    case InstanceLock::Outcome::kTaken: break;
    case InstanceLock::Outcome::kHeldByOther: return kExitAlreadyRunning;
    case InstanceLock::Outcome::kFailed: return kExitCannotCreate;
  }
  // The quick things first: who waits for a model should not hear of a locked catalog after it.
  if (const int code = OpenState(options, error); code != 0) return code;
  if (const int code = OpenModel(options, error); code != 0) return code;
  if (const int code = OpenSockets(options, error); code != 0) return code;
  StartThreads();
  NotifyService("READY=1\nSTATUS=serving");
  LogInfo("daemon", "ready socket={}", options.ingress.socket_path);
  return 0;
}

void Daemon::StartThreads() {
  Body& body = *body_;
  body.back.emplace_back([&body] {
    NameThread("kairos-engine");
    RunUntil(body.stop_back, body.engine->waker(),
             [&body] { return body.engine->DoWork(MonotonicNs()); }, -1);
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

void Daemon::Stop(bool now) {
  Body& body = *body_;
  if (body.front.empty()) return;
  NotifyService("STOPPING=1\nSTATUS=draining");
  body.ingress->SetDraining(true);
  body.conductor->RequestDrain();
  const auto wait_idle = [&body](uint64_t limit_ms) {
    const uint64_t until_ns = MonotonicNs() + limit_ms * 1'000'000;
    while (body.conductor->turns_open() > 0 && MonotonicNs() < until_ns) usleep(5'000);
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
