// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/journal.h"

#include <utility>

namespace kairos {

Journal::Journal(std::unique_ptr<Catalog> catalog) : catalog_(std::move(catalog)) {
  bytes_used_.store(catalog_->bytes_used(), std::memory_order_relaxed);
}

bool Journal::Submit(JournalCommand&& command) {
  if (!commands_.TryPush(std::move(command))) return false;
  waker_.Wake();
  return true;
}

std::optional<JournalResult> Journal::Poll() { return results_.TryPop(); }

bool Journal::DoWork() {
  bool did_work = false;
  for (;;) {
    // A result that found no room goes out before the next command runs: order, and nothing is
    // lost.
    if (held_result_.has_value()) {
      if (!results_.TryPush(std::move(*held_result_))) break;
      held_result_.reset();
      if (result_waker_ != nullptr) result_waker_->Wake();
      did_work = true;
    }
    std::optional<JournalCommand> command = commands_.TryPop();
    if (!command.has_value()) break;
    held_result_ = Run(*command);
    // Read by others for figures only; publishes nothing.
    bytes_used_.store(catalog_->bytes_used(), std::memory_order_relaxed);
    did_work = true;
  }
  return did_work;
}

JournalResult Journal::Run(JournalCommand& command) {
  JournalResult result;
  result.verb = command.verb;
  result.ticket = command.ticket;
  switch (command.verb) {
    case JournalVerb::kCreate:
      result.status = catalog_->CreateSession(command.record);
      break;
    case JournalVerb::kCommit:
      result.status = catalog_->Commit(command.record, command.create, command.delta, command.key,
                                       command.reply.has_value() ? &*command.reply : nullptr,
                                       &result.oldest);
      break;
    case JournalVerb::kSetHead:
      result.status = catalog_->SetHead(command.session, command.version);
      break;
    case JournalVerb::kFork: {
      Result<HeadSummary> forked =
          catalog_->Fork(command.record, command.session, command.version);
      result.status = forked.status();
      if (forked.ok()) result.summary = forked.Take();
      break;
    }
    case JournalVerb::kDelete:
      result.status = catalog_->Delete(command.session);
      break;
    case JournalVerb::kLoadVersion: {
      Result<StateVersion> loaded = catalog_->LoadVersion(command.session, command.version);
      result.status = loaded.status();
      if (loaded.ok()) result.version = loaded.Take();
      break;
    }
    case JournalVerb::kFindReply: {
      Result<std::optional<StoredReply>> found =
          catalog_->FindReply(command.record.uid, command.record.name_space, command.key);
      result.status = found.status();
      if (found.ok()) result.reply = found.Take();
      break;
    }
    case JournalVerb::kSetLimits:
      result.status = catalog_->SetLimits(command.limits);
      break;
  }
  result.status = catalog_->Explain(result.status);
  return result;
}

}  // namespace kairos
