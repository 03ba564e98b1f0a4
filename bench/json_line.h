// SPDX-License-Identifier: Apache-2.0
// One measurement as one JSON object on a line: metric, value, unit, params and, where a peer did
// the same work in the same run, peer, peer_value and ratio.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace kairos {

class JsonLine {
 public:
  JsonLine(const char* metric, double value, const char* unit)
      : text_(fmt::format("{{\"metric\":\"{}\",\"value\":{:.6g},\"unit\":\"{}\",\"params\":{{",
                          metric, value, unit)) {}

  JsonLine& Param(const char* name, double value) {
    return Add(name, fmt::format("{:.10g}", value));
  }
  JsonLine& Param(const char* name, const std::string& text) { return Add(name, '"' + text + '"'); }

  // `ratio` says how many times better than the peer we are, whatever the unit.
  JsonLine& Peer(const char* peer, double peer_value, double ratio) {
    peer_ = fmt::format(",\"peer\":\"{}\",\"peer_value\":{:.6g},\"ratio\":{:.4g}", peer, peer_value,
                        ratio);
    return *this;
  }

  void Print() const {
    std::printf("%s}%s}\n", text_.c_str(), peer_.c_str());
    std::fflush(stdout);
  }

 private:
  JsonLine& Add(const char* name, const std::string& value) {
    text_ += fmt::format("{}\"{}\":{}", first_ ? "" : ",", name, value);
    first_ = false;
    return *this;
  }

  std::string text_;
  std::string peer_;
  bool first_ = true;
};

}  // namespace kairos
