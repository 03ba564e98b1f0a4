# SPDX-License-Identifier: Apache-2.0
"""What a program asks for, and its translation into the structs of kairos.h."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence, Union

from kairos.native import (
    GenerationStruct, LogitBias, MessageStruct, String, TurnOptions, lib, string,
)

WHOLE_HISTORY, NO_GENERATE, NO_REUSE, ONE_CALL, MOVE_MODEL = 1, 2, 4, 8, 16
AUTO_TEMPERATURE, AUTO_MAX_TOKENS, AUTO_CONTEXT, IGNORE_EOS, LOGITS_HASH = 1, 2, 4, 8, 16
DEFAULT_TEMPERATURE, DEFAULT_TOP_P, DEFAULT_TOP_K = 32, 64, 128
VERSION_ANY = -1


@dataclass(frozen=True)
class Message:
    """One message. `tool_calls` is a JSON array, as text or as Python values."""

    role: str
    content: str = ""
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: str | Sequence[Any] | None = None


# A message as the caller writes it: text is a user's message, a mapping names the fields.
MessageLike = Union[str, Message, Mapping[str, Any]]


@dataclass(frozen=True)
class Generation:
    """None leaves a field to the default; "auto" lets the sidecar's filter choose it.

    At most one of `json_schema`, `regex` (of the whole text) and `grammar` (Lark) says what the
    reply's text must match.
    """

    max_tokens: int | str | None = None
    temperature: float | str | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    penalty_window: int = 0
    seed: int = 0
    logprobs: int = 0
    stop: Sequence[str] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False
    auto_context: bool = False
    logits_hash: bool = False
    json_schema: str | Mapping[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None


TOOL_CHOICES = {"auto": 0, "none": 1, "required": 2, "free": 4}
TOOL_CHOICE_NAMED = 3
# "auto", "none", "required", "free", or {"name": TOOL}.
ToolChoice = Union[str, Mapping[str, Any]]


def as_tool_choice(value: ToolChoice) -> tuple[int, str | None]:
    """The number for kairos.h and the tool's name."""
    if isinstance(value, str):
        if value not in TOOL_CHOICES:
            raise ValueError(f"tool_choice: one of {', '.join(TOOL_CHOICES)}, or {{'name': TOOL}}")
        return TOOL_CHOICES[value], None
    name = value.get("name") or (value.get("function") or {}).get("name")
    if not isinstance(name, str):
        raise ValueError("tool_choice: the mapping has no name")
    return TOOL_CHOICE_NAMED, name


def as_message(value: MessageLike) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, str):
        return Message("user", value)
    unknown = set(value) - {"role", "content", "name", "tool_call_id", "tool_calls"}
    if unknown:
        raise ValueError(f"message: unknown field {sorted(unknown)[0]!r}")
    return Message(**{**value, "content": value.get("content") or ""})


