// SPDX-License-Identifier: Apache-2.0
#include "bench/peer_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace kairos {
namespace {

std::string CacheFolder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return cache;
  }
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache";
}

}  // namespace

std::string ModelFile(const std::string& name) {
  if (name.empty() || access(name.c_str(), R_OK) == 0) return name;
  return CacheFolder() + "/kairos/models/" + name + ".gguf";
}

bool PeerProcess::Start(const PeerOptions& options, const std::string& model, uint32_t threads,
                        uint32_t context) {
  if (options.name != "llama-cpp") {
    std::fprintf(stderr, "kairos-bench: --peer: only llama-cpp is known\n");
    return false;
  }
  const std::string python =
      options.python.empty() ? CacheFolder() + "/kairos/peers/bin/python" : options.python;
  const std::string script = options.script.empty() ? KAIROS_PEER_SCRIPT : options.script;
  if (access(python.c_str(), X_OK) != 0) {
    std::fprintf(stderr, "kairos-bench: no %s; run tools/peers, or give --peer-python\n",
                 python.c_str());
    return false;
  }
  // A peer that dies must come out as an answer that is missing.
  signal(SIGPIPE, SIG_IGN);
  int down[2];
  int up[2];
  if (pipe(down) != 0 || pipe(up) != 0) return false;
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    for (const int fd : {down[0], down[1], up[0], up[1]}) close(fd);
    const std::string thread_text = std::to_string(threads);
    const std::string context_text = std::to_string(context);
    execl(python.c_str(), python.c_str(), script.c_str(), "--model", model.c_str(), "--threads",
          thread_text.c_str(), "--context", context_text.c_str(), static_cast<char*>(nullptr));
    std::perror(python.c_str());
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_ = fdopen(down[1], "w");
  from_ = fdopen(up[0], "r");
  const nlohmann::json ready = Ask({{"do", "hello"}});
  if (ready.contains("version")) return true;
  std::fprintf(stderr, "kairos-bench: the peer did not start\n");
  return false;
}

PeerProcess::~PeerProcess() {
  if (to_ != nullptr) std::fclose(to_);
  if (from_ != nullptr) std::fclose(from_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

nlohmann::json PeerProcess::Ask(const nlohmann::json& question) {
  if (to_ == nullptr || from_ == nullptr) return {};
  const std::string line = question.dump() + "\n";
  if (std::fputs(line.c_str(), to_) < 0 || std::fflush(to_) != 0) return {};
  char* text = nullptr;
  size_t room = 0;
  nlohmann::json answer;
  if (getline(&text, &room, from_) > 0) answer = nlohmann::json::parse(text, nullptr, false);
  std::free(text);
  if (!answer.is_object()) return {};
  if (answer.contains("error")) {
    std::fprintf(stderr, "kairos-bench: peer: %s\n", answer["error"].dump().c_str());
    return {};
  }
  return answer;
}

}  // namespace kairos
