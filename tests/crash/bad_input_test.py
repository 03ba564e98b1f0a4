#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients may send and must not get away with: clear errors, and the sidecar serves on."""
from __future__ import annotations

import ctypes
import mmap
import os
import pathlib
import resource
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402
from kairos.native import lib, string  # noqa: E402
from kairos.options import NativeTurn  # noqa: E402

SHORT = Generation(max_tokens=4)
DETAIL_STALE_VERSION, DETAIL_CONTEXT_FULL, DETAIL_BAD_UTF8 = 5, 6, 11


class BadInput(live_daemon.LiveTest):
    def setUp(self) -> None:
        super().setUp()
        self.sidecar = self.client()
        self.addCleanup(self.assert_serves)

    def refused(self, kind, *words: str, act) -> kairos.KairosError:
        with self.assertRaises(kind) as caught:
            act()
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception

    def raw_submit(self, native: NativeTurn):
        """Submits options that the bindings would not make."""
        request = ctypes.c_uint64()
        from kairos.errors import check
        with self.sidecar._lock:
            check(lib.kairos_turn_submit(self.sidecar._handle, ctypes.byref(native.options),
                                         ctypes.byref(request)))
            import collections
            self.sidecar._mail[request.value] = collections.deque()
        return kairos.Turn(self.sidecar, request.value)

    def test_prompt_longer_than_the_context(self) -> None:
        session = self.sidecar.create_session()
        session.turn("Hi.", generation=SHORT).read()
        text = " ".join(f"word{i}" for i in range(20_000))
        fault = self.refused(kairos.KairosError, "context", "tokens",
                             act=lambda: session.turn(text, generation=SHORT).read())
        self.assertEqual(fault.detail, DETAIL_CONTEXT_FULL)
        self.assertEqual(session.stat().message_count, 2)
        session.turn("Still there?", generation=SHORT).read()

    def test_unknown_session(self) -> None:
        for act in (lambda: self.sidecar.submit("Hi.", session_id=0xdead).read(),
                    lambda: self.sidecar.open_session(0xdead),
                    lambda: kairos.Session(self.sidecar, 0xdead).stat(),
                    lambda: kairos.Session(self.sidecar, 0xdead).messages(),
                    lambda: kairos.Session(self.sidecar, 0xdead).fork(),
                    lambda: kairos.Session(self.sidecar, 0xdead).rewind(1),
                    lambda: kairos.Session(self.sidecar, 0xdead).delete()):
            self.refused(kairos.NotFound, "session", act=act)

    def test_unknown_version(self) -> None:
        session = self.sidecar.create_session()
        session.turn("Hi.", generation=SHORT).read()
        for act in (lambda: session.messages(99), lambda: session.fork(99),
                    lambda: session.rewind(99)):
            self.refused(kairos.NotFound, "version", act=act)

    def test_stale_version(self) -> None:
        session = self.sidecar.create_session()
        session.turn("Hi.", generation=SHORT).read()
        fault = self.refused(
            kairos.StaleVersion, "if_version", "1",
            act=lambda: session.turn("Hi.", generation=SHORT, if_version=0).read())
        self.assertEqual(fault.detail, DETAIL_STALE_VERSION)
        self.refused(kairos.StaleVersion, act=lambda: session.set_context({}, if_version=7))
        session.turn("Hi.", generation=SHORT, if_version=1).read()
        self.assertEqual(session.stat().version, 2)

    def test_invalid_utf8_in_every_text(self) -> None:
        bad = b"a\xff\xfe" + b"b"
        for field in ("role", "content", "name", "tool_call_id"):
            native = NativeTurn(0, [kairos.Message("user", "text")])
            message = ctypes.cast(native.options.messages,
                                  ctypes.POINTER(type(native.options.messages.contents)))[0]
            setattr(message, field, string(bad))
            fault = self.refused(kairos.InvalidArgument,
                                 act=lambda native=native: self.raw_submit(native).read())
            if field == "content":
                self.assertEqual(fault.detail, DETAIL_BAD_UTF8, fault)
                self.assertIn("UTF-8", str(fault))

    def test_numbers_that_are_none(self) -> None:
        for field, value in (("temperature", float("nan")), ("temperature", float("inf")),
                             ("temperature", -1.0), ("top_p", float("nan")),
                             ("min_p", float("nan")), ("repetition_penalty", float("nan")),
                             ("presence_penalty", float("inf"))):
            self.refused(kairos.InvalidArgument, field, act=lambda field=field, value=value:
                         self.sidecar.submit("Hi.", generation=Generation(
                             max_tokens=4, **{field: value})).read())
        self.refused(kairos.InvalidArgument, "bias", act=lambda: self.sidecar.submit(
            "Hi.", generation=Generation(max_tokens=4, logit_bias={5: float("nan")})).read())

    def test_tokens_outside_the_vocabulary(self) -> None:
        for token in (-1, 10_000_000, 2**31 - 1):
            self.refused(kairos.InvalidArgument, "tokens", act=lambda token=token:
                         self.sidecar.submit(tokens=[1, token], generation=SHORT).read())

    def test_a_message_of_two_gibibytes_is_not_even_copied(self) -> None:
        size = 2 << 30
        zeros = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
        address = ctypes.c_char.from_buffer(zeros)
        native = NativeTurn(0, [kairos.Message("user", "text")])
        message = native.options.messages[0]
        message.content.data = ctypes.addressof(address)
        message.content.size = size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sidecar = self.daemon.usage().rss_bytes
        self.refused(kairos.InvalidArgument, "content", act=lambda: self.raw_submit(native).read())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(grown, 64 << 10, "KiB of this process")
        self.assertLess(self.daemon.usage().rss_bytes - sidecar, 64 << 20)
        del address
        zeros.close()

    def test_many_messages_together_over_the_limit(self) -> None:
        part = "x" * (1 << 20)
        self.refused(kairos.InvalidArgument, "content", act=lambda: self.sidecar.submit(
            [kairos.Message("user", part)] * 17, generation=SHORT).read())

    def test_texts_over_their_limits(self) -> None:
        self.refused(kairos.InvalidArgument, "idempotency", "128", act=lambda: self.sidecar.submit(
            "Hi.", idempotency_key="k" * 129).read())
        self.refused(kairos.InvalidArgument, "label", "128",
                     act=lambda: self.sidecar.create_session(label="l" * 129))
        self.refused(kairos.InvalidArgument, "name_space",
                     act=lambda: self.daemon.client(name_space="no spaces"))
        self.refused(kairos.InvalidArgument, "stop", act=lambda: self.sidecar.submit(
            "Hi.", generation=Generation(stop=["s" * 257])).read())

    def test_a_context_that_is_no_json(self) -> None:
        session = self.sidecar.create_session()
        session.turn("Hi.", generation=SHORT).read()
        before = session.context()
        self.refused(kairos.InvalidArgument, "context", act=lambda: session.set_context("{oops"))
        self.assertEqual(session.context(), before)

    def test_a_session_of_another_namespace_is_not_there(self) -> None:
        session = self.sidecar.create_session()
        session.turn("Secret.", generation=SHORT).read()
        other = self.client(name_space="other")
        self.refused(kairos.NotFound, "session", act=lambda: other.open_session(session.id))
        self.assertEqual(list(other.sessions()), [])

    def test_a_session_of_another_user_is_not_there(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to become another user")
        session = self.sidecar.create_session()
        session.turn("Secret.", generation=SHORT).read()
        os.chmod(self.daemon.folder, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        self.addCleanup(os.chmod, self.daemon.socket, 0o600)
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(write_end, self.as_nobody(session.id).encode())
            except BaseException as fault:
                os.write(write_end, repr(fault).encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as told:
            text = told.read()
        os.waitpid(pid, 0)
        self.assertEqual(text, "all not found; own session works")
        self.assertEqual(session.stat().message_count, 2)

    def as_nobody(self, session_id: int) -> str:
        """In a child that is user 65534: every way to a session of root."""
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        with self.daemon.client() as client:
            foreign = kairos.Session(client, session_id)
            for name, act in (("open", lambda: client.open_session(session_id)),
                              ("stat", foreign.stat), ("messages", foreign.messages),
                              ("context", foreign.context), ("fork", foreign.fork),
                              ("rewind", lambda: foreign.rewind(1)), ("delete", foreign.delete),
                              ("turn", lambda: foreign.turn("Hi.", generation=SHORT).read())):
                try:
                    act()
                    return f"{name} worked"
                except kairos.NotFound:
                    pass
            if list(client.sessions()):
                return "the list shows it"
            own = client.create_session()
            own.turn("Hi.", generation=SHORT).read()
            if own.stat().message_count != 2:
                return "its own session does not work"
        return "all not found; own session works"

    def test_a_socket_of_mode_0600_keeps_other_users_out(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to become another user")
        self.assertEqual(os.stat(self.daemon.socket).st_mode & 0o777, 0o600)
        os.chmod(self.daemon.folder, 0o711)
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(65534, 65534, 65534)
                self.daemon.client()
                os._exit(1)
            except kairos.Unavailable:
                os._exit(0)
            except BaseException:
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)


if __name__ == "__main__":
    live_daemon.main()
