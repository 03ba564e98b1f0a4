// SPDX-License-Identifier: Apache-2.0
#include "bench/ring_bench.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/client_process.h"
#include "bench/echo_pair.h"
#include "bench/json_line.h"
#include "bench/pinned_pair.h"
#include "bench/played_turn.h"
#include "bench/quantiles.h"
#include "bench/sidecar_process.h"
#include "shm/attach.h"
#include "shm/doorbell.h"
#include "shm/records.h"
#include "sidecar/control/control_client.h"

namespace kairos {
namespace {

constexpr uint32_t kSizes[] = {64, 1024, 4096, 65536};
constexpr struct {
  const char* name;
  double share;
} kQuantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}};

struct Effort {
  int repetitions;
  int spin_pings;     // of one repetition
  int parked_pings;
  uint64_t throughput_ns;
  int attaches;
  uint32_t idle_clients;
  uint64_t idle_ns;
  int reaps;
};
constexpr Effort kFull = {5, 20'000, 400, 700'000'000, 60, 64, 6'000'000'000, 7};
constexpr Effort kQuick = {1, 200, 5, 50'000'000, 3, 4, 200'000'000, 1};

// Long enough for every thread of the sidecar to have gone to sleep.
constexpr useconds_t kPauseUs = 400;

// Round trips in microseconds of one way of asking; one vector per repetition.
struct Trips {
  std::vector<std::vector<double>> repetitions;
  // Median over the repetitions of each one's quantile.
  double At(double share) const {
    std::vector<double> values;
    for (const auto& one : repetitions) values.push_back(Quantile(one, share));
    return Median(values);
  }
};

class RingBench {
 public:
  explicit RingBench(const RingBenchOptions& options)
      : options_(options),
        effort_(options.quick ? kQuick : kFull),
        sidecar_(options.daemon, options.model, options.work) {}

  int Run() {
    if (!sidecar_.Start()) return 1;
    const bool measured =
        RoundTrips() && Throughput() && Attach() && Reads() && IdleCpu() && Reap("idle") &&
        Reap("prefill");
    sidecar_.Terminate();
    return measured ? 0 : 1;
  }

 private:
  bool Complain(const char* what) const {
    std::fprintf(stderr, "kairos-bench ring: %s: %s\n", what, LastError().c_str());
    return false;
  }

  // What a gate says goes to stderr, so that --json stays one object a line.
  void Gate(const char* what, double value, double limit, bool at_most) const {
    if (options_.quick) return;
    const bool met = at_most ? value <= limit : value >= limit;
    std::fprintf(stderr, "gate %-52s %12.4g, %s %g: %s\n", what, value,
                 at_most ? "at most" : "at least", limit, met ? "met" : "MISSED");
  }

  void Print(const JsonLine& line) const {
    if (options_.json) line.Print();
  }

  // ---- Round trips ------------------------------------------------------------------------------

