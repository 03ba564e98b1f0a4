#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever a peer writes into the control socket: it is dropped or refused, the sidecar grows by no
more than a bound, and the next operator is served."""
from __future__ import annotations

import ctypes
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402
import zmtp  # noqa: E402

live_daemon.require_live()

GROWTH_MAX = 16 << 20
MEBIBYTE = 1 << 20
SEED = 20_261


LIST_VERB = 3
INVALID_ARGUMENT = 3
XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)


def envelope(body: bytes) -> bytes:
    """Of ControlEnvelope, which fits the body."""
    return struct.pack("<4sHHIIQQ", b"KRCT", 1, LIST_VERB, 0, len(body), 7,
                       XXHASH.XXH3_64bits(body, len(body)))


def request_body(extension_bytes: int) -> bytes:
    """A request as cereal writes it; its last string is empty, whatever it claims."""
    return struct.pack("<BIQQQIQ", 1, 1, 0, 0, 0, 10, extension_bytes)


class ControlGarbage(live_daemon.LiveTest):
    def setUp(self) -> None:
        super().setUp()
        # What a first operator and a first turn cost is no growth.
        self.assertIn("sessions", self.daemon.stats())
        self.assert_serves()
        self.before = self.daemon.usage()
        self.addCleanup(self.check)

    def check(self) -> None:
        self.assertIn("sessions", self.daemon.stats())
        self.assert_serves()
        after = self.daemon.usage()
        self.assertLess(after.rss_bytes - self.before.rss_bytes, GROWTH_MAX)

    def peer(self) -> zmtp.Peer:
        peer = zmtp.Peer(self.daemon.control, live_daemon.WATCHDOG_S)
        self.addCleanup(peer.socket.close)
        return peer

    def assert_dropped(self, peer: zmtp.Peer, piece: bytes, limit: int) -> None:
        """Sends the piece again and again, up to `limit` bytes, until the peer is dropped."""
        sent = 0
        while peer.send(piece):
            sent += len(piece)
            self.assertLess(sent, limit, "all of it was taken")
            self.assertLess(self.daemon.usage().rss_bytes - self.before.rss_bytes, GROWTH_MAX)
        peer.wait_for_end()

    def test_of_no_protocol_at_all(self) -> None:
        noise = random.Random(SEED).randbytes(4096)
        for start in (b"\xaa", b"GET / HTTP/1.1\r\n", b"\xff" + bytes(8) + b"\x7f\x01", noise):
            self.assert_dropped(self.peer(), start.ljust(4096, b"\xaa"), 64 * MEBIBYTE)

    def test_message_of_two_gibibytes(self) -> None:
        for size in (2 << 30, (1 << 63) - 1, (1 << 64) - 1):
            peer = self.peer().shake_hands()
            peer.send(zmtp.header(size) if size < 1 << 63 else b"\x02" + struct.pack(">Q", size))
            self.assert_dropped(peer, bytes(MEBIBYTE), 256 * MEBIBYTE)

    def test_message_of_frames_without_end(self) -> None:
        peer = self.peer().shake_hands()
        self.assert_dropped(peer, zmtp.frame(bytes(MEBIBYTE), more=True), 256 * MEBIBYTE)
        peer = self.peer().shake_hands()
        self.assert_dropped(peer, zmtp.frame(b"", more=True) * 4096, 256 * MEBIBYTE)

    def test_command_without_end(self) -> None:
        peer = self.peer().shake_hands()
        peer.send(zmtp.header(1 << 30, command=True))
        self.assert_dropped(peer, bytes(MEBIBYTE), 256 * MEBIBYTE)

    def test_handshake_that_never_ends_is_dropped(self) -> None:
        for start in (b"", zmtp.GREETING[:10], zmtp.GREETING[:40], zmtp.GREETING,
                      zmtp.GREETING + zmtp.ready()[:8]):
            peer = self.peer()
            peer.send(start)
            peer.wait_for_end()

    def test_good_messages_in_numbers_with_nobody_reading_the_answers(self) -> None:
        peer = self.peer().shake_hands()
        peer.socket.settimeout(1)
        envelope = zmtp.frame(bytes(32), more=True)
        try:
            for _ in range(64):
                peer.send(envelope + zmtp.frame(bytes(MEBIBYTE - 64)))
        except TimeoutError:
            pass  # held back: also an answer to a flood

    def code_of(self, peer: zmtp.Peer, body: bytes) -> int:
        """The code that the sidecar answers a listing of sessions with this body with."""
        peer.send(zmtp.frame(envelope(body), more=True) + zmtp.frame(body))
        peer.receive_frame()
        return struct.unpack_from("<i", peer.receive_frame(), 5)[0]

    def test_bodies_that_claim_more_than_they_have(self) -> None:
        peer = self.peer().shake_hands()
        good = request_body(0)
        self.assertEqual(self.code_of(peer, good), 0)
        for size in (1, 2**20, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1):
            self.assertEqual(self.code_of(peer, request_body(size)), INVALID_ARGUMENT, size)
        for cut in range(len(good)):
            self.assertEqual(self.code_of(peer, good[:cut]), INVALID_ARGUMENT, f"{cut} bytes")
        self.assertEqual(self.code_of(peer, good * 1000), INVALID_ARGUMENT)
        noise = random.Random(SEED)
        for _ in range(200):
            self.assertNotEqual(self.code_of(peer, b"\x01" + noise.randbytes(300)), 0)
        self.assertEqual(self.code_of(peer, good), 0)


if __name__ == "__main__":
    live_daemon.main()
