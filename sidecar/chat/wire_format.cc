// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/wire_format.h"

namespace kairos {
namespace {


constexpr std::string_view kArguments[] = {"arguments", "parameters"};
constexpr std::string_view kParameters[] = {"parameters", "arguments"};

constexpr CallBlock kHermesBlocks[] = {
    {.open = "<tool_call>", .close = "</tool_call>"},
};
constexpr CallBlock kLlama3Blocks[] = {
    {.place = CallPlace::kLineStart, .is_certain = false},
    {.open = "<|python_tag|>", .style = CallStyle::kProgram},
};
constexpr CallBlock kChatMlBlocks[] = {
    {.open = "<tool_call>", .close = "</tool_call>"},
    {.place = CallPlace::kReplyStart, .whole_reply = true, .is_certain = false},
};
constexpr CallBlock kGemma3Blocks[] = {
    {.place = CallPlace::kReplyStart, .whole_reply = true, .is_certain = false},
    {.open = "```json", .close = "```", .place = CallPlace::kLineStart, .is_certain = false},
    {.open = "```tool_code", .close = "```", .style = CallStyle::kPython,
     .place = CallPlace::kLineStart},
    {.style = CallStyle::kPython, .place = CallPlace::kReplyStart, .whole_reply = true,
     .is_certain = false},
};
constexpr CallBlock kFunctionGemmaBlocks[] = {
    {.open = "<start_function_call>", .close = "<end_function_call>", .style = CallStyle::kKeyed},
};

constexpr WireFormat kFormats[] = {
    {.family = WireFamily::kHermes, .name = "hermes", .blocks = kHermesBlocks, .gap = "\n",
     .arguments_keys = kArguments, .reasoning_open = "<think>", .reasoning_close = "</think>"},
    {.family = WireFamily::kLlama3, .name = "llama3", .blocks = kLlama3Blocks,
     .separator = ";", .arguments_keys = kParameters, .program_tool = "code_interpreter",
     .program_argument = "code"},
    {.family = WireFamily::kChatMl, .name = "chatml", .blocks = kChatMlBlocks, .gap = "\n",
     .arguments_keys = kArguments, .reasoning_open = "<think>", .reasoning_close = "</think>"},
    {.family = WireFamily::kGemma3, .name = "gemma3", .blocks = kGemma3Blocks, .gap = "\n",
     .arguments_keys = kParameters},
    {.family = WireFamily::kFunctionGemma, .name = "functiongemma",
     .blocks = kFunctionGemmaBlocks, .call_prefix = "call:", .string_quote = "<escape>",
     .stop = "<start_function_response>"},
};

bool Has(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

}  // namespace

std::span<const WireFormat> WireFormats() { return kFormats; }

const WireFormat& WireFormatOf(WireFamily family) {
  return kFormats[static_cast<size_t>(family)];
}

std::optional<WireFamily> FindWireFamily(std::string_view name) {
  for (const WireFormat& format : kFormats) {
    if (format.name == name) return format.family;
  }
  return std::nullopt;
}

// What the template teaches goes before what the vocabulary knows, and that before the
// architecture: a model may be trained anew with another format on the same base.
WireFamily ChooseWireFamily(const ModelSigns& signs) {
  const std::string_view source = signs.template_source;
  const auto knows = [&](std::string_view token) {
    return signs.has_token && signs.has_token(token);
  };
  if (Has(source, "<start_function_call>")) return WireFamily::kFunctionGemma;
  if (Has(source, "<tool_call>")) return WireFamily::kHermes;
  if (Has(source, "<|python_tag|>") || Has(source, "<|start_header_id|>")) {
    return WireFamily::kLlama3;
  }
  if (knows("<start_function_call>")) return WireFamily::kFunctionGemma;
  if (Has(source, "<start_of_turn>")) return WireFamily::kGemma3;
  if (knows("<tool_call>")) return WireFamily::kHermes;
  if (Has(source, "<|im_start|>")) return WireFamily::kChatMl;
  if (knows("<|python_tag|>")) return WireFamily::kLlama3;
  if (signs.architecture.starts_with("gemma")) return WireFamily::kGemma3;
  if (signs.architecture.starts_with("qwen")) return WireFamily::kHermes;
  return WireFamily::kChatMl;
}

}  // namespace kairos