  static bool Sample(int count, useconds_t pause_us, Trips* out,
                     const std::function<uint64_t()>& ping) {
    std::vector<double> trips;
    trips.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count + count / 10; ++i) {
      if (pause_us > 0) usleep(pause_us);
      const uint64_t ns = ping();
      if (ns == 0) return false;
      if (i >= count / 10) trips.push_back(static_cast<double>(ns) * 1e-3);
    }
    out->repetitions.push_back(std::move(trips));
    return true;
  }

  static uint64_t PingThrough(kairos_client_t* client, uint32_t bytes, bool spin) {
    // Timed here and not by the library's own figure, so that the call itself is in it.
    const uint64_t begin = MonotonicNs();
    if (kairos_client_ping(client, bytes, spin ? 1 : 0, 5000) < 0) return 0;
    return MonotonicNs() - begin;
  }

  bool RoundTrips() {
    kairos_client_options_t parked_options;
    kairos_client_options_init(&parked_options);
    const std::string path = sidecar_.socket();
    parked_options.socket_path = {path.data(), path.size()};
    parked_options.spin_us = 0;
    // The peers' children must not inherit clients.
    ZmqEcho zmq(options_.work);
    if (!zmq.valid()) return Complain("the ZeroMQ peer did not answer");
    kairos_client_t* parked = nullptr;
    if (kairos_client_open(&parked_options, &parked) < 0) return Complain("attach");
    kairos_client_t* spinning = sidecar_.Open();
    if (spinning == nullptr) return Complain("attach");
    bool measured = true;
    for (const uint32_t bytes : kSizes) {
      Trips spin, sleep, raw, framed, zmq_busy, zmq_idle;
      const int spins = bytes > 4096 ? effort_.spin_pings / 4 : effort_.spin_pings;
      for (int i = 0; measured && i < effort_.repetitions; ++i) {
        measured =
            SampleSpinning(spinning, spins, bytes, &spin) &&
            SampleRing<RawRingEcho>(spins, bytes, &raw) &&
            SampleRing<FramedRingEcho>(spins, bytes, &framed) &&
            Sample(spins / 10, 0, &zmq_busy, [&] { return zmq.Ping(bytes); }) &&
            Sample(effort_.parked_pings, kPauseUs, &sleep,
                   [&] { return PingThrough(parked, bytes, false); }) &&
            Sample(effort_.parked_pings, kPauseUs, &zmq_idle, [&] { return zmq.Ping(bytes); });
      }
      if (!measured) break;
      ReportTrips("spin", bytes, spin, {{"raw_ring", &raw}, {"zmq_ipc", &zmq_busy}});
      ReportTrips("framed", bytes, framed, {{"raw_ring", &raw}});
      ReportTrips("parked", bytes, sleep, {{"zmq_ipc", &zmq_idle}});
      if (bytes != 64) continue;
      Gate("64 B spinning p50, us", spin.At(0.5), 1.5, true);
      Gate("64 B spinning p99, us", spin.At(0.99), 5, true);
      Gate("64 B frames over the raw ring, ratio", framed.At(0.5) / raw.At(0.5), 2, true);
      Gate("64 B through library and sidecar over the raw ring, ratio",
           spin.At(0.5) / raw.At(0.5), 2, true);
      Gate("ZeroMQ over 64 B spinning, ratio", zmq_busy.At(0.5) / spin.At(0.5), 20, false);
      Gate("64 B parked p50, us", sleep.At(0.5), 100, true);
      Gate("ZeroMQ over 64 B parked, ratio", zmq_idle.At(0.5) / sleep.At(0.5), 1.2, false);
    }
    kairos_client_close(parked);
    kairos_client_close(spinning);
    return measured || Complain("a ping was not answered");
  }

  bool SampleSpinning(kairos_client_t* client, int count, uint32_t bytes, Trips* out) const {
    const PinnedPair pinned(IngressThread());
    return Sample(count, 0, out, [&] { return PingThrough(client, bytes, true); });
  }

  // The sidecar's thread that answers pings; the process itself where threads cannot be listed.
  pid_t IngressThread() const {
    std::error_code error;
    const std::string folder = "/proc/" + std::to_string(sidecar_.pid()) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(folder, error)) {
      std::ifstream file(task.path() / "comm");
      std::string name;
      if (file >> name && name == "kairos-ingress") {
        return static_cast<pid_t>(std::stol(task.path().filename().string()));
      }
    }
    return sidecar_.pid();
  }

  // A ring's peer spins all its life, so it lives only while it is measured.
  template <typename Echo>
  static bool SampleRing(int count, uint32_t bytes, Trips* out) {
    Echo echo;
    if (!echo.valid()) return false;
    const PinnedPair pinned(echo.pid());
    return Sample(count, 0, out, [&] { return echo.Ping(bytes); });
  }

  void ReportTrips(const char* mode, uint32_t bytes, const Trips& ours,
                   const std::vector<std::pair<const char*, const Trips*>>& peers) const {
    for (const auto& quantile : kQuantiles) {
      const double value = ours.At(quantile.share);
      if (!options_.json) {
        std::printf("%-6s %6u B  %-4s %9.2f us", mode, bytes, quantile.name, value);
      }
      for (const auto& [peer, trips] : peers) {
        const double theirs = trips->At(quantile.share);
        if (!options_.json) {
          std::printf("   %s %9.2f us", peer, theirs);
          continue;
        }
        JsonLine line("ring.round_trip_us", value, "us");
        line.Param("mode", std::string(mode)).Param("bytes", bytes);
        line.Param("quantile", std::string(quantile.name)).Peer(peer, theirs, theirs / value);
        line.Print();
      }
      if (!options_.json) std::printf("\n");
    }
  }

  // ---- Throughput -------------------------------------------------------------------------------

  // kairos_client_ping() waits for its echo, so pipelining goes one floor deeper: this process
  // attaches to the live sidecar by the same handshake as libkairos and keeps many ping records in
  // flight on the request ring itself.
  bool Throughput() {
    AttachOptions attach;
    attach.socket_path = sidecar_.socket();
    attach.reply_types = kReplyTypes;
    std::string text;
    auto attached = AttachToSidecar(attach, &text);
    if (!attached.ok()) {
      std::fprintf(stderr, "kairos-bench ring: attach: %s\n", text.c_str());
      return false;
    }
    for (const uint32_t bytes : {64u, 4096u}) {
      std::vector<double> rates;
      for (int i = 0; i < effort_.repetitions; ++i) {
        const double rate = Pipelined(*attached, bytes);
        if (rate <= 0.0) return Complain("pipelined echo");
        rates.push_back(rate);
      }
      const double rate = Median(rates);
      if (!options_.json) {
        std::printf("pipelined %4u B  %.3g bytes/s, %.3g messages/s each way\n", bytes, rate,
                    rate / bytes);
      }
      Print(JsonLine("ring.throughput_bytes_per_second", rate, "B/s").Param("bytes", bytes));
      if (bytes == 64) {
        Gate("64 B messages per second", rate / bytes, 1e6, false);
      } else {
        Gate("4 KiB bytes per second", rate, 2e9, false);
      }
    }
    return true;
  }

  // Payload bytes per second that went out and came back; 0 when the echo stopped.
  double Pipelined(ClientAttachment& attached, uint32_t bytes) const {
    const std::vector<std::byte> payload(bytes, std::byte{0x5a});
    const uint64_t window = attached.answer.request_ring_bytes / 4 / (bytes + 24);
    uint64_t sent = 0;
    uint64_t received = 0;
    const uint64_t begin = MonotonicNs();
    uint64_t moved_at = begin;
    uint64_t now = begin;
    bool sending = true;
    while (sending || received < sent) {
      for (int i = 0; sending && i < 64 && sent - received < window; ++i) {
        OutgoingMessage message{static_cast<uint16_t>(RecordType::kPing), sent + 1, payload, 0};
        if (attached.requests.Push(&message) != PushResult::kDone) break;
        ++sent;
      }
      if (attached.requests.Publish()) (void)RingDoorbell(attached.socket.get());
      uint32_t frames = 64;
      RingMessage reply;
      PollResult polled;
      const uint64_t before = received;
      while ((polled = attached.replies.Poll(&frames, &reply)) == PollResult::kMessage) {
        if (reply.payload.size() != bytes || reply.request_id != ++received) return 0.0;
      }
      if (polled == PollResult::kBroken) return 0.0;
      if (attached.replies.Release()) (void)RingDoorbell(attached.socket.get());
      now = MonotonicNs();
      if (received != before) moved_at = now;
      if (now - moved_at > 5'000'000'000) return 0.0;
      sending = now - begin < effort_.throughput_ns;
    }
    return static_cast<double>(received * bytes) / (static_cast<double>(now - begin) * 1e-9);
  }

  // ---- Reading again ----------------------------------------------------------------------------

  // A task context, because it can be large without a model: read after another client has
  // written it, and read again, when no text comes back.
  bool Reads() {
    kairos_client_t* writer = sidecar_.Open();
    kairos_client_t* reader = sidecar_.Open();
    uint64_t session = 0;
    if (writer == nullptr || reader == nullptr ||
        kairos_session_create(writer, nullptr, &session, 10'000) < 0) {
      return Complain("a session to read");
    }
    for (const uint32_t bytes : {1024u, 16u << 10, 200u << 10}) {
      const std::string json = "{\"goal\":\"" + std::string(bytes - 11, 'x') + "\"}";
      std::vector<double> first_us, again_us;
      for (int i = 0; i < effort_.attaches; ++i) {
        if (kairos_context_write(writer, session, KAIROS_VERSION_ANY, {json.data(), json.size()},
                                 nullptr, 10'000) < 0 ||
            !TimeRead(reader, session, &first_us) || !TimeRead(reader, session, &again_us)) {
          return Complain("read");
        }
      }
      const double first = Median(first_us), again = Median(again_us);
      if (!options_.json) {
        std::printf("read   %6u B  %9.2f us   again, unchanged: 0 B %9.2f us\n", bytes, first,
                    again);
      }
      JsonLine line("ring.read_again_us", again, "us");
      line.Param("bytes", bytes).Peer("first_read", first, first / again);
      Print(line);
    }
    kairos_client_close(writer);
    kairos_client_close(reader);
    return true;
  }

  static bool TimeRead(kairos_client_t* client, uint64_t session, std::vector<double>* out) {
    kairos_event_t* event = nullptr;
    const uint64_t begin = MonotonicNs();
    if (kairos_context_read(client, session, 0, &event, 10'000) < 0) return false;
    out->push_back(static_cast<double>(MonotonicNs() - begin) * 1e-3);
    kairos_event_release(event);
    return true;
  }

  // ---- Attaching, idling ------------------------------------------------------------------------

  bool Attach() {
    std::vector<double> times_ms;
    for (int i = 0; i < effort_.attaches; ++i) {
      const uint64_t begin = MonotonicNs();
      kairos_client_t* client = sidecar_.Open();
      const uint64_t end = MonotonicNs();
      if (client == nullptr) return Complain("attach");
      kairos_client_close(client);
      times_ms.push_back(static_cast<double>(end - begin) * 1e-6);
    }
    const double median = Median(times_ms);
    if (!options_.json) std::printf("attach %.3f ms\n", median);
    Print(JsonLine("ring.attach_ms", median, "ms").Param("quantile", std::string("p50")));
    Gate("attach p50, ms", median, 5, true);
    return true;
  }

  // Nanoseconds that all threads of the sidecar ran.
  uint64_t CpuNs() const {
    uint64_t sum = 0;
    std::error_code error;
    const std::string folder = "/proc/" + std::to_string(sidecar_.pid()) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(folder, error)) {
      std::ifstream file(task.path() / "schedstat");
      uint64_t ran = 0;
      if (file >> ran) sum += ran;
    }
    return sum;
  }

  bool IdleCpu() {
    const uint32_t count = effort_.idle_clients;
    ClientProcess clients([this, count](int ready) {
      for (uint32_t i = 0; i < count; ++i) {
        kairos_client_t* client = sidecar_.Open();
        uint64_t session = 0;
        if (client == nullptr || kairos_session_create(client, nullptr, &session, 10'000) < 0) {
          return 1;
        }
      }
      if (write(ready, "r", 1) != 1) return 1;
      for (;;) pause();
    });
    if (!clients.AwaitReady()) return Complain("idle clients could not attach");
    usleep(options_.quick ? 50'000 : 1'000'000);
    const uint64_t cpu_begin = CpuNs();
    const uint64_t begin = MonotonicNs();
    usleep(static_cast<useconds_t>(effort_.idle_ns / 1000));
    const uint64_t wall = MonotonicNs() - begin;
    const double share = static_cast<double>(CpuNs() - cpu_begin) / static_cast<double>(wall);
    if (cpu_begin == 0) return Complain("no schedstat of the sidecar's threads");
    if (!options_.json) std::printf("idle, %u clients: %.4f %% of a core\n", count, 100 * share);
    Print(JsonLine("ring.idle_cpu_share", share, "share").Param("clients", count));
    Gate("idle CPU with 64 clients, share of a core", share, 0.01, true);
    return true;
  }

  // ---- Reaping ----------------------------------------------------------------------------------

  // Segments that the sidecar maps; -1 where this user may not see them (the sidecar is not
  // dumpable).
  int Segments() const {
    std::ifstream maps("/proc/" + std::to_string(sidecar_.pid()) + "/maps");
    int count = 0;
    std::string line;
    bool any = false;
    while (std::getline(maps, line)) {
      any = true;
      if (line.find("/memfd:kairos") != std::string::npos) ++count;
    }
    return any ? count : -1;
  }

  static double Stat(ControlClient& control, const char* name) {
    ControlRequest request;
    request.verb = ControlVerb::kStats;
    ControlReply reply;
    if (!control.Call(request, 5000, &reply).ok()) return -1.0;
    for (const auto& [key, value] : reply.stats) {
      if (key == name) return value;
    }
    return -1.0;
  }

  // A client with a running turn.
  int Victim(int ready) const {
    kairos_client_t* client = sidecar_.Open();
    uint64_t session = 0;
    if (client == nullptr || kairos_session_create(client, nullptr, &session, 10'000) < 0) return 1;
    TurnAsk ask;
    ask.session = session;
    ask.messages.push_back({"user", "", "Tell me a long story about a lighthouse."});
    ask.max_tokens = 2000;
    ask.ignore_eos = true;
    PlayedTurn failed;
    if (SubmitTurn(client, ask, &failed) == 0) return 1;
    kairos_event_t* event = nullptr;
    while (kairos_event_next(client, 60'000, &event) > 0) {
      const int32_t type = kairos_event_type(event);
      kairos_event_release(event);
      // Accepted is enough beside a prefill, where the first token may be a second away.
      if (type == KAIROS_EVENT_ACCEPTED || type == KAIROS_EVENT_TEXT) {
        if (write(ready, "r", 1) != 1) return 1;
        break;
      }
    }
    for (;;) pause();
  }

  // Another client whose prompt keeps the engine busy: about four thousand tokens.
  int Prefiller(int ready) const {
    kairos_client_t* client = sidecar_.Open();
    uint64_t session = 0;
    if (client == nullptr || kairos_session_create(client, nullptr, &session, 10'000) < 0) return 1;
    TurnAsk ask;
    ask.session = session;
    std::string text;
    const int words = options_.quick ? 100 : 4000;
    for (int i = 0; i < words; ++i) text += i % 7 == 0 ? "ship " : "sea ";
    ask.messages.push_back({"user", "", text});
    ask.max_tokens = 4;
    ask.flags = KAIROS_TURN_NO_REUSE;
    PlayedTurn failed;
    if (SubmitTurn(client, ask, &failed) == 0 || write(ready, "r", 1) != 1) return 1;
    for (;;) pause();
  }

  // From SIGKILL of a client with a turn in flight until the turn has ended, its KV is released and
  // its segments are unmapped.
  bool Reap(const char* load) {
    const bool prefill = std::strcmp(load, "prefill") == 0;
    std::string text;
    auto control = ControlClient::Open(options_.work + "/control.sock", &text);
    if (!control.ok()) {
      std::fprintf(stderr, "kairos-bench ring: control socket: %s\n", text.c_str());
      return false;
    }
    std::vector<double> times_ms;
    for (int i = 0; i < effort_.reaps; ++i) {
      std::unique_ptr<ClientProcess> other;
      if (prefill) {
        other = std::make_unique<ClientProcess>([this](int ready) { return Prefiller(ready); });
        if (!other->AwaitReady()) return Complain("the client with the long prompt");
        usleep(100'000);
      }
      const double turns = Stat(**control, "turns_open");
      const int segments = Segments();
      ClientProcess victim([this](int ready) { return Victim(ready); });
      if (!victim.AwaitReady()) return Complain("the client to be killed");
      usleep(20'000);
      const uint64_t begin = MonotonicNs();
      victim.Signal();
      bool free = false;
      while (!free && MonotonicNs() - begin < 20'000'000'000) {
        usleep(200);
        free = (segments < 0 || Segments() <= segments) &&
               Stat(**control, "turns_open") <= turns;
      }
      if (!free) return Complain("a killed client's turn did not end");
      times_ms.push_back(static_cast<double>(MonotonicNs() - begin) * 1e-6);
      other.reset();
      while (Stat(**control, "turns_open") > 0) usleep(2000);
    }
    const double median = Median(times_ms);
    if (!options_.json) std::printf("reap, other load %s: %.2f ms\n", load, median);
    Print(JsonLine("ring.reap_ms", median, "ms").Param("load", std::string(load)));
    Gate(prefill ? "reap beside a prefill, ms" : "reap, ms", median, 100, true);
    return true;
  }

  RingBenchOptions options_;
  Effort effort_;
  SidecarProcess sidecar_;
};

}  // namespace

int RunRingBench(const RingBenchOptions& options) { return RingBench(options).Run(); }

}  // namespace kairos
