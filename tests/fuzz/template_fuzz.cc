// SPDX-License-Identifier: Apache-2.0
// Template bytes, then after a zero byte a JSON text used as tools and as tool calls, and whose raw
// bytes are message text. Rendering twice must give the same; untrusted text must stay untrusted.
#include <cstdlib>

#include "sidecar/chat/chat_renderer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kairos;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t cut = bytes.find('\0');
  const std::string source(bytes.substr(0, cut));
  const std::string json(cut == std::string_view::npos ? std::string_view()
                                                       : bytes.substr(cut + 1));
  std::string error;
  auto renderer = ChatRenderer::Create(source, "<s>", "</s>", &error);
  if (!renderer.ok()) {
    if (error.empty()) std::abort();
    return 0;
  }
  ChatMessage messages[3];
  messages[0].role = "user";
  messages[0].content = json;
  messages[1].role = "assistant";
  messages[1].tool_calls_json = json;
  messages[2].role = "tool";
  messages[2].content = json;
  for (const size_t history : {0, 2}) {
    RenderRequest request;
    request.history = std::span(messages).first(history);
    request.added = std::span(messages).subspan(history);
    request.tools_json = json;
    const auto first = (*renderer)->Render(request, &error);
    const auto second = (*renderer)->Render(request, &error);
    if (first.ok() != second.ok()) std::abort();
    if (!first.ok()) continue;
    uint64_t total = 0;
    for (const TextSpan& span : first->spans) total += span.text.size();
    uint64_t last = 0;
    for (const uint64_t end : first->message_ends) {
      if (end < last || end > total) std::abort();
      last = end;
    }
    if (first->message_ends.size() != request.added.size()) std::abort();
    if (first->spans.size() != second->spans.size()) std::abort();
  }
  return 0;
}
