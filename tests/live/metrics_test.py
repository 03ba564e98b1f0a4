#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GET /metrics of a live kairosd: its text, its names, its figures, and an address that cannot be
had."""
from __future__ import annotations

import contextlib
import http.client
import math
import pathlib
import re
import select
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402

CANNOT_CREATE, CONFIG = 73, 78


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Page:
    """A scrape, read as the text format is defined."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        connection = http.client.HTTPConnection(host, port, timeout=live_daemon.WATCHDOG_S)
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        self.status = reply.status
        self.kind = reply.getheader("Content-Type") or ""
        self.help: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.values: dict[str, float] = {}
        for line in reply.read().decode().splitlines():
            if found := re.fullmatch(r"# HELP (\S+) (.*)", line):
                self.help[found[1]] = found[2]
            elif found := re.fullmatch(r"# TYPE (\S+) (counter|gauge|summary)", line):
                self.types[found[1]] = found[2]
            else:
                found = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})? (\S+)", line)
                assert found, line
                self.values[found[1]] = float(found[3])
        connection.close()



class Metrics(unittest.TestCase):
    def setUp(self) -> None:
        self.port = free_port()
        self.daemon = live_daemon.LiveDaemon(extra=("--metrics-listen", f"127.0.0.1:{self.port}"))
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def test_counts_what_clients_did(self) -> None:
        before = Page(self.port)
        self.assertEqual((before.status, before.values["kairos_turns_done_total"]), (200, 0))
        self.assertTrue(before.kind.startswith("text/plain"), before.kind)
        with self.daemon.client() as client:
            for _ in range(2):
                turn = client.submit("Hello.", generation=kairos.Generation(max_tokens=3,
                                                                            ignore_eos=True))
                turn.read()
            page = Page(self.port)
        self.assertEqual(page.values["kairos_turns_done_total"], 2)
        self.assertEqual(page.values["kairos_tokens_generated_total"], 6)
        self.assertEqual(page.values["kairos_sessions"], 2)
        self.assertEqual(page.values["kairos_clients"], 1)
        self.assertGreaterEqual(page.values["kairos_requests_total"], 2)
        self.assertGreater(page.values["kairos_turn_seconds_total"], 0)
        self.assertGreater(page.values["kairos_catalog_bytes"], 0)

    def test_names_keep_to_the_conventions(self) -> None:
        page = Page(self.port)
        self.assertGreater(len(page.values), 20)
        for name, value in page.values.items():
            with self.subTest(name):
                self.assertRegex(name, r"^kairos_[a-z][a-z0-9_]*[a-z]$")
                self.assertTrue(math.isfinite(value), value)
                self.assertEqual(page.types[name],
                                 "counter" if name.endswith("_total") else "gauge")
                self.assertTrue(page.help[name].endswith("."), page.help[name])
                for unit in ("seconds", "bytes", "ratio"):
                    if unit in name.split("_"):
                        self.assertRegex(name, rf"_{unit}(_total)?$")

    def test_has_every_figure_of_the_control_socket(self) -> None:
        page = Page(self.port)
        self.assertGreaterEqual(len(page.values), len(self.daemon.stats()))
        # Words of its own for each: the ones that stand in for them are not used.
        self.assertEqual([name for name, words in page.help.items() if "kairosctl" in words], [])

    def test_mute_connection_holds_up_neither_scrapes_nor_the_end(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)):
            self.assertEqual(Page(self.port).status, 200)
            with self.daemon.client() as client:
                client.submit("Hello.", generation=kairos.Generation(max_tokens=1)).read()
            self.assertEqual(self.daemon.terminate(), 0)

    def test_half_sent_requests_hold_up_no_scrape(self) -> None:
        def served_before_the_first_of_them_ended() -> bool:
            with contextlib.ExitStack() as stalled:
                peers = [stalled.enter_context(socket.create_connection(("127.0.0.1", self.port)))
                         for _ in range(8)]
                for peer in peers:
                    peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
                self.assertEqual(Page(self.port).status, 200)
                return not select.select(peers, [], [], 0)[0]

        # A machine that pauses for longer than their time-out spoils a try, not all of them.
        self.assertTrue(any(served_before_the_first_of_them_ended() for _ in range(5)))

    def test_nothing_else_is_served(self) -> None:
        for path in ("/", "/metricsx", "/../etc/passwd"):
            connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                    timeout=live_daemon.WATCHDOG_S)
            connection.request("GET", path)
            self.assertIn(connection.getresponse().status, (400, 404), path)
            connection.close()

    def test_taken_port_ends_the_start_with_73(self) -> None:
        second = live_daemon.LiveDaemon(extra=(*self.daemon.extra, "--log-level", "info"))
        self.addCleanup(second.close)
        self.assertEqual(second.spawn().wait(live_daemon.WATCHDOG_S), CANNOT_CREATE)
        self.assertIn(f"metrics.listen: 127.0.0.1:{self.port} is in use", second.log_text())
        self.assertNotIn("model_loaded", second.log_text())
        self.assertEqual(Page(self.port).status, 200)


class Settings(unittest.TestCase):
    def test_is_off_unless_asked_for(self) -> None:
        daemon = live_daemon.LiveDaemon()
        self.addCleanup(daemon.close)
        daemon.start()
        names: set[str] = set()

        def all_named() -> bool:
            names.update((task / "comm").read_text().strip()
                         for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir())
            return "kairos-control" in names  # the last one that is started

        daemon.wait_until("the threads' names", all_named)
        self.assertFalse([name for name in names if "civet" in name], names)

    def test_no_address_but_loopback_is_taken(self) -> None:
        for address in ("0.0.0.0:9464", "9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536",
                        "[::]:9464", "localhost:9464", "127.0.0.1:94s", "127.0.0.1:1,0.0.0.0:2"):
            with self.subTest(address):
                daemon = live_daemon.LiveDaemon(extra=("--metrics-listen", address))
                self.addCleanup(daemon.close)
                self.assertEqual(daemon.spawn().wait(live_daemon.WATCHDOG_S), CONFIG)
                self.assertIn("metrics.listen", daemon.log_text())


if __name__ == "__main__":
    live_daemon.main()
