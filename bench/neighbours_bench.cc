// SPDX-License-Identifier: Apache-2.0
// Every client is a process of its own. A round where all behave stands right beside each round of
// a kind, so that both meet the machine in the same state; quantiles are over the gaps of all
// measured clients of a kind's rounds. Who behaves has one long turn after the other (kCalm). Dying
// clients are compared a second time, with clients that have as many short turns as they (kBrief):
// it leaves out what new turns cost the model.
#include "bench/neighbours_bench.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "bench/client_process.h"
#include "bench/json_line.h"
#include "bench/played_turn.h"
#include "bench/quantiles.h"
#include "bench/sidecar_process.h"

namespace kairos {
namespace {

constexpr int32_t kPatienceMs = 300'000;
// One write of a client's gaps is whole: no more than PIPE_BUF bytes.
constexpr uint32_t kTokensMax = 512;

enum class Kind { kCalm, kBrief, kSlow, kStopped, kFlooding, kDying };
constexpr struct {
  Kind kind;
  Kind peer;
} kComparisons[] = {{Kind::kSlow, Kind::kCalm},
                    {Kind::kStopped, Kind::kCalm},
                    {Kind::kFlooding, Kind::kCalm},
                    {Kind::kDying, Kind::kCalm},
                    {Kind::kDying, Kind::kBrief}};

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kCalm: return "calm";
    case Kind::kBrief: return "brief";
    case Kind::kSlow: return "slow";
    case Kind::kStopped: return "stopped";
    case Kind::kFlooding: return "flooding";
    case Kind::kDying: return "dying";
  }
  return "";
}

TurnAsk AskOf(uint32_t tokens) {
  TurnAsk ask;
  ask.messages.push_back({"user", "", "Tell me about the history of bridges."});
  ask.max_tokens = tokens;
  ask.ignore_eos = true;
  return ask;
}

void TellReady(int ready) {
  if (write(ready, "r", 1) != 1) _exit(1);
}

// Sleeps before each event.
bool ReadUpTo(kairos_client_t* client, int32_t last, useconds_t pause_us = 0) {
  for (int32_t type = 0; type != last;) {
    usleep(pause_us);
    kairos_event_t* event = nullptr;
    if (kairos_event_next(client, kPatienceMs, &event) != 1) return false;
    type = kairos_event_type(event);
    kairos_event_release(event);
    if (type == KAIROS_EVENT_ERROR) return false;
  }
  return true;
}

class NeighboursBench {
 public:
  explicit NeighboursBench(const NeighboursBenchOptions& options)
      : options_(options), sidecar_(options.daemon, options.model, options.work) {
    options_.tokens = std::min(options_.tokens, kTokensMax);
    if (!options_.quick) return;
    options_.clients = 10;
    options_.tokens = 4;
    options_.repetitions = 1;
  }

  int Run() {
    if (!sidecar_.Start()) return 1;
    for (const auto& [kind, peer] : kComparisons) {
      if (!options_.kind.empty() && options_.kind != NameOf(kind)) continue;
      std::vector<double> calm;
      std::vector<double> gaps;
      for (uint32_t i = 0; i < options_.repetitions; ++i) {
        // Which comes first changes, so that what one round leaves behind meets both.
        const bool calm_first = i % 2 == 0;
        if (calm_first && !Round(peer, &calm)) return 1;
        if (!Round(kind, &gaps)) return 1;
        if (!calm_first && !Round(peer, &calm)) return 1;
      }
      Report(kind, peer, calm, gaps);
    }
    return sidecar_.Terminate() == 0 ? 0 : 1;
  }

 private:
  uint32_t odd_count() const { return std::max(1u, options_.clients / 10); }

  // One round: the odd clients are at it, then all others begin a turn at the same time.
  bool Round(Kind kind, std::vector<double>* gaps_ms) {
    std::vector<std::unique_ptr<ClientProcess>> odd;
    for (uint32_t i = 0; i < odd_count(); ++i) {
      odd.push_back(std::make_unique<ClientProcess>(
          [this, kind](int ready) { return OddClient(kind, ready); }));
      if (!odd.back()->AwaitReady()) return Complain("an odd client could not attach");
    }
    int go[2];
    int results[2];
    if (pipe(go) != 0 || pipe(results) != 0) return Complain("no pipe");
    std::vector<std::unique_ptr<ClientProcess>> measured;
    for (uint32_t i = odd_count(); i < options_.clients; ++i) {
      measured.push_back(std::make_unique<ClientProcess>([&](int ready) {
        close(go[1]);
        return MeasuredClient(ready, go[0], results[1]);
      }));
      if (!measured.back()->AwaitReady()) return Complain("a client could not attach");
    }
    close(go[0]);
    close(go[1]);
    close(results[1]);
    const bool complete = ReadGaps(results[0], measured.size(), gaps_ms);
    close(results[0]);
    return complete || Complain("a measured client's turn failed");
  }

  bool ReadGaps(int from, size_t clients, std::vector<double>* gaps_ms) const {
    const size_t expected = gaps_ms->size() + clients * (options_.tokens - 1);
    double gap_ms = 0;
    while (read(from, &gap_ms, sizeof(gap_ms)) == static_cast<ssize_t>(sizeof(gap_ms))) {
      gaps_ms->push_back(gap_ms);
    }
    // A token that ends no character comes with the next one, so a few gaps may be missing.
    return gaps_ms->size() * 10 >= expected * 9;
  }

