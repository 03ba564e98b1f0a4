// SPDX-License-Identifier: Apache-2.0
// Continuous batching: commands in, one forward pass per step over every decoding sequence and as
// much prefill as the budget allows, events out.
#include "sidecar/engine/engine.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "base/clock.h"
#include "base/hash.h"
#include "base/spsc_queue.h"
#include "sidecar/engine/forward.h"
#include "sidecar/engine/mask_thread.h"
#include "sidecar/engine/sampler.h"
#include "sidecar/engine/step_budget.h"
#include "sidecar/engine/stop_matcher.h"

namespace kairos {
namespace {

constexpr size_t kCommandsMax = 1024;
constexpr size_t kEventsMax = 8192;
// A prompt with that many times less to go than the first need not wait for it.
constexpr uint32_t kMuchShorter = 4;

struct Command {
  bool cancel = false;
  uint64_t submit_ns = 0;
  SequenceId id;
  SequenceSpec spec;
};

// A sequence from Submit to its kFinished event.
struct Running {
  Running(SequenceSpec&& from, uint64_t submitted, uint64_t arrival)
      : spec(std::move(from)),
        computed(spec.computed),
        prompt_tokens(static_cast<uint32_t>(spec.tokens.size())),
        submit_ns(submitted),
        order(arrival),
        stops(spec.sampling.stops) {}

  SequenceSpec spec;  // tokens grow with what is sampled
  uint32_t computed;
  uint32_t prompt_tokens;
  uint64_t submit_ns;
  uint64_t order;
  StopMatcher stops;
  uint64_t first_step_ns = 0;
  uint64_t first_token_ns = 0;
  uint64_t model_ns = 0;
  uint64_t logits_hash = 0;
  uint32_t forced = 0;          // tokens that the grammar left no choice in
  std::vector<uint32_t> mask;   // of the next token, where there is a constraint
  bool finished = false;

  uint32_t left() const { return static_cast<uint32_t>(spec.tokens.size()) - computed; }
  bool samples() const { return spec.max_new_tokens > 0; }
  uint32_t generated() const { return static_cast<uint32_t>(spec.tokens.size()) - prompt_tokens; }
};

// Of a constraint that allows no more.
FinishCause CauseOf(TokenConstraint& constraint) {
  return constraint.IsDeadEnd() ? FinishCause::kDeadEnd : FinishCause::kConstraintFailed;
}

class BatchEngine final : public Engine {
 public:
  BatchEngine(const Model& model, KvArena& arena, const EngineOptions& options)
      : model_(model),
        arena_(arena),
        options_(options),
        end_tokens_(options.end_tokens.begin(), options.end_tokens.end()),
        pool_(options.threads),
        forward_(model, arena, pool_),
        budget_(options.step_budget_ns, options.chunk_tokens_max),
        commands_(kCommandsMax),
        events_(kEventsMax),
        samplers_(options.threads, Sampler(model.kernels())) {}

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
  void PlanPrefill(uint32_t budget);
  uint32_t AddPrefill(Running& sequence, uint32_t budget);
  void AddSegment(Running& sequence, uint32_t count);
  void RunStep();
  void PlanMasks();
  void SampleStep();
  void AcceptSampled(uint64_t now_ns);
  void AcceptToken(Running& sequence, Sample&& sample, uint64_t now_ns);
  void FollowForced(Running& sequence, uint64_t now_ns);
  void Finish(Running& sequence, FinishCause cause, uint64_t now_ns);
  void Push(EngineEvent&& event);
  bool FlushEvents();
  void PublishCounts();

