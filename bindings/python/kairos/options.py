# SPDX-License-Identifier: Apache-2.0
"""What a program asks for, and its translation into the structs of kairos.h."""

from __future__ import annotations

import ctypes
import difflib
import inspect
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence, Union

from kairos.arguments import json_text, put, real, text, whole, wrong_type
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
    reply's text must match. `stop` is one text that ends the reply, or several.
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
    stop: str | Sequence[str] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False
    auto_context: bool = False
    logits_hash: bool = False
    json_schema: str | Mapping[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None


TOOL_CHOICES = {"auto": 0, "none": 1, "required": 2, "free": 4}
TOOL_CHOICE_NAMED = 3
TOOL_NAME_BYTES_MAX = 128
# "auto", "none", "required", "free", or {"name": TOOL}.
ToolChoice = Union[str, Mapping[str, Any]]


def as_tool_choice(value: ToolChoice) -> tuple[int, str | None]:
    """The number for kairos.h and the tool's name."""
    if isinstance(value, str):
        if value not in TOOL_CHOICES:
            raise ValueError(f"tool_choice: one of {', '.join(TOOL_CHOICES)}, or {{'name': TOOL}}")
        return TOOL_CHOICES[value], None
    if not isinstance(value, Mapping):
        raise wrong_type("tool_choice", "text or a mapping", value)
    function = value.get("function")
    name = value.get("name") or (function.get("name") if isinstance(function, Mapping) else None)
    if not isinstance(name, str) or not name:
        raise ValueError("tool_choice: the mapping has no name")
    if len(name.encode("utf-8", "replace")) > TOOL_NAME_BYTES_MAX:
        raise ValueError(f"tool_choice: the name has more than {TOOL_NAME_BYTES_MAX} bytes")
    return TOOL_CHOICE_NAMED, name


def as_message(field: str, value: MessageLike) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, str):
        return Message("user", value)
    if not isinstance(value, Mapping):
        raise wrong_type(field, "text, a Message or a mapping", value)
    for name in value:
        if name not in Message.__dataclass_fields__:
            raise ValueError(f"{field}: unknown field {name!r}")
    if value.get("role") is None:
        raise ValueError(f"{field}.role: must be given")
    content = value.get("content")
    return Message(**{**value, "content": "" if content is None else content})


def as_messages(value: MessageLike | Sequence[MessageLike]) -> list[Message]:
    """The messages of a turn, of which the caller may give a single one as it is."""
    if isinstance(value, (str, Message, Mapping)):
        value = [value]
    if not isinstance(value, Sequence) or isinstance(value, (bytes, bytearray)):
        raise wrong_type("messages", "text, a Message, a mapping or a sequence of them", value)
    return [as_message(f"messages[{i}]", message) for i, message in enumerate(value)]


def as_stops(value: str | Sequence[str]) -> list[bytes | None]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        raise wrong_type("stop", "text or a sequence of texts", value)
    for i, stop in enumerate(value):
        if not isinstance(stop, str):
            raise wrong_type(f"stop[{i}]", "text", stop)
    return [text(f"stop[{i}]", stop) for i, stop in enumerate(value)]


def expected_version(if_version: int | None) -> int:
    """The number for kairos.h, where -1 would mean any version."""
    return (VERSION_ANY if if_version is None
            else whole("if_version", if_version, ctypes.c_int64, least=0))


