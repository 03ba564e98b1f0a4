// SPDX-License-Identifier: Apache-2.0
#include "bench/sidecar_process.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace kairos {

kairos_client_t* SidecarProcess::Open() const {
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  const std::string path = socket();
  options.socket_path = {path.data(), path.size()};
  kairos_client_t* client = nullptr;
  return kairos_client_open(&options, &client) == KAIROS_OK ? client : nullptr;
}

bool SidecarProcess::Start(const std::vector<std::string>& extra) {
  mkdir(folder_.c_str(), 0700);
  std::vector<std::string> words = {binary_, "--model", model_, "--socket", socket(),
                                    "--control-socket", folder_ + "/control.sock",
                                    "--catalog-path", folder_ + "/catalog.db",
                                    "--log-level", "warn"};
  words.insert(words.end(), extra.begin(), extra.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    // A bench that dies must not leave a daemon behind.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    std::perror(arguments[0]);
    _exit(127);
  }
  if (pid_ < 0) return false;
  for (int tries = 0; tries < 6000; ++tries) {
    if (access(socket().c_str(), F_OK) == 0) {
      if (kairos_client_t* client = Open(); client != nullptr) {
        kairos_client_close(client);
        return true;
      }
    }
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      std::fprintf(stderr, "%s ended before it was ready (status %d)\n", binary_.c_str(),
                   WIFEXITED(status) ? WEXITSTATUS(status) : -1);
      pid_ = -1;
      return false;
    }
    usleep(10'000);
  }
  std::fprintf(stderr, "%s was not ready after a minute\n", binary_.c_str());
  return false;
}

void SidecarProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int SidecarProcess::Terminate() {
  if (pid_ <= 0) return -1;
  kill(pid_, SIGTERM);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kairos
