// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/model_drafter.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace kairos {
namespace {

// What a pass computes of a sequence besides the newest token costs little more than that one.
constexpr uint32_t kBehindMax = 8;
// Guesses of a step that the worth of catching up is reckoned with.
constexpr uint32_t kGuessesUsual = 8;
constexpr double kHope = 0.9;  // chance
constexpr double kProbeShare = 0.01;
constexpr double kCreditNsMax = 20e6;
constexpr uint32_t kStepsUnusedMax = 64;
constexpr double kNewestWeight = 0.25;
// Until more is known: sessions come back three times to what was computed of them.
constexpr double kTokensComputedAtFirst = 2000.0;
constexpr double kTokensFoundAtFirst = 3 * kTokensComputedAtFirst;
constexpr double kTokensCountedMax = 100'000.0;

double CostShare(const Model& model, const Model& served) {
  return static_cast<double>(model.weight_bytes()) / static_cast<double>(served.weight_bytes());
}

}  // namespace

ModelDrafter::ModelDrafter(const Model& model, KvArena& arena, const Model& served,
                           WorkerPool& pool, uint32_t guesses_max, uint32_t chunk_tokens_max)
    : model_(model),
      pool_(pool),
      vocabulary_(std::min(model.parameters().vocabulary, served.parameters().vocabulary)),
      cost_share_(CostShare(model, served)),
      guesses_max_(guesses_max),
      chunk_tokens_max_(chunk_tokens_max),
      forward_(model, arena, pool),
      kv_(arena),
      tokens_computed_(kTokensComputedAtFirst),
      tokens_found_(kTokensFoundAtFirst),
      samplers_(pool.threads(), Sampler(model.kernels())) {}

void ModelDrafter::Credit(uint64_t step_ns) {
  credit_ns_ = std::min(credit_ns_ + kProbeShare * static_cast<double>(step_ns), kCreditNsMax);
}

// Of what was computed ahead, keeps what came.
void ModelDrafter::Align(DraftCandidate* candidate) const {
  DraftContext& context = *candidate->context;
  const std::vector<TokenId>& tokens = candidate->spec->tokens;
  for (const TokenId token : std::exchange(context.ahead, {})) {
    if (context.computed + 1 >= tokens.size() || tokens[context.computed] != token) break;
    ++context.computed;
  }
  while (context.known < tokens.size() &&
         static_cast<uint32_t>(tokens[context.known]) < vocabulary_) {
    ++context.known;
  }
}

void ModelDrafter::Extend(DraftCandidate* candidate) {
  if (Behind(*candidate) <= kBlockTokens) return;
  DraftContext& context = *candidate->context;
  const uint32_t before = context.computed;
  kv_.Extend(candidate->spec->kin, candidate->spec->tokens, &context);
  if (!std::exchange(context.was_looked_up, true)) tokens_found_ += context.computed - before;
}

// What was computed for a sequence that is not guessed about is left to whoever needs the room.
void ModelDrafter::GiveUpUnused(std::span<DraftCandidate> candidates) {
  for (const DraftCandidate& candidate : candidates) {
    DraftContext& context = *candidate.context;
    if (context.steps_unused <= kStepsUnusedMax) continue;
    const bool was_looked_up = context.was_looked_up;
    kv_.Release(&context);
    context.was_looked_up = was_looked_up;
  }
}

bool ModelDrafter::CanServe(const DraftCandidate& candidate) const {
  const size_t tokens = candidate.spec->tokens.size();
  return candidate.most > 0 && candidate.context->known == tokens &&
         tokens + candidate.most <= model_.parameters().context &&
         kv_.CouldHold(tokens + candidate.most);
}

bool ModelDrafter::IsReady(const DraftCandidate& candidate) {
  if (!CanServe(candidate) || Behind(candidate) > kBehindMax) return false;
  const auto tokens = static_cast<uint32_t>(candidate.spec->tokens.size());
  return kv_.Reserve(tokens + candidate.most, candidate.context);
}

// What a token in CatchUp should cost.
double ModelDrafter::TokenNsByWeights(const Step& step) const {
  const double served = step.prefill_token_ns > 0.0 ? step.prefill_token_ns : step.cost.DraftNs();
  return cost_share_ * served;
}

