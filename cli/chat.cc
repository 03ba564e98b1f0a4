// SPDX-License-Identifier: Apache-2.0
#include "cli/chat.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/printable_text.h"
#include "cli/control_call.h"
#include "cli/listing.h"
#include "cli/turn_listing.h"
#include "cli/words.h"
#include "kairos/kairos.h"
#include "shm/socket_path.h"
#include "usage/program.h"

namespace kairos {

namespace {

constexpr int kCallMs = 10'000;

// Counts ^C: the first cancels a turn in flight, a second does not wait for its end; at the prompt
// one ends the program.
volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = interrupted + 1; }

kairos_string_t View(const std::string& text) {
  return {text.empty() ? nullptr : text.data(), text.size()};
}

std::string FinalText(const kairos_final_t& done) {
  std::string text = "[" + SessionText(done.session_id) + " v" + std::to_string(done.version) +
                     ": " + std::to_string(done.new_tokens) + " new, " +
                     std::to_string(done.reused_tokens) + " reused";
  if (done.shared_tokens > 0) text += " (" + std::to_string(done.shared_tokens) + " shared)";
  if (done.recomputed_tokens > 0) {
    text +=
        ", " + std::to_string(done.recomputed_tokens) + " recomputed (" + ReasonsText(done) + ")";
  }
  char times[96];
  std::snprintf(times, sizeof(times), ", first token %.1f ms, total %.1f ms",
                static_cast<double>(done.ttft_ns) * 1e-6,
                static_cast<double>(done.total_ns) * 1e-6);
  text += ", " + std::to_string(done.generated_tokens) + " generated" + times;
  if (done.finish != KAIROS_FINISH_STOP) text += std::string(", ") + FinishText(done.finish);
  return text + "]";
}

std::string ReplyJson(const kairos_final_t& done, const std::string& text) {
  nlohmann::ordered_json json = {{"session", SessionText(done.session_id)}};
  json.update(FinalJson(done));
  json["text"] = text;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string PlaceJson(const char* what, const kairos_session_t& place, const std::string& label,
                      uint64_t source) {
  const nlohmann::ordered_json json = {
      {"command", what},
      {"session", SessionText(place.id)},
      {"version", place.version},
      {"label", label},
      {"source", SessionText(source)},
  };
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
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
  void NoteTemplate();
  bool ReadLine(std::string* line);
  void WaitFor(int fd, int timeout_ms);
  void Fail(const char* what, int32_t code);
  void Complain(const char* what, Fault fault);
  bool Command(const std::string& line);  // false: quit
  void Turn(const std::string& text);
  bool OnEvent(kairos_event_t* event);  // true: the turn is over
  void Announce();
  void ForgetRefused();
  void PrintFinal(const kairos_final_t& done);
  void PrintContext();
  void PrintPlace(const char* what, uint64_t source);
  void Misuse(const char* words);
  void Rewind(std::string_view number);
  void Fork();

  const ChatOptions& options_;
  kairos_client_t* client_ = nullptr;
  uint64_t session_ = 0;
  uint64_t request_ = 0;
  bool terminal_ = false;
  bool lost_ = false;
  bool failed_ = false;
  bool left_ = false;  // by ^C twice in a turn
  bool first_ = true;       // no turn of this chat has made or continued a session
  bool announced_ = false;  // the new session was named
  std::string advice_;   // of the next failure, where code and detail do not tell
  std::string pending_;  // read from the terminal, not yet a line
  std::string text_;     // of the reply so far
};

int Chat::Open() {
  if (!options_.session.empty() && !ParseSessionText(options_.session, &session_)) {
    std::fprintf(stderr, "kairosctl: session: not an id of up to 16 hex digits\n");
    return kExitUsage;
  }
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path = View(options_.socket);
  if (const int32_t code = kairos_client_open(&options, &client_); code < 0) {
    const Result<std::string> socket = options_.socket.empty() ? DefaultSocketPath()
                                                               : Result(options_.socket);
    advice_ = socket.ok() ? AdviceForDenied(*socket) : "";
    const bool silent = code == -KAIROS_DEADLINE_EXCEEDED;
    Fail(!advice_.empty() ? "no access" : silent ? "the sidecar does not answer" : "no sidecar",
         code);
    return kExitUnavailable;
  }
  if (options_.session.empty()) return 0;
  first_ = false;
  if (const int32_t code = kairos_session_open(client_, session_, nullptr, kCallMs); code < 0) {
    Fail("session", code);
    return 1;
  }
  return 0;
}

// Says once that the chat's model has no chat template. The clients' socket does not tell; where
// the operators' one is not for this user, nothing is said.
void Chat::NoteTemplate() {
  std::string name = options_.model;
  kairos_session_t session{};
  session.struct_size = sizeof(session);
  if (name.empty() && session_ != 0) {
    if (kairos_session_stat(client_, session_, &session, kCallMs) < 0) return;
    name.assign(session.model, strnlen(session.model, sizeof(session.model)));
    if (name.empty()) return;  // not in memory: the first turn tells
  }
  std::string ignored;
  auto control = ControlClient::Open(ControlPath(options_.control_socket, options_.socket),
                                     &ignored);
  if (!control.ok()) return;
  ControlRequest request;
  request.verb = ControlVerb::kModelShow;
  ControlReply reply;
  Fault fault;
  if (Ask(**control, request, &reply, &fault) != 0) return;
  const std::string note = TemplateNote(reply.text, name);
  if (!note.empty()) std::fprintf(stderr, "kairosctl: %s\n", Printable(note).c_str());
}

// The words of the library's last error on this thread.
void Chat::Fail(const char* what, int32_t code) {
  char words[512];
  kairos_last_error(words, sizeof(words));
  Complain(what, {code, kairos_last_detail(), words, advice_});
}

void Chat::Complain(const char* what, Fault fault) {
  failed_ = true;
  lost_ = lost_ || fault.detail == KAIROS_DETAIL_SIDECAR_LOST;
  if (lost_ && session_ != 0) {
    // A session is made with its first version.
    const char* words = first_ ? "its first turn may be lost; if it was committed, "
                               : "committed versions are kept; when it runs again, ";
    fault.advice = words + ("go on with --session " + SessionText(session_));
  }
  std::fprintf(stderr, "kairosctl: %s: %s\n", what, FaultText(fault).c_str());
  if (options_.json) std::printf("%s\n", FaultJson(fault).c_str());
}

// Until `fd` is readable, the time is over or ^C came, also one that came just before. SIGINT is
// blocked everywhere else, so that none is missed between the look and the sleep.
void Chat::WaitFor(int fd, int timeout_ms) {
  sigset_t open;
  sigprocmask(SIG_SETMASK, nullptr, &open);
  sigdelset(&open, SIGINT);
  pollfd item{fd, POLLIN, 0};
  timespec limit{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  ppoll(&item, 1, timeout_ms < 0 ? nullptr : &limit, &open);
}

bool Chat::ReadLine(std::string* line) {
  interrupted = 0;  // one that came too late for the last reply
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      *line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return true;
    }
    WaitFor(STDIN_FILENO, -1);
    if (interrupted != 0) return false;
    char buffer[4096];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      *line = std::move(pending_);
      pending_.clear();
      return size == 0 && !line->empty();
    }
    pending_.append(buffer, static_cast<size_t>(size));
  }
}

