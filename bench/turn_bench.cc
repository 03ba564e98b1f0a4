// SPDX-License-Identifier: Apache-2.0
// kairos-bench turns: a conversation played in a session, beside what a stateless server pays for
// each turn, then kill -9, a restart and the next turn. Everything goes through libkairos to a
// kairosd that the bench starts.
#include "bench/turn_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/printable_text.h"
#include "bench/conversation.h"
#include "bench/json_line.h"
#include "bench/played_turn.h"
#include "bench/sidecar_process.h"

namespace kairos {
namespace {

struct Row {
  PlayedTurn session;
  PlayedTurn stateless;
  double peer_cached_ms = 0.0;  // 0: no peer
  double peer_uncached_ms = 0.0;
  double peer_prompt_tokens = 0.0;
};

class TurnBench {
 public:
  TurnBench(const TurnBenchOptions& options, Conversation conversation)
      : options_(options),
        conversation_(std::move(conversation)),
        sidecar_(options.daemon, options.model, options.work) {
    if (!options_.quick) return;
    options_.sustained_sessions = 0;
    options_.max_tokens = 8;
    if (conversation_.turns.size() > 2) conversation_.turns.resize(2);
  }

  int Run() {
    if (!sidecar_.Start()) return 1;
    if (!options_.peer.name.empty() &&
        !peer_.Start(options_.peer, ModelFile(options_.model), 2, context_tokens_)) {
      return 1;
    }
    client_ = sidecar_.Open();
    if (client_ == nullptr || !CreateSession()) return Complain("session");
    if (!options_.json) PrintHead();
    until_ns_ = MonotonicNs() + static_cast<uint64_t>(options_.limit_min * 60e9);
    for (size_t i = 0; i < conversation_.turns.size(); ++i) {
      if (!PlayBoth(i)) {
        if (!gave_up_) return 1;
        std::fprintf(stderr, "going on with kill -9 and the restart, after %zu of %zu turns\n",
                     rows_.size(), conversation_.turns.size());
        break;
      }
      if (rows_.back().session.final.prompt_tokens + options_.max_tokens + 700 > context_tokens_) {
        std::fprintf(stderr, "the model's context is nearly full after turn %zu; stopping there\n",
                     i + 1);
        break;
      }
    }
    const bool equal = Resume();
    Report(equal);
    if (options_.sustained_sessions > 0 && !Sustained()) return 1;
    kairos_client_close(client_);
    sidecar_.Terminate();
    const bool replayed = std::all_of(rows_.begin(), rows_.end(), [](const Row& row) {
      return row.session.tokens == row.stateless.tokens;
    });
    return equal && replayed && !gave_up_ ? 0 : 1;
  }

 private:
  bool CreateSession() {
    kairos_session_options_t options;
    kairos_session_options_init(&options);
    return kairos_session_create(client_, &options, &session_, CallMs()) == KAIROS_OK;
  }

  int Complain(const char* what) {
    std::fprintf(stderr, "kairos-bench turns: %s: %s\n", what, LastError().c_str());
    return 1;
  }

  TurnAsk AskFor(size_t index, uint64_t session) const {
    TurnAsk ask;
    ask.session = session;
    if (index == 0) {
      if (!conversation_.system.empty()) {
        ask.messages.push_back({"system", "", conversation_.system});
      }
      ask.tools_json = conversation_.tools_json;
    }
    ask.messages.push_back(conversation_.turns[index]);
    ask.max_tokens = options_.max_tokens;
    ask.logits_hash = true;
    Patience(&ask);
    return ask;
  }

  void Patience(TurnAsk* ask) const {
    ask->silence_ns = static_cast<uint64_t>(options_.silence_s * 1e9);
    ask->until_ns = until_ns_;
  }

