// SPDX-License-Identifier: Apache-2.0
// Masks are timed along replies that are drawn evenly from what they allow, so that the walk meets
// rare states too. Decoding is timed with and without a constraint by turns, on the same prompt.
#include "bench/grammar_bench.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "bench/json_line.h"
#include "bench/peer_process.h"
#include "bench/quantiles.h"
#include "bench/sequence_slots.h"
#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/grammar/grammar_compiler.h"
#include "sidecar/grammar/reply_grammar.h"
#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kWalkTokens = 256;
constexpr uint32_t kDecodeTokens = 128;

constexpr const char* kSomeSchemas[] = {
    R"({"type":"object","properties":{"city":{"type":"string"},"nights":{"type":"integer",
        "minimum":1,"maximum":30}},"required":["city","nights"],"additionalProperties":false})",
    R"({"type":"object","properties":{"to":{"type":"array","items":{"type":"string",
        "pattern":"^[a-z]+@[a-z]+[.]org$"}},"text":{"type":"string","maxLength":200},
        "urgent":{"type":"boolean"}},"required":["to","text"],"additionalProperties":false})",
    R"({"type":"array","items":{"type":"object","properties":{"kind":{"enum":["a","b"]},
        "value":{"type":"number"}},"required":["kind"],"additionalProperties":false}})",
    R"({"type":"object"})",
};

double Microseconds(uint64_t begin_ns) {
  return static_cast<double>(MonotonicNs() - begin_ns) * 1e-3;
}

class GrammarBench {
 public:
  explicit GrammarBench(const GrammarBenchOptions& options) : options_(options) {
    if (!options_.quick) return;
    options_.walks = 1;
    options_.repetitions = 1;
  }

  int Run() {
    std::string error;
    if (!Load(&error) || !ReadSchemas(&error)) {
      std::fprintf(stderr, "kairos-bench grammar: %s\n", error.c_str());
      return 1;
    }
    for (const std::string& schema : schemas_) WalkSchema(schema);
    if (mask_us_.empty()) {
      std::fprintf(stderr, "kairos-bench grammar: no schema could be compiled\n");
      return 1;
    }
    for (const double quantile : {0.5, 0.99, 1.0}) {
      const double value = Quantile(mask_us_, quantile);
      if (!options_.json) {
        std::printf("mask     %-5g %9.1f us, %u tokens, %zu schemas, %zu masks\n", quantile, value,
                    tokenizer_->vocabulary_size(), compile_us_.size(), mask_us_.size());
        continue;
      }
      JsonLine("grammar.mask_us", value, "us")
          .Param("quantile", quantile)
          .Param("vocabulary", tokenizer_->vocabulary_size())
          .Param("schemas", static_cast<double>(compile_us_.size()))
          .Param("masks", static_cast<double>(mask_us_.size()))
          .Print();
    }
    for (const double quantile : {0.5, 0.99}) {
      const double value = Quantile(compile_us_, quantile);
      if (!options_.json) {
        std::printf("compile  %-5g %9.1f us, %u schemas refused\n", quantile, value, refused_);
        continue;
      }
      JsonLine("grammar.compile_us", value, "us")
          .Param("quantile", quantile)
          .Param("refused", refused_)
          .Print();
    }
    return Decode(&error) ? 0 : 1;
  }

 private:
  bool Load(std::string* error) {
    auto file = GgufFile::Open(options_.model, error);
    if (!file.ok()) return false;
    const KernelTable* kernels = ChooseKernels();
    if (kernels == nullptr) return false;
    auto model = Model::Load(**file, *kernels, {}, error);
    if (!model.ok()) return false;
    model_ = model.Take();
    auto tokenizer = Tokenizer::Create(**file, error);
    if (!tokenizer.ok()) return false;
    tokenizer_ = tokenizer.Take();
    auto compiler = GrammarCompiler::Create(*tokenizer_, error);
    if (!compiler.ok()) return false;
    compiler_ = compiler.Take();
    return true;
  }