void Chat::PrintFinal(const kairos_final_t& done) {
  if (options_.json) {
    std::printf("%s\n", ReplyJson(done, text_).c_str());
  } else {
    std::printf("\n%s\n", FinalText(done).c_str());
  }
  std::fflush(stdout);
}

// Names a new session as soon as its reply begins, since the rest may never come. A turn that is
// refused before leaves no session to name.
void Chat::Announce() {
  if (!first_ || announced_ || options_.json) return;
  announced_ = true;
  std::fprintf(stderr, "[session %s]\n", SessionText(session_).c_str());
}

// A session is made with its first version: where the first turn failed there is none.
void Chat::ForgetRefused() {
  if (announced_) {
    std::fprintf(stderr, "[session %s was not kept]\n", SessionText(session_).c_str());
  }
  announced_ = false;
  session_ = 0;
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
      Announce();
      text_ += words;
      if (!options_.json) std::fputs(PrintableLines(words, "").c_str(), stdout);
      std::fflush(stdout);
      return false;
    case KAIROS_EVENT_REASONING:
      Announce();
      std::fputs(PrintableLines(words, "").c_str(), stderr);
      return false;
    case KAIROS_EVENT_TOOL_CALL:
      Announce();
      std::fprintf(stderr, "\n[tool call %s]\n", Printable(words).c_str());
      return false;
    case KAIROS_EVENT_FINAL: {
      Announce();
      kairos_final_t done{};
      done.struct_size = sizeof(done);
      if (kairos_event_final(event, &done) >= 0) PrintFinal(done);
      if (!words.empty()) std::fprintf(stderr, "kairosctl: turn: %s\n", Printable(words).c_str());
      first_ = false;
      return true;
    }
    case KAIROS_EVENT_ERROR:
      if (!text_.empty()) std::fputs("\n", stderr);
      Complain("turn", {kairos_event_code(event), kairos_event_detail(event), words});
      if (first_ && !lost_) ForgetRefused();
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
  // What the user did not name is left to the sidecar's settings.
  generation.flags = KAIROS_DEFAULT_TOP_P | KAIROS_DEFAULT_TOP_K;
  if (options_.temperature) {
    generation.temperature = *options_.temperature;
  } else {
    generation.flags |= KAIROS_DEFAULT_TEMPERATURE;
  }
  kairos_turn_options_t turn;
  kairos_turn_options_init(&turn);
  turn.session_id = session_;
  turn.model = View(options_.model);
  turn.messages = messages;
  turn.message_count = count;
  turn.generation = &generation;
  text_.clear();
  if (const int32_t code = kairos_turn_submit(client_, &turn, &request_); code < 0) {
    return Fail("turn", code);
  }
  bool cancelled = false;
  for (bool over = false; !over;) {
    if (interrupted != 0 && !cancelled) {
      cancelled = true;
      kairos_turn_cancel(client_, request_);
    }
    if (interrupted > 1) {
      failed_ = left_ = true;
      return;
    }
    kairos_event_t* event = nullptr;
    const int32_t got = kairos_event_next(client_, 0, &event);
    if (got < 0) {
      lost_ = true;
      if (!text_.empty() && !options_.json) std::fputs("\n", stdout);
      std::fflush(stdout);
      return Fail("turn", got);
    }
    if (got == 0) {
      WaitFor(kairos_client_fd(client_), 1000);
      continue;
    }
    over = OnEvent(event);
    kairos_event_release(event);
  }
}