// Whether guesses about the candidate would save more until it ends than it costs to begin with
// them. `expected` guesses of others are right in a step. Who `hopes` takes guesses to be right and
// passes to cost what the weights say: a record or a measurement out of the way is not for ever.
bool ModelDrafter::IsWorthIt(const Step& step, const DraftCandidate& candidate, double expected,
                             bool hopes) const {
  CatchUpCase sequence;
  sequence.most = std::min(kGuessesUsual, guesses_max_);
  sequence.chance = hopes ? kHope : candidate.chance;
  sequence.expected = expected;
  sequence.tokens_left = candidate.tokens_left;
  sequence.token_ns = served_token_ns_;
  sequence.pass_ns = hopes ? std::min(pass_share_ns_, pass_ns_by_weights_) : pass_share_ns_;
  sequence.check_ns = step.cost.DraftNs();
  const bool is_measured = token_ns_ > 0.0 && !hopes;
  const double token_ns = is_measured ? token_ns_ : TokenNsByWeights(step);
  // What is computed now is there for the turns to come, too.
  const double uses = 1.0 + tokens_found_ / tokens_computed_;
  return SavedByModel(sequence) * uses > Behind(candidate) * token_ns;
}

// Of those that the model does not guess for, the one that it lacks least of and that is worth it.
DraftCandidate* ModelDrafter::Nearest(const Step& step, std::span<const DraftProposal> proposals,
                                      std::span<DraftCandidate> candidates,
                                      bool hopes) const {
  DraftCandidate* nearest = nullptr;
  for (DraftCandidate& candidate : candidates) {
    if (taken_[candidate.proposal] != 0 || !CanServe(candidate)) continue;
    if (!hopes && Behind(candidate) <= kBehindMax) continue;
    if (nearest != nullptr && Behind(*nearest) <= Behind(candidate)) continue;
    const double expected = proposals[candidate.proposal].expected();
    const bool is_forced = step.always && !hopes;
    if (is_forced || IsWorthIt(step, candidate, expected, hopes)) nearest = &candidate;
  }
  return nearest;
}

void ModelDrafter::Plan(const Step& step, std::span<DraftProposal> proposals,
                        std::span<DraftCandidate> candidates) {
  by_model_.assign(proposals.size(), {});
  taken_.assign(proposals.size(), 0);
  for (DraftCandidate& candidate : candidates) {
    Align(&candidate);
    Extend(&candidate);
    if (!IsReady(candidate)) continue;
    by_model_[candidate.proposal] = DraftProposal(candidate.most, candidate.chance);
  }
  const double base_ns = step.cost.BaseNs(step.sequences);
  pass_ns_by_weights_ = cost_share_ * base_ns;
  if (pass_cost_.BaseNs(1) == 0.0 && base_ns > 0.0) {
    pass_cost_.Observe(1, 0, static_cast<uint64_t>(pass_ns_by_weights_) + 1);
  }
  double tokens = step.sequences;
  double ns = base_ns;
  for (const DraftProposal& proposal : proposals) {
    tokens += proposal.expected();
    ns += proposal.grant() * step.cost.DraftNs();
  }
  served_token_ns_ = ns / tokens;
  const auto sharers = static_cast<uint32_t>(candidates.size());
  pass_share_ns_ = pass_cost_.BaseNs(sharers) / sharers;
  if (!step.always) {
    return PlanModelDrafts(step.cost, pass_cost_, step.sequences, step.passes_ns_max, proposals,
                           by_model_, taken_);
  }
  for (size_t i = 0; i < proposals.size(); ++i) {
    if (by_model_[i].most() == 0) continue;
    taken_[i] = 1;
    proposals[i] = by_model_[i];
    proposals[i].GrantAll();
  }
}

uint64_t ModelDrafter::Work(const Step& step, std::span<DraftProposal> proposals,
                            std::span<DraftCandidate> candidates) {
  const uint64_t begin_ns = MonotonicNs();
  served_.clear();
  counts_.clear();
  if (candidates.empty()) return 0;
  Plan(step, proposals, candidates);
  for (DraftCandidate& candidate : candidates) {
    ++candidate.context->steps_unused;
    const uint32_t grant = proposals[candidate.proposal].grant();
    if (taken_[candidate.proposal] == 0 || grant == 0) continue;
    candidate.is_checked = true;
    served_.push_back(&candidate);
    counts_.push_back(grant);
  }
  const bool guesses = !served_.empty();
  Guess();
  if (DraftCandidate* candidate = Nearest(step, proposals, candidates, false)) {
    CatchUp(candidate, step.catch_up_ns_max);
  } else if (!guesses && credit_ns_ > 0.0) {
    candidate = Nearest(step, proposals, candidates, true);
    if (candidate != nullptr) Probe(candidate);
  }
  GiveUpUnused(candidates);
  return MonotonicNs() - begin_ns;
}

