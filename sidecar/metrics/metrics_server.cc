// SPDX-License-Identifier: Apache-2.0
// Prometheus' library writes the text, civetweb serves it: that library's own server (its Exposer)
// adds figures of itself, and cannot be told to leave them out. Built with exceptions, which the
// first of them throws: nothing leaves this file.
#include "sidecar/metrics/metrics_server.h"

#include <civetweb.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace kairos {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

struct Row {
  std::string_view figure;  // as in `kairosctl stats`
  const char* metric;       // without "kairos_"
  const char* help;
};

// Where Prometheus has other rules for names than we do, or words are needed. `_total` is a counter
// there, ours is also the whole of something.
constexpr Row kRows[] = {
    {"sessions", "sessions", "Sessions that exist."},
    {"turns_open", "turns_open", "Turns that run or wait."},
    {"turns_done_total", "turns_done_total", "Turns committed."},
    {"turns_refused_total", "turns_refused_total", "Turns refused or failed."},
    {"turns_cancelled_total", "turns_cancelled_total", "Of the committed turns, those cut short."},
    {"turns_replayed_total", "turns_replayed_total", "Turns answered with a stored reply."},
    {"reads_not_changed_total", "reads_not_changed_total", "Reads of what the client had already."},
    {"tool_timeouts_total", "tool_timeouts_total", "Sessions that gave up waiting for a tool."},
    {"tokens_reused_total", "tokens_reused_total", "Prompt tokens whose KV was there."},
    {"tokens_recomputed_total", "tokens_recomputed_total", "Prompt tokens computed again."},
    {"tokens_new_total", "tokens_new_total", "Prompt tokens never computed before."},
    {"tokens_generated_total", "tokens_generated_total", "Tokens generated."},
    {"turn_seconds_total", "turn_seconds_total", "Time of all turns, from record to commit."},
    {"model_seconds_total", "model_seconds_total", "Of it, inside the model's steps."},
    {"turn_overhead_share", "turn_overhead_ratio", "Share of the turns' time beside the model."},
    {"engine_steps_total", "engine_steps_total", "Steps of the engine."},
    {"engine_prefill_tokens_total", "engine_prefill_tokens_total", "Tokens prefilled."},
    {"engine_decode_tokens_total", "engine_decode_tokens_total", "Tokens decoded."},
    {"engine_drafted_tokens_total", "engine_drafted_tokens_total",
     "Tokens that were guessed and checked beside the next one."},
    {"engine_accepted_tokens_total", "engine_accepted_tokens_total",
     "Guessed tokens that came."},
    {"engine_model_drafted_tokens_total", "engine_model_drafted_tokens_total",
     "Of the guessed and checked tokens, those of the draft model."},
    {"engine_model_accepted_tokens_total", "engine_model_accepted_tokens_total",
     "Of these, those that came."},
    {"engine_model_draft_seconds_total", "engine_model_draft_seconds_total",
     "Of the time of all steps, the draft model's."},
    {"engine_step_seconds_total", "engine_step_seconds_total", "Time of all steps."},
    {"engine_sequences_running", "engine_sequences_running", "Turns in the engine's batch."},
    {"engine_sequences_waiting", "engine_sequences_waiting", "Turns that wait for the batch."},
    {"kv_slots_total", "kv_slots", "KV slots, free or not."},
    {"kv_slots_free", "kv_slots_free", "KV slots that nothing is in."},
    {"kv_slots_cached", "kv_slots_cached", "KV slots whose block no turn uses now."},
    {"kv_device_bytes_total", "kv_device_bytes", "Size of KV memory."},
    {"kv_device_bytes_used", "kv_device_used_bytes", "KV memory in use."},
    {"kv_blocks_indexed", "kv_blocks_indexed", "KV blocks that can be found for reuse."},
    {"catalog_bytes", "catalog_bytes", "What of the session catalog is in use."},
    {"clients", "clients", "Client processes that are attached."},
    {"watchers", "watchers", "Clients that watch sessions."},
    {"clients_attached_total", "clients_attached_total", "Attachments made."},
    {"clients_refused_total", "clients_refused_total", "Attachments refused."},
    {"client_ring_bytes", "client_ring_bytes", "Memory of all rings of clients."},
    {"requests_total", "requests_total", "Requests handed on by ingress."},
    {"requests_refused_total", "requests_refused_total", "Requests refused by ingress."},
    {"slow_consumers_total", "slow_consumers_total", "Turns cancelled for a client's full ring."},
    {"flood_pauses_total", "flood_pauses_total", "Times a client that asks too much had to wait."},
    {"lost_wakes_total", "lost_wakes_total", "Records found by the sweep; must stay 0."},
};

