// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/fallback_format.h"

namespace kairos {

namespace {

constexpr FallbackFormat kFormats[] = {
    {"ChatML", "<|im_start|>", "<|im_start|>", "\n", "<|im_end|>\n", "assistant", true},
    {"Llama 3", "<|start_header_id|>", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>",
     "assistant", true},
    {"Gemma", "<start_of_turn>", "<start_of_turn>", "\n", "<end_of_turn>\n", "model", false},
};

}  // namespace

const FallbackFormat& FallbackFormatOf(std::string_view template_source,
                                       const HasToken& has_token) {
  for (const FallbackFormat& format : kFormats) {
    if (template_source.find(format.marker) != std::string_view::npos) return format;
  }
  for (const FallbackFormat& format : kFormats) {
    if (has_token && has_token(format.marker)) return format;
  }
  return kFormats[0];
}

void AppendTurns(const FallbackFormat& format, std::span<const TemplateMessage> added,
                 bool closes_assistant, bool add_generation_prompt, MarkedText* out,
                 std::vector<uint64_t>* ends) {
  const auto open = [&](std::string_view role) {
    if (role == "assistant") role = format.assistant;
    if (role == "system" && !format.has_system) role = "user";
    out->Append(format.open, kTemplateSource);
    out->Append(role, kTemplateSource);
    out->Append(format.after_role, kTemplateSource);
  };
  if (closes_assistant) out->Append(format.close, kTemplateSource);
  for (const TemplateMessage& message : added) {
    open(message.role);
    out->Append(message.content);
    out->Append(format.close, kTemplateSource);
    ends->push_back(out->size());
  }
  if (add_generation_prompt) open("assistant");
}

}  // namespace kairos