  int MeasuredClient(int ready, int go, int results) const {
    kairos_client_t* client = sidecar_.Open();
    if (client == nullptr) return 1;
    TellReady(ready);
    char byte;
    if (read(go, &byte, 1) != 0) return 1;
    PlayedTurn failed;
    if (SubmitTurn(client, AskOf(options_.tokens), &failed) == 0) return 1;
    std::vector<double> gaps_ms;
    uint64_t before_ns = 0;
    for (int32_t type = 0; type != KAIROS_EVENT_FINAL;) {
      kairos_event_t* event = nullptr;
      if (kairos_event_next(client, kPatienceMs, &event) != 1) return 1;
      const uint64_t now_ns = MonotonicNs();
      type = kairos_event_type(event);
      kairos_event_release(event);
      if (type == KAIROS_EVENT_ERROR) return 1;
      if (type != KAIROS_EVENT_TEXT) continue;
      if (before_ns != 0) gaps_ms.push_back(static_cast<double>(now_ns - before_ns) * 1e-6);
      before_ns = now_ns;
    }
    const size_t bytes = gaps_ms.size() * sizeof(double);
    return write(results, gaps_ms.data(), bytes) == static_cast<ssize_t>(bytes) ? 0 : 1;
  }

  // ---- Odd clients: each goes on until it is killed --------------------------------------------

  int OddClient(Kind kind, int ready) const {
    switch (kind) {
      case Kind::kCalm: return PlayOn(ready, 0, false);
      case Kind::kSlow: return PlayOn(ready, 100'000, false);
      case Kind::kStopped: return PlayOn(ready, 0, true);
      case Kind::kFlooding: return Flood(ready);
      case Kind::kBrief: return StartOn(ready, false);
      case Kind::kDying: return StartOn(ready, true);
    }
    return 1;
  }

  // Turn after turn; sleeps before each event, or stops for good at the first.
  int PlayOn(int ready, useconds_t pause_us, bool stops) const {
    kairos_client_t* client = sidecar_.Open();
    if (client == nullptr) return 1;
    for (bool first = true;; first = false) {
      PlayedTurn failed;
      if (SubmitTurn(client, AskOf(kTokensMax), &failed) == 0) return 1;
      if (first) TellReady(ready);
      if (stops) raise(SIGSTOP);
      if (!ReadUpTo(client, KAIROS_EVENT_FINAL, pause_us)) return 1;
    }
  }

  // Requests that are refused, as fast as they go. With the least claim to a processor: what is
  // measured is the sidecar's work for a flood, not how the kernel shares processors.
  int Flood(int ready) const {
    kairos_client_t* client = sidecar_.Open();
    if (client == nullptr || nice(19) == -1) return 1;
    TurnAsk ask = AskOf(1);
    ask.session = 1;  // nobody's
    TellReady(ready);
    for (;;) {
      PlayedTurn failed;
      const bool full = SubmitTurn(client, ask, &failed) == 0;
      kairos_event_t* event = nullptr;
      while (kairos_event_next(client, full ? 1 : 0, &event) == 1) kairos_event_release(event);
    }
  }

  // Attaches, begins a turn, and when its first token comes is killed or else cancels and detaches;
  // again after what systemd waits by default.
  int StartOn(int ready, bool dies) const {
    constexpr useconds_t kRestartUs = 100'000;
    for (bool first = true;; first = false) {
      if (!first) usleep(kRestartUs);
      ClientProcess victim([this, dies](int at_end) {
        kairos_client_t* client = sidecar_.Open();
        PlayedTurn failed;
        uint64_t turn = 0;
        if (client != nullptr) turn = SubmitTurn(client, AskOf(kTokensMax), &failed);
        if (turn == 0 || !ReadUpTo(client, KAIROS_EVENT_TEXT)) return 1;
        if (!dies) {
          kairos_turn_cancel(client, turn);
          if (!ReadUpTo(client, KAIROS_EVENT_FINAL)) return 1;
          kairos_client_close(client);
        }
        TellReady(at_end);
        for (;;) pause();
      });
      if (!victim.AwaitReady()) return 1;
      if (first) TellReady(ready);
    }
  }

  void Report(Kind kind, Kind peer, const std::vector<double>& calm,
              const std::vector<double>& gaps) const {
    for (const double share : {0.5, 0.99}) {
      const double value = Quantile(gaps, share);
      const double without = Quantile(calm, share);
      if (!options_.json) {
        std::printf("%-8s  p%-2.0f  %7.2f ms from token to token, %7.2f ms beside %s, %.3fx\n",
                    NameOf(kind), share * 100, value, without, NameOf(peer), value / without);
        continue;
      }
      JsonLine("neighbours.inter_token_ms", value, "ms")
          .Param("kind", std::string(NameOf(kind)))
          .Param("quantile", share)
          .Param("clients", options_.clients)
          .Param("odd", odd_count())
          .Param("tokens", options_.tokens)
          .Param("repetitions", options_.repetitions)
          .Peer(NameOf(peer), without, without / value)
          .Print();
    }
  }

  bool Complain(const char* what) const {
    std::fprintf(stderr, "kairos-bench neighbours: %s: %s\n", what, LastError().c_str());
    return false;
  }

  NeighboursBenchOptions options_;
  SidecarProcess sidecar_;
};

}  // namespace

int RunNeighboursBench(const NeighboursBenchOptions& options) {
  return NeighboursBench(options).Run();
}

}  // namespace kairos
