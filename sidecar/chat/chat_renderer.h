// SPDX-License-Identifier: Apache-2.0
// Messages to prompt text by the model's own Jinja template, with provenance, and as deltas: what
// must be appended to a token log that already holds the earlier messages. Immutable after Create;
// any thread. Never blocks; the interpreter is bounded in steps, output and depth.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sidecar/chat/tokenizer.h"

namespace kairos {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::string name;
  std::string tool_call_id;
  std::string tool_calls_json;  // JSON array, or empty
  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

struct RenderRequest {
  std::span<const ChatMessage> history;  // already in the token log
  std::span<const ChatMessage> added;    // to append
  std::string tools_json;                // JSON array of schemas, or empty
  bool add_generation_prompt = true;
  int64_t now_unix_s = 0;  // for strftime_now; fixed per session
};

struct RenderedPrompt {
  // Text to append. When history is not empty and ends with an assistant message, it starts with
  // what closes that message (for ChatML "<|im_end|>\n"); the caller drops the first token if the
  // log already ends with it.
  std::vector<TextSpan> spans;
  // Byte ends, in the concatenated text, of each added message (its closing text included), so that
  // the log knows which tokens belong to which message.
  std::vector<uint64_t> message_ends;
  bool used_fallback = false;  // the built-in formatter was used; `fallback_reason` says why
  std::string fallback_reason;
};

class ChatRenderer {
 public:
  // `template_source` may be empty: then a built-in format serves (FallbackFormatOf).
  // bos/eos texts are what the template sees as bos_token and eos_token.
  static Result<std::unique_ptr<ChatRenderer>> Create(const std::string& template_source,
                                                      const std::string& bos,
                                                      const std::string& eos, std::string* error,
                                                      const HasToken& has_token = {});
  virtual ~ChatRenderer() = default;
  // INVALID_ARGUMENT with KAIROS_DETAIL_TEMPLATE when the template refuses (raise_exception) or
  // runs out of budget; *error has its words.
  virtual Result<RenderedPrompt> Render(const RenderRequest& request, std::string* error) const = 0;
};

}  // namespace kairos
