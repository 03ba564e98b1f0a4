// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "sidecar/chat/calls/call_reader.h"
#include "sidecar/chat/calls/json_scanner.h"

namespace kairos {
namespace {

using Json = nlohmann::json;

constexpr size_t kKeyBytesKept = 64;  // longer than any key that means something

class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(const WireFormat& format, bool only_call_keys)
      : format_(format), only_call_keys_(only_call_keys) {}

  Step Push(char byte) override {
    const JsonScanner::At before = json_.at();
    if (const CallFault fault = Refuse(byte); fault != CallFault::kNone) return Fault(fault);
    switch (json_.Push(byte)) {
      case JsonScanner::Step::kWrong: return Fault(CallFault::kMalformed);
      case JsonScanner::Step::kTooDeep: return Fault(CallFault::kTooDeep);
      case JsonScanner::Step::kMore:
      case JsonScanner::Step::kDone: break;
    }
    if (const CallFault fault = Take(before, byte); fault != CallFault::kNone) return Fault(fault);
    if (json_.depth() > 0) return Step::kMore;
    return drafts_.empty() ? Fault(CallFault::kMalformed) : Step::kDone;
  }

 private:
  enum class Member { kOther, kName, kArguments };

  // What is JSON and yet no call, seen by the byte that begins a value.
  CallFault Refuse(char byte) {
    if (IsJsonSpace(byte)) return CallFault::kNone;
    const JsonScanner::At at = json_.at();
    if (at == JsonScanner::At::kStart) {
      call_depth_ = byte == '[' ? 2 : 1;
    } else if (json_.depth() == 1 && call_depth_ == 2) {
      const bool begins = at == JsonScanner::At::kValue ||
                          (at == JsonScanner::At::kValueOrEnd && byte != ']');
      if (begins && byte != '{') return CallFault::kMalformed;
    } else if (json_.depth() == call_depth_ && at == JsonScanner::At::kValue) {
      if (member_ == Member::kName && byte != '"') return CallFault::kNoName;
      if (member_ == Member::kArguments && byte != '{') return CallFault::kNoArguments;
    }
    return CallFault::kNone;
  }

  CallFault Take(JsonScanner::At before, char byte) {
    const uint32_t depth = json_.depth();
    const JsonScanner::At now = json_.at();
    if (depth == call_depth_ && before != now && now == JsonScanner::At::kKeyOrEnd) {
      drafts_.emplace_back();
      member_ = Member::kOther;
      return CallFault::kNone;
    }
    if (depth + 1 == call_depth_ && !drafts_.empty() && !drafts_.back().is_complete) {
      return EndCall();
    }
    if (depth == call_depth_ && json_.is_in_key()) {
      if (before == JsonScanner::At::kKey || before == JsonScanner::At::kKeyOrEnd) {
        key_.clear();
      } else if (key_.size() < kKeyBytesKept) {
        key_ += byte;
      }
      return CallFault::kNone;
    }
    if (depth == call_depth_ && now == JsonScanner::At::kColon && before != now) return EndKey();
    if (member_ == Member::kName) return TakeName(byte);
    if (member_ == Member::kArguments) TakeArguments(byte);
    return CallFault::kNone;
  }

  CallFault EndKey() {
    const auto keys = format_.arguments_keys;
    member_ = Member::kOther;
    if (key_ == format_.name_key) {
      member_ = Member::kName;
      // Said twice, it is not clear which one is meant.
      if (!drafts_.back().name.empty()) return CallFault::kMalformed;
      name_json_.clear();
    } else if (std::find(keys.begin(), keys.end(), key_) != keys.end()) {
      member_ = Member::kArguments;
      if (drafts_.back().has_arguments) return CallFault::kMalformed;
    } else if (only_call_keys_ && key_ != "type" && key_ != "id") {
      return CallFault::kMalformed;
    }
    return CallFault::kNone;
  }

  CallFault TakeName(char byte) {
    if (name_json_.empty() && byte != '"') return CallFault::kNone;  // colon and white space
    name_json_ += byte;
    if (json_.is_in_string()) return CallFault::kNone;
    const Json name = Json::parse(name_json_, nullptr, false);
    member_ = Member::kOther;
    if (!name.is_string()) return CallFault::kMalformed;
    drafts_.back().name = name.get_ref<const std::string&>();
    return drafts_.back().name.empty() ? CallFault::kNoName : CallFault::kNone;
  }

  void TakeArguments(char byte) {
    CallDraft& draft = drafts_.back();
    if (!draft.has_arguments && byte != '{') return;  // colon and white space
    draft.has_arguments = true;
    draft.arguments += byte;
    if (json_.depth() == call_depth_) member_ = Member::kOther;
  }

  CallFault EndCall() {
    if (drafts_.back().name.empty()) return CallFault::kNoName;
    if (!drafts_.back().has_arguments) return CallFault::kNoArguments;
    return Complete() ? CallFault::kNone : CallFault::kMalformed;
  }

  const WireFormat& format_;
  const bool only_call_keys_;
  JsonScanner json_;
  uint32_t call_depth_ = 1;  // brackets open directly inside a call's object
  Member member_ = Member::kOther;
  std::string key_;
  std::string name_json_;
};

}  // namespace

bool CallReader::Complete() {
  CallDraft& draft = drafts_.back();
  if (!IsJson(draft.arguments)) return false;
  draft.arguments = CompactJson(draft.arguments);
  draft.is_complete = true;
  return true;
}

std::unique_ptr<CallReader> MakeJsonCallReader(const WireFormat& format, bool only_call_keys) {
  return std::make_unique<JsonCallReader>(format, only_call_keys);
}

bool IsJson(std::string_view text) { return Json::accept(text); }

void AppendJsonEscaped(std::string_view text, std::string* json) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      *json += '\\';
      *json += c;
    } else if (c == '\n') {
      *json += "\\n";
    } else if (byte < 0x20) {
      *json += "\\u00";
      *json += kHex[byte >> 4];
      *json += kHex[byte & 15];
    } else {
      *json += c;
    }
  }
}

std::string CompactJson(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\' && i + 1 < json.size()) {
      out += c;
      out += json[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    if (in_string || !IsJsonSpace(c)) out += c;
  }
  return out;
}

}  // namespace kairos
