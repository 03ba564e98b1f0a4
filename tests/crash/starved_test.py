#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sidecar that is short of descriptors or memory refuses who comes, and serves who is there."""
from __future__ import annotations

import os
import pathlib
import resource
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402
import zmtp  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402

DESCRIPTORS = 200
RING = 8 << 20
DETAIL_QUOTA = 10
SHORT = Generation(max_tokens=4)


class OfDescriptors(live_daemon.LiveTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = live_daemon.LiveDaemon(limits={resource.RLIMIT_NOFILE: DESCRIPTORS})
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()

    def attach_until_refused(self) -> tuple[list[kairos.Client], kairos.KairosError]:
        clients: list[kairos.Client] = []
        while True:
            try:
                clients.append(self.client())
            except kairos.KairosError as fault:
                return clients, fault
            self.assertLess(len(clients), DESCRIPTORS, "nobody was refused")

    def test_refuses_clients_in_words_and_takes_them_again_when_others_leave(self) -> None:
        before = self.daemon.usage().descriptors
        for _ in range(2):
            clients, fault = self.attach_until_refused()
            self.assertIsInstance(fault, kairos.ResourceExhausted)
            self.assertIn("file descriptors", str(fault))
            self.assertGreater(len(clients), 10)
            # Those that are in are served, sessions are committed, and operators get through.
            for client in (clients[0], clients[-1]):
                session = client.create_session()
                session.turn("Hi.", generation=SHORT).read()
                self.assertEqual(session.stat().version, 1)
            self.assertIn("sessions", self.daemon.stats())
            for client in clients:
                client.close()
            self.daemon.wait_until("descriptors are free",
                                   lambda: self.daemon.usage().descriptors <= before)
        self.assert_serves()

    def test_survives_more_operators_than_it_has_descriptors(self) -> None:
        peers = [zmtp.Peer(self.daemon.control, live_daemon.WATCHDOG_S)
                 for _ in range(2 * DESCRIPTORS)]
        # The first ones made room for later ones.
        peers[0].wait_for_end()
        self.assert_serves()
        self.assertIn("sessions", self.daemon.stats())
        for peer in peers:
            peer.socket.close()
        self.assert_serves()

    def test_survives_clients_that_connect_and_say_nothing(self) -> None:
        mute = []
        for _ in range(2 * DESCRIPTORS):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            one.connect(self.daemon.socket)
            mute.append(one)
        self.assertIn("sessions", self.daemon.stats())
        for one in mute:
            one.close()
        self.daemon.wait_until("they are gone",
                               lambda: self.daemon.usage().descriptors < DESCRIPTORS // 2)
        self.assert_serves()


class OfMemory(live_daemon.LiveTest):
    def refuse_large_rings(self, limit: int, value: int, *words: str) -> None:
        """Under the limit an attachment of large rings is refused; those that are there go on."""
        client = self.client()
        session = client.create_session()
        session.turn("Hi.", generation=SHORT).read()
        before = resource.prlimit(self.daemon.pid, limit)
        resource.prlimit(self.daemon.pid, limit, (value, before[1]))
        try:
            for _ in range(3):
                with self.assertRaises(kairos.ResourceExhausted) as caught:
                    self.client(request_ring_bytes=RING, reply_ring_bytes=RING)
                self.assertEqual(caught.exception.detail, DETAIL_QUOTA)
                for word in words:
                    self.assertIn(word, str(caught.exception))
            self.assertGreater(client.ping(), 0)
        finally:
            resource.prlimit(self.daemon.pid, limit, before)
        session.turn("Still there?", generation=SHORT).read()
        with self.daemon.client(request_ring_bytes=RING, reply_ring_bytes=RING) as later:
            self.assertGreater(later.ping(), 0)
        self.daemon.wait_until("the refused left nothing",
                               lambda: self.daemon.usage().segments == 2)

    def test_that_can_be_mapped_refuses_the_attachment(self) -> None:
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        size = next(int(line.split()[1]) << 10 for line in status.splitlines()
                    if line.startswith("VmSize:"))
        self.refuse_large_rings(resource.RLIMIT_AS, size + RING // 2, "segment", "mapped")

    def test_of_one_file_refuses_the_attachment(self) -> None:
        catalog = os.path.getsize(self.daemon.catalog)
        self.refuse_large_rings(resource.RLIMIT_FSIZE, max(RING // 2, 2 * catalog), "segment",
                                "reserved")


if __name__ == "__main__":
    live_daemon.main()
