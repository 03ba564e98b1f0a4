// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/text_thread.h"

#include <sched.h>

#include <algorithm>

#include "kairos/kairos.h"
#include "sidecar/chat/tool_calls.h"

namespace kairos {

TextThread::TextThread(const ChatRenderer& renderer, const Tokenizer& tokenizer,
                       const WireFormat& format)
    : renderer_(renderer), tokenizer_(tokenizer), format_(format) {
  for (uint32_t token = 0; token < tokenizer.vocabulary_size(); ++token) {
    const size_t bytes = tokenizer.TokenBytes(static_cast<TokenId>(token), true).size();
    token_bytes_max_ = std::max(token_bytes_max_, static_cast<uint32_t>(bytes));
  }
}

bool TextThread::Submit(TextJob&& job) {
  if (!jobs_.TryPush(std::move(job))) return false;
  waker_.Wake();
  return true;
}

bool TextThread::DoWork() {
  while (std::optional<KeptGrammar> kept = kept_.TryPop()) {
    grammars_.Keep(std::move(kept->grammar), std::move(kept->compiled));
  }
  std::optional<TextJob> job = jobs_.TryPop();
  if (!job) return false;
  TextResult result = Run(*job);
  // The conductor drains results in every loop, so a full queue empties soon.
  while (!results_.TryPush(std::move(result))) sched_yield();
  if (result_waker_ != nullptr) result_waker_->Wake();
  return true;
}

TextResult TextThread::Run(const TextJob& job) {
  TextResult result;
  result.ticket = job.ticket;
  ReplyRules rules = job.rules;
  if (!job.added.empty()) Render(job, &result, &rules.in_reasoning);
  if (result.status.ok()) Constrain(rules, job.tools_json, &result);
  return result;
}

void TextThread::Constrain(const ReplyRules& rules, const std::string& tools_json,
                           TextResult* result) {
  const auto kind_of = [this](std::string_view marker) {
    const EncodeResult encoded = tokenizer_.Encode(marker, true);
    if (encoded.tokens.size() != 1) return MarkerKind::kText;
    return tokenizer_.IsControl(encoded.tokens[0]) ? MarkerKind::kControlToken
                                                   : MarkerKind::kToken;
  };
  Result<ReplyGrammar> reply =
      WriteReplyGrammar(format_, rules, tools_json, kind_of, &result->error);
  if (!reply.ok()) {
    result->status =
        Status(reply.status().code(), reply.status().message(), KAIROS_DETAIL_GRAMMAR);
    return;
  }
  if (reply->grammar.empty()) return;
  result->constraint = grammars_.Start(reply->grammar);
  if (result->constraint == nullptr) result->to_compile = reply.Take();
}

void TextThread::Render(const TextJob& job, TextResult* result, bool* in_reasoning) const {
  RenderRequest request;
  request.history = job.history;
  request.added = job.added;
  request.tools_json = job.tools_json;
  request.add_generation_prompt = job.add_generation_prompt;
  request.now_unix_s = job.now_unix_s;
  Result<RenderedPrompt> prompt = renderer_.Render(request, &result->error);
  if (!prompt.ok()) {
    result->status = prompt.status();
    return;
  }
  if (!prompt->spans.empty() && !format_.reasoning_open.empty()) {
    std::string_view end = prompt->spans.back().text;
    end = end.substr(0, end.find_last_not_of(" \n") + 1);
    *in_reasoning = end.ends_with(format_.reasoning_open);
  }
  EncodeResult encoded = tokenizer_.Encode(
      prompt->spans, job.history.empty() ? TextPlace::kStart : TextPlace::kPrompt);
  // A token that two messages share is of the first.
  for (const uint64_t end : prompt->message_ends) {
    const auto& begins = encoded.begins;
    const auto next = std::lower_bound(begins.begin(), begins.end(), end);
    result->message_ends.push_back(static_cast<uint32_t>(next - begins.begin()));
  }
  result->tokens = std::move(encoded.tokens);
  result->tool_names = ToolNames(job.tools_json);
  result->dropped_bytes = encoded.dropped_bytes;
  result->used_fallback = prompt->used_fallback;
}

}  // namespace kairos