def as_json(value: str | Sequence[Any] | Mapping[str, Any] | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


class NativeTurn:
    """A turn's options in C form. Owns every byte that the structs point to."""

    def __init__(self, session_id: int, messages: Sequence[MessageLike], *,
                 tokens: Sequence[int] | None = None,
                 tools: str | Sequence[Any] | None = None, tool_choice: ToolChoice = "auto",
                 parallel_tool_calls: bool = True,
                 generation: Generation | None = None, if_version: int | None = None,
                 idempotency_key: str | None = None, deadline_ms: int = 0, priority: int = 0,
                 whole_history: bool = False, generate: bool = True, reuse: bool = True,
                 discard_on_cancel: bool = False, model: str | None = None,
                 move_model: bool = False) -> None:
        self._kept: list[Any] = []
        self.options = TurnOptions()
        options = self.options
        lib.kairos_turn_options_init(ctypes.byref(options))
        options.session_id = session_id
        options.flags = ((WHOLE_HISTORY if whole_history else 0)
                         | (0 if generate else NO_GENERATE) | (0 if reuse else NO_REUSE)
                         | (0 if parallel_tool_calls else ONE_CALL)
                         | (MOVE_MODEL if move_model else 0))
        options.if_version = VERSION_ANY if if_version is None else if_version
        self._set_messages([as_message(message) for message in messages])
        if tokens is not None:
            array = self._keep((ctypes.c_int32 * len(tokens))(*tokens))
            options.tokens = ctypes.cast(array, ctypes.POINTER(ctypes.c_int32))
            options.token_count = len(tokens)
        options.tools_json = self._string(as_json(tools))
        options.tool_choice, tool_name = as_tool_choice(tool_choice)
        options.tool_name = self._text(tool_name)
        options.idempotency_key = self._text(idempotency_key)
        options.model = self._text(model)
        options.deadline_ms = deadline_ms
        options.priority = priority
        options.on_cancel = 1 if discard_on_cancel else 0
        if generation is not None:
            options.generation = ctypes.pointer(self._generation(generation))

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _string(self, value: bytes | None) -> String:
        return string(self._keep(value))

    def _text(self, value: str | None) -> String:
        return self._string(None if value is None else value.encode())

    def _set_messages(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        array = self._keep((MessageStruct * len(messages))())
        for slot, message in zip(array, messages):
            lib.kairos_message_init(ctypes.byref(slot))
            slot.role = self._text(message.role)
            slot.content = self._text(message.content)
            slot.name = self._text(message.name)
            slot.tool_call_id = self._text(message.tool_call_id)
            slot.tool_calls_json = self._string(as_json(message.tool_calls))
        self.options.messages = ctypes.cast(array, ctypes.POINTER(MessageStruct))
        self.options.message_count = len(messages)

    def _generation(self, wanted: Generation) -> GenerationStruct:
        native = self._keep(GenerationStruct())
        lib.kairos_generation_init(ctypes.byref(native))
        native.flags = ((IGNORE_EOS if wanted.ignore_eos else 0)
                        | (AUTO_CONTEXT if wanted.auto_context else 0)
                        | (LOGITS_HASH if wanted.logits_hash else 0))
        native.flags |= self._number(native, "max_tokens", wanted.max_tokens, AUTO_MAX_TOKENS)
        native.flags |= self._number(native, "temperature", wanted.temperature, AUTO_TEMPERATURE,
                                     DEFAULT_TEMPERATURE)
        native.flags |= self._number(native, "top_k", wanted.top_k, 0, DEFAULT_TOP_K)
        native.flags |= self._number(native, "top_p", wanted.top_p, 0, DEFAULT_TOP_P)
        for name in ("min_p", "repetition_penalty", "presence_penalty",
                     "penalty_window", "seed", "logprobs"):
            setattr(native, name, getattr(wanted, name))
        if wanted.stop:
            stops = self._keep((String * len(wanted.stop))(*[self._text(s) for s in wanted.stop]))
            native.stops = ctypes.cast(stops, ctypes.POINTER(String))
            native.stop_count = len(wanted.stop)
        if wanted.logit_bias:
            pairs = [LogitBias(token, bias) for token, bias in wanted.logit_bias.items()]
            biases = self._keep((LogitBias * len(pairs))(*pairs))
            native.biases = ctypes.cast(biases, ctypes.POINTER(LogitBias))
            native.bias_count = len(pairs)
        self._set_constraint(native, wanted)
        return native

    def _set_constraint(self, native: GenerationStruct, wanted: Generation) -> None:
        given = [(kind, value) for kind, value in enumerate(
            (as_json(wanted.json_schema), wanted.regex, wanted.grammar), 1) if value is not None]
        if len(given) > 1:
            raise ValueError("generation: at most one of json_schema, regex and grammar")
        for kind, value in given:
            native.constraint_kind = kind
            native.constraint = self._string(value if isinstance(value, bytes) else value.encode())

    @staticmethod
    def _number(native: GenerationStruct, name: str, value: Any, auto: int,
                default: int = 0) -> int:
        """Sets a number; the flag `auto` where it is "auto", `default` where it is not given."""
        if value is None:
            return default
        if value == "auto" and auto:
            return auto
        if isinstance(value, str):
            raise ValueError(f'{name}: a number' + (' or "auto"' if auto else ""))
        setattr(native, name, value)
        return 0
