// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/grammar_thread.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kairos/kairos.h"

namespace kairos {
namespace {

constexpr size_t kPartsTriedMax = 16;  // each is compiled to find the one at fault
constexpr size_t kRefusalsKept = 16;
constexpr size_t kRefusalBytesMax = 256u << 10;

}  // namespace

bool GrammarThread::Submit(GrammarJob&& job) {
  if (!jobs_.TryPush(std::move(job))) return false;
  waker_.Wake();
  return true;
}

bool GrammarThread::DoWork() {
  const bool took = TakeJobs();
  bool compiled = false;
  order_.Run([&](uint64_t ticket) {
    if (compiled) return TurnQueue::Outcome::kNoRoom;
    auto waiting = waiting_.extract(ticket);
    if (waiting.empty()) return TurnQueue::Outcome::kDone;
    compiled = true;
    Compile(std::move(waiting.mapped()));
    return TurnQueue::Outcome::kDone;
  });
  return took || compiled;
}

bool GrammarThread::TakeJobs() {
  bool took = false;
  while (std::optional<GrammarJob> job = jobs_.TryPop()) {
    took = true;
    const uint64_t ticket = job->ticket;
    if (job->reply.grammar.empty()) {
      waiting_.erase(ticket);
      continue;
    }
    order_.Push(job->client, ticket);
    waiting_.emplace(ticket, std::move(*job));
  }
  return took;
}

void GrammarThread::Compile(GrammarJob job) {
  GrammarResult result;
  result.ticket = job.ticket;
  const auto refused =
      std::find_if(refusals_.begin(), refusals_.end(),
                   [&](const Refusal& one) { return one.grammar == job.reply.grammar; });
  if (refused != refusals_.end()) {
    result.status = refused->status;
    result.error = refused->error;
    return Answer(std::move(result));
  }
  Result<std::unique_ptr<CompiledGrammar>> made =
      compiler_.Compile(job.reply.grammar, job.reply.is_prose, &result.error);
  if (made.ok()) {
    result.compiled = made.Take();
    result.constraint = result.compiled->Start();
    AnswerEqual(job.reply.grammar, *result.compiled);
    result.grammar = std::move(job.reply.grammar);
    return Answer(std::move(result));
  }
  result.status = Status(made.status().code(), made.status().message(), KAIROS_DETAIL_GRAMMAR);
  BlamePart(job.reply.parts, &result.error);
  if (job.reply.grammar.size() <= kRefusalBytesMax) {
    if (refusals_.size() == kRefusalsKept) refusals_.pop_front();
    refusals_.push_back({std::move(job.reply.grammar), result.status, result.error});
  }
  Answer(std::move(result));
}

void GrammarThread::BlamePart(const std::vector<ReplyGrammar::Part>& parts,
                              std::string* error) const {
  for (const ReplyGrammar::Part& part : parts) {
    if (parts.size() > kPartsTriedMax) break;
    std::string words;
    if (compiler_.Compile(part.grammar, false, &words).ok()) continue;
    *error = part.label + ": " + words;
    return;
  }
  if (parts.size() < 2) return;
  // The constraint, where there is one, is the first.
  const bool constrained = parts.front().label == "constraint";
  *error = fmt::format("{}the {} tools together: {}{}",
                       constrained ? "the constraint and " : "",
                       parts.size() - (constrained ? 1 : 0), *error,
                       error->starts_with(kTooMuchWork) ? ", or send fewer tools" : "");
}

void GrammarThread::AnswerEqual(const std::string& grammar, CompiledGrammar& compiled) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.reply.grammar != grammar) {
      ++at;
      continue;
    }
    GrammarResult result;
    result.ticket = at->first;
    result.constraint = compiled.Start();
    at = waiting_.erase(at);
    Answer(std::move(result));
  }
}

void GrammarThread::Answer(GrammarResult&& result) {
  // The conductor drains results in every loop, so a full queue empties soon.
  while (!results_.TryPush(std::move(result))) sched_yield();
  if (result_waker_ != nullptr) result_waker_->Wake();
}

}  // namespace kairos
