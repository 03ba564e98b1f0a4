# SPDX-License-Identifier: Apache-2.0
"""The C interface as ctypes sees it: structs, functions, and how the library is found.

The library is $KAIROS_LIBRARY, else libkairos.so.1 by the dynamic loader's own rules.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_char_p, c_float, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Any

ABI_VERSION = 1


class String(ctypes.Structure):
    # void*, not char*: sizes are explicit and bytes may contain zeros.
    _fields_ = [("data", c_void_p), ("size", c_uint64)]


class ClientOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("socket_path", String),
        ("name_space", String), ("request_ring_bytes", c_uint32), ("reply_ring_bytes", c_uint32),
        ("spin_us", c_int32), ("connect_timeout_ms", c_int32), ("reserved", c_uint64 * 4),
    ]


class SessionOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("fidelity", c_int32),
        ("priority", c_int32), ("ttl_seconds", c_uint64), ("label", String),
        ("model", String), ("reserved", c_uint64 * 2),
    ]


class SessionStruct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("phase", c_int32), ("id", c_uint64), ("version", c_uint64),
        ("oldest_version", c_uint64), ("token_count", c_uint64), ("resident_tokens", c_uint64),
        ("message_count", c_uint64), ("kv_bytes", c_uint64), ("created_unix_ms", c_uint64),
        ("used_unix_ms", c_uint64), ("parent_id", c_uint64), ("fidelity", c_int32),
        ("label_size", c_uint32), ("label", c_char * 128), ("waiting_for", c_char * 64),
        ("model", c_char * 64), ("flags", c_uint32), ("reserved", c_uint32),
    ]


class MessageStruct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("role", String), ("content", String),
        ("name", String), ("tool_call_id", String), ("tool_calls_json", String),
    ]


class LogitBias(ctypes.Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class GenerationStruct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("max_tokens", c_uint32),
        ("temperature", c_float), ("top_k", c_int32), ("top_p", c_float), ("min_p", c_float),
        ("repetition_penalty", c_float), ("presence_penalty", c_float),
        ("penalty_window", c_int32), ("seed", c_uint64), ("logprobs", c_uint32),
        ("stop_count", c_uint32), ("stops", POINTER(String)), ("biases", POINTER(LogitBias)),
        ("bias_count", c_uint32), ("constraint_kind", c_int32), ("constraint", String),
        ("reserved", c_uint64 * 2),
    ]


class TurnOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("session_id", c_uint64),
        ("if_version", c_int64), ("messages", POINTER(MessageStruct)),
        ("tokens", POINTER(c_int32)), ("message_count", c_uint32), ("token_count", c_uint32),
        ("tools_json", String), ("idempotency_key", String), ("deadline_ms", c_uint32),
        ("priority", c_int32), ("on_cancel", c_int32), ("tool_choice", c_int32),
        ("generation", POINTER(GenerationStruct)), ("tool_name", String),
        ("model", String),
    ]


REASON_COUNT = 16
STAGE_COUNT = 12


class FinalStruct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("finish", c_int32), ("session_id", c_uint64),
        ("version", c_uint64), ("prompt_tokens", c_uint64), ("new_tokens", c_uint64),
        ("reused_tokens", c_uint64), ("shared_tokens", c_uint64), ("recomputed_tokens", c_uint64),
        ("generated_tokens", c_uint64), ("recomputed_by", c_uint64 * REASON_COUNT),
        ("stage_ns", c_uint64 * STAGE_COUNT), ("ttft_ns", c_uint64), ("total_ns", c_uint64),
        ("model_ns", c_uint64), ("logits_hash", c_uint64), ("first_difference", c_int64),
        ("plan", c_int32), ("label", c_int32), ("phase", c_int32), ("replayed", c_int32),
        ("rule", c_char * 48), ("forced_tokens", c_uint64),
    ]


# Sizes in kairos.h; a mistake in a table above must not reach the library.
for _struct, _size in (
    (ClientOptions, 88), (SessionOptions, 72), (SessionStruct, 360), (MessageStruct, 88),
    (GenerationStruct, 112), (TurnOptions, 136), (FinalStruct, 408),
):
    assert ctypes.sizeof(_struct) == _size, _struct.__name__

_HANDLE = c_void_p
_EVENT = c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "kairos_abi_version": (c_uint32, []),
    "kairos_layout_hash": (c_uint64, []),
    "kairos_version": (c_char_p, []),
    "kairos_strerror": (c_char_p, [c_int32]),
    "kairos_last_error": (c_int64, [c_char_p, c_size_t]),
    "kairos_last_detail": (c_int32, []),
    "kairos_client_options_init": (None, [POINTER(ClientOptions)]),
    "kairos_client_open": (c_int32, [POINTER(ClientOptions), POINTER(_HANDLE)]),
    "kairos_client_close": (None, [_HANDLE]),
    "kairos_client_fd": (c_int32, [_HANDLE]),
    "kairos_client_ping": (c_int64, [_HANDLE, c_uint32, c_int32, c_int32]),
    "kairos_session_options_init": (None, [POINTER(SessionOptions)]),
    "kairos_session_create":
        (c_int32, [_HANDLE, POINTER(SessionOptions), POINTER(c_uint64), c_int32]),
    "kairos_session_open": (c_int32, [_HANDLE, c_uint64, POINTER(SessionStruct), c_int32]),
    "kairos_session_fork": (c_int32, [_HANDLE, c_uint64, c_uint64, POINTER(c_uint64), c_int32]),
    "kairos_session_rewind": (c_int32, [_HANDLE, c_uint64, c_uint64, c_int32]),
    "kairos_session_release": (c_int32, [_HANDLE, c_uint64, c_int32]),
    "kairos_session_delete": (c_int32, [_HANDLE, c_uint64, c_int32]),
    "kairos_session_list":
        (c_int32, [_HANDLE, c_uint64, POINTER(SessionStruct), c_uint32, c_int32]),
    "kairos_session_stat": (c_int32, [_HANDLE, c_uint64, POINTER(SessionStruct), c_int32]),
    "kairos_session_messages": (c_int32, [_HANDLE, c_uint64, c_uint64, POINTER(_EVENT), c_int32]),
    "kairos_context_read": (c_int32, [_HANDLE, c_uint64, c_uint64, POINTER(_EVENT), c_int32]),
    "kairos_context_write":
        (c_int32, [_HANDLE, c_uint64, c_int64, String, POINTER(c_uint64), c_int32]),
    "kairos_message_init": (None, [POINTER(MessageStruct)]),
    "kairos_generation_init": (None, [POINTER(GenerationStruct)]),
    "kairos_turn_options_init": (None, [POINTER(TurnOptions)]),
    "kairos_turn_submit": (c_int32, [_HANDLE, POINTER(TurnOptions), POINTER(c_uint64)]),
    "kairos_turn_cancel": (c_int32, [_HANDLE, c_uint64]),
    "kairos_event_next": (c_int32, [_HANDLE, c_int32, POINTER(_EVENT)]),
    "kairos_event_release": (None, [_EVENT]),
    "kairos_event_type": (c_int32, [_EVENT]),
    "kairos_event_request": (c_uint64, [_EVENT]),
    "kairos_event_session": (c_uint64, [_EVENT]),
    "kairos_event_version": (c_uint64, [_EVENT]),
    "kairos_event_code": (c_int32, [_EVENT]),
    "kairos_event_detail": (c_int32, [_EVENT]),
    "kairos_event_text": (String, [_EVENT]),
    "kairos_event_tokens": (POINTER(c_int32), [_EVENT, POINTER(c_uint32)]),
    "kairos_event_final": (c_int32, [_EVENT, POINTER(FinalStruct)]),
    "kairos_event_summary": (c_int32, [_EVENT, POINTER(SessionStruct)]),
    "kairos_watch": (c_int32, [_HANDLE, c_uint32, c_int32]),
    "kairos_watch_next": (c_int32, [_HANDLE, c_int32, POINTER(_EVENT)]),
}


def _place_of(name: str) -> str:
    """Where the loader found a library that this process has loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            places = [line.rstrip("\n").partition("/") for line in maps]
    except OSError:
        return name
    stem = os.path.basename(os.path.realpath(name)).partition(".so")[0]
    return next((slash + rest for _, slash, rest in places
                 if os.path.basename(rest).startswith(stem + ".so")), name)


def load(path: str | None = None) -> ctypes.CDLL:
    """Loads the library and declares its functions; ImportError says what was tried."""
    name = path or os.environ.get("KAIROS_LIBRARY") or "libkairos.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(
            f"cannot load {name}: {error}. Install libkairos or set KAIROS_LIBRARY to its path."
        ) from error
    for symbol, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, symbol, None)
        if function is None:
            raise ImportError(f"libkairos at {_place_of(name)} is older than this package, which "
                              f"needs {symbol}(); update it")
        function.restype = result
        function.argtypes = arguments
    if library.kairos_abi_version() < ABI_VERSION:
        raise ImportError(f"{name} has ABI version {library.kairos_abi_version()}, "
                          f"this package needs {ABI_VERSION}")
    return library


lib = load()


def string(value: bytes | None) -> String:
    """A view of `value`, which the caller keeps alive for the call."""
    if value is None:
        return String(None, 0)
    return String(ctypes.cast(ctypes.c_char_p(value), c_void_p), len(value))


def text_of(view: String) -> str:
    if not view.data or not view.size:
        return ""
    return ctypes.string_at(view.data, view.size).decode("utf-8", "replace")
