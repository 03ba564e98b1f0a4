# SPDX-License-Identifier: Apache-2.0
"""Turns for asyncio: the client's descriptor is watched by the event loop; no thread is used.

Session calls (create, fork, stat, ...) are short round trips to a process on the same host and stay
blocking; use AsyncClient.client for them, in an executor where even that is too long.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
from types import TracebackType
from typing import Any, AsyncIterator, Deque, Sequence

from kairos import events as _events
from kairos.client import Client, Turn, Watch
from kairos.errors import Cancelled, KairosError, RingFull, check
from kairos.events import ErrorEvent, Event, SessionEvent, TextEvent
from kairos.native import lib
from kairos.options import MessageLike
from kairos.records import TurnResult


class AsyncClient:
    """A client whose events are read by the running event loop. Use it from that loop only."""

    def __init__(self, socket_path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self.client = Client(socket_path, **options)
        self._turns: dict[int, AsyncTurn] = {}
        self._watch: AsyncWatch | None = None
        self._room = asyncio.Event()
        self._failure: KairosError | None = None
        self._fd = self.client.fileno()
        self._loop.add_reader(self._fd, self._drain)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        # Before the descriptor is closed, or the loop would watch a number that means something
        # else.
        self._loop.remove_reader(self._fd)
        self.client.close()
        for turn in self._turns.values():
            turn._queue.put_nowait(None)
        if self._watch is not None:
            self._watch._end(Cancelled("the client was closed"))

    def watch(self) -> AsyncWatch:
        """As Client.watch(), with `async for`."""
        if self._watch is not None:
            self._watch.close()
        self._watch = AsyncWatch(self)
        return self._watch

    async def submit(self, messages: MessageLike | Sequence[MessageLike] = (),
                     **options: Any) -> AsyncTurn:
        """Queues a turn, waiting while the request ring is full. Options as for Client.submit."""
        while True:
            if self._failure is not None:
                raise self._failure
            self._room.clear()
            try:
                inner = self.client.submit(messages, **options)
            except RingFull:
                # The descriptor becomes readable when the sidecar has made room.
                await self._room.wait()
                continue
            turn = AsyncTurn(self, inner)
            self._turns[inner.request_id] = turn
            return turn

    def _drain(self) -> None:
        """Reads until the library has no event, as its descriptor wants it."""
        self._room.set()
        handle = ctypes.c_void_p()
        while True:
            try:
                if check(lib.kairos_event_next(self.client._handle, 0, ctypes.byref(handle))) == 0:
                    if self._watch is not None:
                        self._watch._drain()
                    return
                event = _events.take(handle)
            except KairosError as error:
                # Every open turn has had its own error event by now.
                self._failure = error
                self._loop.remove_reader(self._fd)
                if self._watch is not None:
                    self._watch._end(error)
                return
            turn = self._turns.get(event.request_id)
            if turn is not None:
                turn._queue.put_nowait(event)


class AsyncTurn:
    """Like Turn, with `async for`."""

    def __init__(self, owner: AsyncClient, inner: Turn) -> None:
        self._owner = owner
        self._inner = inner
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._done = False

    @property
    def request_id(self) -> int:
        return self._inner.request_id

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    @property
    def result(self) -> TurnResult | None:
        return self._inner.result

    def cancel(self) -> None:
        self._inner.cancel()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        while not self._done:
            event = await self._queue.get()
            if event is None:
                self._done = True
                raise Cancelled("the client was closed")
            self._inner.note(event)
            if _events.is_last(event):
                self._done = True
                self._owner._turns.pop(self.request_id, None)
            if isinstance(event, ErrorEvent):
                raise event.error()
            yield event

    async def read(self) -> str:
        """Waits for the end and returns the whole text."""
        return "".join([e.text async for e in self if isinstance(e, TextEvent)])


class AsyncWatch:
    """Like Watch, with `async for`."""

    _UNREAD_MAX = 1024

    def __init__(self, owner: AsyncClient) -> None:
        self._owner = owner
        self._inner = Watch(owner.client)
        self._unread: Deque[SessionEvent] = collections.deque()
        self._ready = asyncio.Event()
        self._failure: KairosError | None = None

    def close(self) -> None:
        """Ends the watch and its iteration."""
        self._owner._watch = None
        self._inner.close()
        self._ready.set()

    def _end(self, failure: KairosError) -> None:
        self._failure = failure
        self._ready.set()

    def _drain(self) -> None:
        while (event := self._inner.next(0)) is not None:
            if len(self._unread) >= self._UNREAD_MAX:
                self._unread.clear()
                event = SessionEvent(0, 0, None, True)
            self._unread.append(event)
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[SessionEvent]:
        return self._events()

    async def _events(self) -> AsyncIterator[SessionEvent]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._failure is not None:
                raise self._failure
            if self._owner._watch is not self:
                return
            self._ready.clear()
            await self._ready.wait()