  // Of a call beside the turns.
  int32_t CallMs() const {
    return std::max(10'000, static_cast<int32_t>(options_.silence_s * 1000));
  }

  static PlayedTurn Unanswered() {
    PlayedTurn turn;
    turn.error = LastError();
    turn.unanswered = true;
    return turn;
  }

  // Says why a turn is not there; the rest of the demo follows all the same.
  bool GiveUp(size_t index, const char* how, const PlayedTurn& turn) {
    std::fprintf(stderr, "turn %zu, %s: %s\n", index + 1, how, turn.error.c_str());
    gave_up_ = true;
    unanswered_ = turn.unanswered;
    return false;
  }

  // The turn on a copy of the session with reuse off, then on the session itself.
  bool PlayBoth(size_t index) {
    uint64_t copy = 0;
    if (kairos_session_fork(client_, session_, 0, &copy, CallMs()) < 0) {
      return GiveUp(index, "fork", Unanswered());
    }
    Row row;
    TurnAsk stateless = AskFor(index, copy);
    stateless.flags = KAIROS_TURN_NO_REUSE;
    stateless.waiting = [&](double seconds) { ShowProgress(index, "stateless", seconds); };
    row.stateless = PlayTurn(client_, stateless);
    EndProgress();
    if (!row.stateless.ok) return GiveUp(index, "stateless", row.stateless);
    if (kairos_session_delete(client_, copy, CallMs()) < 0) {
      return GiveUp(index, "delete", Unanswered());
    }
    TurnAsk in_session = AskFor(index, session_);
    in_session.waiting = [&](double seconds) { ShowProgress(index, "in the session", seconds); };
    row.session = PlayTurn(client_, in_session);
    EndProgress();
    if (!row.session.ok) return GiveUp(index, "in the session", row.session);
    if (peer_.running() && !PlayPeer(index, &row)) return false;
    rows_.push_back(std::move(row));
    options_.json ? PrintRowJson(index) : PrintRow(index);
    return true;
  }

  // One line that is redrawn on a terminal; a line every ten seconds of a turn elsewhere.
  void ShowProgress(size_t index, const char* how, double seconds) {
    const bool terminal = isatty(STDERR_FILENO) == 1;
    if (seconds < told_s_) told_s_ = 0;  // another turn
    if (!terminal && seconds - told_s_ < 10) return;
    told_s_ = seconds;
    const int whole = static_cast<int>(seconds);
    const std::string time = whole < 60 ? fmt::format("{:.1f} s", seconds)
                                        : fmt::format("computing for {} min {} s", whole / 60,
                                                      whole % 60);
    std::fprintf(stderr, "%sturn %zu of %zu, %s: %s%s", terminal ? "\r\x1b[K" : "", index + 1,
                 conversation_.turns.size(), how, time.c_str(), terminal ? "" : "\n");
  }

  static void EndProgress() {
    if (isatty(STDERR_FILENO) == 1) std::fputs("\r\x1b[K", stderr);
  }

  // The peer gets the conversation so far as text, and our answer as what it said, so that both
  // engines see the same dialogue. Rendering is not in its times; tokenizing and prefill are.
  bool PlayPeer(size_t index, Row* row) {
    if (index == 0) {
      history_ = nlohmann::json::array();
      if (!conversation_.system.empty()) {
        // The model's template has no place for tools; the text that we render for it is longer
        // than this by some tens of tokens.
        std::string system = conversation_.system;
        if (!conversation_.tools_json.empty()) system += "\n\n" + conversation_.tools_json;
        history_.push_back({{"role", "system"}, {"content", system}});
      }
    }
    const ScriptedMessage& said = conversation_.turns[index];
    history_.push_back({{"role", said.role}, {"content", said.content}});
    const auto replaced = nlohmann::json::error_handler_t::replace;
    // Text of sampled tokens need not be whole characters.
    const std::string answer = nlohmann::json(row->session.text).dump(-1, ' ', false, replaced);
    const nlohmann::json text = nlohmann::json::parse(answer, nullptr, false);
    const nlohmann::json timed = peer_.Ask(
        {{"do", "turn"}, {"messages", history_}, {"tools", nullptr}, {"answer", text}});
    if (!timed.is_object() || !timed.contains("cached_ms")) {
      std::fprintf(stderr, "kairos-bench turns: the peer failed at turn %zu\n", index + 1);
      return false;
    }
    row->peer_cached_ms = timed["cached_ms"].get<double>();
    row->peer_uncached_ms = timed["uncached_ms"].get<double>();
    row->peer_prompt_tokens = timed["prompt_tokens"].get<double>();
    history_.push_back({{"role", "assistant"}, {"content", text}});
    return true;
  }

  void PrintHead() const {
    std::printf(
        "Each turn is played twice: in a session, and as a server without memory computes it, all\n"
        "of the dialogue anew (stateless). TTFT is the time to first token: from sending the turn\n"
        "until the first token of its answer is there.\n\n");
    std::printf("%4s  %-4s  %6s  %6s  %12s  %14s  %8s  %s\n", "turn", "from", "new", "reused",
                "session TTFT", "stateless TTFT", "speed-up", "answer");
    std::printf("%4s  %-4s  %6s  %6s  %12s  %14s  %8s  %s\n", "", "", "tokens", "tokens", "ms",
                "ms", "", "(equal tokens either way)");
    std::fflush(stdout);
  }

  void PrintRow(size_t index) const {
    const Row& row = rows_.back();
    std::string answer = row.session.text.substr(0, 46);
    // The cut may be inside a character.
    while (!answer.empty() && (answer.back() & 0x80)) answer.pop_back();
    answer = Printable(answer);
    const kairos_final_t& final = row.session.final;
    std::printf("%4zu  %-4s  %6llu  %6llu  %12.1f  %14.1f  %7.1fx  %s %s\n", index + 1,
                conversation_.turns[index].role.c_str(),
                static_cast<unsigned long long>(final.new_tokens + final.recomputed_tokens),
                static_cast<unsigned long long>(final.reused_tokens), row.session.ttft_ms,
                row.stateless.ttft_ms, row.stateless.ttft_ms / row.session.ttft_ms,
                row.session.tokens == row.stateless.tokens ? "=" : "DIFFERENT", answer.c_str());
    if (row.peer_uncached_ms > 0) {
      std::printf("      llama.cpp, %5.0f tokens: %.1f ms with its prompt cache, %.1f ms without\n",
                  row.peer_prompt_tokens, row.peer_cached_ms, row.peer_uncached_ms);
    }
    std::fflush(stdout);
  }

  void PrintRowJson(size_t index) const {
    const Row& row = rows_[index];
    const auto turn = static_cast<double>(index + 1);
    JsonLine session("turns.ttft_ms", row.session.ttft_ms, "ms");
    session.Param("turn", turn).Param("mode", std::string("session"));
    session.Param("reused_tokens", static_cast<double>(row.session.final.reused_tokens));
    session.Param("new_tokens", static_cast<double>(row.session.final.new_tokens));
    session.Peer("stateless", row.stateless.ttft_ms, row.stateless.ttft_ms / row.session.ttft_ms);
    session.Print();
    if (row.peer_uncached_ms > 0) PrintPeer(index);
    JsonLine stateless("turns.ttft_ms", row.stateless.ttft_ms, "ms");
    stateless.Param("turn", turn).Param("mode", std::string("stateless"));
    stateless.Param("equal_tokens", row.session.tokens == row.stateless.tokens ? 1 : 0).Print();
  }

  // What an unbroken session says next, on a fork; then kill -9, restart, and what the session
  // says.
  bool Resume() {
    TurnAsk ask;
    ask.messages.push_back(
        {"user", "", "Please repeat the most important points of what we settled, briefly."});
    ask.max_tokens = options_.max_tokens;
    ask.logits_hash = true;
    until_ns_ = 0;
    Patience(&ask);
    uint64_t copy = 0;
    if (unanswered_) {
      unbroken_.error = "the sidecar did not answer";
    } else if (kairos_session_fork(client_, session_, 0, &copy, CallMs()) < 0) {
      unbroken_.error = LastError();
    } else {
      ask.session = copy;
      unbroken_ = PlayTurn(client_, ask);
    }
    if (!unbroken_.ok) {
      std::fprintf(stderr, "no unbroken turn to compare with: %s\n", unbroken_.error.c_str());
    }
    kairos_client_close(client_);
    client_ = nullptr;
    sidecar_.Kill();
    if (!options_.json) std::printf("\nkill -9 of kairosd, restart ...\n");
    const uint64_t begin_ns = MonotonicNs();
    if (!sidecar_.Start()) return false;
    restart_ms_ = static_cast<double>(MonotonicNs() - begin_ns) * 1e-6;
    client_ = sidecar_.Open();
    if (client_ == nullptr) return Complain("attach after the restart") == 0;
    ask.session = session_;
    resumed_ = PlayTurn(client_, ask);
    const bool equal = unbroken_.ok && resumed_.ok && unbroken_.tokens == resumed_.tokens &&
                       unbroken_.final.logits_hash == resumed_.final.logits_hash;
    if (!resumed_.ok) std::fprintf(stderr, "after the restart: %s\n", resumed_.error.c_str());
    return equal;
  }

  void Report(bool equal) const {
    double turn_ns = 0;
    double model_ns = 0;
    for (const Row& row : rows_) {
      turn_ns += static_cast<double>(row.session.final.total_ns);
      model_ns += static_cast<double>(row.session.final.model_ns);
    }
    const double overhead = turn_ns == 0 ? 0 : (turn_ns - model_ns) / turn_ns;
    if (!options_.json) {
      std::printf("ready again after %.0f ms (model load included); the next turn computed %llu "
                  "tokens again, %llu of them for the restart: %.1f ms to its first token\n",
                  restart_ms_,
                  static_cast<unsigned long long>(resumed_.final.recomputed_tokens),
                  static_cast<unsigned long long>(
                      resumed_.final.recomputed_by[KAIROS_REASON_RESTART]),
                  static_cast<double>(resumed_.final.ttft_ns) * 1e-6);
      if (unbroken_.ok) {
        std::printf(
            "the session goes on with %s tokens as the unbroken one (%zu of them, logits %s)\n",
            equal ? "the same" : "DIFFERENT", resumed_.tokens.size(),
            equal ? "equal bit for bit" : "differ");
      } else if (resumed_.ok) {
        std::printf("the session goes on (%zu tokens)\n", resumed_.tokens.size());
      }
      if (rows_.empty()) return;
      const Row& last = rows_.back();
      std::printf("turn %zu: %.1f ms instead of %.1f ms to the first token, %.1fx; everything but "
                  "the model's steps: %.2f %% of a turn\n",
                  rows_.size(), last.session.ttft_ms, last.stateless.ttft_ms,
                  last.stateless.ttft_ms / last.session.ttft_ms, 100 * overhead);
      return;
    }
    JsonLine("turns.overhead_share", overhead, "share")
        .Param("turns", static_cast<double>(rows_.size()))
        .Print();
    JsonLine("turns.resume_equal", equal ? 1 : 0, "bool")
        .Param("tokens", static_cast<double>(resumed_.tokens.size()))
        .Param("recomputed_tokens", static_cast<double>(resumed_.final.recomputed_tokens))
        .Param("restart_ms", restart_ms_)
        .Print();
  }

  void PrintPeer(size_t index) const {
    const Row& row = rows_[index];
    const auto print = [&](const char* peer, double peer_ms) {
      JsonLine line("turns.ttft_ms", row.session.ttft_ms, "ms");
      line.Param("turn", static_cast<double>(index + 1)).Param("mode", std::string("session"));
      line.Param("peer_prompt_tokens", row.peer_prompt_tokens);
      line.Peer(peer, peer_ms, peer_ms / row.session.ttft_ms).Print();
    };
    print("llama-cpp-cached", row.peer_cached_ms);
    print("llama-cpp-uncached", row.peer_uncached_ms);
  }

  // Many sessions at once, short turns: finished turns per second.
  bool Sustained() {
    const uint32_t sessions = options_.sustained_sessions;
    std::vector<uint64_t> ids(sessions, 0);
    std::vector<uint32_t> left(sessions, options_.sustained_turns);
    std::vector<uint64_t> request_of(sessions, 0);
    const auto submit = [&](uint32_t i) {
      TurnAsk ask;
      ask.session = ids[i];
      const size_t turn = (options_.sustained_turns - left[i]) % conversation_.turns.size();
      ask.messages.push_back({"user", "", conversation_.turns[turn].content.substr(0, 240)});
      ask.max_tokens = 16;
      PlayedTurn failed;
      request_of[i] = SubmitTurn(client_, ask, &failed);
      return request_of[i] != 0;
    };
    for (uint32_t i = 0; i < sessions; ++i) {
      if (kairos_session_create(client_, nullptr, &ids[i], CallMs()) < 0) {
        return Complain("session") == 0;
      }
    }
    const uint64_t begin_ns = MonotonicNs();
    for (uint32_t i = 0; i < sessions; ++i) {
      if (!submit(i)) return Complain("submit") == 0;
    }
    uint32_t done = 0;
    const uint32_t wanted = sessions * options_.sustained_turns;
    while (done < wanted) {
      kairos_event_t* event = nullptr;
      if (kairos_event_next(client_, 120'000, &event) <= 0) return Complain("event") == 0;
      const int32_t type = kairos_event_type(event);
      const uint64_t request = kairos_event_request(event);
      kairos_event_release(event);
      if (type == KAIROS_EVENT_ERROR) return Complain("turn refused") == 0;
      if (type != KAIROS_EVENT_FINAL) continue;
      ++done;
      const auto at = static_cast<uint32_t>(
          std::find(request_of.begin(), request_of.end(), request) - request_of.begin());
      if (at < sessions && --left[at] > 0 && !submit(at)) return Complain("submit") == 0;
    }
    const double seconds = static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
    if (options_.json) {
      JsonLine("turns.sustained_per_second", done / seconds, "1/s")
          .Param("sessions", sessions)
          .Param("tokens_per_turn", 16)
          .Print();
    } else {
      std::printf("%u sessions at once, 16 tokens a reply: %.2f turns per second in all\n",
                  sessions, done / seconds);
    }
    return true;
  }

  static constexpr uint64_t context_tokens_ = 8192;
  TurnBenchOptions options_;
  Conversation conversation_;
  SidecarProcess sidecar_;
  kairos_client_t* client_ = nullptr;
  uint64_t session_ = 0;
  std::vector<Row> rows_;
  PlayedTurn unbroken_;
  PlayedTurn resumed_;
  double restart_ms_ = 0;
  double told_s_ = 0;  // ShowProgress()
  uint64_t until_ns_ = 0;    // monotonic; the turns are played until then
  bool gave_up_ = false;     // a turn is missing
  bool unanswered_ = false;  // because the sidecar answers nothing
  PeerProcess peer_;
  nlohmann::json history_;  // what the peer was told
};

}  // namespace

int RunTurnBench(const TurnBenchOptions& options) {
  Conversation conversation;
  std::string error;
  if (!LoadConversation(options.conversation, &conversation, &error)) {
    std::fprintf(stderr, "kairos-bench turns: --conversation: %s\n", error.c_str());
    return 2;
  }
  return TurnBench(options, std::move(conversation)).Run();
}

}  // namespace kairos
