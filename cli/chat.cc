// SPDX-License-Identifier: Apache-2.0
#include "cli/chat.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/json_text.h"
#include "kairos/kairos.h"

namespace kairos {

namespace {

constexpr int kExitUnavailable = 69;
constexpr int kCallMs = 10'000;

// Set by ^C; a turn in flight is cancelled, at the prompt it ends the program.
volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

kairos_string_t View(const std::string& text) {
  return {text.empty() ? nullptr : text.data(), text.size()};
}

void Complain(const char* what, int32_t code) {
  char words[512];
  kairos_last_error(words, sizeof(words));
  std::fprintf(stderr, "kairosctl: %s: %s%s%s\n", what, kairos_strerror(code),
               words[0] == '\0' ? "" : ": ", Printable(words).c_str());
}

class Chat {
 public:
  explicit Chat(const ChatOptions& options) : options_(options) {}
  ~Chat() { kairos_client_close(client_); }
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  int Run();

 private:
  int Open();
  bool ReadLine(std::string* line);
  bool Command(const std::string& line);  // false: quit
  void Turn(const std::string& text);
  bool OnEvent(kairos_event_t* event);    // true: the turn is over
  void PrintFinal(const kairos_final_t& done);
  void PrintContext();

  const ChatOptions& options_;
  kairos_client_t* client_ = nullptr;
  uint64_t session_ = 0;
  uint64_t request_ = 0;
  bool lost_ = false;
  bool first_ = true;
  std::string pending_;  // read from the terminal, not yet a line
  std::string text_;     // of the reply so far
};

int Chat::Open() {
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path = View(options_.socket);
  if (const int32_t code = kairos_client_open(&options, &client_); code < 0) {
    Complain("no sidecar", code);
    return kExitUnavailable;
  }
  if (options_.session.empty()) return 0;
  const std::string& id = options_.session;
  const auto parsed = std::from_chars(id.data(), id.data() + id.size(), session_, 16);
  if (parsed.ec != std::errc() || parsed.ptr != id.data() + id.size() || session_ == 0) {
    std::fprintf(stderr, "kairosctl: session: not an id of up to 16 hex digits\n");
    return 2;
  }
  first_ = false;
  if (const int32_t code = kairos_session_open(client_, session_, nullptr, kCallMs); code < 0) {
    Complain("session", code);
    return 1;
  }
  return 0;
}

bool Chat::ReadLine(std::string* line) {
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      *line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return true;
    }
    char buffer[4096];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR && interrupted == 0) continue;
    if (size <= 0) {
      *line = std::move(pending_);
      pending_.clear();
      return size == 0 && !line->empty();
    }
    pending_.append(buffer, static_cast<size_t>(size));
  }
}

void Chat::PrintFinal(const kairos_final_t& done) {
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  const double ttft_ms = static_cast<double>(done.ttft_ns) * 1e-6;
  if (options_.json) {
    std::printf("{\"session\":\"%016llx\",\"version\":%llu,\"new_tokens\":%llu,"
                "\"reused_tokens\":%llu,\"generated_tokens\":%llu,\"ttft_ms\":%.3f,\"text\":%s}\n",
                number(done.session_id), number(done.version), number(done.new_tokens),
                number(done.reused_tokens), number(done.generated_tokens), ttft_ms,
                JsonString(text_).c_str());
  } else {
    std::printf("\n[%016llx v%llu: %llu new, %llu reused, %llu generated, first token %.1f ms]\n",
                number(done.session_id), number(done.version), number(done.new_tokens),
                number(done.reused_tokens), number(done.generated_tokens), ttft_ms);
  }
  std::fflush(stdout);
}

bool Chat::OnEvent(kairos_event_t* event) {
  if (kairos_event_request(event) != request_) return false;
  const kairos_string_t text = kairos_event_text(event);
  const std::string words(text.data == nullptr ? "" : text.data, text.size);
  switch (kairos_event_type(event)) {
    case KAIROS_EVENT_ACCEPTED:
      session_ = kairos_event_session(event);
      return false;
    case KAIROS_EVENT_TEXT:
      text_ += words;
      if (!options_.json) std::fputs(Printable(words).c_str(), stdout);
      std::fflush(stdout);
      return false;
    case KAIROS_EVENT_TOOL_CALL:
      std::fprintf(stderr, "\n[tool call %s]\n", Printable(words).c_str());
      return false;
    case KAIROS_EVENT_FINAL: {
      kairos_final_t done{};
      done.struct_size = sizeof(done);
      if (kairos_event_final(event, &done) >= 0) PrintFinal(done);
      first_ = false;
      return true;
    }
    case KAIROS_EVENT_ERROR:
      std::fprintf(stderr, "kairosctl: %s: %s\n", kairos_strerror(kairos_event_code(event)),
                   Printable(words).c_str());
      return true;
    default:
      return false;
  }
}

