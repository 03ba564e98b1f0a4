// SPDX-License-Identifier: Apache-2.0
// The models that are in memory, as the conductor sees them: of each, what turns its messages into
// tokens and back, the engine that runs it, and whose KV is where in its arena.
// Owner: conductor. The daemon builds what a ModelParts refers to, and it outlives the conductor.
//
// 1. Models share nothing: a slot, a block, a token id or a marker of one means nothing to another.
// 2. The hosts do not move and are not taken away while the sidecar serves.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sidecar/chat/tokenizer.h"
#include "sidecar/chat/wire_format.h"
#include "sidecar/engine/engine.h"
#include "sidecar/session/grammar_thread.h"
#include "sidecar/session/kv_lease.h"
#include "sidecar/session/outbox.h"
#include "sidecar/session/session.h"
#include "sidecar/session/text_thread.h"
#include "sidecar/session/turn_queue.h"
#include "sidecar/tier/device_tier.h"

namespace kairos {

// One loaded model.
struct ModelParts {
  std::string name;            // unique in this sidecar
  std::string fingerprint;     // hex; unique as well
  std::string json;            // what operators are told of it, one object
  uint32_t context_tokens = 0;
  uint32_t kv_slots = 0;
  uint64_t kv_slot_bytes = 0;
  BlockLayout kv_layout;
  const WireFormat& format;    // how it writes tool calls
  const Tokenizer& tokenizer;
  TextThread& text;
  GrammarThread& grammar;
  Engine& engine;
};

// A sequence to run, or (when `spec.tokens` is empty) the id of one to cancel.
struct EngineOrder {
  SequenceSpec spec;
};

// What the running turns of one client hold of a model.
struct KvHeld {
  uint32_t turns = 0;
  uint64_t slots = 0;
};

struct ModelHost {
  // As KvLeaser's, of this host.
  using DropIdleTail = std::function<bool(ModelHost&)>;
  ModelHost(const ModelParts& model, const DropIdleTail& drop_idle_tail);

  const ModelParts parts;
  const WireFormat callless_format;          // what remains of the format where no call is wanted
  const std::vector<TokenId> marker_tokens;  // control tokens that the format is made of
  DeviceTier device;
  KvLeaser kv;
  Outbox<TextJob> text;
  Outbox<GrammarJob> grammar;
  Outbox<EngineOrder> engine;
  TurnQueue waiting_kv;                         // turns without slots
  std::unordered_map<uint32_t, KvHeld> held;  // by attachment
};

// The session is one of this model from here.
inline void Bind(Session& session, ModelHost& host) {
  session.host = &host;
  session.record.model = host.parts.fingerprint;
  session.record.model_name = host.parts.name;
}

class ModelHosts {
 public:
  // The first one is the default; at least one.
  ModelHosts(const std::vector<ModelParts>& models,
             const ModelHost::DropIdleTail& drop_idle_tail);

  // Null where no such model is in memory. An empty name is the default's.
  ModelHost* Named(std::string_view name);
  ModelHost* OfFingerprint(std::string_view fingerprint);
  // "no model in memory is called x; there are a and b"
  std::string UnknownWords(std::string_view name) const;
  // Of a session that was asked to be another model's.
  std::string OtherWords(const SessionRecord& session, std::string_view asked) const;
  // Of a session whose model is not here.
  std::string AbsentWords(const SessionRecord& session) const;

  auto begin() { return hosts_.begin(); }
  auto end() { return hosts_.end(); }
  auto begin() const { return hosts_.begin(); }
  auto end() const { return hosts_.end(); }

 private:
  std::string Names() const;

  std::deque<ModelHost> hosts_;
};

}  // namespace kairos
