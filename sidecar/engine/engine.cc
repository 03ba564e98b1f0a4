// SPDX-License-Identifier: Apache-2.0
// Continuous batching: commands in, one forward pass per step over every decoding sequence and as
// much prefill as the budget allows, events out.
#include "sidecar/engine/engine.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/spsc_queue.h"
#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/forward.h"
#include "sidecar/engine/mask_thread.h"
#include "sidecar/engine/model_drafter.h"
#include "sidecar/engine/running_sequence.h"
#include "sidecar/engine/sampler.h"
#include "sidecar/engine/step_budget.h"

namespace kairos {
namespace {

constexpr size_t kCommandsMax = 1024;
constexpr size_t kEventsMax = 8192;
// A prompt with that many times less to go than the first need not wait for it.
constexpr uint32_t kMuchShorter = 4;
// Tokens of a turn, until some have ended.
constexpr double kTurnTokensAtFirst = 128.0;
constexpr double kTurnTokensLeftMin = 16.0;
constexpr double kNewestTurn = 0.1;  // weight in the average

struct Command {
  bool cancel = false;
  uint64_t submit_ns = 0;
  SequenceId id;
  SequenceSpec spec;
};

// Draws of one token of a constrained text that is short of tokens; then what ends it soonest.
constexpr int kDrawsInTime = 8;

// Of a constraint that allows no more.
FinishCause CauseOf(TokenConstraint& constraint) {
  return constraint.IsDeadEnd() ? FinishCause::kDeadEnd : FinishCause::kConstraintFailed;
}

class BatchEngine final : public Engine {
 public:
  BatchEngine(const Model& model, KvArena& arena, const EngineOptions& options,
              const DraftParts& draft)
      : model_(model),
        arena_(arena),
        options_(options),
        layout_(KvBlockLayout(arena.geometry(), options.chunk_tokens_max)),
        end_tokens_(options.end_tokens.begin(), options.end_tokens.end()),
        pool_(options.threads),
        forward_(model, arena, pool_),
        budget_(options.step_budget_ns, options.chunk_tokens_max),
        commands_(kCommandsMax),
        events_(kEventsMax),
        samplers_(options.threads, Sampler(model.kernels())) {
    if (draft.model == nullptr || options.draft_tokens_max == 0) return;
    model_drafter_ =
        std::make_unique<ModelDrafter>(*draft.model, *draft.arena, model, pool_,
                                       options.draft_tokens_max, options.chunk_tokens_max);
  }

  // Whether all its threads could be had.
  Status started() const { return pool_.started().ok() ? mask_thread_.started() : pool_.started(); }
  bool Submit(SequenceSpec&& spec) override;
  bool Cancel(SequenceId id) override;
  std::optional<EngineEvent> PollEvent() override;
  void SetEventWaker(Waker* waker) override { event_waker_ = waker; }
  bool DoWork(uint64_t now_ns) override;
  Waker& waker() override { return waker_; }
  const EngineCounters& counters() const override { return counters_; }

 private:
  void CheckSpec(const SequenceSpec& spec) const;
  bool TakeCommands();
  void CancelSequence(SequenceId id);
  void ExpireDeadlines(uint64_t now_ns);
  void Admit(uint64_t now_ns);
  void CopyOpenBlock(const SequenceSpec& spec);
  void PlanStep();
  void PlanDecode();
  void GuessTokens();
  void GuessByModel();
  void PlanPrefill(uint32_t budget);
  uint32_t AddPrefill(Running& sequence, uint32_t budget);
  void AddSegment(Running& sequence, const TokenId* tokens, uint32_t count, uint32_t logit_rows);
  void RunStep();
  void PlanMasks();
  std::span<float> Logits(size_t sampled, uint32_t row);
  Sample DrawInTime(Running& sequence, Sampler& sampler, std::span<float> logits);
  void DrawConstrained(size_t sampled, Sampler& sampler);
  void DrawRows(size_t sampled, Sampler& sampler);
  void SampleStep();
  void ObserveStep(uint64_t ns);
  void AcceptRows(size_t sampled, uint64_t now_ns);
  void AcceptConstrained();
  void AcceptNext(size_t sampled, uint64_t now_ns);
  static bool CountDraft(Running& sequence, TokenId token);
  void ObserveUnchecked(Running& sequence, TokenId token);
  void ObserveDrafts(Running& sequence);
  void RecordGuess(Running& sequence, uint32_t match, uint32_t right, bool all);
  void AcceptToken(Running& sequence, Sample&& sample, uint64_t now_ns);
  void FollowForced(Running& sequence, uint64_t now_ns);
  void Finish(Running& sequence, FinishCause cause, uint64_t now_ns);
  void Push(EngineEvent&& event);
  bool FlushEvents();
  void PublishCounts();

