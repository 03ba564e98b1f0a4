// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/calls/tool_stream.h"

#include <algorithm>
#include <utility>

#include "sidecar/chat/calls/json_scanner.h"

namespace kairos {
namespace {

// The byte that begins a bare call.
std::string_view OpenOf(const CallBlock& block) {
  if (!block.open.empty()) return block.open;
  return block.style == CallStyle::kPython ? "[" : "{";
}

std::string_view TrimSpace(std::string_view text) {
  while (!text.empty() && IsJsonSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

ToolStream::ToolStream(const WireFormat& format, std::string id_prefix,
                       std::vector<std::string> tools)
    : format_(format), id_prefix_(std::move(id_prefix)), tools_(std::move(tools)) {}

void ToolStream::Feed(std::string_view bytes, std::vector<ToolEvent>* out) {
  out_ = out;
  for (const char byte : bytes) Step(byte);
}

void ToolStream::Finish(std::vector<ToolEvent>* out) {
  out_ = out;
  if (mode_ == Mode::kBlock) return FinishBlock();
  Emit(mode_ == Mode::kText ? ToolEvent::Kind::kText : ToolEvent::Kind::kReasoning, held_);
  held_.clear();
}

void ToolStream::Step(char byte) {
  switch (mode_) {
    case Mode::kText: return TextByte(byte);
    case Mode::kReasoning: return ReasoningByte(byte);
    case Mode::kBlock: return BlockByte(byte);
  }
}

void ToolStream::Emit(ToolEvent::Kind kind, std::string_view bytes) {
  if (bytes.empty()) return;
  if (out_->empty() || out_->back().kind != kind) out_->emplace_back().kind = kind;
  out_->back().text += bytes;
}

void ToolStream::GiveText(std::string_view bytes) {
  Emit(ToolEvent::Kind::kText, bytes);
  NoteText(bytes);
}

void ToolStream::NoteText(std::string_view bytes) {
  for (const char byte : bytes) {
    const bool is_space = IsJsonSpace(byte);
    is_blank_ &= is_space;
    may_reason_ &= is_space;
    is_line_blank_ = byte == '\n' || (is_line_blank_ && is_space);
  }
}

// ---- Text and reasoning ------------------------------------------------------------------------

void ToolStream::TextByte(char byte) {
  if (after_markup_) {
    if (IsJsonSpace(byte) || format_.separator.find(byte) != std::string::npos) {
      return Emit(ToolEvent::Kind::kMarkup, std::string_view(&byte, 1));
    }
    after_markup_ = false;
  }
  held_ += byte;
  while (!held_.empty()) {
    bool is_whole = false;
    const CallBlock* block = nullptr;
    if (MatchMarker(&is_whole, &block)) {
      if (!is_whole) return;
      if (block != nullptr) return EnterBlock(*block);
      if (held_ == format_.reasoning_open) return EnterReasoning();
      return Emit(ToolEvent::Kind::kMarkup, std::exchange(held_, {}));
    }
    GiveText(std::string_view(held_).substr(0, 1));
    held_.erase(0, 1);
  }
}

// Whether what is held is a marker or the beginning of one, here. No block: of reasoning, or the
// stop.
bool ToolStream::MatchMarker(bool* is_whole, const CallBlock** block) const {
  if (may_reason_ && !format_.reasoning_open.empty() &&
      format_.reasoning_open.starts_with(held_)) {
    *is_whole = held_.size() == format_.reasoning_open.size();
    return true;
  }
  if (!format_.stop.empty() && format_.stop.starts_with(held_)) {
    *is_whole = held_.size() == format_.stop.size();
    return true;
  }
  for (const CallBlock& one : format_.blocks) {
    const std::string_view open = OpenOf(one);
    if (!open.starts_with(held_) || !MayStart(one)) continue;
    *is_whole = held_.size() == open.size();
    *block = &one;
    return true;
  }
  return false;
}

bool ToolStream::MayStart(const CallBlock& block) const {
  switch (block.place) {
    case CallPlace::kAnywhere: return true;
    case CallPlace::kLineStart: return is_line_blank_;
    case CallPlace::kReplyStart: return is_blank_;
  }
  return false;
}

void ToolStream::EnterReasoning() {
  Emit(ToolEvent::Kind::kMarkup, held_);
  held_.clear();
  may_reason_ = false;
  after_markup_ = true;
  mode_ = Mode::kReasoning;
}

void ToolStream::ReasoningByte(char byte) {
  if (after_markup_ && IsJsonSpace(byte)) {
    return Emit(ToolEvent::Kind::kMarkup, std::string_view(&byte, 1));
  }
  after_markup_ = false;
  held_ += byte;
  while (!held_.empty() && !format_.reasoning_close.starts_with(held_)) {
    Emit(ToolEvent::Kind::kReasoning, std::string_view(held_).substr(0, 1));
    held_.erase(0, 1);
  }
  if (held_ != format_.reasoning_close) return;
  Emit(ToolEvent::Kind::kMarkup, held_);
  held_.clear();
  after_markup_ = true;
  is_line_blank_ = true;
  mode_ = Mode::kText;
}

// ---- Blocks ------------------------------------------------------------------------------------

void ToolStream::EnterBlock(const CallBlock& block) {
  mode_ = Mode::kBlock;
  block_ = &block;
  phase_ = Phase::kBefore;
  is_call_ = has_begun_ = false;
  announced_ = arguments_said_ = 0;
  done_.clear();
  raw_.clear();
  reader_.reset();
  const std::string open = std::exchange(held_, {});
  if (!block.open.empty()) {
    raw_ = open;
  } else {
    BlockByte(open[0]);
  }
}

std::unique_ptr<CallReader> ToolStream::MakeReader() const {
  if (block_->style != CallStyle::kJson) return MakeLiteralCallReader(format_, block_->style);
  return MakeJsonCallReader(format_, !block_->is_certain);
}

void ToolStream::BlockByte(char byte) {
  if (raw_.size() + held_.size() == kCallBytesMax) {
    return Fail(CallFault::kTooLarge, std::string_view(&byte, 1));
  }
  if (block_->style == CallStyle::kProgram) {
    raw_ += byte;
    return;
  }
  switch (phase_) {
    case Phase::kAfter: return AfterCallsByte(byte);
    case Phase::kCalls: return CallByte(byte);
    case Phase::kBefore: break;
  }
  if (IsJsonSpace(byte)) {
    raw_ += byte;
    return;
  }
  reader_ = MakeReader();
  phase_ = Phase::kCalls;
  CallByte(byte);
}

void ToolStream::CallByte(char byte) {
  const CallReader::Step step = reader_->Push(byte);
  if (step == CallReader::Step::kFault) {
    return Fail(reader_->fault(), std::string_view(&byte, 1));
  }
  raw_ += byte;
  if (!Announce() || step == CallReader::Step::kMore) return;
  std::move(reader_->drafts().begin(), reader_->drafts().end(), std::back_inserter(done_));
  reader_.reset();
  announced_ = 0;
  phase_ = Phase::kAfter;
  if (block_->close.empty() && !block_->whole_reply) Complete();
}

void ToolStream::AfterCallsByte(char byte) {
  if (held_.empty() && IsJsonSpace(byte)) {
    raw_ += byte;
    return;
  }
  held_ += byte;
  if (block_->close.starts_with(held_)) {
    if (held_.size() < block_->close.size()) return;
    raw_ += std::exchange(held_, {});
    return Complete();
  }
  held_.pop_back();
  if (held_.empty() && !block_->open.empty()) {
    // Some write several calls between one pair of markers.
    reader_ = MakeReader();
    phase_ = Phase::kCalls;
    return CallByte(byte);
  }
  Fail(CallFault::kMalformed, std::exchange(held_, {}) + byte);
}

bool ToolStream::Announce() {
  std::vector<CallDraft>& drafts = reader_->drafts();
  while (announced_ < drafts.size()) {
    const CallDraft& draft = drafts[announced_];
    if (draft.name.empty() || !draft.has_arguments) return true;
    const auto index = static_cast<uint32_t>(calls_ + done_.size() + announced_);
    if (!has_begun_) {
      is_call_ = true;
      const CallFault fault = !KnowsTool(draft.name) ? CallFault::kUnknownTool
                              : index >= kCallsMax   ? CallFault::kTooLarge
                                                     : CallFault::kNone;
      if (fault != CallFault::kNone) {
        Fail(fault, {});
        return false;
      }
      ToolEvent& begin = out_->emplace_back();
      begin.kind = ToolEvent::Kind::kCallBegin;
      begin.index = index;
      begin.call.name = draft.name;
      has_begun_ = true;
      arguments_said_ = 0;
    }
    // Compacting makes arguments shorter, so nothing is new when a call becomes complete.
    if (arguments_said_ < draft.arguments.size()) {
      Emit(ToolEvent::Kind::kArguments,
           std::string_view(draft.arguments).substr(arguments_said_));
      out_->back().index = index;
      arguments_said_ = draft.arguments.size();
    }
    if (!draft.is_complete) return true;
    has_begun_ = false;
    ++announced_;
  }
  return true;
}

bool ToolStream::KnowsTool(std::string_view name) const {
  return tools_.empty() || std::find(tools_.begin(), tools_.end(), name) != tools_.end();
}

void ToolStream::Complete() {
  for (CallDraft& draft : done_) {
    ToolEvent& event = out_->emplace_back();
    event.kind = ToolEvent::Kind::kCall;
    event.index = calls_++;
    event.text = std::exchange(raw_, {});
    event.call.id = id_prefix_ + std::to_string(event.index);
    event.call.name = std::move(draft.name);
    event.call.arguments = std::move(draft.arguments);
  }
  done_.clear();
  mode_ = Mode::kText;
  may_reason_ = false;
  is_line_blank_ = true;
  after_markup_ = true;
}

// The block is no call. `again`: bytes behind it, which may begin something else.
void ToolStream::Fail(CallFault fault, std::string_view again) {
  const std::string behind(again);
  const std::string raw = std::exchange(raw_, {});
  mode_ = Mode::kText;
  held_.clear();
  reader_.reset();
  done_.clear();
  if (block_->is_certain || is_call_) {
    ToolEvent& event = out_->emplace_back();
    event.kind = ToolEvent::Kind::kBrokenCall;
    event.index = calls_;
    event.text = raw;
    event.fault = fault;
    NoteText(raw);
  } else {
    GiveText(raw);
  }
  for (const char byte : behind) Step(byte);
}

// ---- The end -----------------------------------------------------------------------------------

void ToolStream::FinishBlock() {
  if (block_->style == CallStyle::kProgram) {
    const CallFault fault = ReadProgram();
    return fault == CallFault::kNone ? Complete() : Fail(fault, {});
  }
  if (phase_ != Phase::kAfter) return Fail(CallFault::kUnfinished, {});
  // The closing marker is missing or cut short, by a stop string or a limit; the call is whole.
  raw_ += std::exchange(held_, {});
  Complete();
}

CallFault ToolStream::ReadWith(CallReader& reader, std::string_view body, size_t* taken) {
  for (*taken = 0; *taken < body.size();) {
    const CallReader::Step step = reader.Push(body[(*taken)++]);
    if (step == CallReader::Step::kFault) return reader.fault();
    if (step == CallReader::Step::kDone) return CallFault::kNone;
  }
  return CallFault::kUnfinished;
}

CallFault ToolStream::ReadProgram() {
  std::string_view body = TrimSpace(std::string_view(raw_).substr(block_->open.size()));
  if (body.empty()) return CallFault::kUnfinished;
  is_call_ = true;
  size_t taken = 0;
  if (body[0] == '{') {
    while (!body.empty()) {
      reader_ = MakeJsonCallReader(format_, false);
      const CallFault fault = ReadWith(*reader_, body, &taken);
      if (fault != CallFault::kNone) return fault;
      done_.push_back(std::move(reader_->drafts()[0]));
      body = TrimSpace(body.substr(taken));
      if (!format_.separator.empty() && body.starts_with(format_.separator)) {
        body = TrimSpace(body.substr(format_.separator.size()));
      }
    }
  } else {
    reader_ = MakeLiteralCallReader(format_, CallStyle::kPython);
    constexpr std::string_view kMethod = ".call";
    const bool is_one_call =
        ReadWith(*reader_, body, &taken) == CallFault::kNone && taken == body.size();
    if (is_one_call && reader_->drafts()[0].name.ends_with(kMethod)) {
      done_ = std::move(reader_->drafts());
      done_[0].name.resize(done_[0].name.size() - kMethod.size());
    } else {
      CallDraft& program = done_.emplace_back();
      program.name = format_.program_tool;
      program.arguments = "{\"" + std::string(format_.program_argument) + "\":\"";
      AppendJsonEscaped(body, &program.arguments);
      program.arguments += "\"}";
      if (!IsJson(program.arguments)) return CallFault::kMalformed;  // not UTF-8
    }
  }
  return AnnounceProgram();
}

// These calls are whole at once; they begin all the same, for whoever waits for it.
CallFault ToolStream::AnnounceProgram() {
  for (const CallDraft& call : done_) {
    if (!KnowsTool(call.name)) return CallFault::kUnknownTool;
  }
  if (calls_ + done_.size() > kCallsMax) return CallFault::kTooLarge;
  uint32_t index = calls_;
  for (const CallDraft& call : done_) {
    ToolEvent& begin = out_->emplace_back();
    begin.kind = ToolEvent::Kind::kCallBegin;
    begin.index = index;
    begin.call.name = call.name;
    ToolEvent& arguments = out_->emplace_back();
    arguments.kind = ToolEvent::Kind::kArguments;
    arguments.index = index++;
    arguments.text = call.arguments;
  }
  return CallFault::kNone;
}

}  // namespace kairos
