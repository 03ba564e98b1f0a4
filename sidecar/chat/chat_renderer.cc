// SPDX-License-Identifier: Apache-2.0
// A delta is found by rendering twice: the earlier messages, and all of them. Message text carries
// the number of its message as a mark, so ends are read off the marks, never searched for in the
// text: no message can imitate them.
#include "sidecar/chat/chat_renderer.h"

#include <algorithm>
#include <map>

#include "sidecar/chat/fallback_format.h"
#include "sidecar/chat/jinja/conversation.h"
#include "sidecar/chat/jinja/features.h"

namespace kairos {

namespace {

constexpr std::string_view kPlaceholder = "answer";
constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

Status Refuse(const char* message) {
  return Status(Code::kInvalidArgument, message, KAIROS_DETAIL_TEMPLATE);
}

bool StartsWith(const MarkedText& text, size_t from, std::string_view what) {
  return from <= text.size() && std::string_view(text.text()).substr(from, what.size()) == what;
}

// Neighbours that are trusted alike become one span.
std::vector<TextSpan> SpansFrom(const MarkedText& text, size_t begin) {
  std::vector<TextSpan> spans;
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    const size_t from = std::max(at, begin);
    at = run.end;
    if (from >= run.end) continue;
    const bool trusted = run.source == kTemplateSource;
    if (spans.empty() || spans.back().trusted != trusted) spans.push_back({"", trusted});
    spans.back().text.append(text.text(), from, run.end - from);
  }
  return spans;
}

size_t EndOf(const MarkedText& text, size_t index) {
  size_t begin;
  size_t end;
  text.Extent(SourceOf(index), &begin, &end);
  return end;
}

class TemplateRenderer : public ChatRenderer {
 public:
  Status Load(const std::string& source, const std::string& bos, const std::string& eos,
              std::string* error, const HasToken& has_token) {
    format_ = &FallbackFormatOf(source, has_token);
    has_template_ = !source.empty();
    if (!has_template_) return Status();
    if (!template_.Parse(source, bos, eos, error)) return Refuse("chat template does not parse");
    if (!ProbeTemplate(template_, &features_, error)) {
      return Refuse("chat template cannot render a plain conversation");
    }
    return Status();
  }

  Result<RenderedPrompt> Render(const RenderRequest& request, std::string* error) const override {
    KAIROS_RETURN_IF_ERROR(CheckRoles(request, error));
    if (!has_template_) return RenderFallback(request, "the model has no chat template", error);
    return RenderTemplate(request, error);
  }

 private:
  static Status CheckRoles(const RenderRequest& request, std::string* error) {
    for (size_t i = 0; i < request.history.size() + request.added.size(); ++i) {
      const ChatMessage& message = i < request.history.size()
                                       ? request.history[i]
                                       : request.added[i - request.history.size()];
      if (std::find(std::begin(kRoles), std::end(kRoles), message.role) != std::end(kRoles))
        continue;
      *error = "messages[" + std::to_string(i) + "].role must be system, user, assistant or tool";
      return Status(Code::kInvalidArgument, "unknown message role");
    }
    return Status();
  }

  bool RenderMessages(const RenderRequest& request, const ShapedMessages& shaped, size_t count,
                      bool prompt, MarkedText* out, std::string* error) const {
    TemplateInput input;
    input.messages = std::span(shaped.messages).first(count);
    if (!shaped.tools_in_text) input.tools_json = request.tools_json;
    input.add_generation_prompt = prompt;
    input.arguments_as_text = features_.arguments_as_text;
    input.now_unix_s = request.now_unix_s;
    return template_.Render(input, out, error);
  }

  Result<RenderedPrompt> RenderTemplate(const RenderRequest& request, std::string* error) const {
    ShapedMessages shaped;
    if (!ShapeMessages(request.history, request.added, request.tools_json, features_, &shaped,
                       error)) {
      return Status(Code::kInvalidArgument, "tools or tool calls are not a JSON array of objects");
    }
    const size_t history = request.history.size();
    const bool closes = history > 0 && request.history.back().role == "assistant";
    if (closes) UsePlaceholder(history - 1, &shaped);
    MarkedText all;
    if (!RenderMessages(request, shaped, shaped.messages.size(), request.add_generation_prompt,
                        &all, error)) {
      return AfterFailure(request, closes, error);
    }
    size_t begin = 0;
    std::string reason;
    if (history > 0 && !FindDelta(request, shaped, closes, all, &begin, &reason)) {
      return RenderFallback(request, std::move(reason), error);
    }
    RenderedPrompt prompt;
    prompt.spans = SpansFrom(all, begin);
    prompt.message_ends = FindEnds(request, shaped, all, begin);
    return prompt;
  }

  // What the assistant wrote is in the log already, token for token; only what follows it is
  // wanted.
  static void UsePlaceholder(size_t index, ShapedMessages* shaped) {
    TemplateMessage& message = shaped->messages[shaped->counts[index] - 1];
    message.content = MarkedText(kPlaceholder, SourceOf(index));
    message.tool_calls_json.clear();
  }

  // The placeholder may be what the template objects to (a tool result without its call).
  Result<RenderedPrompt> AfterFailure(const RenderRequest& request, bool closes,
                                      std::string* error) const {
    std::string reason = *error;
    ShapedMessages shaped;
    MarkedText all;
    if (closes &&
        ShapeMessages(request.history, request.added, request.tools_json, features_, &shaped,
                      error) &&
        RenderMessages(request, shaped, shaped.messages.size(), request.add_generation_prompt, &all,
                       error)) {
      return RenderFallback(request, "no delta: " + reason, error);
    }
    return Refuse("the chat template refused the messages or ran out of budget");
  }

