# SPDX-License-Identifier: Apache-2.0
"""Blocking client: one attachment to the sidecar, its sessions and turns.

A client may be used from several threads. The library has one queue of events for all turns of a
client; whichever thread reads it hands events of other turns to their owners.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import threading
import time
from types import TracebackType
from typing import Any, Deque, Iterator, Mapping, Sequence

from kairos import events as _events
from kairos.arguments import json_text, path, put, text, timeout_ms, whole
from kairos.errors import DeadlineExceeded, RingFull, check
from kairos.events import AcceptedEvent, ErrorEvent, Event, FinalEvent, SessionEvent, TextEvent
from kairos.native import ClientOptions, SessionOptions, SessionStruct, lib, string, text_of
from kairos.options import (
    Generation, MessageLike, NativeTurn, check_names, expected_version,
)
from kairos.records import SessionInfo, TurnResult


WATCH_SESSIONS = 1
SESSION_LIST_MAX = 4096  # asked for more, the sidecar sends as many
# Signals, ^C among them, are handled between calls of the library, never within one.
_WAIT_SLICE = 0.2


def _slice_ms(left: float | None) -> int:
    """What the library may wait at once, of the `left` seconds; None is without limit."""
    return timeout_ms(_WAIT_SLICE if left is None else min(left, _WAIT_SLICE))


def _seconds_to(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _deadline(timeout: float | None) -> float | None:
    timeout_ms(timeout)  # refuses what is no time
    return None if timeout is None else time.monotonic() + timeout


class Client:
    """An attachment of this process.

    `connect_timeout` of opening it and `timeout` of its calls are in seconds, None without limit.
    A number that its field cannot hold is a ValueError, a value of a wrong type a TypeError.
    """

    def __init__(self, socket_path: str | os.PathLike[str] | None = None, *,
                 name_space: str | None = None,
                 request_ring_bytes: int = 0, reply_ring_bytes: int = 0, spin_us: int = -1,
                 connect_timeout: float | None = 5.0, timeout: float | None = 60.0) -> None:
        self.timeout = timeout
        self._handle = ctypes.c_void_p()
        # Of the mailboxes. One thread at a time reads the library's queue, so that the events of a
        # turn reach their mailbox in order; the others wait here and one of them takes over.
        self._lock = threading.Condition()
        self._reading = False
        self._mail: dict[int, Deque[Event]] = {}
        # An event on its way from the library: a signal must not lose it.
        self._arriving = ctypes.c_void_p()
        timeout_ms(timeout)  # refused here, not by the first call that waits
        raw_path = path("socket_path", socket_path)
        space = text("name_space", name_space)
        options = ClientOptions()
        lib.kairos_client_options_init(ctypes.byref(options))
        options.socket_path = string(raw_path)
        options.name_space = string(space)
        put(options, "request_ring_bytes", request_ring_bytes)
        put(options, "reply_ring_bytes", reply_ring_bytes)
        put(options, "spin_us", spin_us)
        # In C, 0 is the default; the shortest time comes nearest to none.
        options.connect_timeout_ms = timeout_ms(connect_timeout, "connect_timeout") or 1
        check(lib.kairos_client_open(ctypes.byref(options), ctypes.byref(self._handle)))

    def close(self) -> None:
        """Detaches; open turns are cancelled, sessions stay. Threads that wait get Cancelled."""
        # The handle keeps its value: the library knows that it is closed and says so.
        lib.kairos_client_close(self._handle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        """A descriptor that is readable when there may be events; the client owns it."""
        return check(lib.kairos_client_fd(self._handle))

    def ping(self, size: int = 0, *, spin: bool = False, timeout: float | None = 5.0) -> float:
        """Seconds for an echo of `size` bytes."""
        size = whole("size", size, ctypes.c_uint32)
        return check(lib.kairos_client_ping(self._handle, size, int(bool(spin)),
                                            timeout_ms(timeout))) / 1e9

    # -- sessions --

    def create_session(self, *, label: str | None = None, exact: bool = False, priority: int = 0,
                       ttl_seconds: int = 0, model: str | None = None,
                       drop_reasoning: bool = False) -> Session:
        """`model` is the name of one that is in memory; None is the sidecar's default. With
        `drop_reasoning`, what the model thinks is told, and not kept in the log."""
        raw = text("label", label)
        raw_model = text("model", model)
        options = SessionOptions()
        lib.kairos_session_options_init(ctypes.byref(options))
        options.flags = 1 if drop_reasoning else 0
        options.fidelity = 1 if exact else 0
        put(options, "priority", priority)
        put(options, "ttl_seconds", ttl_seconds)
        options.label = string(raw)
        options.model = string(raw_model)
        out = ctypes.c_uint64()
        check(lib.kairos_session_create(self._handle, ctypes.byref(options), ctypes.byref(out),
                                        self._timeout_ms()))
        return Session(self, out.value)

    def open_session(self, session_id: int) -> Session:
        """Binds an existing session to this client; NotFound where there is none for us."""
        session_id = whole("session_id", session_id, ctypes.c_uint64)
        check(lib.kairos_session_open(self._handle, session_id, None, self._timeout_ms()))
        return Session(self, session_id)

    def sessions(self, *, page: int = 256) -> Iterator[SessionInfo]:
        """All sessions of this uid and namespace, in order of id, asked for by the `page`."""
        page = min(whole("page", page, ctypes.c_uint32, least=1), SESSION_LIST_MAX)
        after = 0
        while True:
            array = (SessionStruct * page)()
            array[0].struct_size = ctypes.sizeof(SessionStruct)
            count = check(lib.kairos_session_list(self._handle, after, array, page,
                                                  self._timeout_ms()))
            for i in range(count):
                after = array[i].id
                yield SessionInfo.from_struct(array[i])
            if count < page:
                return

    def watch(self) -> Watch:
        """Changes of version or phase of all sessions of this uid and namespace, from now on."""
        return Watch(self)

    # -- turns --

    def submit(self, messages: MessageLike | Sequence[MessageLike] = (), *, session_id: int = 0,
               generation: Generation | None = None, **options: Any) -> Turn:
        """Queues a turn and returns it; RingFull means: read events, then try again.

        Without a session id the sidecar makes a session. Options: tokens, tools, tool_choice,
        parallel_tool_calls, if_version, idempotency_key, deadline_ms, priority, whole_history,
        generate, reuse, discard_on_cancel, model, move_model (all is rendered anew for `model`).

        A turn sent again with its idempotency_key is answered once: with the stored reply, or by
        running where the first was cut by its deadline or the end of its client or the sidecar.
        Of such a turn nothing is kept. One that was cancelled is answered with what there was.
        """
        check_names(options)
        native = NativeTurn(session_id, messages, generation=generation, **options)
        request = ctypes.c_uint64()
        # Under the lock: an event must not be read before its mailbox exists.
        with self._lock:
            check(lib.kairos_turn_submit(self._handle, ctypes.byref(native.options),
                                         ctypes.byref(request)))
            self._mail[request.value] = collections.deque()
        return Turn(self, request.value)

    # -- events --

    def _timeout_ms(self) -> int:
        return timeout_ms(self.timeout)

    def _read(self, milliseconds: int) -> Event | None:
        """The library's next event; None on time-out."""
        if not self._arriving and check(lib.kairos_event_next(
                self._handle, milliseconds, ctypes.byref(self._arriving))) == 0:
            return None
        handle, self._arriving = self._arriving, ctypes.c_void_p()
        return _events.take(handle)

    def _forget(self, request_id: int) -> None:
        with self._lock:
            self._mail.pop(request_id, None)

    def _next_of(self, request_id: int, timeout: float | None) -> Event:
        deadline = _deadline(timeout)
        looked = False
        with self._lock:
            while True:
                box = self._mail[request_id]
                if box:
                    return box.popleft()
                left = _seconds_to(deadline)
                if left == 0.0 and looked:
                    raise DeadlineExceeded("no event in time")
                looked = True
                if self._reading:
                    self._lock.wait(left)
                else:
                    self._read_into_mail(_slice_ms(left))

    def _read_into_mail(self, milliseconds: int) -> None:
        """One event, as the reader; called and left with the lock held."""
        self._reading = True
        event = None
        try:
            self._lock.release()
            try:
                event = self._read(milliseconds)
            finally:
                self._lock.acquire()
        finally:
            self._reading = False
            if event is not None and event.request_id in self._mail:
                self._mail[event.request_id].append(event)
            self._lock.notify_all()


