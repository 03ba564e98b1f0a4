# SPDX-License-Identifier: Apache-2.0
"""What the sidecar reports, as plain immutable values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from kairos.native import FinalStruct, SessionStruct


class Phase(enum.IntEnum):
    IDLE = 0
    RUNNING = 1
    WAITING_TOOL = 2
    WAITING_USER = 3
    CLOSED = 4


class Plan(enum.IntEnum):
    UNKNOWN = 0
    FULL_COMPUTE = 1
    CONTINUATION = 2
    LIGHTWEIGHT_REFINE = 3


class TurnLabel(enum.IntEnum):
    UNKNOWN = 0
    NEW_TOPIC = 1
    CONTINUATION = 2
    CLARIFICATION = 3
    TOOL_RETURN = 4


class Finish(enum.IntEnum):
    UNKNOWN = 0
    STOP = 1
    LENGTH = 2
    STRING = 3
    TOOL_CALL = 4
    CANCELLED = 5
    DEADLINE = 6
    NONE = 7


class Reason(enum.IntEnum):
    """Why a token of the past was computed again."""

    BLOCK_BOUNDARY = 0
    RESTART = 1
    EVICTED = 2
    HISTORY_CHANGED = 3
    TOOLS_CHANGED = 4
    CONTEXT_RESET = 5
    REUSE_OFF = 6
    CHECKSUM = 7
    OTHER_FORMAT = 8


STAGES = ("admit", "route", "restore", "filter", "render", "queue", "prefill", "decode", "commit")


def _known(kind: type[enum.IntEnum], value: int) -> int:
    """The member, or the plain number where a newer sidecar reports one that is not known here."""
    try:
        return kind(value)
    except ValueError:
        return value


@dataclass(frozen=True)
class SessionInfo:
    id: int
    version: int
    oldest_version: int
    phase: int
    token_count: int
    resident_tokens: int
    message_count: int
    kv_bytes: int
    created_unix_ms: int
    used_unix_ms: int
    parent_id: int
    fidelity: int
    label: str
    waiting_for: str
    model: str  # empty: not in memory
    drop_reasoning: bool = False

    @classmethod
    def from_struct(cls, s: SessionStruct) -> SessionInfo:
        # .label of a char array stops at a zero byte, which the size already accounts for.
        raw = bytes(s)[SessionStruct.label.offset:][:min(s.label_size, 128)]
        return cls(
            id=s.id, version=s.version, oldest_version=s.oldest_version,
            phase=_known(Phase, s.phase), token_count=s.token_count,
            resident_tokens=s.resident_tokens, message_count=s.message_count, kv_bytes=s.kv_bytes,
            created_unix_ms=s.created_unix_ms, used_unix_ms=s.used_unix_ms, parent_id=s.parent_id,
            fidelity=s.fidelity, label=raw.decode("utf-8", "replace"),
            waiting_for=s.waiting_for.decode("utf-8", "replace"),
            model=s.model.decode("utf-8", "replace"), drop_reasoning=bool(s.flags & 1))


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    new_tokens: int
    reused_tokens: int
    shared_tokens: int
    recomputed_tokens: int
    generated_tokens: int
    forced_tokens: int  # of the generated, those that a constraint left no choice in
    recomputed_by: dict[int, int] = field(default_factory=dict)  # Reason to tokens, without zeros


@dataclass(frozen=True)
class TurnResult:
    session_id: int
    version: int
    finish: int
    usage: Usage
    plan: int
    label: int
    phase: int
    rule: str
    replayed: bool
    first_difference: int | None
    logits_hash: int
    ttft_ns: int
    total_ns: int
    model_ns: int
    stage_ns: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_struct(cls, f: FinalStruct) -> TurnResult:
        reasons = {_known(Reason, i): n for i, n in enumerate(f.recomputed_by) if n}
        usage = Usage(
            prompt_tokens=f.prompt_tokens, new_tokens=f.new_tokens, reused_tokens=f.reused_tokens,
            shared_tokens=f.shared_tokens, recomputed_tokens=f.recomputed_tokens,
            generated_tokens=f.generated_tokens, forced_tokens=f.forced_tokens,
            recomputed_by=reasons)
        return cls(
            session_id=f.session_id, version=f.version, finish=_known(Finish, f.finish),
            usage=usage, plan=_known(Plan, f.plan), label=_known(TurnLabel, f.label),
            phase=_known(Phase, f.phase), rule=f.rule.decode("utf-8", "replace"),
            replayed=bool(f.replayed),
            first_difference=None if f.first_difference < 0 else f.first_difference,
            logits_hash=f.logits_hash, ttft_ns=f.ttft_ns, total_ns=f.total_ns, model_ns=f.model_ns,
            stage_ns=dict(zip(STAGES, f.stage_ns)))
