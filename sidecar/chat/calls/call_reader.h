// SPDX-License-Identifier: Apache-2.0
// Reads the calls that stand between a block's markers, byte by byte, and says at once where there
// can be none. One for each of the ways in which arguments are written; all give them as JSON.
// Owned by one ToolStream; not thread-safe. Memory: what was read. Time: linear in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "sidecar/chat/wire_format.h"

namespace kairos {

// Why text between markers is no call. Numbers of kairos.h.
enum class CallFault : int32_t {
  kNone = 0,
  kMalformed = KAIROS_DETAIL_CALL_MALFORMED,
  kNoName = KAIROS_DETAIL_CALL_NO_NAME,
  kNoArguments = KAIROS_DETAIL_CALL_NO_ARGUMENTS,
  kTooDeep = KAIROS_DETAIL_CALL_TOO_DEEP,
  kUnfinished = KAIROS_DETAIL_CALL_UNFINISHED,
  kUnknownTool = KAIROS_DETAIL_CALL_UNKNOWN_TOOL,
  kTooLarge = KAIROS_DETAIL_CALL_TOO_LARGE,
};

struct CallDraft {
  std::string name;       // empty: not known yet
  std::string arguments;  // JSON so far; compact once is_complete
  bool has_arguments = false;
  bool is_complete = false;
};

class CallReader {
 public:
  enum class Step { kMore, kDone, kFault };
  virtual ~CallReader() = default;
  // kDone with the byte that ends the calls: there is then at least one, and all are complete.
  // kFault: the byte was not taken. No byte may follow either.
  virtual Step Push(char byte) = 0;

  std::vector<CallDraft>& drafts() { return drafts_; }
  CallFault fault() const { return fault_; }

 protected:
  Step Fault(CallFault fault) {
    fault_ = fault;
    return Step::kFault;
  }
  // Checks and compacts the last draft.
  bool Complete();

  std::vector<CallDraft> drafts_;

 private:
  CallFault fault_ = CallFault::kNone;
};

// `only_call_keys`: an object with any other key than those of a call is none.
std::unique_ptr<CallReader> MakeJsonCallReader(const WireFormat& format, bool only_call_keys);
std::unique_ptr<CallReader> MakeLiteralCallReader(const WireFormat& format, CallStyle style);

// Appends text as the inside of a JSON string.
void AppendJsonEscaped(std::string_view text, std::string* json);
bool IsJson(std::string_view text);
// JSON without the white space between its parts; what is in strings, and how numbers are written,
// stays.
std::string CompactJson(std::string_view json);

}  // namespace kairos
