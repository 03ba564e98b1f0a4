// SPDX-License-Identifier: Apache-2.0
// Counts nested evaluations of an interpreter; past the limit the rendering fails instead of the
// stack.
#pragma once

#include "sidecar/chat/jinja/interpreter.h"

namespace kairos {

class JinjaInterpreter::DepthGuard {
 public:
  explicit DepthGuard(JinjaInterpreter& run) : run_(run) {
    if (++run_.depth_ > run_.heap_.limits().depth) {
      run_.heap_.Fail("nested deeper than " + std::to_string(run_.heap_.limits().depth) +
                      " levels");
    }
  }
  ~DepthGuard() { --run_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  JinjaInterpreter& run_;
};

}  // namespace kairos
