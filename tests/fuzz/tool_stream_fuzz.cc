// SPDX-License-Identifier: Apache-2.0
// Any bytes as a reply, in every family's format. How they are cut must make no difference, and
// none may be lost. Input: 1 byte family, 1 byte that the cuts are drawn from, the reply.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "sidecar/chat/calls/tool_stream.h"

namespace kairos {
namespace {

using Kind = ToolEvent::Kind;

std::vector<ToolEvent> Read(const WireFormat& format, std::string_view reply, uint32_t cuts,
                            const std::vector<std::string>& tools) {
  ToolStream stream(format, "c", tools);
  std::vector<ToolEvent> events;
  // A list for each piece, as a turn has one for each token; nothing is joined across them.
  while (!reply.empty()) {
    cuts = cuts * 1664525u + 1013904223u;
    const size_t size = 1 + (cuts >> 16) % 7;
    std::vector<ToolEvent> piece;
    stream.Feed(reply.substr(0, size), &piece);
    reply.remove_prefix(std::min(size, reply.size()));
    std::move(piece.begin(), piece.end(), std::back_inserter(events));
  }
  std::vector<ToolEvent> last;
  stream.Finish(&last);
  std::move(last.begin(), last.end(), std::back_inserter(events));
  return events;
}

std::vector<ToolEvent> Joined(std::vector<ToolEvent> events) {
  std::vector<ToolEvent> joined;
  for (ToolEvent& event : events) {
    const bool joins = event.kind != Kind::kCallBegin && event.kind != Kind::kCall &&
                       event.kind != Kind::kBrokenCall && !joined.empty() &&
                       joined.back().kind == event.kind;
    if (joins) {
      joined.back().text += event.text;
    } else {
      joined.push_back(std::move(event));
    }
  }
  return joined;
}

bool Same(const ToolEvent& a, const ToolEvent& b) {
  return a.kind == b.kind && a.index == b.index && a.text == b.text && a.fault == b.fault &&
         a.call.id == b.call.id && a.call.name == b.call.name &&
         a.call.arguments == b.call.arguments;
}

void Require(bool holds) {
  if (!holds) std::abort();
}

// Each call begins, has arguments, and is told once, or it is broken.
void CheckOrder(const std::vector<ToolEvent>& events) {
  uint32_t begun = 0;
  uint32_t told = 0;
  std::vector<std::string> arguments;
  for (const ToolEvent& event : events) {
    if (event.kind == Kind::kCallBegin) Require(event.index == begun++ && !event.call.name.empty());
    if (event.kind == Kind::kArguments) {
      Require(event.index + 1 == begun);
      arguments.resize(begun);
      arguments.back() += event.text;
    }
    if (event.kind == Kind::kCall) {
      Require(event.index == told++ && told <= begun && IsJson(event.call.arguments));
      Require(CompactJson(arguments.at(event.index)) == event.call.arguments);
    }
    if (event.kind == Kind::kBrokenCall) {
      Require(event.fault != CallFault::kNone && event.index == told);
      begun = told;
      arguments.resize(told);
    }
  }
  Require(begun == told);
}

void Check(const WireFormat& format, std::string_view reply, uint32_t cuts,
           const std::vector<std::string>& tools) {
  ToolStream stream(format, "c", tools);
  std::vector<ToolEvent> whole;
  stream.Feed(reply, &whole);
  stream.Finish(&whole);
  whole = Joined(std::move(whole));
  const std::vector<ToolEvent> pieces = Joined(Read(format, reply, cuts, tools));
  Require(whole.size() == pieces.size());
  std::string source;
  for (size_t i = 0; i < whole.size(); ++i) {
    Require(Same(whole[i], pieces[i]));
    if (whole[i].kind != Kind::kArguments) source += whole[i].text;
  }
  Require(source == reply);
  CheckOrder(whole);
}

}  // namespace
}  // namespace kairos

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto formats = kairos::WireFormats();
  const std::string_view reply(reinterpret_cast<const char*>(data) + 2, size - 2);
  kairos::Check(formats[data[0] % formats.size()], reply, data[1], {});
  kairos::Check(formats[data[0] % formats.size()], reply, data[1], {"f"});
  return 0;
}
