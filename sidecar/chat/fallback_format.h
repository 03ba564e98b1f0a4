// SPDX-License-Identifier: Apache-2.0
// Built-in turn formats for models without a usable template. Each turn is open, role, after-role,
// content, close; nothing earlier is ever rewritten, so that a delta is just the next turns.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/chat/jinja/conversation.h"
#include "sidecar/chat/tokenizer.h"

namespace kairos {

struct FallbackFormat {
  std::string_view name;
  std::string_view marker;  // what contains it, template or vocabulary, belongs to this family
  std::string_view open;
  std::string_view after_role;
  std::string_view close;
  std::string_view assistant;  // what the format calls the assistant
  bool has_system = true;      // otherwise system text goes in as a user turn
};

// The family of a template by its markers; of an empty or unknown one that which the vocabulary has
// tokens for, so that replies can end; else ChatML.
const FallbackFormat& FallbackFormatOf(std::string_view template_source, const HasToken& has_token);

// Appends `added` turns to *out and each one's end to *ends. `closes_assistant`: the text starts
// with what ends an assistant turn that is already there.
void AppendTurns(const FallbackFormat& format, std::span<const TemplateMessage> added,
                 bool closes_assistant, bool add_generation_prompt, MarkedText* out,
                 std::vector<uint64_t>* ends);

}  // namespace kairos
