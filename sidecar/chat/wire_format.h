// SPDX-License-Identifier: Apache-2.0
// How each family of models writes tool calls and reasoning, as plain data. ToolStream
// (tool_stream.h) reads replies by it; whatever holds a model to its format is made from it too.
// Immutable, of static storage; any thread.
//
// A call stands in a block: `open`, white space, the call, white space, `close`. A block without
// `open` is bare: the first byte of the call begins it. Markers are ASCII, and none is the
// beginning of another one of its format.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace kairos {

// Numbers are the index into WireFormats().
enum class WireFamily : int32_t { kHermes, kLlama3, kChatMl, kGemma3, kFunctionGemma };

enum class CallStyle : int32_t {
  kJson,     // {"name": "f", "arguments": {"a": 1}}, or a JSON list of such objects
  kPython,   // f(a=1, b="x"), or a list of calls in brackets
  kKeyed,    // call:f{a:1,b:<escape>x<escape>}
  kProgram,  // until the reply ends: a JSON object, `tool.call(a=1)`, or program text
};

enum class CallPlace : int32_t {
  kAnywhere,
  kLineStart,   // after nothing but spaces in its line
  kReplyStart,  // after nothing but white space, reasoning and other calls
};

struct CallBlock {
  std::string_view open = {};  // empty: bare
  std::string_view close = {};  // empty: ends with the call; kProgram: with the reply
  CallStyle style = CallStyle::kJson;
  CallPlace place = CallPlace::kAnywhere;
  bool whole_reply = false;  // a call only if nothing but white space follows
  // The marker is used for nothing else: what stands in the block and is no call is a broken one.
  // Otherwise it is ordinary text, unless it had both a name and arguments.
  bool is_certain = true;
};

struct WireFormat {
  WireFamily family = WireFamily::kChatMl;
  std::string_view name = {};              // in settings and reports
  std::span<const CallBlock> blocks = {};  // the first is the one that the model is taught
  std::string_view gap = {};               // white space inside a block's markers, as it is taught
  std::string_view separator = {};  // may stand between two bare calls, beside white space

  // kJson. The first key of the arguments is the one that is taught; the others are understood too.
  std::string_view name_key = "name";
  std::span<const std::string_view> arguments_keys = {};
  // kKeyed. What a call begins with, and what stands before and after the text of a string.
  std::string_view call_prefix = {};
  std::string_view string_quote = {};
  // kProgram. The tool that program text is for, and its argument.
  std::string_view program_tool = {};
  std::string_view program_argument = {};

  // Reasoning opens at the start of a reply or at the end of its prompt. Empty: there is none.
  std::string_view reasoning_open = {};
  std::string_view reasoning_close = {};
  std::string_view stop = {};  // ends the reply as an end-of-turn token does; or empty
};

// Every family's format, in the order of WireFamily.
std::span<const WireFormat> WireFormats();
const WireFormat& WireFormatOf(WireFamily family);
// By its `name`, for settings; nothing when there is none.
std::optional<WireFamily> FindWireFamily(std::string_view name);

// What a model file says about itself.
struct ModelSigns {
  std::string_view architecture;       // general.architecture
  std::string_view template_source;    // the chat template, or empty
  std::function<bool(std::string_view text)> has_token;  // of the vocabulary; empty: not known
};
// The format that a model most probably writes; kChatMl where nothing tells. Pure.
WireFamily ChooseWireFamily(const ModelSigns& signs);

}  // namespace kairos