class NativeTurn:
    """A turn's options in C form. Owns every byte that the structs point to."""

    def __init__(self, session_id: int, messages: MessageLike | Sequence[MessageLike], *,
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
        put(options, "session_id", session_id)
        options.flags = ((WHOLE_HISTORY if whole_history else 0)
                         | (0 if generate else NO_GENERATE) | (0 if reuse else NO_REUSE)
                         | (0 if parallel_tool_calls else ONE_CALL)
                         | (MOVE_MODEL if move_model else 0))
        options.if_version = expected_version(if_version)
        self._set_messages(as_messages(messages))
        if tokens is not None:
            self._set_tokens(tokens)
        options.tools_json = self._string(json_text("tools", tools))
        options.tool_choice, tool_name = as_tool_choice(tool_choice)
        options.tool_name = self._text("tool_choice", tool_name)
        options.idempotency_key = self._text("idempotency_key", idempotency_key)
        options.model = self._text("model", model)
        put(options, "deadline_ms", deadline_ms)
        put(options, "priority", priority)
        options.on_cancel = 1 if discard_on_cancel else 0
        if generation is not None:
            if not isinstance(generation, Generation):
                raise wrong_type("generation", "a Generation", generation)
            options.generation = ctypes.pointer(self._generation(generation))

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _string(self, value: bytes | None) -> String:
        return string(self._keep(value))

    def _text(self, field: str, value: str | None) -> String:
        return self._string(text(field, value))

    def _set_tokens(self, tokens: Sequence[int]) -> None:
        if not hasattr(tokens, "__len__") or isinstance(tokens, (str, bytes, Mapping)):
            raise wrong_type("tokens", "a sequence of integers", tokens)
        ids = [whole(f"tokens[{i}]", token, ctypes.c_int32) for i, token in enumerate(tokens)]
        array = self._keep((ctypes.c_int32 * len(ids))(*ids))
        self.options.tokens = ctypes.cast(array, ctypes.POINTER(ctypes.c_int32))
        self.options.token_count = len(ids)

    def _set_messages(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        array = self._keep((MessageStruct * len(messages))())
        for i, (slot, message) in enumerate(zip(array, messages)):
            lib.kairos_message_init(ctypes.byref(slot))
            for name in ("role", "content", "name", "tool_call_id"):
                setattr(slot, name, self._text(f"messages[{i}].{name}", getattr(message, name)))
            slot.tool_calls_json = self._string(
                json_text(f"messages[{i}].tool_calls", message.tool_calls))
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
            put(native, name, getattr(wanted, name))
        texts = as_stops(wanted.stop)
        if texts:
            stops = self._keep((String * len(texts))(*[self._string(stop) for stop in texts]))
            native.stops = ctypes.cast(stops, ctypes.POINTER(String))
            native.stop_count = len(texts)
        if not isinstance(wanted.logit_bias, Mapping):
            raise wrong_type("logit_bias", "a mapping of tokens to numbers", wanted.logit_bias)
        if wanted.logit_bias:
            pairs = [LogitBias(whole("logit_bias: token", token, ctypes.c_int32),
                               real(f"logit_bias[{token}]", bias))
                     for token, bias in wanted.logit_bias.items()]
            biases = self._keep((LogitBias * len(pairs))(*pairs))
            native.biases = ctypes.cast(biases, ctypes.POINTER(LogitBias))
            native.bias_count = len(pairs)
        self._set_constraint(native, wanted)
        return native

    def _set_constraint(self, native: GenerationStruct, wanted: Generation) -> None:
        given = [(kind, value) for kind, value in enumerate(
            (json_text("json_schema", wanted.json_schema), text("regex", wanted.regex),
             text("grammar", wanted.grammar)), 1) if value is not None]
        if len(given) > 1:
            raise ValueError("generation: at most one of json_schema, regex and grammar")
        for kind, value in given:
            native.constraint_kind = kind
            native.constraint = self._string(value)

    @staticmethod
    def _number(native: GenerationStruct, name: str, value: Any, auto: int,
                default: int = 0) -> int:
        """Sets a number; the flag `auto` where it is "auto", `default` where it is not given."""
        if value is None:
            return default
        if isinstance(value, str):
            if value == "auto" and auto:
                return auto
            raise ValueError(f'{name}: a number' + (' or "auto"' if auto else ""))
        put(native, name, value)
        return 0


TURN_OPTIONS = tuple(name for name, parameter in inspect.signature(NativeTurn).parameters.items()
                     if parameter.kind is parameter.KEYWORD_ONLY)


def check_names(options: Mapping[str, Any]) -> None:
    """Refuses options that a turn does not have, with the ones it has."""
    fields = Generation.__dataclass_fields__
    for name in options:
        if name in TURN_OPTIONS:
            continue
        near = name if name in fields else next(
            iter(difflib.get_close_matches(name, [*TURN_OPTIONS, *fields], 1)), None)
        meant = ("." if near is None else f"; did you mean {near}?" if near in TURN_OPTIONS
                 else f"; did you mean generation=Generation({near}=...)?")
        raise TypeError(f"a turn has no option {name!r}{meant} Its options: "
                        f"{', '.join(TURN_OPTIONS)}")
