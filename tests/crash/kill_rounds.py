#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the sidecar under load, round after round; what clients were told must hold.

  kill_rounds.py [--rounds N] [--seed S] [--layers L]

--layers keeps only the first layers of the test model, which makes rounds faster; the path of a
turn is the same. KAIROSD is kairosd_for_tests, which dies where it is told to.

Each round has ten turns in flight from two client processes when the sidecar dies: at a random
time, or at a named stage of some turn. The oracle is what the clients heard:

1. A turn whose final was received is there after the restart, with its exact text and user message.
2. No version is half there: every session has whole pairs of messages and a matching summary.
3. Every turn in flight ends with exactly one SIDECAR_LOST; no client hangs.
4. A lost turn tried again with its key is answered once: replayed where the lost one had been
   committed, else executed; the session has grown by one pair. A session that nobody knows is an
   error.
5. The text that was streamed before the death begins the text of the answer (greedy decoding after
   a restart repeats the same bits).
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import select
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import gguf_edit  # noqa: E402
import live_daemon  # noqa: E402

PROCESSES = 2
IN_FLIGHT = 5  # of each process
# In the order they are tried: short campaigns begin with those around the commit.
STAGES = ("committed", "token", "commit", "reply", "settle", "generate", "restore", "generated",
          "render", "admit", "route", "filter")
PER_TURN = {"token": 5}  # how often a turn passes the stage; others once
SIDECAR_LOST = 3


@dataclass
class Ask:
    """One turn as its client saw it."""

    key: str
    session: int  # 0 until known
    user: str
    max_tokens: int
    text: str = ""       # streamed so far
    version: int = 0     # of the final
    errors: list[int] = field(default_factory=list)  # details of error events
    submitted: bool = False


def client_process(path: str, seed: int, name: str, pool: list[int], start: int, out: int,
                   go: int) -> None:
    """Keeps IN_FLIGHT turns open until the sidecar is lost; writes its story as JSON. Says on `go`
    when it is attached (then waits for `start`) and when its turns are open."""
    import kairos
    from kairos.events import AcceptedEvent, ErrorEvent, FinalEvent, TextEvent
    rng = random.Random(seed)
    story: list[Ask] = []
    open_turns: dict[int, Ask] = {}
    free = list(pool)
    client = kairos.Client(path)
    announced = lost = False
    os.write(go, b"a")
    os.read(start, 1)

    def submit() -> None:
        session = free.pop(rng.randrange(len(free))) if free and rng.random() < 0.6 else 0
        ask = Ask(f"{name}-{len(story)}", session, f"Question {name}-{len(story)}: say something.",
                  rng.randint(4, 8))
        story.append(ask)
        turn = client.submit(ask.user, session_id=session, idempotency_key=ask.key,
                             generation=kairos.Generation(max_tokens=ask.max_tokens))
        ask.submitted = True
        open_turns[turn.request_id] = ask

    while True:
        try:
            while not lost and len(open_turns) < IN_FLIGHT:
                submit()
        except kairos.SidecarLost:
            lost = True
        if not announced:
            announced = True
            os.write(go, b"r")
        try:
            # After the loss only what the library still holds is read.
            event = client._read(0 if lost and not open_turns else 60_000)
        except kairos.SidecarLost:
            lost = True
            if not open_turns:
                break
            continue
        if event is None:
            if lost and not open_turns:
                break
            os.write(out, b'"hang"')
            os._exit(3)
        ask = open_turns.get(event.request_id)
        if ask is None:  # a second last event, or one of nobody
            os.write(out, json.dumps(f"stray event {event}").encode())
            os._exit(4)
        if isinstance(event, AcceptedEvent):
            ask.session = event.session_id
        elif isinstance(event, TextEvent):
            ask.text += event.text
        elif isinstance(event, (FinalEvent, ErrorEvent)):
            del open_turns[event.request_id]
            if isinstance(event, FinalEvent):
                ask.version = event.result.version
                ask.session = event.result.session_id
                free.append(ask.session)
            else:
                ask.errors.append(event.detail)
                lost = lost or event.detail == SIDECAR_LOST
    data = json.dumps([ask.__dict__ for ask in story]).encode()
    view = memoryview(data)
    while view:
        view = view[os.write(out, view):]
    os._exit(0)


