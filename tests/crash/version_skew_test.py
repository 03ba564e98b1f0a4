#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Client and sidecar of different versions: they agree on what both know, or one refuses the other
in words. The other version is crafted bytes, the hello or the answer of docs/WIRE_FORMAT.md."""
from __future__ import annotations

import os
import pathlib
import socket
import struct
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos.native import lib  # noqa: E402

HELLO_BYTES, ANSWER_BYTES = 256, 512
FAILED_PRECONDITION, INVALID_ARGUMENT = 9, 3
DETAIL_PROTOCOL = 13
LAYOUT_HASH = lib.kairos_layout_hash()


def hello(**changed: int) -> bytes:
    fields = {"size": HELLO_BYTES, "pointer_bytes": 8, "abi_min": 1, "abi_max": 1,
              "layout_hash": LAYOUT_HASH, "features": 0, "request_ring_bytes": 0,
              "reply_ring_bytes": 0, "flags": 0, "name_space_size": 0, **changed}
    return (b"KRHELLO1" + struct.pack("<4I2Q4I", *fields.values())).ljust(HELLO_BYTES, b"\0")


def answer(**changed: int) -> bytes:
    fields = {"size": ANSWER_BYTES, "code": 0, "detail": 0, "abi": 1, "layout_hash": LAYOUT_HASH,
              **changed}
    return (b"KRNASWR1" + struct.pack("<IiiIQ", *fields.values())).ljust(ANSWER_BYTES, b"\0")


class Answer:
    """What the sidecar said to a hello."""

    def __init__(self, data: bytes, descriptors: list[int]) -> None:
        self.magic = data[:8]
        _, self.code, self.detail, self.abi = struct.unpack_from("<IiiI", data, 8)
        size = struct.unpack_from("<I", data, 92)[0]
        self.text = data[96:96 + size].decode()
        self.descriptors = len(descriptors)
        for fd in descriptors:
            os.close(fd)


class OfTheClient(live_daemon.LiveTest):
    """Another libkairos, this sidecar."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.daemon.wait_until, "nothing is left", lambda: self.daemon.usage()
                        .segments == 0)
        self.addCleanup(self.assert_serves)

    def say(self, data: bytes) -> Answer:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(live_daemon.WATCHDOG_S)
            client.connect(self.daemon.socket)
            client.send(data)
            reply, descriptors, _, _ = socket.recv_fds(client, 4096, 8)
            return Answer(reply, descriptors)

    def assert_refused(self, data: bytes, code: int, *words: str) -> None:
        said = self.say(data)
        self.assertEqual((said.magic, said.code), (b"KRNASWR1", code), said.text)
        self.assertEqual(said.descriptors, 0)
        for word in words:
            self.assertIn(word, said.text)

    def test_of_the_same_version_is_welcome(self) -> None:
        said = self.say(hello())
        self.assertEqual((said.code, said.abi, said.descriptors), (0, 1, 2))

    def test_newer_that_still_speaks_this_version_is_welcome(self) -> None:
        for data in (hello(abi_max=7), hello(features=2**64 - 1),
                     hello(size=HELLO_BYTES + 64) + bytes(64)):
            said = self.say(data)
            self.assertEqual((said.code, said.abi, said.descriptors), (0, 1, 2), said.text)

    def test_without_a_version_in_common_is_refused(self) -> None:
        self.assert_refused(hello(abi_min=2, abi_max=9), FAILED_PRECONDITION, "version", "update")
        self.assert_refused(hello(abi_min=0, abi_max=0), FAILED_PRECONDITION, "version")

    def test_of_another_layout_is_refused(self) -> None:
        self.assert_refused(hello(layout_hash=LAYOUT_HASH ^ 1), FAILED_PRECONDITION, "layout")

    def test_of_32_bits_is_refused(self) -> None:
        self.assert_refused(hello(pointer_bytes=4), FAILED_PRECONDITION, "64-bit")

    def test_that_is_no_hello_is_refused(self) -> None:
        for data in (b"x", hello()[:-1], hello(size=HELLO_BYTES - 8), b"KRHELLO2" + hello()[8:]):
            self.assert_refused(data, INVALID_ARGUMENT, "hello")


class OfTheSidecar(live_daemon.LiveTest):
    """This libkairos, another sidecar: a socket that answers with prepared bytes."""

    def open_against(self, data: bytes, descriptors: tuple[int, ...] = ()) -> kairos.KairosError:
        with tempfile.TemporaryDirectory() as folder, \
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            path = folder + "/other.sock"
            listener.bind(path)
            listener.listen(1)

            def serve() -> None:
                client, _ = listener.accept()
                with client:
                    client.recv(4096)
                    socket.send_fds(client, [data], descriptors)

            thread = threading.Thread(target=serve)
            thread.start()
            held = len(os.listdir("/proc/self/fd"))
            try:
                with self.assertRaises(kairos.KairosError) as caught:
                    kairos.Client(path)
            finally:
                thread.join()
            self.assertEqual(len(os.listdir("/proc/self/fd")), held, "what came along is closed")
            return caught.exception

    def test_of_another_layout_is_refused(self) -> None:
        memory = os.memfd_create("other")
        self.addCleanup(os.close, memory)
        fault = self.open_against(answer(layout_hash=LAYOUT_HASH ^ 1), (memory, memory))
        self.assertIsInstance(fault, kairos.FailedPrecondition)
        self.assertEqual(fault.detail, DETAIL_PROTOCOL)
        self.assertIn("layout", str(fault))

    def test_that_chose_a_version_that_was_not_offered_is_refused(self) -> None:
        memory = os.memfd_create("other")
        self.addCleanup(os.close, memory)
        fault = self.open_against(answer(abi=2), (memory, memory))
        self.assertEqual(fault.detail, DETAIL_PROTOCOL)
        self.assertIn("version", str(fault))

    def test_that_sends_no_segments_or_no_answer_is_refused(self) -> None:
        for data in (answer(), answer()[:-1], answer(size=ANSWER_BYTES - 8),
                     b"KRNASWR2" + answer()[8:]):
            fault = self.open_against(data)
            self.assertIsInstance(fault, kairos.FailedPrecondition, fault)
            self.assertEqual(fault.detail, DETAIL_PROTOCOL)

    def test_words_of_its_refusal_reach_the_program(self) -> None:
        words = b"hello: too old for me"
        data = bytearray(answer(code=FAILED_PRECONDITION, detail=DETAIL_PROTOCOL))
        struct.pack_into("<I", data, 92, len(words))
        data[96:96 + len(words)] = words
        fault = self.open_against(bytes(data))
        self.assertIsInstance(fault, kairos.FailedPrecondition)
        self.assertIn(words.decode(), str(fault))


if __name__ == "__main__":
    live_daemon.main()
