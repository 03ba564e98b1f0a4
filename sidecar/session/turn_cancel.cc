// SPDX-License-Identifier: Apache-2.0
// Turns of TurnPipeline that end early: cancelled, late, or left by their client.
#include <utility>

#include "sidecar/session/turn_pipeline.h"

namespace kairos {

void TurnPipeline::CancelTurn(Turn& turn) {
  turn.cancel = true;
  switch (turn.phase) {
    case TurnPhase::kAdmitted:
    case TurnPhase::kQueued: {
      Session* session = parts_.router.FindEvenDeleting(turn.session);
      if (session != nullptr) parts_.router.RemoveWaiting(*session, turn.id);
      const bool late = turn.deadline_passed;
      HandOver(turn);
      if (turn.cut_by_drain) {
        return Fail(turn, Code::kUnavailable, KAIROS_DETAIL_DRAINING, kDrainingWords);
      }
      return Fail(turn, late ? Code::kDeadlineExceeded : Code::kCancelled, 0,
                  late ? "the deadline passed before the turn began"
                       : "cancelled before the turn began");
    }
    case TurnPhase::kCompiling:
      turn.host->grammar.Send({turn.id, turn.request.attachment, {}});
      return EndRender(turn, SessionOf(turn));
    case TurnPhase::kWaitingKv:
      return Generate(turn, SessionOf(turn));
    case TurnPhase::kGenerating: {
      EngineOrder order;
      order.spec.id = SequenceId{turn.id};
      turn.host->engine.Send(std::move(order));
      return;
    }
    case TurnPhase::kRestoring:
    case TurnPhase::kRendering:
    case TurnPhase::kCommitting:
      return;  // seen at the next stage, or too late
  }
}

void TurnPipeline::Cancel(AttachmentId attachment, RequestId request, uint64_t now_ns) {
  now_ns_ = now_ns;
  for (auto& [id, turn] : turns_) {
    if (!(turn->request.attachment == attachment) || !(turn->request.id == request)) continue;
    turn->client_cancelled = true;
    return CancelTurn(*turn);
  }
}

void TurnPipeline::Detach(AttachmentId attachment, uint64_t now_ns) {
  now_ns_ = now_ns;
  detaching_.emplace(attachment.value, true);
  // Cancelling one turn can end others, so ids are collected first.
  std::vector<uint64_t> ids;
  size_t left = 0;
  for (auto& [id, turn] : turns_) {
    if (!(turn->request.attachment == attachment)) continue;
    ++left;
    if (!turn->client_gone) ids.push_back(id);
    turn->client_gone = true;
  }
  attached_.erase(attachment.value);
  if (left == 0) {
    detaching_.erase(attachment.value);
    Reply reply;
    reply.kind = ReplyKind::kDetached;
    reply.attachment = attachment;
    return parts_.replies.Send(std::move(reply));
  }
  for (const uint64_t id : ids) {
    if (Turn* turn = FindTurn(id)) CancelTurn(*turn);
  }
}

void TurnPipeline::ExpireDeadlines(uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<uint64_t> late;
  for (auto& [id, turn] : turns_) {
    const bool waiting = turn->phase != TurnPhase::kGenerating &&
                         turn->phase != TurnPhase::kCommitting;
    if (waiting && turn->ask().deadline_ns != 0 && turn->ask().deadline_ns < now_ns) {
      late.push_back(id);
    }
  }
  for (const uint64_t id : late) {
    Turn* turn = FindTurn(id);
    if (turn == nullptr || turn->deadline_passed) continue;
    turn->deadline_passed = true;
    CancelTurn(*turn);
  }
}

void TurnPipeline::CancelSession(Session& session, uint64_t now_ns) {
  now_ns_ = now_ns;
  const std::deque<uint64_t> waiting = session.waiting;
  const uint64_t open = session.open_turn;
  for (const uint64_t id : waiting) {
    if (Turn* turn = FindTurn(id)) CancelTurn(*turn);
  }
  if (Turn* turn = FindTurn(open)) CancelTurn(*turn);
}

void TurnPipeline::CancelAll(uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<uint64_t> ids;
  for (const auto& [id, turn] : turns_) ids.push_back(id);
  for (const uint64_t id : ids) {
    Turn* turn = FindTurn(id);
    if (turn == nullptr) continue;
    turn->cut_by_drain = true;
    CancelTurn(*turn);
  }
}

}  // namespace kairos
