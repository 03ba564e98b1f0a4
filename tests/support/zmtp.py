# SPDX-License-Identifier: Apache-2.0
"""ZeroMQ's wire protocol (ZMTP 3, RFC 23) by hand, for peers that do what libzmq would not."""
from __future__ import annotations

import socket
import struct

GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))


def frame(payload: bytes, *, more: bool = False) -> bytes:
    return header(len(payload), more=more) + payload


def header(size: int, *, more: bool = False, command: bool = False) -> bytes:
    flags = (1 if more else 0) | (4 if command else 0)
    if size < 256:
        return bytes([flags, size])
    return bytes([flags | 2]) + struct.pack(">Q", size)


def ready() -> bytes:
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    return header(len(body), command=True) + body


class Peer:
    """A raw connection. `send` says whether the other side still took everything."""

    def __init__(self, path: str, timeout: float) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Before the time-out: with one, a full backlog would be an error.
        self.socket.connect(path)
        self.socket.settimeout(timeout)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def shake_hands(self) -> Peer:
        self.socket.sendall(GREETING + ready())
        self.receive(len(GREETING))
        self.receive_frame()
        return self

    def receive_frame(self) -> bytes:
        flags = self.receive(1)[0]
        size = struct.unpack(">Q", self.receive(8))[0] if flags & 2 else self.receive(1)[0]
        return self.receive(size)

    def receive(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            if not part:
                raise ConnectionError("closed by the other side")
            got += part
        return got

    def send(self, data: bytes) -> bool:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def wait_for_end(self) -> None:
        """Reads until the other side closes."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