void Chat::Turn(const std::string& text) {
  kairos_message_t messages[2];
  uint32_t count = 0;
  const std::string roles[2] = {"system", "user"};
  if (first_ && !options_.system.empty()) {
    kairos_message_init(&messages[count]);
    messages[count].role = View(roles[0]);
    messages[count++].content = View(options_.system);
  }
  kairos_message_init(&messages[count]);
  messages[count].role = View(roles[1]);
  messages[count++].content = View(text);
  kairos_generation_t generation;
  kairos_generation_init(&generation);
  generation.max_tokens = options_.max_tokens;
  kairos_turn_options_t turn;
  kairos_turn_options_init(&turn);
  turn.session_id = session_;
  turn.messages = messages;
  turn.message_count = count;
  turn.generation = &generation;
  text_.clear();
  interrupted = 0;
  if (const int32_t code = kairos_turn_submit(client_, &turn, &request_); code < 0) {
    lost_ = kairos_last_detail() == KAIROS_DETAIL_SIDECAR_LOST;
    return Complain("turn", code);
  }
  bool cancelled = false;
  for (bool over = false; !over;) {
    kairos_event_t* event = nullptr;
    const int32_t got = kairos_event_next(client_, 200, &event);
    if (interrupted != 0 && !cancelled) {
      cancelled = true;
      kairos_turn_cancel(client_, request_);
    }
    if (got < 0) {
      lost_ = true;
      return Complain("turn", got);
    }
    if (got == 0) continue;
    over = OnEvent(event);
    kairos_event_release(event);
  }
  interrupted = 0;
}

void Chat::PrintContext() {
  kairos_event_t* event = nullptr;
  if (const int32_t code = kairos_context_read(client_, session_, 0, &event, kCallMs); code < 0) {
    return Complain("state", code);
  }
  const kairos_string_t text = kairos_event_text(event);
  std::printf("%s\n", Printable({text.data == nullptr ? "" : text.data, text.size}).c_str());
  kairos_event_release(event);
}

bool Chat::Command(const std::string& line) {
  if (line == "/quit") return false;
  if (line == "/help") {
    std::printf("/fork       go on in a copy of this session\n"
                "/rewind N   make version N the head\n"
                "/state      the task context\n"
                "/quit       end; the session stays\n"
                "^C          cancel the reply\n");
    return true;
  }
  const bool rewind = line.rfind("/rewind ", 0) == 0;
  if (line != "/fork" && line != "/state" && !rewind) {
    std::fprintf(stderr, "kairosctl: unknown command, see /help\n");
    return true;
  }
  if (session_ == 0) {
    std::fprintf(stderr, "kairosctl: there is no session before the first turn\n");
    return true;
  }
  if (line == "/state") return PrintContext(), true;
  int32_t code = 0;
  if (rewind) {
    uint64_t version = 0;
    const char* end = line.data() + line.size();
    const auto parsed = std::from_chars(line.data() + 8, end, version);
    if (parsed.ec != std::errc() || parsed.ptr != end || version == 0) {
      std::fprintf(stderr, "kairosctl: /rewind needs a version number\n");
      return true;
    }
    code = kairos_session_rewind(client_, session_, version, kCallMs);
  } else {
    uint64_t copy = 0;
    code = kairos_session_fork(client_, session_, 0, &copy, kCallMs);
    if (code >= 0) session_ = copy;
  }
  if (code < 0) {
    Complain(line.c_str(), code);
  } else {
    std::printf("[%016llx]\n", static_cast<unsigned long long>(session_));
  }
  return true;
}

int Chat::Run() {
  if (const int code = Open(); code != 0) return code;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a read at the prompt ends
  sigaction(SIGINT, &action, nullptr);
  const bool prompt = isatty(STDIN_FILENO) != 0 && !options_.json;
  for (std::string line; !lost_;) {
    if (prompt) std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!ReadLine(&line)) break;
    if (line.empty()) continue;
    if (line[0] != '/') {
      Turn(line);
    } else if (!Command(line)) {
      break;
    }
  }
  return lost_ ? kExitUnavailable : 0;
}

}  // namespace

int RunChat(const ChatOptions& options) { return Chat(options).Run(); }

}  // namespace kairos
