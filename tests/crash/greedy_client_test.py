#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client with far more work than fits holds up nobody: a neighbour's turn is done while all of
the client's own are still open."""
from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402

ENDLESS = Generation(max_tokens=1500, ignore_eos=True)
# Needs about as much KV as one of those, and ends after a few words.
NEIGHBOURS = Generation(max_tokens=1450)
TURNS = 60


class GreedyClient(live_daemon.LiveTest):
    def greedy(self) -> kairos.Client:
        """A client with more turns than the sidecar has KV for; they began."""
        self.neighbour = self.client()
        client = self.client()
        turns = [client.submit(f"Count on from {i}.", generation=ENDLESS) for i in range(TURNS)]
        turns[0].next()
        self.daemon.wait_until("its turns run", lambda: self.daemon.stats()
                               ["engine_sequences_running"] > 1)
        return client

    def test_leaves_room_for_a_neighbours_turn(self) -> None:
        client = self.greedy()
        for _ in range(2):
            self.assertTrue(self.neighbour.submit("Say one word.", generation=NEIGHBOURS).read())
        # Nothing of the greedy one has ended meanwhile: there was no waiting for it.
        self.assertEqual(self.daemon.stats()["turns_open"], TURNS)
        client.close()
        self.daemon.wait_until("its turns are over",
                               lambda: self.daemon.stats()["turns_open"] == 0)

    def test_that_dies_leaves_nothing_waiting(self) -> None:
        client = self.greedy()
        later = self.neighbour.submit("Count on.", generation=ENDLESS)
        client.close()
        later.next()
        later.cancel()
        later.read()
        self.daemon.wait_until("all is over", lambda: self.daemon.stats()["turns_open"] == 0)


if __name__ == "__main__":
    live_daemon.main()
