// SPDX-License-Identifier: Apache-2.0
// A reply's bytes to text, reasoning and tool calls, as they arrive.
// Owned by one turn; not thread-safe. Never blocks.
//
// 1. Nothing is lost: what kText, kReasoning, kMarkup, kCall and kBrokenCall carry in `text` is,
//    in order, the reply byte for byte.
// 2. How the bytes are cut into Feed() calls makes no difference, once neighbours of one kind among
//    kText, kReasoning, kMarkup and kArguments are joined.
// 3. Text is held back only while it can still begin a marker or be a call.
// 4. Memory is bounded by kCallBytesMax, time is linear in the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/chat/calls/call_reader.h"
#include "sidecar/chat/calls/tool_call.h"
#include "sidecar/chat/wire_format.h"

namespace kairos {

inline constexpr size_t kCallBytesMax = 256 * 1024;  // of a block, its markers included
inline constexpr uint32_t kCallsMax = 64;            // of a reply

struct ToolEvent {
  enum class Kind : int32_t {
    kText,
    kReasoning,
    kMarkup,      // markers of reasoning, and white space and separators behind markers and calls
    kCallBegin,   // index, call.name. A kCall or a kBrokenCall follows
    kArguments,   // index, text: the next bytes of the arguments' JSON
    kCall,        // index, call; text: the block as it was written, at its first call
    kBrokenCall,  // fault; text: what was written. Calls begun and not ended are none
  };
  Kind kind = Kind::kText;
  uint32_t index = 0;  // of the call in the reply
  std::string text;
  ToolCall call;
  CallFault fault = CallFault::kNone;
};

class ToolStream {
 public:
  // `format` must outlive the stream. A call's id is `id_prefix` and its index. `tools` names those
  // that may be called; none: any.
  ToolStream(const WireFormat& format, std::string id_prefix, std::vector<std::string> tools);

  // Appends events to *out; joins text with that of the last event there where both are alike.
  void Feed(std::string_view bytes, std::vector<ToolEvent>* out);
  // The reply has ended: what was held back. Nothing may follow.
  void Finish(std::vector<ToolEvent>* out);

 private:
  enum class Mode { kText, kReasoning, kBlock };
  enum class Phase { kBefore, kCalls, kAfter };  // of a block: where in it

  void Step(char byte);
  void TextByte(char byte);
  void ReasoningByte(char byte);
  void BlockByte(char byte);
  void CallByte(char byte);
  void AfterCallsByte(char byte);
  bool MatchMarker(bool* is_whole, const CallBlock** block) const;
  bool MayStart(const CallBlock& block) const;
  void EnterBlock(const CallBlock& block);
  void EnterReasoning();
  std::unique_ptr<CallReader> MakeReader() const;
  // Emits what is new of the reader's calls; false when the block failed over it.
  bool Announce();
  void Complete();
  void Fail(CallFault fault, std::string_view again);
  void FinishBlock();
  CallFault ReadProgram();
  CallFault AnnounceProgram();
  CallFault ReadWith(CallReader& reader, std::string_view body, size_t* taken);
  bool KnowsTool(std::string_view name) const;
  void GiveText(std::string_view bytes);
  void NoteText(std::string_view bytes);
  void Emit(ToolEvent::Kind kind, std::string_view bytes);

  const WireFormat& format_;
  const std::string id_prefix_;
  const std::vector<std::string> tools_;
  std::vector<ToolEvent>* out_ = nullptr;

  Mode mode_ = Mode::kText;
  std::string held_;               // may begin a marker
  bool after_markup_ = false;      // white space is markup, and what separates calls
  bool is_blank_ = true;           // no text so far but white space
  bool is_line_blank_ = true;      // nor in this line
  bool may_reason_ = true;         // nothing yet but white space
  uint32_t calls_ = 0;             // that were completed

  const CallBlock* block_ = nullptr;
  Phase phase_ = Phase::kBefore;
  std::string raw_;                // of the block so far, without held_
  std::unique_ptr<CallReader> reader_;
  std::vector<CallDraft> done_;    // calls of readers before this one, in this block
  size_t announced_ = 0;           // the reader's calls whose arguments were emitted
  size_t arguments_said_ = 0;      // bytes of the next one's
  bool has_begun_ = false;         // the next one
  bool is_call_ = false;           // the block had a name with arguments
};

}  // namespace kairos