class Watch:
    """Iterating waits for changes and yields them, until close(), which leaving `with` calls.

    A client has one watch. What was before it is in Client.sessions(), asked for after watch().
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._closed = False
        check(lib.kairos_watch(client._handle, WATCH_SESSIONS, client._timeout_ms()))

    def next(self, timeout: float | None = None) -> SessionEvent | None:
        """The next change; None on time-out."""
        deadline = _deadline(timeout)
        left = timeout
        handle = ctypes.c_void_p()
        while check(lib.kairos_watch_next(self.client._handle, _slice_ms(left),
                                          ctypes.byref(handle))) == 0:
            left = _seconds_to(deadline)
            if left == 0.0:
                return None
        event = _events.take(handle)
        assert isinstance(event, SessionEvent)
        return event

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            check(lib.kairos_watch(self.client._handle, 0, self.client._timeout_ms()))

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[SessionEvent]:
        while not self._closed:
            event = self.next()
            if event is not None:
                yield event


class Session:
    """A durable dialogue. The object is a name for it; losing it loses nothing."""

    def __init__(self, client: Client, session_id: int) -> None:
        self.client = client
        self.id = session_id

    def __repr__(self) -> str:
        return f"Session({self.id:016x})"

    def turn(self, messages: MessageLike | Sequence[MessageLike] = (), **options: Any) -> Turn:
        """Queues a turn of this session; see Client.submit for the options."""
        return self.client.submit(messages, session_id=self.id, **options)

    def fork(self, version: int = 0) -> Session:
        """A new session that starts as `version` of this one (0: head) and shares its KV."""
        version = whole("version", version, ctypes.c_uint64)
        out = ctypes.c_uint64()
        check(lib.kairos_session_fork(self.client._handle, self.id, version, ctypes.byref(out),
                                      self.client._timeout_ms()))
        return Session(self.client, out.value)

    def rewind(self, version: int) -> None:
        """Makes `version` the head. Later ones stay, until there are too many versions."""
        version = whole("version", version, ctypes.c_uint64)
        check(lib.kairos_session_rewind(self.client._handle, self.id, version,
                                        self.client._timeout_ms()))

    def release(self) -> None:
        """Drops this client's hold; the session cools down and stays."""
        check(lib.kairos_session_release(self.client._handle, self.id, self.client._timeout_ms()))

    def delete(self) -> None:
        """Frees the session everywhere, now."""
        check(lib.kairos_session_delete(self.client._handle, self.id, self.client._timeout_ms()))

    def stat(self) -> SessionInfo:
        record = SessionStruct(struct_size=ctypes.sizeof(SessionStruct))
        check(lib.kairos_session_stat(self.client._handle, self.id, ctypes.byref(record),
                                      self.client._timeout_ms()))
        return SessionInfo.from_struct(record)

    def messages(self, version: int = 0) -> Any:
        """The messages of a version (0: head), as parsed JSON."""
        return json.loads(self._text(lib.kairos_session_messages, version) or "[]")

    def context(self, version: int = 0) -> Any:
        """The task context of a version (0: head), as parsed JSON."""
        return json.loads(self._text(lib.kairos_context_read, version) or "{}")

    def set_context(self, context: str | Mapping[str, Any], *,
                    if_version: int | None = None) -> int:
        """Replaces the task context; returns the new version."""
        raw = json_text("context", context)
        out = ctypes.c_uint64()
        expected = expected_version(if_version)
        check(lib.kairos_context_write(self.client._handle, self.id, expected, string(raw),
                                       ctypes.byref(out), self.client._timeout_ms()))
        return out.value

    def _text(self, call: Any, version: int) -> str:
        version = whole("version", version, ctypes.c_uint64)
        handle = ctypes.c_void_p()
        check(call(self.client._handle, self.id, version, ctypes.byref(handle),
                   self.client._timeout_ms()))
        try:
            return text_of(lib.kairos_event_text(handle))
        finally:
            lib.kairos_event_release(handle)


