// SPDX-License-Identifier: Apache-2.0
// A peer engine in a Python process of its own (tools/peer_llama_cpp.py): one JSON object a line
// each way, one question at a time. Owner: the bench's thread; Ask() blocks until the answer.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

namespace kairos {

struct PeerOptions {
  std::string name;    // "llama-cpp", or empty: no peer
  std::string python;  // empty: that of tools/peers
  std::string script;  // empty: tools/peer_llama_cpp.py of the sources
};

class PeerProcess {
 public:
  PeerProcess() = default;
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Starts it with the model file and waits until it is ready. False with words on stderr.
  bool Start(const PeerOptions& options, const std::string& model, uint32_t threads,
             uint32_t context);
  bool running() const { return pid_ > 0; }
  // A null object when the peer failed; its own words are on stderr.
  nlohmann::json Ask(const nlohmann::json& question);

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

// A model's file: `name` itself where it is one, else the fetched model of that name.
std::string ModelFile(const std::string& name);

}  // namespace kairos
