// SPDX-License-Identifier: Apache-2.0
// A kairosd of the bench's own: started as a separate process, killed when the bench ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "kairos/kairos.h"

namespace kairos {

class SidecarProcess {
 public:
  SidecarProcess(std::string binary, std::string model, std::string folder)
      : binary_(std::move(binary)), model_(std::move(model)), folder_(std::move(folder)) {}
  ~SidecarProcess() { Kill(); }
  SidecarProcess(const SidecarProcess&) = delete;
  SidecarProcess& operator=(const SidecarProcess&) = delete;

  // Starts it and waits until a client can attach; prints why not and returns false otherwise.
  // `extra` are further flags.
  bool Start(const std::vector<std::string>& extra = {});
  // SIGKILL, and waits for the end.
  void Kill();
  // SIGTERM, and waits; the exit status, or -1.
  int Terminate();

  pid_t pid() const { return pid_; }
  std::string socket() const { return folder_ + "/kairos.sock"; }
  kairos_client_t* Open() const;

 private:
  std::string binary_;
  std::string model_;
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace kairos
