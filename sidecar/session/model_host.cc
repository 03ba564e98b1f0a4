// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/model_host.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace kairos {
namespace {

WireFormat WithoutCalls(WireFormat format) {
  format.blocks = {};
  return format;
}

// A marker that is one control token has no bytes otherwise.
std::vector<TokenId> MarkerTokens(const WireFormat& format, const Tokenizer& tokenizer) {
  std::vector<std::string_view> markers{format.reasoning_open, format.reasoning_close,
                                        format.string_quote};
  for (const CallBlock& block : format.blocks) {
    markers.push_back(block.open);
    markers.push_back(block.close);
  }
  std::vector<TokenId> tokens;
  for (const std::string_view marker : markers) {
    const std::vector<TokenId> encoded = tokenizer.Encode(marker, true).tokens;
    if (encoded.size() == 1 && tokenizer.IsControl(encoded[0])) tokens.push_back(encoded[0]);
  }
  return tokens;
}

// Names change and may come again for another file; the fingerprint says which one it was.
std::string NameOf(const SessionRecord& session) {
  if (session.model_name.empty()) return fmt::format("a model with fingerprint {}", session.model);
  return fmt::format("{} (fingerprint {})", session.model_name, session.model);
}

bool SendToEngine(Engine& engine, EngineOrder&& order) {
  if (order.spec.tokens.empty()) return engine.Cancel(order.spec.id);
  return engine.Submit(std::move(order.spec));
}

}  // namespace

ModelHost::ModelHost(const ModelParts& model, const DropIdleTail& drop_idle_tail)
    : parts(model),
      callless_format(WithoutCalls(model.format)),
      marker_tokens(MarkerTokens(model.format, model.tokenizer)),
      device(model.kv_slots, model.kv_slot_bytes, model.kv_layout),
      kv(model.kv_layout, device.pool(), device.index(),
         [this, drop_idle_tail] { return drop_idle_tail(*this); }),
      text([this](TextJob&& job) { return parts.text.Submit(std::move(job)); }),
      grammar([this](GrammarJob&& job) { return parts.grammar.Submit(std::move(job)); }),
      engine([this](EngineOrder&& order) {
        return SendToEngine(parts.engine, std::move(order));
      }) {}

ModelHosts::ModelHosts(const std::vector<ModelParts>& models,
                       const ModelHost::DropIdleTail& drop_idle_tail) {
  KAIROS_CHECK(!models.empty());
  for (const ModelParts& model : models) hosts_.emplace_back(model, drop_idle_tail);
}

ModelHost* ModelHosts::Named(std::string_view name) {
  if (name.empty()) return &hosts_.front();
  for (ModelHost& host : hosts_) {
    if (host.parts.name == name) return &host;
  }
  return nullptr;
}

ModelHost* ModelHosts::OfFingerprint(std::string_view fingerprint) {
  for (ModelHost& host : hosts_) {
    if (host.parts.fingerprint == fingerprint) return &host;
  }
  return nullptr;
}

std::string ModelHosts::Names() const {
  std::string names;
  for (const ModelHost& host : hosts_) {
    names += (names.empty() ? "" : ", ") + host.parts.name;
  }
  return names;
}

std::string ModelHosts::UnknownWords(std::string_view name) const {
  return fmt::format("model: none in memory is called {}; there are: {}", name, Names());
}

std::string ModelHosts::OtherWords(const SessionRecord& session, std::string_view asked) const {
  return fmt::format("model: the session is one of {}, not of {}; KAIROS_TURN_MOVE_MODEL moves it",
                     NameOf(session), asked);
}

std::string ModelHosts::AbsentWords(const SessionRecord& session) const {
  return fmt::format("the session was made under {}, which is not in memory; there are: {}",
                     NameOf(session), Names());
}

}  // namespace kairos