  const Model& model_;
  KvArena& arena_;
  const EngineOptions options_;
  const std::unordered_set<TokenId> end_tokens_;
  WorkerPool pool_;
  Forward forward_;
  StepBudget budget_;
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
  std::vector<Running*> sampled_;  // of each logits row
  std::vector<Sample> samples_;
  std::vector<Sampler> samplers_;
  std::vector<MaskJob> masks_;  // of the constrained among sampled_, in their order
  std::vector<TokenId> forced_;
  uint32_t decode_rows_ = 0;
  uint32_t prefill_tokens_ = 0;
  MaskThread mask_thread_;  // last: its thread reads the above
};

uint32_t SlotsPerBlock(Fidelity fidelity) { return fidelity == Fidelity::kExact ? 2 : 1; }

// A spec comes from the conductor, which has checked what clients sent.
void BatchEngine::CheckSpec(const SequenceSpec& spec) const {
  const uint64_t context = spec.tokens.size() + spec.max_new_tokens;
  const uint64_t blocks = (context + kBlockTokens - 1) / kBlockTokens;
  KAIROS_CHECK(spec.computed < spec.tokens.size());
  KAIROS_CHECK(context <= UINT32_MAX);
  KAIROS_CHECK(spec.slots.size() >= blocks * SlotsPerBlock(spec.fidelity));
  for (const SlotId slot : spec.slots) KAIROS_CHECK(slot.value < arena_.slots());
  if (spec.fidelity == Fidelity::kDefault) {
    KAIROS_CHECK(spec.open[0].value < arena_.slots() && spec.open[1].value < arena_.slots());
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
  if (spec.open_source[0] == kNoSlot || spec.computed % kBlockTokens == 0) return;
  const uint32_t block = spec.computed / kBlockTokens;
  const bool exact = spec.fidelity == Fidelity::kExact;
  for (uint32_t half = 0; half < 2; ++half) {
    const SlotId target = exact ? spec.slots[2 * block + half] : spec.open[half];
    if (target == spec.open_source[half]) continue;
    __builtin_memcpy(arena_.slot(target), arena_.slot(spec.open_source[half]), arena_.slot_bytes());
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

void BatchEngine::AddSegment(Running& sequence, uint32_t count) {
  Segment segment;
  segment.tokens = sequence.spec.tokens.data() + sequence.computed;
  segment.position = sequence.computed;
  segment.count = count;
  segment.logit_rows = sequence.samples() && count == sequence.left() ? 1 : 0;
  segment.fidelity = sequence.spec.fidelity;
  segment.slots = sequence.spec.slots.data();
  segment.open[0] = sequence.spec.open[0];
  segment.open[1] = sequence.spec.open[1];
  segments_.push_back(segment);
  planned_.push_back(&sequence);
  if (segment.logit_rows > 0) sampled_.push_back(&sequence);
}

void BatchEngine::PlanStep() {
  segments_.clear();
  planned_.clear();
  sampled_.clear();
  decode_rows_ = 0;
  prefill_tokens_ = 0;
  for (const auto& sequence : active_) {
    if (sequence->left() != 1) continue;
    AddSegment(*sequence, 1);
    ++decode_rows_;
  }
  PlanPrefill(budget_.PrefillTokens(decode_rows_));
}

// Prompts are read as they came, the more important ones first. But where another of equal rank is
// much shorter than the first, the two share the budget: the short one need not wait for the long
// one, and no stream of short ones can take more than half from the long one.
void BatchEngine::PlanPrefill(uint32_t budget) {
  std::vector<Running*>& prompts = prompts_;
  prompts.clear();
  for (const auto& sequence : active_) {
    if (sequence->left() > 1) prompts.push_back(sequence.get());
  }
  if (prompts.empty()) return;
  const auto important_end = std::find_if(prompts.begin(), prompts.end(), [&](Running* prompt) {
    return prompt->spec.priority != prompts.front()->spec.priority;
  });
  const auto shortest = std::min_element(
      prompts.begin(), important_end, [](Running* a, Running* b) { return a->left() < b->left(); });
  uint32_t granted = 0;  // of the budget, to the shortest
  if ((*shortest)->left() <= prompts.front()->left() / kMuchShorter) {
    // A budget of one block cannot be halved: it goes to either in turn.
    const uint32_t blocks = budget / kBlockTokens;
    const uint32_t half = (blocks + static_cast<uint32_t>(plans_++ % 2)) / 2 * kBlockTokens;
    granted = AddPrefill(**shortest, half);
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
  // A step that ends inside a block costs an extra pass over its open half.
  const uint32_t past = (sequence.computed + count) % kBlockTokens;
  if (count < sequence.left() && past < count) count -= past;
  if (count == 0) return 0;
  AddSegment(sequence, count);
  prefill_tokens_ += count;
  return count;
}

void BatchEngine::PlanMasks() {
  masks_.clear();
  for (Running* sequence : sampled_) {
    TokenConstraint* constraint = sequence->spec.constraint.get();
    if (constraint == nullptr) continue;
    sequence->mask.resize(MaskWords(model_.parameters().vocabulary));
    masks_.push_back({constraint, sequence->mask,
                      sequence->spec.max_new_tokens - sequence->generated(), false});
  }
}

void BatchEngine::SampleStep() {
  samples_.resize(sampled_.size());
  const uint32_t vocabulary = model_.parameters().vocabulary;
  pool_.Run(static_cast<uint32_t>(sampled_.size()), [&](uint32_t row, uint32_t worker) {
    const SequenceSpec& spec = sampled_[row]->spec;
    samples_[row] = samplers_[worker].Draw(spec.sampling, spec.tokens,
                                           std::span<float>(forward_.logits(row), vocabulary),
                                           sampled_[row]->mask);
  });
}

void BatchEngine::RunStep() {
  const uint64_t begin = MonotonicNs();
  PlanMasks();
  mask_thread_.Begin(masks_);
  forward_.Run(segments_);
  mask_thread_.Wait();
  SampleStep();
  const uint64_t end = MonotonicNs();
  budget_.Observe(decode_rows_, prefill_tokens_, end - begin);
  for (size_t i = 0; i < segments_.size(); ++i) {
    planned_[i]->computed += segments_[i].count;
    planned_[i]->model_ns += end - begin;
  }
  AcceptSampled(end);
  for (Running* sequence : planned_) {
    if (!sequence->samples() && sequence->left() == 0)
      Finish(*sequence, FinishCause::kPrefilled, end);
  }
  std::erase_if(active_, [](const auto& sequence) { return sequence->finished; });
  counters_.steps.fetch_add(1, std::memory_order_relaxed);
  counters_.prefill_tokens.fetch_add(prefill_tokens_, std::memory_order_relaxed);
  counters_.decode_tokens.fetch_add(decode_rows_, std::memory_order_relaxed);
  counters_.step_ns.fetch_add(end - begin, std::memory_order_relaxed);
}

void BatchEngine::AcceptSampled(uint64_t now_ns) {
  auto mask = masks_.begin();
  for (size_t i = 0; i < sampled_.size(); ++i) {
    Running& sequence = *sampled_[i];
    if (sequence.spec.constraint != nullptr && !(mask++)->done) {
      Finish(sequence, CauseOf(*sequence.spec.constraint), now_ns);
      continue;
    }
    AcceptToken(sequence, std::move(samples_[i]), now_ns);
    FollowForced(sequence, now_ns);
  }
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
                                               const EngineOptions& options) {
  const KvGeometry shape = model.kv_geometry();
  const KvGeometry memory = arena.geometry();
  if (shape.layers != memory.layers || shape.kv_heads != memory.kv_heads ||
      shape.head_dim != memory.head_dim) {
    return Status(Code::kInvalidArgument, "the KV arena has the geometry of another model");
  }
  if (options.threads == 0 || options.threads > 1024) {
    return Status(Code::kInvalidArgument, "engine threads must be 1 to 1024", options.threads);
  }
  if (options.sequences_max == 0 || options.chunk_tokens_max == 0) {
    return Status(Code::kInvalidArgument, "sequences_max and chunk_tokens_max must be above 0");
  }
  if (!options.token_bytes.empty() && options.token_bytes.size() != model.parameters().vocabulary) {
    return Status(Code::kInvalidArgument, "token_bytes must have one entry per vocabulary token");
  }
  return std::unique_ptr<Engine>(std::make_unique<BatchEngine>(model, arena, options));
}

}  // namespace kairos