// Where several models are served, "model.NAME.FIGURE" is a figure of one of them; it goes beside
// that of all, in a family of its own, so that neither is counted twice.
MetricFamily FamilyOf(std::string_view figure, double value) {
  constexpr std::string_view kOfModel = "model.";
  prometheus::ClientMetric metric;
  std::string prefix = "kairos_";
  if (figure.starts_with(kOfModel)) {
    const size_t dot = figure.rfind('.');
    metric.label.push_back({"model", std::string(figure.substr(kOfModel.size(),
                                                               dot - kOfModel.size()))});
    figure.remove_prefix(dot + 1);
    prefix += kOfModel.substr(0, kOfModel.size() - 1);
    prefix += '_';
  }
  MetricFamily family;
  family.name = prefix + std::string(figure);
  family.help = "As kairosctl stats shows it.";
  for (const Row& row : kRows) {
    if (row.figure != figure) continue;
    family.name = prefix + row.metric;
    family.help = row.help;
  }
  if (std::string_view(family.name).ends_with("_total")) {
    family.type = MetricType::Counter;
    metric.counter.value = value;
  } else {
    family.type = MetricType::Gauge;
    metric.gauge.value = value;
  }
  family.metric.push_back(metric);
  return family;
}

// A family is written once, with a line for each model.
void Add(MetricFamily family, std::vector<MetricFamily>* families) {
  for (MetricFamily& there : *families) {
    if (there.name != family.name) continue;
    there.metric.push_back(std::move(family.metric[0]));
    return;
  }
  families->push_back(std::move(family));
}

}  // namespace

struct MetricsServer::Body {
  std::function<bool(Figures*)> read;
  std::mutex reading;  // several scrapes at once; what is read is not for several threads
  mg_context* server = nullptr;

  ~Body() {
    if (server != nullptr) mg_stop(server);
  }

  std::string Text() {
    Figures figures;
    {
      const std::lock_guard lock(reading);
      if (!read(&figures)) figures.clear();
    }
    std::vector<MetricFamily> families;
    for (const auto& [name, value] : figures) Add(FamilyOf(name, value), &families);
    return prometheus::TextSerializer().Serialize(families);
  }

  // A request for /metrics or what begins so, on a thread of the library. The status that was sent;
  // 0 leaves it to the library, which finds nothing.
  static int OnRequest(mg_connection* connection, void* body) try {
    const mg_request_info* request = mg_get_request_info(connection);
    if (request->request_method != std::string_view("GET") ||
        request->local_uri != std::string_view("/metrics")) {
      return 0;
    }
    const std::string text = static_cast<Body*>(body)->Text();
    mg_printf(connection,
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
              "Content-Length: %zu\r\nConnection: close\r\n\r\n",
              text.size());
    mg_write(connection, text.data(), text.size());
    return 200;
  } catch (const std::exception&) {
    return 500;
  }
};

MetricsServer::MetricsServer() = default;
MetricsServer::~MetricsServer() = default;

Result<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string& address,
                                                             std::function<bool(Figures*)> read,
                                                             std::string* error) {
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->body_ = std::make_unique<Body>();
  server->body_->read = std::move(read);
  mg_callbacks callbacks{};
  // What a peer does wrong is no line of ours.
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  callbacks.log_access = callbacks.log_message;
  // A peer that sends half a request and stops holds a thread until the time-out. There are more
  // threads than such peers, or the next one is free after that time.
  const char* options[] = {"listening_ports", address.c_str(), "num_threads", "16",
                           "request_timeout_ms", "2000", "enable_keep_alive", "no", nullptr};
  mg_init_data init{&callbacks, nullptr, options};
  char words[256] = "";
  unsigned code = 0;
  mg_error_data fault{&code, words, sizeof(words)};
  server->body_->server = mg_start2(&init, &fault);
  if (server->body_->server == nullptr) {
    if (error != nullptr) *error = words;
    return Status(Code::kUnavailable, "metrics: cannot listen");
  }
  mg_set_request_handler(server->body_->server, "/metrics", Body::OnRequest, server->body_.get());
  return server;
}

}  // namespace kairos
