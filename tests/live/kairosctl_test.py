#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kairosctl against a live kairosd: every verb, its JSON and exit status, and the chat in a pipe
and at a terminal.

Environment beside that of live_daemon.py: KAIROSCTL.
"""
from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402

CTL = os.environ["KAIROSCTL"]
DONE, REFUSED, USAGE, UNAVAILABLE, TAKEN = 0, 1, 2, 69, 75
LONG = "Tell me a very long story about a ship, with every detail."


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self.shown = ""
        self.read_to = 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Waits for the pattern after what was expected last."""
        deadline = time.monotonic() + live_daemon.WATCHDOG_S
        while True:
            found = re.compile(pattern).search(self.shown, self.read_to)
            if found:
                self.read_to = found.end()
                return found
            if not self._read(deadline):
                raise AssertionError(f"no {pattern!r} in {self.shown!r}")

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self.fd, 65536) if ready else b""
        except OSError:  # the other side is closed
            data = b""
        self.shown += data.decode(errors="replace")
        return bool(data)

    def ends_within(self, seconds: float) -> bool:
        """Whether the program is gone; its status is left for wait()."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return True
            time.sleep(0.01)
        return False

    def wait(self) -> int:
        deadline = time.monotonic() + live_daemon.WATCHDOG_S
        while self._read(deadline):
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return status


class Tool(live_daemon.LiveTest):
    def run_tool(self, *arguments: str, text: str = "", control: str | None = None,
                 code: int = DONE) -> subprocess.CompletedProcess[str]:
        command = [CTL, "--control", control or self.daemon.control, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True,
                              timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}\n{done.stderr}")
        return done

    def chat(self, text: str, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
        return self.run_tool("run", "--socket", self.daemon.socket, *arguments, text=text, **more)

    def said(self, *arguments: str, **more):
        return json.loads(self.run_tool("--json", *arguments, **more).stdout)

    def session(self, *texts: str) -> str:
        """A new session with these turns; its id as typed."""
        client = self.client()
        session = client.create_session(label="tool test")
        for text in texts:
            session.turn(text, generation=kairos.Generation(max_tokens=4)).read()
        return f"{session.id:016x}"


class Verbs(Tool):
    def test_ping(self) -> None:
        self.assertEqual(self.run_tool("ping").stdout, "ok\n")
        self.assertEqual(self.said("ping"), {"ok": True})

    def test_list_has_every_session_with_age_and_kv_bytes(self) -> None:
        ids = [self.session("Hello."), self.session()]
        rows = self.run_tool("session", "ls").stdout.splitlines()
        line = next(row for row in rows if row.startswith(ids[0]))
        self.assertRegex(line, r"\d(\.\d)? [KM]iB +\d+ s  \S+ +tool test$")
        self.assertRegex(next(row for row in rows if row.startswith(ids[1])), r" 0 B ")
        listed = {row["id"]: row for row in self.said("session", "ls")}
        self.assertLessEqual(set(ids), set(listed))
        self.assertEqual(listed[ids[0]]["message_count"], 2)
        self.assertEqual(listed[ids[0]]["label"], "tool test")
        self.assertGreater(listed[ids[0]]["kv_bytes"], 0)

    def test_json_may_stand_before_or_after_the_verb(self) -> None:
        identity = self.session("Hello.")
        for words in (("ping",), ("stats",), ("session", "ls"), ("session", "show", identity)):
            before = json.loads(self.run_tool("--json", *words).stdout)
            after = json.loads(self.run_tool(*words, "--json").stdout)
            self.assertEqual(type(before), type(after), words)

    def test_show_has_figures_with_units_and_a_paragraph_for_each_message(self) -> None:
        identity = self.session("The \"first\" one.", "The second one.")
        shown = self.run_tool("session", "show", identity).stdout
        for pattern in (rf"session +{identity}", r"version +2 \(oldest that can be named: \d\)",
                        r"KV +[\d.]+ [KM]iB", r"last used +\d+ s ago", r"messages +4",
                        r'\nuser: The "first" one\.\n\nassistant: ', r"\nuser: The second one\.\n"):
            self.assertRegex(shown, pattern)
        record = self.said("session", "show", identity)
        self.assertEqual(record["session"]["version"], 2)
        self.assertEqual([m["role"] for m in record["messages"]],
                         ["user", "assistant"] * 2)
        earlier = self.said("session", "show", identity, "1")
        self.assertEqual(len(earlier["messages"]), 2)
        self.assertEqual((earlier["shown"]["version"], earlier["shown"]["message_count"]), (1, 2))
        self.assertEqual(earlier["session"]["version"], 2)
        self.assertNotIn("\nshown ", shown)
        for verb in ("show", "export"):
            self.assertRegex(
                self.run_tool("session", verb, identity, "1").stdout,
                r"(?m)^shown +version 1: 2 messages, \d+ tokens, made \S+Z; the figures above are "
                r"of the session and its head$")

    def test_show_has_the_task_context_of_the_version(self) -> None:
        client = self.client()
        session = client.create_session()
        session.turn("Find a hotel.", generation=kairos.Generation(max_tokens=4)).read()
        session.set_context({"goal": "A hotel", "facts": [{"text": "Rome is far"}]})
        identity = f"{session.id:016x}"
        shown = self.run_tool("session", "show", identity).stdout
        self.assertRegex(shown, r"(?m)^goal +A hotel\nfact +Rome is far$")
        self.assertIn("Find a hotel.", self.run_tool("session", "show", identity, "1").stdout)
        self.assertEqual(self.said("session", "show", identity, "1")["context"]["goal"],
                         "Find a hotel.")
        self.assertEqual(self.said("session", "show", identity)["context"]["goal"], "A hotel")

    def test_why_explains_recent_turns_and_forgets_deleted_sessions(self) -> None:
        words = " ".join(f"word{i}" for i in range(40))
        client = self.client()
        session = client.create_session()
        for text in (words, "More.", words):
            session.turn(text, generation=kairos.Generation(max_tokens=4)).read()
        session.rewind(1)
        session.turn("Again.", generation=kairos.Generation(max_tokens=4)).read()
        identity = f"{session.id:016x}"
        rows = self.said("session", "why", identity)
        self.assertEqual([row["version"] for row in rows], [1, 2, 3, 4])
        for row in rows:
            self.assertEqual(row["prompt_tokens"], row["reused_tokens"] + row["recomputed_tokens"]
                             + row["new_tokens"])
            self.assertEqual(sum(row["recomputed_by"].values()), row["recomputed_tokens"])
            self.assertGreater(row["stages_ms"]["prefill"], 0)
        self.assertEqual(set(rows[3]["recomputed_by"]), {"block_boundary"})
        shown = self.run_tool("session", "why", identity).stdout
        self.assertRegex(shown, r"^version 4, \d+ s ago, ended by \w+\n  prompt +\d+ tokens: ")
        self.assertIn("block_boundary: a rewind, a fork or a resent history", shown)
        self.assertEqual(self.said("session", "why", self.session()), [])
        session.delete()
        self.run_tool("session", "why", identity, code=REFUSED)

    def test_export_has_all_versions_also_after_a_rewind(self) -> None:
        identity = self.session("One.", "Two.", "Three.")
        self.run_tool("session", "rewind", identity, "2")
        record = self.said("session", "export", identity)
        self.assertEqual([row["version"] for row in record["versions"]], [1, 2, 3])
        self.assertEqual([row["message_count"] for row in record["versions"]], [2, 4, 6])
        self.assertEqual([row["parent"] for row in record["versions"]], [0, 1, 2])
        self.assertEqual([m["content"] for m in record["messages"] if m["role"] == "user"],
                         ["One.", "Two."])
        self.assertEqual(record["context"]["goal"], "One.")
        text = self.run_tool("session", "export", identity).stdout
        self.assertTrue(text.startswith(f"# Session {identity}\n"))
        self.assertEqual(len(re.findall(r"(?m)^\| [123] \| ", text)), 3)
        self.assertIn("### user\n\n> Two.\n", text)

    def test_model_show_has_what_the_file_and_the_engine_say(self) -> None:
        [model] = self.said("model", "show")
        self.assertEqual((model["name"], model["default"]), ("smollm2-135m", True))
        self.assertEqual((model["architecture"], model["tokenizer"], model["pre_tokenizer"]),
                         ("llama", "gpt2", "smollm"))
        self.assertEqual(sum(model["tensors_by_type"].values()), 272)
        self.assertRegex(model["fingerprint"], r"^[0-9a-f]{32}$")
        self.assertEqual(model["kv_bytes"], model["kv_blocks"] * model["kv_block_bytes"])
        self.assertLessEqual(model["kv_bytes"], 256 << 20)
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(model["threads_from"], "measured")
        self.assertIn(model["threads"], range(1, cores + 1))
        self.assertLessEqual(set(model["layer_us_by_threads"]),
                             {str(count) for count in range(1, cores + 1)})
        self.assertRegex(self.run_tool("model", "show").stdout, r"(?m)^weight_bytes +[\d.]+ MiB$")

    def test_bash_completes_ids_of_sessions(self) -> None:
        identity = self.session()
        script = ('eval "$(kairosctl completion bash)"; COMP_WORDS=(kairosctl session show "$1"); '
                  'COMP_CWORD=3; _kairosctl; printf "%s" "${COMPREPLY[*]}"')
        path = f"{os.path.dirname(os.path.abspath(CTL))}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", identity[:12]], text=True,
                              capture_output=True, timeout=60,
                              env={"PATH": path, "KAIROS_SOCKET": self.daemon.socket})
        self.assertEqual(done.stdout, identity, done.stderr)

    def test_what_others_wrote_cannot_steer_the_terminal_or_forge_a_line(self) -> None:
        evil, shown = "a\x1b[2Jb\x07\u009b\u202ec\u2028d", r"a\x1b[2Jb\x07\u009b\u202ec\u2028d"
        call = [{"id": "1", "name": evil, "arguments": {"x": evil}}]
        client = self.client()
        session = client.create_session(label=f"{evil}\nforged")
        session.turn([{"role": "user", "content": f"{evil}\nassistant: forged\n## forged"},
                      {"role": "assistant", "content": "", "tool_calls": call},
                      {"role": "tool", "name": f"t\n{evil}", "content": "42"}],
                     generation=kairos.Generation(max_tokens=4)).read()
        session.set_context({"goal": f"{evil}\nfact  forged"})
        identity = f"{session.id:016x}"
        texts = {words: self.run_tool(*words).stdout for words in (
            ("session", "ls"), ("session", "show", identity), ("session", "export", identity),
            ("session", "why", identity), ("top", "--once", "--interval", "0.1"))}
        for words, text in texts.items():
            with self.subTest(words):
                self.assertNotRegex(text, r"[^\n -~]")
                self.assertNotRegex(text, r"(?m)^(assistant: |fact +|#+ )?forged")
        for name in ("ls", "show"):
            text = next(text for words, text in texts.items() if name in words)
            self.assertIn(shown + r"\nforged", text)
        self.assertIn(f"user: {shown}\n    assistant: forged\n    ## forged\n",
                      texts["session", "show", identity])
        self.assertIn(f"\n> {shown}\n> assistant: forged\n> ## forged\n",
                      texts["session", "export", identity])
        self.assertIn(rf"tool t\n{shown}: 42", texts["session", "show", identity])

    def test_fork_rewind_and_delete(self) -> None:
        identity = self.session("One.", "Two.")
        copy = self.run_tool("session", "fork", identity, "1").stdout.strip()
        record = self.said("session", "show", copy)
        self.assertEqual(record["session"]["parent"], identity)
        self.assertEqual([m["content"] for m in record["messages"]][0], "One.")
        self.assertEqual(len(record["messages"]), 2)
        self.run_tool("session", "rewind", identity, "1")
        self.assertEqual(self.said("session", "show", identity)["session"]["version"], 1)
        self.run_tool("session", "delete", identity)
        done = self.run_tool("session", "show", identity, code=REFUSED)
        self.assertIn("not found: no such session", done.stderr)
        self.assertIn("session ls", done.stderr)
        self.assertEqual(len(self.said("session", "show", copy)["messages"]), 2)

    def test_sweep_deletes_what_was_not_used_for_long(self) -> None:
        ids = {self.session("Hello."), self.session()}
        done = self.said("session", "sweep", "--unused", "1000")
        self.assertEqual(done["deleted"], 0)
        self.assertGreaterEqual(done["kept"], 2)
        refused = self.run_tool("session", "sweep", "--unused", "0.5", code=USAGE)
        self.assertIn("add --yes", refused.stderr)
        for answer, status in (("n", REFUSED), ("", REFUSED)):
            terminal = Terminal([CTL, "--control", self.daemon.control, "session", "sweep",
                                 "--unused", "0"])
            terminal.expect(r"hour\? \[y/N\] ")
            terminal.type(answer + "\n")
            terminal.expect("nothing was deleted")
            self.assertEqual(terminal.wait(), status)
        self.assertLessEqual(ids, {row["id"] for row in self.said("session", "ls")})
        swept = self.run_tool("session", "sweep", "--unused", "0", "--yes").stdout
        self.assertRegex(swept, r"^\d+ sessions deleted, 0 kept\n$")
        self.assertFalse(ids & {row["id"] for row in self.said("session", "ls")})
        self.run_tool("session", "sweep", code=USAGE)

    def test_missing_things_are_told_with_what_there_is(self) -> None:
        identity = self.session("Hello.", "Again.")
        done = self.run_tool("session", "show", identity, "77", code=REFUSED)
        self.assertRegex(done.stderr, r"there are versions from \d on; the head is 2\n")
        done = self.chat("Hi.\n", "--model", "nope", code=REFUSED)
        self.assertIn("none in memory is called nope; there are: ", done.stderr)
        self.assertNotIn("session ls", done.stderr)

    def test_wrong_words_are_told_before_a_missing_sidecar(self) -> None:
        for words in (("session", "show", "xyz"), ("session", "export", "xyz"),
                      ("run", "--session", "xyz", "--socket", "/nonesuch/kairos.sock")):
            done = self.run_tool(*words, control="/nonesuch/control.sock", code=USAGE)
            self.assertIn("session: not an id", done.stderr)

    def test_socket_path_that_is_too_long_is_called_so(self) -> None:
        done = subprocess.run([CTL, "ping"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "KAIROS_SOCKET": "/" + "a" * 107})
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("socket path: at most 107 bytes", done.stderr)
        self.assertIn("KAIROS_SOCKET", done.stderr)

    def test_stats_have_units(self) -> None:
        self.session("Hello.")
        shown = self.run_tool("stats").stdout
        for pattern in (r"(?m)^kv_device_bytes_total +[\d.]+ MiB$",
                        r"(?m)^turn_seconds_total +[\d.]+ s$",
                        r"(?m)^tokens_generated_total +\d+ tokens$",
                        r"(?m)^turn_overhead_share +-?[\d.]+ %$"):
            self.assertRegex(shown, pattern)
        self.assertGreater(self.said("stats")["tokens_generated_total"], 0)

    def test_wrong_use_ends_with_2(self) -> None:
        for words in ((), ("session",), ("nonsense",), ("session", "show"),
                      ("session", "rewind", "1"), ("session", "rewind", "1", "0"),
                      ("session", "rewind", "1", "-1"),
                      ("session", "show", "1", "-1"), ("run", "--max-tokens", "-1"),
                      ("session", "show", "xyz"),
                      ("session", "show", "0"), ("session", "show", "1" * 17),
                      ("run", "--session", "xyz", "--socket", self.daemon.socket),
                      ("run", "--session", "1", "--system", "s"), ("run", "--temperature", "-1"),
                      ("run", "--temperature", "2.1"), ("run", "--temperature", "nan"),
                      ("ping", "--nonsense")):
            self.run_tool(*words, code=USAGE)
        self.assertIn("Exit statuses:\n   0  done\n   1  refused", self.run_tool("--help").stdout)

    def test_complaints_begin_with_the_program_and_name_the_command(self) -> None:
        done = self.run_tool("session", "show", code=USAGE)
        self.assertEqual(done.stderr, "kairosctl session show: id is required\n"
                                      "  see kairosctl session show --help\n")
        for words, complaint in (
                ("nonsense", 'kairosctl: unknown command "nonsense"'),
                ("sesion ls", 'kairosctl: unknown command "sesion", did you mean "session"?'),
                ("session lst", 'kairosctl session: unknown command "lst", did you mean "ls"?'),
                ("--session 1 run",
                 'kairosctl run: "--session" stands before the command that it belongs to'),
                ("ping --jsn", 'kairosctl ping: unknown flag "--jsn", did you mean "--json"?'),
                ("session show --jsno=1", 'kairosctl session show: unknown flag "--jsno", '
                                          'did you mean "--json"?'),
                ("--control x ping", "kairosctl ping: --control: given twice, may be given once"),
                ("run --max-tokens 1 --max-tokens=2 --max-tokens 3",
                 "kairosctl run: --max-tokens: given 3 times, may be given once"),
                ("run --max-tokens", "kairosctl run: --max-tokens: 1 required N missing"),
                ("ping more", 'kairosctl ping: one word too many: "more"'),
                ("session rewind 1 0", "kairosctl session rewind: version: \"0\" is not a "
                                       "whole number from 1 to 18446744073709551615")):
            lines = self.run_tool(*words.split(), code=USAGE).stderr.splitlines()
            self.assertEqual(lines[0], complaint)
        kairosd = subprocess.run([os.environ["KAIROSD"], "--nonsense"], capture_output=True,
                                 text=True, timeout=60)
        self.assertEqual(kairosd.returncode, USAGE)
        self.assertEqual(kairosd.stderr.splitlines()[0], 'kairosd: unknown flag "--nonsense"')

    def test_programs_tell_one_version_in_one_form(self) -> None:
        texts = [subprocess.run([program, "--version"], capture_output=True, text=True,
                                check=True, timeout=60).stdout
                 for program in (os.environ["KAIROSD"], CTL)]
        found = [re.fullmatch(r"(kairosd|kairosctl) (\d+\.\d+\.\d+)\n", text) for text in texts]
        self.assertEqual([match[1] for match in found], ["kairosd", "kairosctl"])
        self.assertEqual(found[0][2], found[1][2])

    def test_unknown_session_ends_with_1_and_words(self) -> None:
        for words in (("show", "dead"), ("fork", "dead"), ("rewind", "dead", "1"),
                      ("delete", "dead")):
            done = self.run_tool("session", *words, code=REFUSED)
            self.assertIn("not found: no such session", done.stderr)
            self.assertNotRegex(done.stderr, r"code \d")
        self.assertIn("not found", self.chat("Hi.\n", "--session", "dead", code=REFUSED).stderr)
        identity = self.session("One.")
        self.assertIn("version 9 is not one of", self.run_tool(
            "session", "rewind", identity, "9", code=REFUSED).stderr)

    def test_refusals_are_objects_where_json_is_asked_for(self) -> None:
        nowhere = self.daemon.folder + "/nowhere.sock"
        not_found = {"ok": False, "code": 5, "detail": 0, "error": "not found: no such session"}
        for verb in ("show", "export", "why", "fork", "delete"):
            self.assertEqual(self.said("session", verb, "dead", code=REFUSED), not_found, verb)
        self.assertEqual(json.loads(self.chat("Hi.\n", "--json", "--session", "dead",
                                              code=REFUSED).stdout), not_found)
        for words in (("ping",), ("top",), ("reload",), ("stats",), ("session", "ls")):
            record = self.said(*words, control=nowhere, code=UNAVAILABLE)
            self.assertEqual((record["ok"], record["code"]), (False, 14), words)
            self.assertIn(nowhere, record["error"])
        refusal = self.said("reload", code=REFUSED)
        self.assertEqual((refusal["ok"], refusal["code"]), (False, 9))
        self.assertIn("--config", refusal["error"])

    def test_no_sidecar_ends_with_69(self) -> None:
        nowhere = self.daemon.folder + "/nowhere.sock"
        for words in (("ping",), ("stats",), ("session", "ls"), ("session", "show", "1"),
                      ("drain",)):
            done = self.run_tool(*words, control=nowhere, code=UNAVAILABLE)
            self.assertIn(nowhere, done.stderr)
        done = self.run_tool("run", "--socket", nowhere, code=UNAVAILABLE)
        self.assertIn("no sidecar: unavailable", done.stderr)


class Top(Tool):
    def test_pipe_and_once_print_once(self) -> None:
        identity = self.session("Hello.")
        for words in ((), ("--once",), ("--once", "--interval", "0.2")):
            shown = self.run_tool("top", *words).stdout
            self.assertNotIn("\x1b", shown)
            for pattern in (r"(?m)^sessions +[1-9]", r"(?m)^clients +\d",
                            r"(?m)^tokens/s +[\d.]+ decoded",
                            r"(?m)^KV +[\d.]+ [KM]iB of 256\.0 MiB", rf"(?m)^{identity} "):
                self.assertRegex(shown, pattern)

    def test_json_has_rates_phases_and_sessions(self) -> None:
        identity = self.session("Hello.")
        client = self.client()
        turn = client.submit(LONG, generation=kairos.Generation(max_tokens=1500, ignore_eos=True))
        while not isinstance(turn.next(60), kairos.TextEvent):
            pass
        record = self.said("top", "--interval", "0.5")
        turn.cancel()
        turn.read()
        self.assertGreater(record["tokens_per_second"]["decoded"], 0)
        self.assertGreaterEqual(record["interval_seconds"], 0.5)
        self.assertEqual(record["phases"]["running"], 1)
        self.assertEqual(record["sessions"][0]["phase"], "running")
        self.assertIn(identity, [row["id"] for row in record["sessions"]])
        self.assertGreaterEqual(record["figures"]["clients"], 1)

    def test_wrong_interval_is_refused(self) -> None:
        for value in ("0", "-1", "0.05", "4000", "x", "nan", "inf", "-inf", "1e400", ""):
            self.assertEqual(self.run_tool("top", "--interval", value, code=USAGE).stderr,
                             f'kairosctl top: --interval: "{value}" is not a number from 0.1 to '
                             "3600\n  see kairosctl top --help\n")
        self.run_tool("top", control=self.daemon.folder + "/nowhere.sock", code=UNAVAILABLE)

    def live(self) -> Terminal:
        terminal = Terminal([CTL, "--control", self.daemon.control, "top", "--interval", "0.1"])
        self.addCleanup(lambda: os.path.exists(f"/proc/{terminal.pid}") and
                        os.kill(terminal.pid, signal.SIGKILL))
        terminal.expect(r"\x1b\[\?1049h.*sessions ")
        terminal.expect(r"\x1b\[Hsessions ")  # refreshed
        self.assertFalse(termios.tcgetattr(terminal.fd)[3] & (termios.ICANON | termios.ECHO))
        return terminal

    def assert_left(self, terminal: Terminal, status: int) -> None:
        keys = os.dup(terminal.fd)
        self.addCleanup(os.close, keys)
        terminal.expect(r"\x1b\[\?25h\x1b\[\?1049l")
        self.assertEqual(terminal.wait(), status)
        modes = termios.tcgetattr(keys)[3]
        self.assertEqual(modes & (termios.ICANON | termios.ECHO | termios.ISIG),
                         termios.ICANON | termios.ECHO | termios.ISIG)

    def test_keys_and_signals_end_it_and_restore_the_terminal(self) -> None:
        for leave in (lambda t: t.type("q"), lambda t: t.type("\x03"),
                      lambda t: os.kill(t.pid, signal.SIGTERM)):
            terminal = self.live()
            leave(terminal)
            self.assert_left(terminal, DONE)


class PipedChat(Tool):
    def test_turns_of_a_pipe_end_with_the_input(self) -> None:
        done = self.chat("Say a word.\nAnother.", "--max-tokens", "4")
        figures = re.findall(r"\[([0-9a-f]{16}) v(\d): \d+ new, (\d+) reused", done.stdout)
        self.assertEqual([version for _, version, _ in figures], ["1", "2"])
        self.assertGreater(int(figures[1][2]), 0)
        self.assertNotIn("> ", done.stdout)
        record = self.said("session", "show", figures[0][0])
        self.assertEqual(record["messages"][2]["content"], "Another.")
        self.assertIn(record["messages"][1]["content"].strip(), done.stdout)

    def test_a_blank_line_is_no_message(self) -> None:
        done = self.chat("\n  \n\t\r\nOne.\n \n", "--json", "--max-tokens", "2")
        [record] = map(json.loads, done.stdout.splitlines())
        self.assertEqual(record["version"], 1)
        self.assertEqual(done.stderr, "", "the model has a chat template")

    def test_json_is_one_object_a_turn(self) -> None:
        done = self.chat("Say a word.\nAnother.\n", "--json", "--max-tokens", "4")
        turns = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([turn["version"] for turn in turns], [1, 2])
        self.assertTrue(all(turn["generated_tokens"] <= 4 and turn["text"] for turn in turns))
        self.assertEqual(turns[1]["recomputed_by"], {})

    def test_session_system_and_temperature(self) -> None:
        first = json.loads(self.chat("Hi.\n", "--json", "--max-tokens", "4", "--temperature", "0",
                                     "--system", "Be brief.").stdout)
        again = json.loads(self.chat("More.\n", "--json", "--max-tokens", "4",
                                     "--session", first["session"]).stdout)
        self.assertEqual((again["session"], again["version"]), (first["session"], 2))
        messages = self.said("session", "show", first["session"])["messages"]
        self.assertEqual(messages[0], {"role": "system", "content": "Be brief."})
        self.assertEqual([m["role"] for m in messages].count("system"), 1)

    def test_fork_rewind_and_state(self) -> None:
        done = self.chat("Remember 7.\nAnd 8.\n/rewind 1\n/fork\n/state\nWhich?\n/quit\nnever\n",
                         "--max-tokens", "4")
        source = re.search(r"(?m)^\[rewound: session ([0-9a-f]{16}) is at version 1 again; ",
                           done.stdout)[1]
        copy, kept = re.findall(r"(?m)^\[forked: you go on in session ([0-9a-f]{16}) at version 1; "
                                r"([0-9a-f]{16}) stays as it is\]$", done.stdout)[0]
        self.assertEqual(source, kept)
        self.assertNotEqual(source, copy)
        self.assertIn('"goal"', done.stdout)
        self.assertEqual(self.said("session", "show", source)["session"]["version"], 1)
        record = self.said("session", "show", copy)
        self.assertEqual(record["session"]["parent"], source)
        self.assertEqual([m["content"] for m in record["messages"] if m["role"] == "user"],
                         ["Remember 7.", "Which?"])

    def test_fork_and_rewind_name_the_label_and_have_json(self) -> None:
        identity = self.session("One.", "Two.")
        done = self.chat("/rewind 1\n/fork\n", "--session", identity)
        self.assertEqual(done.stdout.count(', label "tool test"'), 2, done.stdout)
        done = self.chat("/rewind 2\n/fork\n", "--json", "--session", identity)
        rewound, forked = (json.loads(line) for line in done.stdout.splitlines())
        self.assertEqual(rewound, {"command": "/rewind", "session": identity, "version": 2,
                                   "label": "tool test", "source": identity})
        self.assertEqual((forked["command"], forked["source"], forked["version"]),
                         ("/fork", identity, 1))
        self.assertNotEqual(forked["session"], identity)

    def test_recomputed_tokens_come_with_their_reason(self) -> None:
        words = " ".join(f"word{i}" for i in range(40))
        done = self.chat(f"{words}\nMore.\n{words}\n/rewind 1\nAgain.\n", "--max-tokens", "4")
        self.assertRegex(done.stdout, r"\d+ recomputed \(\d+ block_boundary\)")

    def test_a_failed_turn_or_command_ends_with_1(self) -> None:
        done = self.chat("/fork\n", code=REFUSED)
        self.assertIn("no session before the first turn", done.stderr)
        self.chat("/nonsense\n", code=REFUSED)
        self.chat("Hi.\n/rewind 9\n", "--max-tokens", "4", code=REFUSED)
        done = self.chat("word " * 20_000 + "\n", code=REFUSED)
        self.assertIn("invalid argument: the prompt has", done.stderr)
        self.assertIn("rewind, or start a new session", done.stderr)

    def test_interrupt_of_a_script_cancels_and_ends(self) -> None:
        command = [CTL, "run", "--socket", self.daemon.socket, "--max-tokens", "1500"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdin.write(f"{LONG}\nnever\n".encode())
            process.stdin.flush()
            self.assertTrue(process.stdout.read(1))
            process.send_signal(signal.SIGINT)
            shown = process.stdout.read().decode()
            self.assertEqual(process.wait(live_daemon.WATCHDOG_S), REFUSED)
        self.assertRegex(shown, r"v1: .* cancelled\]\n$")


class SmallKv(Tool):
    EXTRA = ("--kv-memory", "16MiB")

    def test_a_refused_first_turn_leaves_no_session_and_the_next_line_makes_one(self) -> None:
        before = self.said("session", "ls")
        done = self.chat("One.\nTwo.\n", "--max-tokens", "8000", code=REFUSED)
        self.assertEqual(done.stderr.count("kairosctl: turn: resource exhausted"), 2, done.stderr)
        self.assertNotIn("no such session", done.stderr)
        self.assertNotIn("[session", done.stderr)
        self.assertEqual(self.said("session", "ls"), before)

    def test_a_line_after_a_refused_first_turn_is_answered(self) -> None:
        done = self.chat("word " * 20_000 + "\nHi.\n", "--max-tokens", "4", code=REFUSED)
        identity = re.search(r"(?m)^\[session (\w{16})\]$", done.stderr)[1]
        self.assertEqual(done.stderr.count("[session "), 1)
        self.assertIn(f"[{identity} v1: ", done.stdout)


class ChatSettings(Tool):
    EXTRA = ("--generation-temperature", "2", "--limits-max-tokens-default", "16")

    def test_what_the_user_does_not_name_is_the_sidecars(self) -> None:
        def said(*arguments: str) -> str:
            return json.loads(self.chat("Tell me a story.\n", "--json", *arguments).stdout)["text"]
        hot = said()
        self.assertEqual(said("--max-tokens", "16"), hot)
        self.assertNotEqual(said("--max-tokens", "16", "--temperature", "0"), hot)


class TerminalChat(Tool):
    def terminal(self, *arguments: str) -> Terminal:
        terminal = Terminal([CTL, "run", "--socket", self.daemon.socket, *arguments])
        self.addCleanup(lambda: os.path.exists(f"/proc/{terminal.pid}") and
                        os.kill(terminal.pid, signal.SIGKILL))
        terminal.expect("> ")
        return terminal

    def test_chat_help_and_quit(self) -> None:
        terminal = self.terminal("--max-tokens", "4")
        terminal.type("/help\n")
        for command in ("/fork", "/rewind N", "/state", "/help", "/quit", r"\^C"):
            terminal.expect(command)
        terminal.type("Say a word.\n")
        terminal.expect(r"\[[0-9a-f]{16} v1: .* generated, first token [\d.]+ ms")
        terminal.expect("> ")
        terminal.type("/quit\n")
        self.assertEqual(terminal.wait(), DONE)

    def test_interrupt_cancels_the_turn_and_a_second_one_leaves(self) -> None:
        terminal = self.terminal("--max-tokens", "1500")
        terminal.type(LONG + "\n")
        terminal.expect(r"detail\.\r\n\[session \w{16}\]\r\n[^\[]*\w")  # the reply has begun
        terminal.type("\x03")
        figures = terminal.expect(r"\[([0-9a-f]{16}) v1: [^\]]*, (\d+) generated[^\]]* cancelled\]")
        self.assertLess(int(figures[2]), 1500)
        terminal.expect("> ")
        terminal.type("/rewind 1\n")
        terminal.expect(r"\[rewound: session " + figures[1] + r" is at version 1 again; ")
        terminal.expect("> ")
        terminal.type("\x03")
        self.assertEqual(terminal.wait(), DONE)
        record = self.said("session", "show", figures[1])
        self.assertTrue(record["messages"][-1]["cancelled"])
        self.assertIn("assistant (cancelled): ",
                      self.run_tool("session", "show", figures[1]).stdout)

    def test_two_interrupts_leave_also_when_the_sidecar_hangs(self) -> None:
        terminal = self.terminal("--max-tokens", "1500")
        terminal.type(LONG + "\n")
        terminal.expect(r"detail\.\r\n\[session \w{16}\]\r\n[^\[]*\w")
        os.kill(self.daemon.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.daemon.pid, signal.SIGCONT)
        # The terminal echoes ^C before the program has seen it, and two that are pending become one
        # signal, so it is pressed until the program is gone.
        for _ in range(100):
            terminal.type("\x03")
            if terminal.ends_within(0.3):
                break
        self.assertEqual(terminal.wait(), REFUSED)

    def test_end_of_input_leaves(self) -> None:
        terminal = self.terminal()
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), DONE)


class Endings(Tool):
    """Each test ends the daemon that it started."""

    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon(extra=("--drain-timeout", "10m")).start()
        self.addCleanup(self.daemon.close)

    def test_sidecar_lost_in_a_turn_ends_with_69_and_words(self) -> None:
        terminal = Terminal([CTL, "run", "--socket", self.daemon.socket, "--max-tokens", "1500"])
        terminal.expect("> ")
        terminal.type(LONG + "\n")
        identity = terminal.expect(r"detail\.\r\n\[session (\w{16})\]\r\n[^\[]*\w")[1]
        self.daemon.kill()
        terminal.expect(r"\nkairosctl: turn: unavailable: ")
        terminal.expect(f"if it was committed, go on with --session {identity}")
        self.assertEqual(terminal.wait(), UNAVAILABLE)

    def test_top_says_that_the_sidecar_went_away_on_the_users_own_screen(self) -> None:
        terminal = Terminal([CTL, "--control", self.daemon.control, "top", "--interval", "0.1"])
        terminal.expect("sessions ")
        self.daemon.kill()
        terminal.expect(r"\x1b\[\?1049l(?s:.*)kairosctl: unavailable: ")
        self.assertEqual(terminal.wait(), UNAVAILABLE)

    def test_drain_refuses_new_turns_and_ends_the_daemon(self) -> None:
        client = self.client()
        open_turn = client.submit(LONG, generation=kairos.Generation(max_tokens=200,
                                                                    ignore_eos=True))
        while not isinstance(open_turn.next(60), kairos.TextEvent):
            pass
        self.assertEqual(self.run_tool("drain").stdout,
                         "1 turn is open; after 600 s (drain.timeout) what is open is cut\n")
        with self.assertRaises(kairos.Unavailable) as caught:
            client.submit("Hi.", generation=kairos.Generation(max_tokens=4)).read()
        self.assertEqual(caught.exception.detail, 7, caught.exception)
        open_turn.read()
        self.assertEqual(open_turn.result.usage.generated_tokens, 200)
        self.assertEqual(self.daemon.wait(), 0, self.daemon.log_text())
        self.run_tool("ping", code=UNAVAILABLE)

    def test_drain_that_waits_cuts_turns_at_its_limit_and_says_why(self) -> None:
        client = self.client()
        turn = client.submit(LONG, generation=kairos.Generation(max_tokens=4000,
                                                               ignore_eos=True))
        while not isinstance(turn.next(60), kairos.TextEvent):
            pass
        chat = subprocess.Popen([CTL, "run", "--socket", self.daemon.socket, "--max-tokens",
                                 "4000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (chat.kill(), chat.wait()))
        chat.stdin.write(LONG + "\n")
        chat.stdin.flush()
        self.assertTrue(chat.stdout.read(1))
        done = self.run_tool("drain", "--wait", "--timeout", "1.5")
        self.assertEqual(done.stdout, "2 turns are open; after 1.5 s (--timeout) what is open is "
                                      "cut\nthe sidecar has ended\n")
        self.assertRegex(done.stderr, r"^2 turns are open\n")
        self.assertIsNotNone(self.daemon.process.poll(), "it has not ended")
        self.assertEqual(self.daemon.wait(), 0, self.daemon.log_text())
        turn.read()
        self.assertLess(turn.result.usage.generated_tokens, 4000)
        _, told = chat.communicate(timeout=live_daemon.WATCHDOG_S)
        self.assertIn("kairosctl: turn: the sidecar is shutting down", told)

    def test_drain_as_json_tells_what_is_open(self) -> None:
        self.assertEqual(self.said("drain", "--wait"),
                         {"ok": True, "turns_open": 0, "drain_timeout_ms": 600_000, "ended": True})

    def test_a_second_instance_ends_with_75_and_harms_nothing(self) -> None:
        identity = self.session("Hello.")
        second = self.daemon.spawn()
        self.assertEqual(second.wait(live_daemon.WATCHDOG_S), TAKEN)
        self.assertIn(str(self.daemon.pid), self.daemon.log_text())
        self.assertEqual(self.said("session", "show", identity)["session"]["version"], 1)
        self.assert_serves()
        self.run_tool("ping")


del Tool  # its subclasses are the tests

if __name__ == "__main__":
    live_daemon.main()