void Chat::PrintContext() {
  kairos_event_t* event = nullptr;
  if (const int32_t code = kairos_context_read(client_, session_, 0, &event, kCallMs); code < 0) {
    return Fail("state", code);
  }
  const kairos_string_t text = kairos_event_text(event);
  std::printf("%s\n", Printable({text.data == nullptr ? "" : text.data, text.size}).c_str());
  kairos_event_release(event);
}

// Says in words, or as one JSON object, where the chat goes on after `what`.
void Chat::PrintPlace(const char* what, uint64_t source) {
  kairos_session_t place{};
  place.struct_size = sizeof(place);
  if (const int32_t code = kairos_session_stat(client_, session_, &place, kCallMs); code < 0) {
    return Fail(what, code);
  }
  const std::string label(place.label,
                          std::min<size_t>(place.label_size, sizeof(place.label)));
  if (options_.json) {
    std::printf("%s\n", PlaceJson(what, place, label, source).c_str());
    return;
  }
  const std::string named = label.empty() ? "" : ", label \"" + Printable(label) + "\"";
  const std::string version = " at version " + std::to_string(place.version);
  if (source != session_) {
    std::printf("[forked: you go on in session %s%s%s; %s stays as it is]\n",
                SessionText(session_).c_str(), version.c_str(), named.c_str(),
                SessionText(source).c_str());
  } else {
    std::printf("[rewound: session %s is%s again%s; the next turn goes on from there]\n",
                SessionText(session_).c_str(), version.c_str(), named.c_str());
  }
}

void Chat::Misuse(const char* words) {
  failed_ = true;
  std::fprintf(stderr, "kairosctl: %s\n", words);
}

void Chat::Rewind(std::string_view number) {
  uint64_t version = 0;
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, version);
  if (parsed.ec != std::errc() || parsed.ptr != end || version == 0) {
    return Misuse("/rewind needs a version number");
  }
  const int32_t code = kairos_session_rewind(client_, session_, version, kCallMs);
  code < 0 ? Fail("/rewind", code) : PrintPlace("/rewind", session_);
}

void Chat::Fork() {
  const uint64_t source = session_;
  uint64_t copy = 0;
  const int32_t code = kairos_session_fork(client_, session_, 0, &copy, kCallMs);
  if (code < 0) return Fail("/fork", code);
  session_ = copy;
  PrintPlace("/fork", source);
}

bool Chat::Command(const std::string& line) {
  constexpr std::string_view kRewind = "/rewind ";
  if (line == "/quit") return false;
  if (line == "/help") {
    std::printf(
        "/fork       go on in a copy of this session\n"
        "/rewind N   make version N the head: the number after `v` under a reply\n"
        "/state      the task context as JSON\n"
        "/help       this\n"
        "/quit       end, as ^D does; the session stays, and `run --session ID` goes on with it\n"
        "^C          cancel the reply; twice, do not wait for its end; at the prompt, end\n"
        "All else is a message to the model.\n");
    return true;
  }
  const bool rewind = line.starts_with(kRewind) || line == "/rewind";
  if (line != "/fork" && line != "/state" && !rewind) {
    return Misuse("unknown command, see /help"), true;
  }
  if (session_ == 0) return Misuse("there is no session before the first turn"), true;
  if (line == "/state") {
    PrintContext();
  } else if (line == "/fork") {
    Fork();
  } else {
    Rewind(std::string_view(line).substr(std::min(line.size(), kRewind.size())));
  }
  return true;
}

int Chat::Run() {
  if (const int code = Open(); code != 0) return code;
  NoteTemplate();
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  terminal_ = isatty(STDIN_FILENO) != 0;
  const bool prompt = terminal_ && !options_.json;
  for (std::string line; !lost_ && !left_;) {
    if (prompt) std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!ReadLine(&line)) {
      if (prompt) std::fputs("\n", stdout);
      break;
    }
    if (line.find_first_not_of(" \t\r\v\f") == std::string::npos) continue;
    if (line[0] != '/') {
      Turn(line);
    } else if (!Command(line)) {
      break;
    }
    if (interrupted != 0 && !terminal_) break;  // who stops a script means all of it
  }
  if (lost_) return kExitUnavailable;
  return left_ || (!terminal_ && (failed_ || interrupted != 0)) ? kExitFailed : 0;
}

}  // namespace

int RunChat(const ChatOptions& options) { return Chat(options).Run(); }

}  // namespace kairos