  bool FindDelta(const RenderRequest& request, const ShapedMessages& shaped, bool closes,
                 const MarkedText& all, size_t* begin, std::string* reason) const {
    const size_t history = request.history.size();
    MarkedText earlier;
    std::string error;
    if (!RenderMessages(request, shaped, shaped.counts[history - 1], false, &earlier, &error)) {
      *reason = "no delta, earlier messages alone do not render: " + error;
      return false;
    }
    size_t earlier_end = earlier.size();
    *begin = earlier.size();
    if (closes) {
      earlier_end = EndOf(earlier, history - 1);
      *begin = EndOf(all, history - 1);
    }
    if (*begin != earlier_end || (closes && *begin == 0) ||
        !StartsWith(all, 0, std::string_view(earlier.text()).substr(0, earlier_end))) {
      *reason = "the chat template renders earlier messages differently once others follow";
      return false;
    }
    return true;
  }

  // Where each added message ends in the delta. The sure way is a rendering that stops after it;
  // where that reads differently, its closing text is looked for right behind the message's own
  // bytes.
  std::vector<uint64_t> FindEnds(const RenderRequest& request, const ShapedMessages& shaped,
                                 const MarkedText& all, size_t begin) const {
    std::vector<uint64_t> ends;
    std::map<std::string, size_t> closings;  // what stands between two messages, and its split
    size_t last = begin;
    for (size_t i = 0; i < request.added.size(); ++i) {
      const bool final = i + 1 == request.added.size();
      size_t end = all.size();
      if (!final || request.add_generation_prompt) {
        end = FindEnd(request, shaped, all, request.history.size() + i, &closings);
      }
      last = std::clamp(end, last, all.size());
      ends.push_back(last - begin);
    }
    return ends;
  }

  size_t FindEnd(const RenderRequest& request, const ShapedMessages& shaped, const MarkedText& all,
                 size_t index, std::map<std::string, size_t>* closings) const {
    const size_t own_end = EndOf(all, index);
    size_t next_begin = 0;
    size_t next_end = 0;
    all.Extent(SourceOf(index + 1), &next_begin, &next_end);
    std::string between;
    if (own_end != 0 && next_end != 0 && next_begin >= own_end) {
      between = RoleAt(request, index) + "\n" + RoleAt(request, index + 1) + "\n" +
                all.text().substr(own_end, next_begin - own_end);
      const auto known = closings->find(between);
      if (known != closings->end()) return own_end + known->second;
    }
    MarkedText alone;
    std::string ignored;
    size_t end = own_end;
    if (RenderMessages(request, shaped, shaped.counts[index], false, &alone, &ignored)) {
      const std::string_view closing = std::string_view(alone.text()).substr(EndOf(alone, index));
      if (StartsWith(all, 0, alone.text())) {
        end = alone.size();
      } else if (own_end != 0 && StartsWith(all, own_end, closing)) {
        end = own_end + closing.size();
      }
    }
    if (!between.empty() && end >= own_end && end <= next_begin) {
      closings->emplace(std::move(between), end - own_end);
    }
    return end;
  }

  static const std::string& RoleAt(const RenderRequest& request, size_t index) {
    return index < request.history.size() ? request.history[index].role
                                          : request.added[index - request.history.size()].role;
  }

  Result<RenderedPrompt> RenderFallback(const RenderRequest& request, std::string reason,
                                        std::string* error) const {
    TemplateFeatures features;
    features.system = true;
    ShapedMessages shaped;
    if (!ShapeMessages(request.history, request.added, request.tools_json, features, &shaped,
                       error)) {
      return Status(Code::kInvalidArgument, "tools or tool calls are not a JSON array of objects");
    }
    const size_t history = request.history.size();
    const size_t skipped = history == 0 ? 0 : shaped.counts[history - 1];
    const bool closes = history > 0 && request.history.back().role == "assistant";
    MarkedText text;
    std::vector<uint64_t> turn_ends;
    AppendTurns(*format_, std::span(shaped.messages).subspan(skipped), closes,
                request.add_generation_prompt, &text, &turn_ends);
    RenderedPrompt prompt;
    prompt.spans = SpansFrom(text, 0);
    for (size_t i = 0; i < request.added.size(); ++i) {
      prompt.message_ends.push_back(turn_ends[shaped.counts[history + i] - skipped - 1]);
    }
    prompt.used_fallback = true;
    prompt.fallback_reason =
        std::move(reason) + "; used the built-in " + std::string(format_->name) + " format";
    return prompt;
  }

  JinjaTemplate template_;
  TemplateFeatures features_;
  const FallbackFormat* format_ = nullptr;
  bool has_template_ = false;
};

}  // namespace

Result<std::unique_ptr<ChatRenderer>> ChatRenderer::Create(const std::string& template_source,
                                                           const std::string& bos,
                                                           const std::string& eos,
                                                           std::string* error,
                                                           const HasToken& has_token) {
  auto renderer = std::make_unique<TemplateRenderer>();
  KAIROS_RETURN_IF_ERROR(renderer->Load(template_source, bos, eos, error, has_token));
  return std::unique_ptr<ChatRenderer>(std::move(renderer));
}

}  // namespace kairos