def fork_client(*arguments: object) -> tuple[int, int, int]:
    """Returns (pid, pipe of the story, pipe that says that turns are open)."""
    out_read, out_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out_read)
        os.close(go_read)
        try:
            client_process(*arguments, out_write, go_write)  # type: ignore[arg-type]
        except BaseException as fault:  # the parent prints it
            os.write(out_write, json.dumps(f"client failed: {fault!r}").encode())
        os._exit(1)
    os.close(out_write)
    os.close(go_write)
    return pid, out_read, go_read


def read_all(fd: int) -> bytes:
    """To the end of the pipe; a client that hangs is an error."""
    parts = []
    deadline = time.monotonic() + live_daemon.WATCHDOG_S
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError("a client hangs after the sidecar's death")
        part = os.read(fd, 65536)
        if not part:
            os.close(fd)
            return b"".join(parts)
        parts.append(part)


class Campaign:
    def __init__(self, seed: int, layers: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.daemon = live_daemon.LiveDaemon(extra=("--limits-sessions-per-uid", "100000"))
        if layers:
            model = gguf_edit.Gguf(self.daemon.model)
            model.keep_layers(layers)
            self.daemon.model = model.write(self.daemon.folder + "/model.gguf")
        self.pairs: dict[int, int] = {}                    # session: pairs committed
        self.told: list[tuple[int, int, str, str]] = []    # session, version, user, text
        self.figures = {"acknowledged": 0, "lost": 0, "replayed": 0, "executed": 0, "unsent": 0}
        self.starts: list[float] = []
        self.batch_s = 0.5  # how long ten turns take on this machine, as last measured

    def start(self, **environment: str) -> None:
        began = time.monotonic()
        self.daemon.start(**environment)
        self.starts.append(time.monotonic() - began)

    # -- one round --

    def run_round(self, number: int) -> str:
        by_stage = number % 2 == 1
        stage = STAGES[number // 2 % len(STAGES)] if by_stage else ""
        if by_stage:
            nth = self.rng.randint(1, 14 * PER_TURN.get(stage, 1))
            if self.daemon.alive():
                self.daemon.kill()
            self.start(KAIROS_KILL_AT=f"{stage}:{nth}")
            label = f"{stage}:{nth}"
        else:
            if not self.daemon.alive():
                self.start()
            delay = self.rng.uniform(0.0, min(10.0, 3 * self.batch_s))
            label = f"random {delay:.3f}s"
        # Warm sessions of earlier rounds, shared out so that no two processes use one.
        old = self.rng.sample(sorted(self.pairs), min(len(self.pairs), 6 * PROCESSES))
        start_read, start_write = os.pipe()
        clients = [fork_client(self.daemon.socket, self.rng.randrange(1 << 30),
                               f"{self.seed}-{number}-{p}", old[p::PROCESSES],
                               start_read) for p in range(PROCESSES)]
        for _, _, go in clients:
            assert os.read(go, 1) == b"a", "a client could not attach"
        os.write(start_write, b"s" * PROCESSES)
        for _, _, go in clients:
            assert os.read(go, 1) == b"r", "a client could not submit"
            os.close(go)
        os.close(start_read)
        os.close(start_write)
        if by_stage:
            code = self.daemon.wait()
            assert code == -signal.SIGKILL, f"the hook did not fire: exit {code}"
        else:
            time.sleep(delay)  # the random moment itself
            self.daemon.kill()
        asks: list[Ask] = []
        for pid, out, _ in clients:
            told = json.loads(read_all(out) or b'"no story"')
            os.waitpid(pid, 0)
            assert isinstance(told, list), told
            asks += [Ask(**one) for one in told]
        self.start()
        self.check(asks)
        return label

    def check(self, asks: list[Ask]) -> None:
        lost = []
        in_flight = 0
        for ask in asks:
            if ask.version:
                assert not ask.errors, f"{ask.key}: an error after the final"
                self.figures["acknowledged"] += 1
                self.pairs[ask.session] = self.pairs.get(ask.session, 0) + 1
                self.told.append((ask.session, ask.version, ask.user, ask.text))
                continue
            lost.append(ask)
            if ask.submitted:
                in_flight += 1
                assert ask.errors == [SIDECAR_LOST], f"{ask.key}: error details {ask.errors}"
            else:
                self.figures["unsent"] += 1
        self.figures["lost"] += in_flight
        assert in_flight >= 8, f"only {in_flight} turns were in flight"
        with self.daemon.client() as client:
            for session, version, user, text in self.told[-400:]:
                self.check_version(client, session, version, user, text)
            self.retry(client, lost)
            self.check_sessions(client)

    def check_version(self, client, session: int, version: int, user: str, text: str) -> None:
        import kairos
        messages = kairos.Session(client, session).messages(version)
        where = f"session {session:016x} version {version}"
        assert len(messages) >= 2 and len(messages) % 2 == 0, f"{where}: {len(messages)} messages"
        asked, answer = messages[-2:]
        assert asked["role"] == "user" and asked["content"] == user, \
            f"{where}: {asked} not {user!r}"
        assert answer["role"] == "assistant" and answer["content"] == text, \
            f"{where}: {answer} but the client was told {text!r}"

    def retry(self, client, lost: list[Ask]) -> None:
        import kairos
        before = {}
        for ask in lost:
            if ask.session in self.pairs:
                before[ask.key] = kairos.Session(client, ask.session).stat().message_count
        # A session that its turn created and that was not committed is gone; the key still works.
        known = {info.id for info in client.sessions()}
        turns = []
        began = time.monotonic()
        for ask in lost:
            session = ask.session if ask.session in self.pairs else 0
            turns.append(client.submit(ask.user, session_id=session, idempotency_key=ask.key,
                                       generation=kairos.Generation(max_tokens=ask.max_tokens)))
        for ask, turn in zip(lost, turns):
            text = turn.read()
            result = turn.result
            session = result.session_id
            self.figures["replayed" if result.replayed else "executed"] += 1
            assert text.startswith(ask.text), \
                f"{ask.key}: streamed {ask.text!r} before the death, {text!r} after it"
            pairs = self.pairs.get(session, 0) + 1
            count = kairos.Session(client, session).stat().message_count
            assert count == 2 * pairs, \
                f"{ask.key}: {count} messages after the retry, not {2 * pairs}"
            if ask.key in before:
                committed = before[ask.key] == 2 * pairs
            else:
                committed = session in known
            assert committed == result.replayed, \
                f"{ask.key}: committed before the death: {committed}, replayed: {result.replayed}"
            self.pairs[session] = pairs
            self.told.append((session, result.version, ask.user, text))
            self.check_version(client, session, result.version, ask.user, text)
        self.batch_s = time.monotonic() - began

    def check_sessions(self, client) -> None:
        listed = {info.id: info for info in client.sessions()}
        assert set(listed) == set(self.pairs), (
            f"sessions nobody was told of: {set(listed) - set(self.pairs)}, "
            f"missing: {set(self.pairs) - set(listed)}")
        for session, pairs in self.pairs.items():
            info = listed[session]
            assert info.message_count == 2 * pairs and info.version == pairs, \
                f"session {session:016x}: {info}, but {pairs} turns were committed"

    def finish(self) -> None:
        """Everything that was ever acknowledged, once more."""
        if not self.daemon.alive():
            self.start()
        with self.daemon.client() as client:
            oldest = {info.id: info.oldest_version for info in client.sessions()}
            for session, version, user, text in self.told:
                if version >= oldest[session]:
                    self.check_version(client, session, version, user, text)
        assert self.daemon.terminate() == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--layers", type=int, default=0)
    options = parser.parse_args()
    live_daemon.require_live()
    print(f"seed {options.seed}, {options.rounds} rounds", flush=True)
    campaign = Campaign(options.seed, options.layers)
    label = "the start"
    began = time.monotonic()
    try:
        for number in range(options.rounds):
            label = f"round {number}"
            label = f"round {number} ({campaign.run_round(number)})"
            print(f"{label}: {campaign.figures}", flush=True)
        campaign.finish()
    except Exception as fault:
        print(f"FAILED with seed {options.seed} in {label}: {fault!r}\n"
              f"sidecar's log:\n{campaign.daemon.log_text()[-4000:]}", flush=True)
        return 1
    finally:
        campaign.daemon.close()
    print(f"passed: {options.rounds} rounds, {len(campaign.pairs)} sessions, {campaign.figures}, "
          f"{len(campaign.starts)} starts, median {statistics.median(campaign.starts):.2f} s, "
          f"longest {max(campaign.starts):.2f} s, {time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
