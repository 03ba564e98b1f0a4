// SPDX-License-Identifier: Apache-2.0
#include "cli/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "cli/top_screen.h"

namespace kairos {

namespace {

constexpr uint32_t kListMax = 1024;  // sessions of one call
constexpr char kInterruptKey = 3;    // ^C, which is a key like others here

volatile std::sig_atomic_t ended = 0;
void OnEnd(int) { ended = 1; }

// 0, or an exit status with *fault.
int Look(ControlClient& client, TopLook* look, Fault* fault) {
  ControlRequest request;
  request.verb = ControlVerb::kStats;
  ControlReply reply;
  if (const int status = Ask(client, request, &reply, fault); status != 0) return status;
  look->taken_ns = MonotonicNs();
  look->taken_unix_ms = NowUnixMs();
  look->stats = std::move(reply.stats);
  request.verb = ControlVerb::kSessionList;
  request.list_max = kListMax;
  do {
    if (const int status = Ask(client, request, &reply, fault); status != 0) return status;
    look->sessions.insert(look->sessions.end(), reply.sessions.begin(), reply.sessions.end());
    if (!reply.sessions.empty()) request.after = SessionId{reply.sessions.back().id};
  } while (reply.sessions.size() == request.list_max);
  return 0;
}

// The screen and the keyboard, taken for as long as this lives. Signals that end a program are
// blocked but in Wait().
class Screen {
 public:
  Screen() {
    struct sigaction action {};
    action.sa_handler = OnEnd;
    sigemptyset(&taken_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
      sigaction(number, &action, nullptr);
      sigaddset(&taken_, number);
    }
    sigprocmask(SIG_BLOCK, &taken_, &open_);
    has_keys_ = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    std::fputs("\x1b[?1049h\x1b[?25l", stdout);  // the other screen, no cursor
  }
  ~Screen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    sigprocmask(SIG_SETMASK, &open_, nullptr);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Show(const TopLook& before, const TopLook& now) const {
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    std::string text = "\x1b[H";
    // Each line ends by clearing what stood behind it, so nothing flickers.
    for (const std::string& line : TopLines(before, now, size.ws_row > 1 ? size.ws_row - 1u : 0u,
                                            size.ws_col)) {
      text += line + "\x1b[K\r\n";
    }
    std::fputs((text + "\x1b[J").c_str(), stdout);
    std::fflush(stdout);
  }

  // False when the user or a signal wants the end; true after the time.
  bool Wait(double seconds) const {
    const uint64_t until_ns = MonotonicNs() + static_cast<uint64_t>(seconds * 1e9);
    for (uint64_t now_ns = MonotonicNs(); now_ns < until_ns; now_ns = MonotonicNs()) {
      const uint64_t left_ns = until_ns - now_ns;
      const timespec left{static_cast<time_t>(left_ns / 1'000'000'000),
                          static_cast<long>(left_ns % 1'000'000'000)};
      pollfd keys{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
      const int ready = ppoll(&keys, 1, &left, &open_);
      if (ended != 0) return false;
      char key = 0;
      if (ready <= 0) continue;
      if (read(STDIN_FILENO, &key, 1) <= 0) return false;
      if (key == 'q' || key == 'Q' || key == kInterruptKey) return false;
    }
    return true;
  }

 private:
  termios before_{};
  sigset_t taken_;
  sigset_t open_;
  bool has_keys_ = false;
};

int PrintOnce(ControlClient& client, bool json, double interval_s, Fault* fault) {
  TopLook before;
  if (const int status = Look(client, &before, fault); status != 0) return status;
  usleep(static_cast<useconds_t>(interval_s * 1e6));
  TopLook now;
  if (const int status = Look(client, &now, fault); status != 0) return status;
  if (json) {
    std::printf("%s\n", TopJson(before, now).c_str());
  } else {
    for (const std::string& line : TopLines(before, now, 0, 0)) std::printf("%s\n", line.c_str());
  }
  return 0;
}

// Until the user wants the end. Words about a failure are left to the caller: they belong on the
// user's own screen.
int Refresh(ControlClient& client, double interval_s, Fault* fault) {
  TopLook now;
  if (const int status = Look(client, &now, fault); status != 0) return status;
  TopLook before = now;
  const Screen screen;
  for (;;) {
    screen.Show(before, now);
    if (!screen.Wait(interval_s)) return 0;
    before = std::exchange(now, TopLook{});
    if (const int status = Look(client, &now, fault); status != 0) return status;
  }
}

}  // namespace

int RunTop(const Target& target, const TopOptions& options) {
  int status = 0;
  const std::unique_ptr<ControlClient> client = Connect(target, &status);
  if (client == nullptr) return status;
  Fault fault;
  if (options.once || target.json || isatty(STDOUT_FILENO) != 1) {
    status = PrintOnce(*client, target.json, options.interval_s, &fault);
  } else {
    status = Refresh(*client, options.interval_s, &fault);
  }
  if (status != 0) Complain(target, fault);
  return status;
}

}  // namespace kairos