  bool ReadSchemas(std::string* error) {
    if (options_.schemas.empty()) {
      schemas_.assign(std::begin(kSomeSchemas), std::end(kSomeSchemas));
      return true;
    }
    std::ifstream lines(options_.schemas);
    if (!lines) {
      *error = options_.schemas + ": cannot be read";
      return false;
    }
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_discarded()) continue;
      const auto tools = json.is_object() ? json.find("tools") : json.end();
      if (!json.is_object() || tools == json.end()) {
        AddSchema(json);
        continue;
      }
      for (const Json& tool : *tools) {
        AddSchema(tool.value("function", tool).value("parameters", Json::object()));
      }
    }
    return true;
  }

  void AddSchema(const Json& schema) {
    std::string text = schema.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (std::find(schemas_.begin(), schemas_.end(), text) == schemas_.end()) {
      schemas_.push_back(std::move(text));
    }
  }

  std::shared_ptr<TokenConstraint> Make(ConstraintKind kind, const std::string& text) {
    ReplyRules rules;
    rules.kind = kind;
    rules.constraint = text;
    std::string error;
    const auto kind_of = [](std::string_view) { return MarkerKind::kText; };
    auto reply = WriteReplyGrammar(WireFormatOf(WireFamily::kChatMl), rules, "", kind_of, &error);
    if (!reply.ok()) return nullptr;
    auto made = compiler_->Compile(reply->grammar, reply->is_prose, &error);
    return made.ok() ? (*made)->Start() : nullptr;
  }

  void WalkSchema(const std::string& schema) {
    for (uint32_t walk = 0; walk < options_.walks; ++walk) {
      const uint64_t begin = MonotonicNs();
      const auto constraint = Make(ConstraintKind::kJsonSchema, schema);
      if (constraint == nullptr) {
        ++refused_;
        return;
      }
      if (walk == 0) compile_us_.push_back(Microseconds(begin));
      WalkReply(*constraint, walk);
    }
  }

  void WalkReply(TokenConstraint& constraint, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> mask(MaskWords(tokenizer_->vocabulary_size()));
    std::vector<TokenId> allowed;
    for (uint32_t i = 0; i < kWalkTokens; ++i) {
      const uint64_t begin = MonotonicNs();
      // Far from the limit: closing early is another matter than masks.
      if (!constraint.ComputeMask(mask, 1u << 20)) return;
      mask_us_.push_back(Microseconds(begin));
      allowed.clear();
      for (uint32_t token = 0; token < tokenizer_->vocabulary_size(); ++token) {
        if (mask[token / 32] >> (token % 32) & 1) allowed.push_back(static_cast<TokenId>(token));
      }
      if (allowed.empty()) return;
      const TokenId token = allowed[random() % allowed.size()];
      if (tokenizer_->IsEndOfGeneration(token) || !constraint.Consume(token)) return;
    }
  }

  // Nanoseconds of decoding for one token, over a reply of kDecodeTokens.
  double DecodeOnce(std::shared_ptr<TokenConstraint> constraint) {
    SequenceSpec spec;
    spec.id = SequenceId{++sequences_};
    for (uint32_t i = 0; i < 16; ++i) spec.tokens.push_back(static_cast<TokenId>(1000 + 37 * i));
    spec.max_new_tokens = kDecodeTokens;
    TakeSlots(model_->kv_geometry(), spec.tokens.size() + spec.max_new_tokens, 0, &spec);
    spec.sampling.temperature = 1.0f;
    spec.sampling.ignore_eos = constraint == nullptr;
    spec.constraint = std::move(constraint);
    if (!engine_->Submit(std::move(spec))) return 0;
    uint32_t tokens = 0;
    for (;;) {
      engine_->DoWork(MonotonicNs());
      while (std::optional<EngineEvent> event = engine_->PollEvent()) {
        if (event->kind == EngineEvent::Kind::kToken) ++tokens;
        if (event->kind != EngineEvent::Kind::kFinished) continue;
        return tokens < 2 ? 0 : static_cast<double>(event->decode_ns) / (tokens - 1);
      }
    }
  }

  // Text of any kind in one string: the mask that costs most, and none of it forced.
  bool Decode(std::string* error) {
    auto arena = KvArena::Create(model_->kv_geometry(), 64);
    if (!arena.ok()) return false;
    arena_ = arena.Take();
    EngineOptions options;
    options.threads = options_.threads;
    options.step_budget_ns = 0;
    auto engine = Engine::Create(*model_, *arena_, options);
    if (!engine.ok()) return false;
    engine_ = engine.Take();
    std::vector<double> plain;
    std::vector<double> constrained;
    std::vector<double> slowdowns;
    for (uint32_t i = 0; i < options_.repetitions + 1; ++i) {
      // Which comes first changes, and pairs are compared: machines are noisy.
      double without = 0;
      if (i % 2 == 0) without = DecodeOnce(nullptr);
      const double with = DecodeOnce(Make(ConstraintKind::kRegex, "[^\\x00]{400,}"));
      if (i % 2 != 0) without = DecodeOnce(nullptr);
      if (without == 0 || with == 0) {
        *error = "a sequence said nothing";
        return false;
      }
      if (i == 0 && !options_.quick) continue;  // warms up
      plain.push_back(without * 1e-3);
      constrained.push_back(with * 1e-3);
      slowdowns.push_back(with / without - 1);
    }
    if (!options_.json) {
      std::printf("decode   %9.1f us a token, %9.1f us unconstrained; %+.1f %%, median of %zu\n",
                  Median(constrained), Median(plain), Median(slowdowns) * 100, slowdowns.size());
      return true;
    }
    JsonLine("grammar.decode_token_us", Median(constrained), "us")
        .Param("tokens", kDecodeTokens)
        .Param("pairs", static_cast<double>(slowdowns.size()))
        .Param("slowdown_share", Median(slowdowns))
        .Peer("unconstrained", Median(plain), Median(plain) / Median(constrained))
        .Print();
    return true;
  }

  GrammarBenchOptions options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
  std::unique_ptr<KvArena> arena_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> schemas_;
  std::vector<double> mask_us_;
  std::vector<double> compile_us_;
  uint32_t refused_ = 0;
  uint64_t sequences_ = 0;
};

}  // namespace

int RunGrammarBench(const GrammarBenchOptions& options) {
  GrammarBenchOptions resolved = options;
  resolved.model = ModelFile(options.model);
  return GrammarBench(resolved).Run();
}

}  // namespace kairos