  const Model& model_;
  KvArena& arena_;
  const EngineOptions options_;
  const BlockLayout layout_;
  const std::unordered_set<TokenId> end_tokens_;
  WorkerPool pool_;
  Forward forward_;
  StepBudget budget_;
  StepCost decode_cost_;
  DraftRecord record_;  // of all sequences: where new ones start
  std::unique_ptr<ModelDrafter> model_drafter_;  // null without a draft model
  double turn_tokens_ = kTurnTokensAtFirst;      // that turns say, on average
  SpscQueue<Command> commands_;
  SpscQueue<EngineEvent> events_;
  std::deque<EngineEvent> unsent_;  // events that found their queue full
  Waker waker_;
  Waker* event_waker_ = nullptr;
  EngineCounters counters_;

  uint64_t arrivals_ = 0;
  bool pushed_ = false;
  std::vector<std::unique_ptr<Running>> waiting_;  // not admitted yet, in order of admission
  std::vector<std::unique_ptr<Running>> active_;   // in order of admission

  uint64_t plans_ = 0;  // in which two prompts shared a budget

  // One step's plan.
  std::vector<Running*> prompts_;  // with more than one token to compute
  std::vector<Segment> segments_;
  std::vector<Running*> planned_;  // of each segment
  std::vector<Running*> decoding_;       // with one token to compute, or few that were forced
  std::vector<DraftProposal> proposals_;  // of each of these
  std::vector<Running*> sampled_;        // that have logits, in the order of their rows
  std::vector<uint32_t> first_rows_;     // of each of these
  std::vector<Sample> samples_;          // of each logits row
  std::vector<Sampler> samplers_;
  std::vector<MaskJob> masks_;  // of the constrained among sampled_, in their order
  std::vector<uint32_t> constrained_;  // indices of these in sampled_
  std::vector<TokenId> forced_;
  uint32_t logit_rows_ = 0;
  uint32_t decode_rows_ = 0;   // sequences that decode
  uint32_t draft_tokens_ = 0;  // guessed tokens that are checked
  uint64_t draft_ns_ = 0;      // that the draft model worked
  std::vector<DraftCandidate> candidates_;
  uint32_t forced_tokens_ = 0;  // that are computed by sequences that decode
  uint32_t prefill_tokens_ = 0;
  MaskThread mask_thread_;  // last: its thread reads the above
};

uint32_t Halves(Fidelity fidelity) { return fidelity == Fidelity::kExact ? 2 : 1; }

// A spec comes from the conductor, which has checked what clients sent.
void BatchEngine::CheckSpec(const SequenceSpec& spec) const {
  const uint64_t context = spec.tokens.size() + spec.max_new_tokens;
  const uint64_t blocks = (context + kBlockTokens - 1) / kBlockTokens;
  KAIROS_CHECK(spec.computed < spec.tokens.size());
  KAIROS_CHECK(context <= UINT32_MAX);
  const uint32_t per_block = layout_.slots() * Halves(spec.fidelity);
  KAIROS_CHECK(spec.slots.size() >= blocks * per_block);
  const uint32_t seen = layout_.FirstSeen(spec.computed / kBlockTokens);
  for (size_t i = 0; i < spec.slots.size(); ++i) {
    const bool is_window = i % per_block >= layout_.full_slots * Halves(spec.fidelity);
    if (is_window && i / per_block < seen) continue;
    KAIROS_CHECK(spec.slots[i].value < arena_.slots());
  }
  const uint64_t open = spec.fidelity == Fidelity::kDefault ? 2 * layout_.slots() : 0;
  KAIROS_CHECK(spec.open.size() >= open);
  for (const auto* slots : {&spec.open, &spec.open_source}) {
    for (const SlotId slot : *slots) KAIROS_CHECK(slot.value < arena_.slots());
  }
  for (const TokenId token : spec.tokens) {
    KAIROS_CHECK(token >= 0 && static_cast<uint32_t>(token) < model_.parameters().vocabulary);
  }
}

bool BatchEngine::Submit(SequenceSpec&& spec) {
  CheckSpec(spec);
  Command command;
  command.submit_ns = MonotonicNs();
  command.spec = std::move(spec);
  if (!commands_.TryPush(std::move(command))) {
    spec = std::move(command.spec);
    return false;
  }
  waker_.Wake();
  return true;
}

bool BatchEngine::Cancel(SequenceId id) {
  Command command;
  command.cancel = true;
  command.id = id;
  if (!commands_.TryPush(std::move(command))) return false;
  waker_.Wake();
  return true;
}

std::optional<EngineEvent> BatchEngine::PollEvent() {
  std::optional<EngineEvent> event = events_.TryPop();
  if (event) waker_.Wake();  // it may sleep because this queue was full
  return event;
}

bool BatchEngine::TakeCommands() {
  bool any = false;
  while (std::optional<Command> command = commands_.TryPop()) {
    any = true;
    if (command->cancel) {
      CancelSequence(command->id);
      continue;
    }
    auto sequence =
        std::make_unique<Running>(std::move(command->spec), command->submit_ns, arrivals_++);
    sequence->record = record_;
    const auto place = std::upper_bound(
        waiting_.begin(), waiting_.end(), sequence, [](const auto& a, const auto& b) {
          return a->spec.priority != b->spec.priority ? a->spec.priority > b->spec.priority
                                                      : a->order < b->order;
        });
    waiting_.insert(place, std::move(sequence));
  }
  return any;
}

void BatchEngine::CancelSequence(SequenceId id) {
  const uint64_t now = MonotonicNs();
  for (auto* list : {&waiting_, &active_}) {
    for (const auto& sequence : *list) {
      if (sequence->spec.id == id) Finish(*sequence, FinishCause::kCancelled, now);
    }
    std::erase_if(*list, [](const auto& sequence) { return sequence->finished; });
  }
}

void BatchEngine::ExpireDeadlines(uint64_t now_ns) {
  for (auto* list : {&waiting_, &active_}) {
    for (const auto& sequence : *list) {
      const uint64_t deadline = sequence->spec.deadline_ns;
      if (deadline != 0 && now_ns >= deadline) Finish(*sequence, FinishCause::kDeadline, now_ns);
    }
    std::erase_if(*list, [](const auto& sequence) { return sequence->finished; });
  }
}

void BatchEngine::CopyOpenBlock(const SequenceSpec& spec) {
  if (spec.open_source.empty() || spec.computed % kBlockTokens == 0) return;
  const uint64_t first = uint64_t{spec.computed / kBlockTokens} * 2 * layout_.slots();
  for (uint32_t i = 0; i < 2 * layout_.slots(); ++i) {
    const bool exact = spec.fidelity == Fidelity::kExact;
    const SlotId target = exact ? spec.slots[first + i] : spec.open[i];
    if (target == spec.open_source[i]) continue;
    __builtin_memcpy(arena_.slot(target), arena_.slot(spec.open_source[i]), arena_.slot_bytes());
  }
}

void BatchEngine::Admit(uint64_t now_ns) {
  while (!waiting_.empty() && active_.size() < options_.sequences_max) {
    std::unique_ptr<Running> sequence = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    sequence->first_step_ns = now_ns;
    CopyOpenBlock(sequence->spec);
    const auto place = std::upper_bound(
        active_.begin(), active_.end(), sequence, [](const auto& a, const auto& b) {
          return a->spec.priority != b->spec.priority ? a->spec.priority > b->spec.priority
                                                      : a->order < b->order;
        });
    active_.insert(place, std::move(sequence));
  }
}

void BatchEngine::AddSegment(Running& sequence, const TokenId* tokens, uint32_t count,
                             uint32_t logit_rows) {
  Segment segment;
  segment.tokens = tokens;
  segment.position = sequence.computed;
  segment.count = count;
  segment.logit_rows = logit_rows;
  segment.fidelity = sequence.spec.fidelity;
  segment.slots = sequence.spec.slots.data();
  segment.open = sequence.spec.open.data();
  segments_.push_back(segment);
  planned_.push_back(&sequence);
  if (logit_rows == 0) return;
  sampled_.push_back(&sequence);
  first_rows_.push_back(logit_rows_);
  logit_rows_ += logit_rows;
}

void BatchEngine::PlanStep() {
  segments_.clear();
  planned_.clear();
  sampled_.clear();
  first_rows_.clear();
  logit_rows_ = 0;
  prefill_tokens_ = 0;
  PlanDecode();
  PlanPrefill(budget_.PrefillTokens(decode_rows_, draft_ns_));
}

void BatchEngine::PlanDecode() {
  decoding_.clear();
  draft_tokens_ = 0;
  forced_tokens_ = 0;
  for (const auto& sequence : active_) {
    if (sequence->decodes()) decoding_.push_back(sequence.get());
  }
  decode_rows_ = static_cast<uint32_t>(decoding_.size());
  GuessTokens();
  for (Running* sequence : decoding_) {
    const std::vector<TokenId>& drafts = sequence->drafts;
    sequence->decoded.assign(sequence->spec.tokens.end() - sequence->left(),
                             sequence->spec.tokens.end());
    sequence->decoded.insert(sequence->decoded.end(), drafts.begin(), drafts.end());
    const auto drafted = static_cast<uint32_t>(drafts.size());
    AddSegment(*sequence, sequence->decoded.data(), sequence->left() + drafted,
               sequence->samples() ? 1 + drafted : 0);
    draft_tokens_ += drafted;
    forced_tokens_ += sequence->left() - 1;
  }
}

void BatchEngine::GuessTokens() {
  draft_ns_ = 0;
  if (options_.draft_tokens_max == 0) return;
  proposals_.assign(decoding_.size(), {});
  for (size_t i = 0; i < decoding_.size(); ++i) {
    Running& sequence = *decoding_[i];
    sequence.drafts.clear();
    sequence.guessed = kNoToken;
    if (!sequence.samples()) continue;
    const NgramDrafter::Guess guess =
        sequence.drafter.Look(sequence.spec.tokens, options_.draft_tokens_max);
    auto guessed = static_cast<uint32_t>(guess.tokens.size());
    if (guessed > 0 && sequence.spec.constraint != nullptr) {
      guessed = sequence.spec.constraint->CountAllowed(guess.tokens);
    }
    if (guessed == 0) continue;
    sequence.guessed = guess.tokens[0];
    sequence.match = guess.match;
    sequence.drafts.assign(guess.tokens.begin(), guess.tokens.begin() + guessed);
    proposals_[i] = DraftProposal(std::min(guessed, sequence.drafts_max()),
                                  sequence.record.Chance(guess.match));
  }
  if (options_.draft_always) {
    for (DraftProposal& proposal : proposals_) proposal.GrantAll();
  } else {
    PlanDrafts(decode_cost_, decode_rows_, proposals_);
  }
  if (model_drafter_ != nullptr) GuessByModel();
  for (size_t i = 0; i < decoding_.size(); ++i) decoding_[i]->drafts.resize(proposals_[i].grant());
}

// The draft model's guesses, where they bring more than those from the text.
void BatchEngine::GuessByModel() {
  candidates_.clear();
  for (size_t i = 0; i < decoding_.size(); ++i) {
    Running& sequence = *decoding_[i];
    sequence.drafts_are_models = false;
    sequence.guessed_by_model = kNoToken;
    if (sequence.spec.constraint != nullptr || !sequence.samples()) continue;
    DraftCandidate candidate;
    candidate.proposal = static_cast<uint32_t>(i);
    candidate.context = &sequence.context;
    candidate.spec = &sequence.spec;
    candidate.most = std::min(options_.draft_tokens_max, sequence.drafts_max());
    candidate.chance = sequence.record.Chance(DraftRecord::kOfModel);
    candidate.tokens_left = std::min<double>(
        sequence.tokens_left(), std::max(turn_tokens_ - sequence.generated(), kTurnTokensLeftMin));
    candidates_.push_back(std::move(candidate));
  }
  // What the others of the step may have to wait for is bounded; whoever is alone delays nobody.
  const double left_ns = std::max(budget_.NsLeft(decode_rows_), 0.0);
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  const bool is_alone = active_.size() == 1;
  const ModelDrafter::Step step{decode_cost_,
                                decode_rows_,
                                budget_.prefill_token_ns(),
                                is_alone ? kUnbounded : left_ns / 2,
                                left_ns / 2,
                                options_.draft_always};
  draft_ns_ = model_drafter_->Work(step, proposals_, candidates_);
  for (DraftCandidate& candidate : candidates_) {
    Running& sequence = *decoding_[candidate.proposal];
    if (candidate.guesses.empty()) continue;
    sequence.guessed_by_model = candidate.guesses[0];
    sequence.drafts_are_models = candidate.is_checked;
    if (candidate.is_checked) sequence.drafts = std::move(candidate.guesses);
  }
}

// Prompts are read as they came, the more important ones first. But where another of equal rank is
// much shorter than the first, the two share the budget: the short one need not wait for the long
// one, and no stream of short ones can take more than half from the long one.
void BatchEngine::PlanPrefill(uint32_t budget) {
  std::vector<Running*>& prompts = prompts_;
  prompts.clear();
  for (const auto& sequence : active_) {
    if (!sequence->decodes()) prompts.push_back(sequence.get());
  }
  if (prompts.empty()) return;
  const auto important_end = std::find_if(prompts.begin(), prompts.end(), [&](Running* prompt) {
    return prompt->spec.priority != prompts.front()->spec.priority;
  });
  const auto shortest = std::min_element(
      prompts.begin(), important_end, [](Running* a, Running* b) { return a->left() < b->left(); });
  uint32_t granted = 0;  // of the budget, to the shortest
  if ((*shortest)->left() <= prompts.front()->left() / kMuchShorter) {
    // A small budget is not worth halving: it goes to either in turn.
    const bool halves = budget >= 2 * kBlockTokens;
    const uint32_t turn = static_cast<uint32_t>(plans_++ % 2);
    granted = AddPrefill(**shortest, halves ? budget / 2 : turn * budget);
  }
  budget -= granted;
  for (Running* prompt : prompts) {
    if (granted > 0 && prompt == *shortest) continue;
    budget -= AddPrefill(*prompt, budget);
  }
}

// As much of the prompt as fits into `budget`; says how much that was.
uint32_t BatchEngine::AddPrefill(Running& sequence, uint32_t budget) {
  uint32_t count = std::min(sequence.left(), budget);
  // A step that ends inside a block costs an extra pass over its open half; less than a quarter of
  // the step's tokens costs no more.
  const uint32_t past = (sequence.computed + count) % kBlockTokens;
  if (count < sequence.left() && past <= count / 4) count -= past;
  if (count == 0) return 0;
  const bool samples = sequence.samples() && count == sequence.left();
  AddSegment(sequence, sequence.spec.tokens.data() + sequence.computed, count, samples ? 1 : 0);
  prefill_tokens_ += count;
  return count;
}

void BatchEngine::PlanMasks() {
  masks_.clear();
  constrained_.clear();
  for (uint32_t i = 0; i < sampled_.size(); ++i) {
    Running& sequence = *sampled_[i];
    TokenConstraint* constraint = sequence.spec.constraint.get();
    if (constraint == nullptr) continue;
    sequence.mask.resize(MaskWords(model_.parameters().vocabulary));
    constrained_.push_back(i);
    masks_.push_back({constraint, sequence.mask, sequence.tokens_left(), false});
  }
}

// A token after which the constrained text can still be ended in the tokens that are left.
Sample BatchEngine::DrawInTime(Running& sequence, Sampler& sampler, std::span<float> logits) {
  TokenConstraint& constraint = *sequence.spec.constraint;
  const std::vector<float> untouched(logits.begin(), logits.end());
  for (int draws = 1;; ++draws) {
    Sample sample =
        sampler.Draw(sequence.spec.sampling, sequence.spec.tokens, logits, sequence.mask);
    if (draws > kDrawsInTime || end_tokens_.contains(sample.token) ||
        constraint.LeavesTimeToEnd(sample.token)) {
      return sample;
    }
    const auto token = static_cast<size_t>(sample.token);
    sequence.mask[token / 32] &= ~(1u << (token % 32));
    if (draws == kDrawsInTime) constraint.LeaveSoonestEnd(sequence.mask);
    std::copy(untouched.begin(), untouched.end(), logits.begin());
  }
}

std::span<float> BatchEngine::Logits(size_t sampled, uint32_t row) {
  return {forward_.logits(first_rows_[sampled] + row), model_.parameters().vocabulary};
}

// Rows of drafts are drawn as long as those before them came out as guessed.
void BatchEngine::DrawRows(size_t sampled, Sampler& sampler) {
  Running& sequence = *sampled_[sampled];
  const std::vector<TokenId>& drafts = sequence.drafts;
  std::vector<TokenId>& tokens = sequence.spec.tokens;
  const size_t known = tokens.size();
  for (uint32_t row = 0; row <= drafts.size(); ++row) {
    Sample& sample = samples_[first_rows_[sampled] + row];
    sample = sampler.Draw(sequence.spec.sampling, tokens, Logits(sampled, row));
    if (row == drafts.size() || sample.token != drafts[row]) break;
    tokens.push_back(drafts[row]);
  }
  tokens.resize(known);
}

// The row after the drafts that came; a later one needs a mask that follows from this token.
void BatchEngine::DrawConstrained(size_t sampled, Sampler& sampler) {
  Running& sequence = *sampled_[sampled];
  const std::span<float> logits = Logits(sampled, sequence.right);
  samples_[first_rows_[sampled] + sequence.right] =
      sequence.spec.constraint->IsShortOfTokens()
          ? DrawInTime(sequence, sampler, logits)
          : sampler.Draw(sequence.spec.sampling, sequence.spec.tokens, logits, sequence.mask);
}

void BatchEngine::SampleStep() {
  samples_.assign(logit_rows_, {});
  pool_.Run(static_cast<uint32_t>(sampled_.size()), [&](uint32_t i, uint32_t worker) {
    const bool constrained = sampled_[i]->spec.constraint != nullptr;
    constrained ? DrawConstrained(i, samplers_[worker]) : DrawRows(i, samplers_[worker]);
  });
}

void BatchEngine::RunStep() {
  const uint64_t begin = MonotonicNs();
  PlanMasks();
  mask_thread_.Begin(masks_);
  forward_.Run(segments_);
  mask_thread_.Wait();
  SampleStep();
  const uint64_t sampled = MonotonicNs();
  for (size_t i = 0; i < segments_.size(); ++i) {
    const auto drafts = static_cast<uint32_t>(planned_[i]->drafts.size());
    planned_[i]->computed += segments_[i].count - drafts;  // accepting adds those that came
    planned_[i]->model_ns += sampled - begin + draft_ns_;
  }
  for (uint32_t i = 0; i < sampled_.size(); ++i) {
    if (sampled_[i]->spec.constraint == nullptr) AcceptRows(i, sampled);
  }
  AcceptConstrained();
  const uint64_t end = MonotonicNs();
  for (Running* sequence : planned_) {
    if (!sequence->samples() && sequence->left() == 0)
      Finish(*sequence, FinishCause::kPrefilled, end);
  }
  std::erase_if(active_, [](const auto& sequence) { return sequence->finished; });
  ObserveStep(end - begin);
}

void BatchEngine::ObserveStep(uint64_t ns) {
  budget_.Observe(decode_rows_, prefill_tokens_, ns);
  if (prefill_tokens_ == 0) decode_cost_.Observe(decode_rows_, draft_tokens_ + forced_tokens_, ns);
  counters_.steps.fetch_add(1, std::memory_order_relaxed);
  counters_.prefill_tokens.fetch_add(prefill_tokens_ + forced_tokens_, std::memory_order_relaxed);
  counters_.decode_tokens.fetch_add(decode_rows_, std::memory_order_relaxed);
  counters_.drafted_tokens.fetch_add(draft_tokens_, std::memory_order_relaxed);
  counters_.step_ns.fetch_add(ns + draft_ns_, std::memory_order_relaxed);
  counters_.model_draft_ns.fetch_add(draft_ns_, std::memory_order_relaxed);
  if (model_drafter_ != nullptr) model_drafter_->Credit(ns);
}

// Once drafts of a constrained sequence came, this step has the logits of the next token too: it is
// drawn as soon as its mask is known, and so on to the first that did not come.
void BatchEngine::AcceptConstrained() {
  while (!masks_.empty()) {
    const uint64_t now = MonotonicNs();
    size_t going_on = 0;
    for (size_t i = 0; i < masks_.size(); ++i) {
      Running& sequence = *sampled_[constrained_[i]];
      if (masks_[i].done) {
        AcceptNext(constrained_[i], now);
      } else {
        Finish(sequence, CauseOf(*sequence.spec.constraint), now);
      }
      if (!sequence.has_logits()) {
        ObserveDrafts(sequence);
        continue;
      }
      constrained_[going_on] = constrained_[i];
      masks_[going_on++] = {sequence.spec.constraint.get(), sequence.mask, sequence.tokens_left(),
                            false};
    }
    constrained_.resize(going_on);
    masks_.resize(going_on);
    pool_.Run(static_cast<uint32_t>(going_on), [&](uint32_t i, uint32_t worker) {
      MaskJob& job = masks_[i];
      job.done = job.constraint->ComputeMask(job.mask, job.tokens_left);
      if (job.done) DrawConstrained(constrained_[i], samplers_[worker]);
    });
  }
}

// The token that was drawn of a constrained sequence, and what is forced after it.
void BatchEngine::AcceptNext(size_t sampled, uint64_t now_ns) {
  Running& sequence = *sampled_[sampled];
  const std::vector<TokenId>& tokens = sequence.spec.tokens;
  const size_t known = tokens.size();
  Sample& sample = samples_[first_rows_[sampled] + sequence.right];
  ObserveUnchecked(sequence, sample.token);
  AcceptToken(sequence, std::move(sample), now_ns);
  FollowForced(sequence, now_ns);
  for (size_t at = known; at < tokens.size() && CountDraft(sequence, tokens[at]); ++at) {
  }
}

// The next token of an unconstrained sequence, and as many more as were guessed right.
void BatchEngine::AcceptRows(size_t sampled, uint64_t now_ns) {
  Running& sequence = *sampled_[sampled];
  ObserveUnchecked(sequence, samples_[first_rows_[sampled]].token);
  while (sequence.has_logits()) {
    Sample& sample = samples_[first_rows_[sampled] + sequence.right];
    const TokenId token = sample.token;
    AcceptToken(sequence, std::move(sample), now_ns);
    CountDraft(sequence, token);
  }
  ObserveDrafts(sequence);
}

// Whether a token that came is the next of the drafts: then its KV is there. The last token of a
// text counts as not computed, guessed or not.
bool BatchEngine::CountDraft(Running& sequence, TokenId token) {
  const std::vector<TokenId>& drafts = sequence.drafts;
  if (sequence.right == drafts.size() || token != drafts[sequence.right]) return false;
  ++sequence.right;
  if (!sequence.finished || sequence.left() > 1) ++sequence.computed;
  return true;
}

// Guesses that were not worth checking still tell how often such ones are right.
void BatchEngine::ObserveUnchecked(Running& sequence, TokenId token) {
  const bool are_checked = !sequence.drafts.empty();
  const auto observe = [&](TokenId guessed, uint32_t match) {
    if (guessed == kNoToken) return;
    RecordGuess(sequence, match, guessed == token ? 1 : 0, guessed == token);
  };
  if (!are_checked || sequence.drafts_are_models) observe(sequence.guessed, sequence.match);
  if (!are_checked || !sequence.drafts_are_models) {
    observe(sequence.guessed_by_model, DraftRecord::kOfModel);
  }
}

void BatchEngine::ObserveDrafts(Running& sequence) {
  sequence.guessed = kNoToken;
  sequence.guessed_by_model = kNoToken;
  const std::vector<TokenId> drafts = std::exchange(sequence.drafts, {});
  const uint32_t right = std::exchange(sequence.right, 0);
  if (drafts.empty()) return;
  const bool by_model = sequence.drafts_are_models;
  const bool all = right == drafts.size() || sequence.finished;
  RecordGuess(sequence, by_model ? DraftRecord::kOfModel : sequence.match, right, all);
  counters_.accepted_tokens.fetch_add(right, std::memory_order_relaxed);
  counters_.decode_tokens.fetch_add(right, std::memory_order_relaxed);
  if (!by_model) return;
  counters_.model_drafted_tokens.fetch_add(drafts.size(), std::memory_order_relaxed);
  counters_.model_accepted_tokens.fetch_add(right, std::memory_order_relaxed);
}

void BatchEngine::RecordGuess(Running& sequence, uint32_t match, uint32_t right, bool all) {
  sequence.record.Observe(match, right, all);
  record_.Observe(match, right, all);
}

// Where the grammar leaves no choice, the model need not be asked: the forced tokens are taken at
// once and computed together in the next step.
void BatchEngine::FollowForced(Running& sequence, uint64_t now_ns) {
  if (sequence.spec.constraint == nullptr || sequence.finished) return;
  // Log-probabilities are those of logits, which forced tokens do not have.
  if (sequence.spec.sampling.want_logprobs) return;
  sequence.spec.constraint->Forced(&forced_);
  for (const TokenId token : forced_) {
    if (sequence.finished) return;
    Sample sample;
    sample.token = token;
    ++sequence.forced;
    AcceptToken(sequence, std::move(sample), now_ns);
  }
}

void BatchEngine::AcceptToken(Running& sequence, Sample&& sample, uint64_t now_ns) {
  const SamplingParams& params = sequence.spec.sampling;
  if (sequence.first_token_ns == 0) sequence.first_token_ns = now_ns;
  const bool ends = !params.ignore_eos && end_tokens_.contains(sample.token);
  if (sequence.spec.constraint != nullptr && !ends &&
      !sequence.spec.constraint->Consume(sample.token)) {
    return Finish(sequence, CauseOf(*sequence.spec.constraint), now_ns);
  }
  if (params.logits_hash && sample.logits_hash != 0)
    sequence.logits_hash = HashChain(sequence.logits_hash, sample.logits_hash);
  sequence.spec.tokens.push_back(sample.token);
  EngineEvent event;
  event.kind = EngineEvent::Kind::kToken;
  event.id = sequence.spec.id;
  event.token = sample.token;
  event.logprob = sample.logprob;
  event.alternatives = std::move(sample.alternatives);
  event.logits_hash = sample.logits_hash;
  event.time_ns = now_ns;
  Push(std::move(event));
  const size_t token = static_cast<size_t>(sample.token);
  if (ends) {
    Finish(sequence, FinishCause::kEndToken, now_ns);
  } else if (token < options_.token_bytes.size() &&
             sequence.stops.Append(options_.token_bytes[token])) {
    Finish(sequence, FinishCause::kStopString, now_ns);
  } else if (sequence.generated() >= sequence.spec.max_new_tokens) {
    Finish(sequence, FinishCause::kLength, now_ns);
  }
}

void BatchEngine::Finish(Running& sequence, FinishCause cause, uint64_t now_ns) {
  if (sequence.finished) return;
  sequence.finished = true;
  // It ends before its turn came: what it was to go on from is its own all the same.
  if (sequence.first_step_ns == 0) CopyOpenBlock(sequence.spec);
  if (model_drafter_ != nullptr) model_drafter_->Release(&sequence.context);
  if (sequence.generated() > 0) turn_tokens_ += kNewestTurn * (sequence.generated() - turn_tokens_);
  EngineEvent event;
  event.kind = EngineEvent::Kind::kFinished;
  event.id = sequence.spec.id;
  event.cause = cause;
  event.computed = sequence.computed;
  event.forced = sequence.forced;
  const uint64_t started = sequence.first_step_ns;
  const uint64_t spoke = sequence.first_token_ns;
  event.queue_ns = (started == 0 ? now_ns : started) - sequence.submit_ns;
  if (started != 0) event.prefill_ns = (spoke == 0 ? now_ns : spoke) - started;
  if (spoke != 0) event.decode_ns = now_ns - spoke;
  event.model_ns = sequence.model_ns;
  event.logits_hash = sequence.logits_hash;
  event.time_ns = now_ns;
  Push(std::move(event));
}

void BatchEngine::Push(EngineEvent&& event) {
  pushed_ = true;
  if (unsent_.empty() && events_.TryPush(std::move(event))) return;
  unsent_.push_back(std::move(event));
}

bool BatchEngine::FlushEvents() {
  while (!unsent_.empty() && events_.TryPush(std::move(unsent_.front()))) {
    pushed_ = true;
    unsent_.pop_front();
  }
  if (pushed_ && event_waker_ != nullptr) event_waker_->Wake();
  pushed_ = false;
  return unsent_.empty();
}

void BatchEngine::PublishCounts() {
  counters_.sequences_running.store(static_cast<uint32_t>(active_.size()),
                                    std::memory_order_relaxed);
  counters_.sequences_waiting.store(static_cast<uint32_t>(waiting_.size()),
                                    std::memory_order_relaxed);
}

bool BatchEngine::DoWork(uint64_t now_ns) {
  const bool commanded = TakeCommands();
  ExpireDeadlines(now_ns);
  if (!FlushEvents()) return commanded;
  Admit(MonotonicNs());
  PublishCounts();
  if (active_.empty()) return commanded;
  PlanStep();
  RunStep();
  FlushEvents();
  PublishCounts();
  return true;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(const Model& model, KvArena& arena,
                                               const EngineOptions& options,
                                               const DraftParts& draft) {
  if (model.kv_geometry() != arena.geometry()) {
    return Status(Code::kInvalidArgument, "the KV arena has the geometry of another model");
  }
  if (draft.model != nullptr && draft.model->kv_geometry() != draft.arena->geometry()) {
    return Status(Code::kInvalidArgument, "the draft's KV arena has another model's geometry");
  }
  if (options.threads == 0 || options.threads > 1024) {
    return Status(Code::kInvalidArgument, "engine threads must be 1 to 1024", options.threads);
  }
  if (options.draft_tokens_max >= kBlockTokens) {
    return Status(Code::kInvalidArgument, "draft_tokens_max must be below 32",
                  options.draft_tokens_max);
  }
  if (options.sequences_max == 0 || options.chunk_tokens_max == 0) {
    return Status(Code::kInvalidArgument, "sequences_max and chunk_tokens_max must be above 0");
  }
  if (!options.token_bytes.empty() && options.token_bytes.size() != model.parameters().vocabulary) {
    return Status(Code::kInvalidArgument, "token_bytes must have one entry per vocabulary token");
  }
  auto engine = std::make_unique<BatchEngine>(model, arena, options, draft);
  KAIROS_RETURN_IF_ERROR(engine->started());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace kairos