class Turn:
    """One request and its reply. Iterating yields its events; an error event is raised.

    After the iteration `result` has the final numbers.
    """

    def __init__(self, client: Client, request_id: int) -> None:
        self.client = client
        self.request_id = request_id
        self.session_id = 0      # known from the accepted event on
        self.result: TurnResult | None = None
        self._done = False

    def cancel(self) -> None:
        """Asks the turn to stop; its final event follows."""
        check(lib.kairos_turn_cancel(self.client._handle, self.request_id))

    def next(self, timeout: float | None = None) -> Event:
        """The next event, waiting up to `timeout` seconds; StopIteration after the last."""
        if self._done:
            raise StopIteration
        event = self.client._next_of(self.request_id, timeout)
        self.note(event)
        if isinstance(event, ErrorEvent):
            raise event.error()
        return event

    def note(self, event: Event) -> None:
        """Keeps what the turn itself remembers of an event."""
        if isinstance(event, AcceptedEvent):
            self.session_id = event.session_id
        if isinstance(event, FinalEvent):
            self.result = event.result
        if _events.is_last(event):
            self._done = True
            self.client._forget(self.request_id)

    def __iter__(self) -> Iterator[Event]:
        while not self._done:
            yield self.next(self.client.timeout)

    def texts(self) -> Iterator[str]:
        """Only the pieces of text."""
        for event in self:
            if isinstance(event, TextEvent):
                yield event.text

    def read(self) -> str:
        """Waits for the end and returns the whole text."""
        return "".join(self.texts())


__all__ = ["Client", "RingFull", "Session", "Turn", "Watch"]
