# SPDX-License-Identifier: Apache-2.0
"""Events of turns and watched sessions, copied out of the library's memory."""

from __future__ import annotations

import ctypes
import json
import math
from dataclasses import dataclass
from typing import Any

from kairos.errors import KairosError, check, make_error
from kairos.native import FinalStruct, SessionStruct, lib, text_of
from kairos.records import SessionInfo, TurnResult

ACCEPTED, TEXT, TOOL_CALL, LOGPROBS, FINAL, ERROR, REPLY, REASONING, SESSION = range(1, 10)
SKIPPED = 24


@dataclass(frozen=True)
class Event:
    request_id: int
    session_id: int


@dataclass(frozen=True)
class AcceptedEvent(Event):
    version: int


@dataclass(frozen=True)
class TextEvent(Event):
    text: str
    tokens: tuple[int, ...]
    detail: int = 0  # a KAIROS_DETAIL_CALL_*: the text is a tool call that could not be read


@dataclass(frozen=True)
class ReasoningEvent(Event):
    """What the model thinks before it answers; no part of the answer."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class ToolCallEvent(Event):
    id: str
    name: str
    arguments: Any  # parsed where it is JSON, else the text
    raw: str
    tokens: tuple[int, ...] = ()  # generated since the event before, markup too


@dataclass(frozen=True)
class TokenLogprob:
    token: int
    logprob: float  # natural logarithm; minus infinity for a token that could not come


@dataclass(frozen=True)
class LogprobsEvent(Event):
    """One generated token; there is one event for each, where the turn asked for logprobs."""

    token: int
    logprob: float  # as in TokenLogprob
    top: tuple[TokenLogprob, ...]  # as many as were asked for, the likeliest first


@dataclass(frozen=True)
class FinalEvent(Event):
    result: TurnResult
    tokens: tuple[int, ...] = ()  # generated since the event before


@dataclass(frozen=True)
class ErrorEvent(Event):
    code: int
    detail: int
    message: str

    def error(self) -> KairosError:
        return make_error(self.code, self.detail, self.message)


@dataclass(frozen=True)
class SessionEvent(Event):
    """A session that is watched has another version or phase.

    Of a deleted session only id and phase are told. `skipped`: earlier changes were left out, since
    they were not read in time; without `info` those of some sessions were, so list them again.
    """

    info: SessionInfo | None
    skipped: bool


def _tokens(handle: ctypes.c_void_p) -> tuple[int, ...]:
    count = ctypes.c_uint32()
    first = lib.kairos_event_tokens(handle, ctypes.byref(count))
    return tuple(first[: count.value]) if count.value else ()


def _tool_call(request: int, session: int, raw: str, tokens: tuple[int, ...]) -> ToolCallEvent:
    call = json.loads(raw)
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass  # a model may write arguments that are not JSON; the program sees its text
    return ToolCallEvent(request, session, str(call.get("id", "")), str(call.get("name", "")),
                         arguments, raw, tokens)


def _logprobs(request: int, session: int, raw: str) -> LogprobsEvent:
    def one(entry: dict[str, Any]) -> TokenLogprob:
        value = entry["logprob"]  # JSON has no infinities: null
        return TokenLogprob(int(entry["token"]), -math.inf if value is None else float(value))

    row = json.loads(raw)
    drawn = one(row)
    return LogprobsEvent(request, session, drawn.token, drawn.logprob,
                         tuple(one(entry) for entry in row["top"]))


def _final(handle: ctypes.c_void_p) -> TurnResult:
    numbers = FinalStruct(struct_size=ctypes.sizeof(FinalStruct))
    check(lib.kairos_event_final(handle, ctypes.byref(numbers)))
    return TurnResult.from_struct(numbers)


def _summary(handle: ctypes.c_void_p) -> SessionInfo:
    state = SessionStruct(struct_size=ctypes.sizeof(SessionStruct))
    check(lib.kairos_event_summary(handle, ctypes.byref(state)))
    return SessionInfo.from_struct(state)


def take(handle: ctypes.c_void_p) -> Event:
    """Copies a native event and releases it."""
    try:
        kind = lib.kairos_event_type(handle)
        request = lib.kairos_event_request(handle)
        session = lib.kairos_event_session(handle)
        text = text_of(lib.kairos_event_text(handle))
        if kind == ACCEPTED:
            return AcceptedEvent(request, session, lib.kairos_event_version(handle))
        if kind == TEXT:
            return TextEvent(request, session, text, _tokens(handle),
                             lib.kairos_event_detail(handle))
        if kind == REASONING:
            return ReasoningEvent(request, session, text, _tokens(handle))
        if kind == TOOL_CALL:
            return _tool_call(request, session, text, _tokens(handle))
        if kind == LOGPROBS:
            return _logprobs(request, session, text)
        if kind == FINAL:
            return FinalEvent(request, session, _final(handle), _tokens(handle))
        if kind == ERROR:
            return ErrorEvent(request, session, lib.kairos_event_code(handle),
                              lib.kairos_event_detail(handle), text)
        if kind == SESSION:
            return SessionEvent(request, session, _summary(handle) if session else None,
                                lib.kairos_event_detail(handle) == SKIPPED)
        return Event(request, session)
    finally:
        lib.kairos_event_release(handle)


def is_last(event: Event) -> bool:
    return isinstance(event, (FinalEvent, ErrorEvent))