// counts_[i] guesses about served_[i], one of each in a pass.
void ModelDrafter::Guess() {
  const uint32_t passes = counts_.empty() ? 0 : *std::max_element(counts_.begin(), counts_.end());
  for (uint32_t pass = 0; pass < passes; ++pass) RunPass(pass);
  for (DraftCandidate* candidate : served_) {
    DraftContext& context = *candidate->context;
    std::vector<TokenId>& tokens = candidate->spec->tokens;
    tokens.resize(tokens.size() - candidate->guesses.size());
    kv_.Store(candidate->spec->kin, tokens, static_cast<uint32_t>(tokens.size()), &context);
    context.ahead.assign(candidate->guesses.begin(), candidate->guesses.end() - 1);
    context.steps_unused = 0;
  }
}

void ModelDrafter::RunPass(uint32_t pass) {
  segments_.clear();
  drawn_.clear();
  uint32_t rows = 0;
  for (size_t i = 0; i < served_.size(); ++i) {
    if (counts_[i] <= pass) continue;
    const std::vector<TokenId>& tokens = served_[i]->spec->tokens;
    const DraftContext& context = *served_[i]->context;
    Segment segment;
    segment.position = pass == 0 ? context.computed : static_cast<uint32_t>(tokens.size()) - 1;
    segment.count = static_cast<uint32_t>(tokens.size()) - segment.position;
    segment.tokens = tokens.data() + segment.position;
    segment.logit_rows = 1;
    segment.slots = context.slots.data();
    segment.open = context.open.data();
    rows += segment.count;
    segments_.push_back(segment);
    drawn_.push_back(served_[i]);
  }
  const uint64_t begin_ns = MonotonicNs();
  forward_.Run(segments_);
  pool_.Run(static_cast<uint32_t>(drawn_.size()), [&](uint32_t i, uint32_t worker) {
    SequenceSpec& spec = *drawn_[i]->spec;
    SamplingParams sampling = spec.sampling;
    sampling.logits_hash = false;
    sampling.want_logprobs = false;
    const TokenId token =
        samplers_[worker]
            .Draw(sampling, spec.tokens, std::span<float>(forward_.logits(i), vocabulary_))
            .token;
    drawn_[i]->guesses.push_back(token);
    spec.tokens.push_back(token);
  });
  const auto sequences = static_cast<uint32_t>(drawn_.size());
  pass_cost_.Observe(sequences, rows - sequences, MonotonicNs() - begin_ns);
}

// Computes some of what the model lacks of the candidate, in about `ns`; at least a block.
void ModelDrafter::CatchUp(DraftCandidate* candidate, double ns) {
  DraftContext& context = *candidate->context;
  const std::vector<TokenId>& tokens = candidate->spec->tokens;
  uint32_t count = Behind(*candidate) - 1;  // the last token is left to the pass that guesses
  const double fit = token_ns_ > 0.0 ? ns / token_ns_ : kBlockTokens;
  const double bounded = std::clamp(fit, static_cast<double>(kBlockTokens),
                                    static_cast<double>(std::max(chunk_tokens_max_, kBlockTokens)));
  if (count > bounded) {
    const uint32_t end = context.computed + static_cast<uint32_t>(bounded);
    count = end - end % kBlockTokens - context.computed;
  }
  if (!kv_.Reserve(context.computed + count, &context)) return;
  Segment segment;
  segment.tokens = tokens.data() + context.computed;
  segment.position = context.computed;
  segment.count = count;
  segment.slots = context.slots.data();
  segment.open = context.open.data();
  const uint64_t begin_ns = MonotonicNs();
  forward_.Run({&segment, 1});
  const double token_ns = static_cast<double>(MonotonicNs() - begin_ns) / count;
  token_ns_ += (token_ns_ == 0.0 ? 1.0 : kNewestWeight) * (token_ns - token_ns_);
  kv_.Store(candidate->spec->kin, tokens, context.computed + count, &context);
  context.steps_unused = 0;
  tokens_computed_ += count;
  if (tokens_computed_ + tokens_found_ < kTokensCountedMax) return;
  tokens_computed_ /= 2;
  tokens_found_ /= 2;
}

// A guess that is compared only, or a block more of what it takes to make one.
void ModelDrafter::Probe(DraftCandidate* candidate) {
  const uint64_t begin_ns = MonotonicNs();
  if (IsReady(*candidate)) {
    served_.assign(1, candidate);
    counts_.assign(1, 1);
    Guess();
  } else if (Behind(*candidate) > kBehindMax) {
    CatchUp(candidate, 0.0);
  }
  credit_ns_ -= static_cast<double>(MonotonicNs() - begin_ns);
}

}  // namespace kairos
