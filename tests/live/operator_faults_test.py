#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The faults of docs/ERRORS.md that operators meet, each provoked: what kairosd says at its start,
or `kairosctl doctor` at any time, names the cause and what to do.

  operator_faults_test.py LIBRARY     LIBRARY is built from tests/support/memory_refusal.c

Environment beside that of live_daemon.py: KAIROSCTL.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import gguf_edit  # noqa: E402
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402

CTL = os.environ["KAIROSCTL"]
MEMORY_REFUSAL = sys.argv.pop(1)
NO_INPUT, OS_ERROR, CANNOT_CREATE, TAKEN, CONFIG = 66, 71, 73, 75, 78
NOBODY = 65534
STORAGE = 12  # KAIROS_DETAIL_STORAGE


class Faults(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.mkdtemp(prefix="kairos-faults-")
        self.addCleanup(shutil.rmtree, folder)
        self.folder = folder
        self.daemon = live_daemon.LiveDaemon(folder=folder)
        self.addCleanup(self.daemon.close)

    def settings(self) -> list[str]:
        return self.daemon.arguments()[1:]

    def assert_ends(self, status: int, *words: str, arguments: list[str] | None = None,
                    **options: object) -> None:
        """kairosd with these settings ends with the status and all of the words."""
        done = subprocess.run([os.environ["KAIROSD"], *(arguments or self.settings())],
                              capture_output=True, text=True, timeout=live_daemon.WATCHDOG_S,
                              **options)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertTrue(done.stderr.splitlines()[-2].startswith("kairosd: "), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def finding(self, check: str, *, arguments: list[str] | None = None,
                **options: object) -> dict[str, str]:
        """What doctor says of one thing; the exit status tells of failures."""
        command = [CTL, "doctor", "--json", *(arguments or self.settings())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
        rows = json.loads(done.stdout)
        failed = any(row["severity"] == "fail" for row in rows)
        self.assertEqual(done.returncode, 1 if failed else 0, done.stdout)
        return next(row for row in rows if row["check"] == check)

    def assert_found(self, check: str, severity: str, *words: str, **options: object) -> None:
        row = self.finding(check, **options)
        self.assertEqual(row["severity"], severity, row)
        self.assertTrue(row["remedy"], row)
        for word in words:
            self.assertIn(word, row["words"] + "\n" + row["remedy"])

    def mount_disk(self, size: str) -> str:
        """The folder of a file system of that size, which holds the catalog."""
        disk = self.folder + "/disk"
        os.mkdir(disk)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk]
        if os.getuid() != 0 or subprocess.run(mount, check=False).returncode:
            self.skipTest("cannot mount a small file system here")
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        self.daemon.catalog = disk + "/catalog.db"
        return disk

    @staticmethod
    def fill(disk: str) -> None:
        """Takes all that is free, to the last page."""
        with contextlib.suppress(OSError), open(disk + "/ballast", "ab", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass

    def delete(self, session: int) -> None:
        command = [CTL, "--control", self.daemon.control, "session", "delete", f"{session:016x}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_wrong_permissions(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to start kairosd as another user")
        os.chmod(self.folder, 0o700)
        program = tempfile.mkdtemp(prefix="kairos-program-")  # where that user can read it
        self.addCleanup(shutil.rmtree, program)
        os.chmod(program, 0o755)
        shutil.copy(os.environ["KAIROSD"], program)
        done = subprocess.run([program + "/kairosd", *self.settings()], capture_output=True,
                              text=True, timeout=60, user=NOBODY, group=NOBODY, extra_groups=[],
                              cwd="/")
        self.assertEqual(done.returncode, CANNOT_CREATE, done.stderr)
        for word in ("no permission", f"{self.folder} belongs to uid 0 with mode 0700",
                     f"this is uid {NOBODY}", "chown", "`socket`"):
            self.assertIn(word, done.stderr)

    def test_small_locked_memory_limit(self) -> None:
        small = 65536
        self.assert_found(
            "memlock", "warn", "64.0 KiB may be locked", "LimitMEMLOCK=8M",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (small, small)))

    def test_few_open_files(self) -> None:
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))  # noqa: E731
        self.assert_found("nofile", "warn", "100 open files", "LimitNOFILE", preexec_fn=few)

    def test_too_few_open_files_for_the_start(self) -> None:
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))  # noqa: E731
        words = ("limit of open files (RLIMIT_NOFILE) is 40; kairosd itself needs 64",
                 "LimitNOFILE=", "ulimit -n")
        self.daemon.extra = ("--log-level", "info")
        for flags in ((), ("--check-config",)):
            self.assert_ends(OS_ERROR, *words, arguments=[*flags, *self.settings()],
                             preexec_fn=few)
        self.assertFalse(os.path.exists(self.daemon.catalog), "it made files before it looked")
        self.assert_found("nofile", "fail", *words, preexec_fn=few)

    def test_missing_model(self) -> None:
        self.daemon.model = "nonesuch"
        words = ("model: no file and no fetched model is called nonesuch", "tools/model fetch NAME")
        self.assert_ends(NO_INPUT, *words)
        self.assert_ends(NO_INPUT, *words, arguments=["--check-config", *self.settings()])
        self.assert_found("model", "fail", *words)
        self.assertFalse(os.path.exists(self.daemon.catalog), "it made files before it looked")

    def test_checked_settings_are_refused_where_the_start_is(self) -> None:
        plain = self.folder + "/plain"
        pathlib.Path(plain).write_text("")
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            address = f"127.0.0.1:{other.getsockname()[1]}"
            cases = (
                (CONFIG, ("KAIROS_KERNELS=foo: unknown; known are ", "avx2, scalar"), (), "foo"),
                (CANNOT_CREATE, (f"{plain} is taken by a file that is no socket",),
                 ("--socket", plain), ""),
                (CANNOT_CREATE, ("no socket can be made in", f"{self.folder}/a: No such file"),
                 ("--socket", self.folder + "/a/b/kairos.sock"), ""),
                (CANNOT_CREATE, (f"{address} is in use by another program",),
                 ("--metrics-listen", address), ""))
            for status, words, extra, kernels in cases:
                arguments = self.settings()
                if "--socket" in extra:
                    arguments[arguments.index("--socket") + 1] = extra[1]
                else:
                    arguments += extra
                for flags in ((), ("--check-config",)):
                    self.assert_ends(status, *words, arguments=[*flags, *arguments],
                                     env={**os.environ, "KAIROS_KERNELS": kernels})

    def test_kernels_that_this_processor_lacks(self) -> None:
        flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
        lacking = [name for name in ("avx2", "avx_vnni", "avx512_vnni") if name not in flags]
        if not lacking:
            self.skipTest("this processor has all kernels")
        for name in lacking:
            self.assert_ends(CONFIG, f"KAIROS_KERNELS={name}: this processor does not have these "
                             "instructions", "avx512_vnni, avx_vnni, avx2, scalar",
                             env={**os.environ, "KAIROS_KERNELS": name})

    def test_settings_of_a_kairosd_that_runs_can_be_checked(self) -> None:
        self.daemon.start()
        done = subprocess.run([os.environ["KAIROSD"], "--check-config", *self.settings()],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_endpoint_in_use(self) -> None:
        for key, path, kind in (("socket", self.daemon.socket, socket.SOCK_SEQPACKET),
                                ("control_socket", self.daemon.control, socket.SOCK_STREAM)):
            with socket.socket(socket.AF_UNIX, kind) as other:
                other.bind(path)
                other.listen()
                words = (f"another program listens on {path}", "end it",
                         f"--{key.replace('_', '-')} (`{key}`)")
                self.assert_ends(CANNOT_CREATE, *words)
                self.assert_found(key, "fail", *words)
                with socket.socket(socket.AF_UNIX, kind) as client:
                    client.connect(path)  # it was left alone
            os.unlink(path)

    def test_metrics_port_in_use(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            address = f"127.0.0.1:{other.getsockname()[1]}"
            self.daemon.extra = ("--metrics-listen", address)
            words = (f"metrics.listen: {address} is in use by another program", "another port")
            self.assert_ends(CANNOT_CREATE, *words)
            self.assert_found("metrics.listen", "fail", *words)
        self.daemon.start()
        command = [CTL, "doctor", "--json", *self.settings()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, f"its own port is no fault: {done.stdout}")

    def test_full_disk(self) -> None:
        disk = self.mount_disk("64k")
        words = (f"session catalog {self.daemon.catalog} has", "1.0 MiB are needed", "make room on",
                 "`catalog.path`", "kairosd may not start")
        self.assert_found("catalog", "fail", *words)
        self.fill(disk)
        self.assert_ends(CANNOT_CREATE, *words)

    def test_sidecar_killed_on_a_full_disk_starts_again_and_deletes(self) -> None:
        disk = self.mount_disk("6m")
        self.daemon.start()
        one_token = kairos.Generation(max_tokens=1)
        with self.daemon.client() as client:
            sessions = [client.create_session() for _ in range(3)]
            for session in sessions:
                session.turn("some words " * 400, generation=one_token).read()
        for session in sessions[:2]:  # the second time with what is left of the reserve
            self.fill(disk)
            self.daemon.kill()
            self.fill(disk)
            self.daemon.start()
            self.delete(session.id)
        with self.daemon.client() as client:
            kept = client.open_session(sessions[2].id)
            kept.turn("There is room again.", generation=one_token).read()
            self.assertEqual(kept.stat().version, 2)

    def test_disk_that_fills_up_is_named_and_emptied_by_deleting_a_session(self) -> None:
        disk = self.mount_disk("6m")
        self.daemon.start()
        self.addCleanup(self.daemon.close)
        client = self.daemon.client()
        self.addCleanup(client.close)
        one_token = kairos.Generation(max_tokens=1)
        session = client.create_session()
        session.turn("Kept.", generation=one_token).read()
        self.fill(disk)
        with self.assertRaises(kairos.KairosError) as refused:
            for _ in range(400):
                session.turn("some words " * 200, generation=one_token).read()
        words = f"session catalog: the disk of {self.daemon.catalog} is full: free space"
        self.assertEqual(refused.exception.detail, STORAGE)
        self.assertIn(words, str(refused.exception))
        self.assertIn(words, self.daemon.log_text())
        self.delete(session.id)
        session = client.create_session()
        session.turn("There is room again.", generation=one_token).read()

    def test_catalog_that_is_none(self) -> None:
        catalog = pathlib.Path(self.daemon.catalog)
        catalog.write_bytes(b"no database" * 1000)
        words = (f"session catalog: {catalog}: file is not a database",
                 f"move the file and {catalog}-wal", "put a backup in their place")
        checked = ["--check-config", *self.settings()]
        self.assert_ends(CANNOT_CREATE, *words)
        self.assert_ends(CANNOT_CREATE, *words, arguments=checked)
        self.assert_found("catalog", "fail", *words)
        self.assertEqual(catalog.read_bytes(), b"no database" * 1000)
        catalog.unlink()
        catalog.mkdir()
        words = (f"{catalog}: is a folder; a file is wanted", f"{catalog}/catalog.db")
        self.assert_ends(CANNOT_CREATE, *words)
        self.assert_ends(CANNOT_CREATE, *words, arguments=checked)
        self.assert_found("catalog", "fail", *words)

    def test_stale_socket(self) -> None:
        self.daemon.start()
        self.daemon.kill()
        self.assert_found("socket", "warn", f"{self.daemon.socket} is left over",
                          "start kairosd, which replaces it")
        done = subprocess.run([CTL, "--control", self.daemon.control, "ping"], text=True,
                              capture_output=True, timeout=60)
        self.assertIn("is kairosd running, and on this socket?", done.stderr)
        self.daemon.start()
        self.assertEqual(self.finding("library")["severity"], "ok")

    def test_wrong_key_in_the_file(self) -> None:
        path = self.folder + "/kairos.toml"
        pathlib.Path(path).write_text("[engine]\nthread = 1\n")
        words = (f"{path}:2: unknown key \"engine.thread\"", 'did you mean "engine.threads"?')
        arguments = ["--config", path, *self.settings()]
        done = subprocess.run([os.environ["KAIROSD"], *arguments], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, CONFIG, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assert_found("settings", "fail", *words, arguments=arguments)

    def test_checked_settings_of_a_served_model_are_good(self) -> None:
        done = subprocess.run([os.environ["KAIROSD"], "--check-config", *self.settings()],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse(os.path.exists(self.daemon.catalog), "it made files")

    def test_missing_extra_model(self) -> None:
        path = self.folder + "/kairos.toml"
        pathlib.Path(path).write_text('[[extra_model]]\nname = "big"\npath = "/nonesuch.gguf"\n')
        for flags in ((), ("--check-config",)):
            self.assert_ends(NO_INPUT, "path of [[extra_model]] big: /nonesuch.gguf",
                             arguments=["--config", path, *flags, *self.settings()])

    def test_file_that_is_not_a_regular_one(self) -> None:
        fifo = self.folder + "/fifo"
        os.mkfifo(fifo)
        for path in (fifo, self.folder, "/dev/null"):
            for flags in ((), ("--check-config",)):
                command = [os.environ["KAIROSD"], "--config", path, *flags, *self.settings()]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr),
                                 (CONFIG, f"kairosd: {path}: is not a regular file\n"))

    def test_model_too_big(self) -> None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        model = gguf_edit.Gguf(str(live_daemon.model_path()))
        model.keep_layers(1)
        row_bytes = 32 * 4
        rows = total // row_bytes * 2
        model.tensors.append(gguf_edit.Tensor("huge.weight", [32, rows], 0, memoryview(b"")))
        self.daemon.model = model.write(self.folder + "/big.gguf")
        os.truncate(self.daemon.model, os.path.getsize(self.daemon.model) + rows * row_bytes)
        words = ("the model is too big: its weights take", "smaller or more strongly quantised")
        self.assert_ends(OS_ERROR, *words)
        self.assert_found("memory", "fail", *words)

    def test_small_limit_of_address_space(self) -> None:
        for mebibytes in (60, 150, 300):
            limits = (mebibytes << 20,) * 2
            limit = functools.partial(resource.setrlimit, resource.RLIMIT_AS, limits)
            words = (f"limit of address space (RLIMIT_AS) is {mebibytes}.0 MiB", "LimitAS",
                     "ulimit -v", "kv.memory")
            for flags in ((), ("--check-config",)):
                self.assert_ends(OS_ERROR, *words, arguments=[*flags, *self.settings()],
                                 preexec_fn=limit)
            self.assert_found("address_space", "fail", *words, preexec_fn=limit)

    def test_small_limit_of_private_memory(self) -> None:
        limits = (300 << 20,) * 2
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_DATA, limits)
        words = ("limit of private memory (RLIMIT_DATA) is 300.0 MiB", "LimitDATA", "ulimit -d",
                 "kv.memory")
        for flags in ((), ("--check-config",)):
            self.assert_ends(OS_ERROR, *words, arguments=[*flags, *self.settings()],
                             preexec_fn=limit)
        self.assert_found("private_memory", "fail", *words, preexec_fn=limit)

    def test_system_that_refuses_memory_while_it_loads(self) -> None:
        for mebibytes, what in ((64, "of memory for the weights"), (200, "of KV memory")):
            environment = {**os.environ, "LD_PRELOAD": MEMORY_REFUSAL,
                           "REFUSED_BYTES": str(mebibytes << 20)}
            self.assert_ends(OS_ERROR, "kairosd: smollm2-135m: the system refuses ", what,
                             "lower kv.memory", "LimitDATA=", env=environment)

    def test_system_that_refuses_threads_does_so_at_the_start(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to start kairosd as another user")
        user = (54321, 54321)  # has no other processes, which would count
        refused = 0
        for threads in range(1, 64):
            daemon = live_daemon.LiveDaemon(user=user, limits={resource.RLIMIT_NPROC: threads},
                                            extra=("--engine-threads", "2"))
            self.addCleanup(daemon.close)
            try:
                daemon.start()
            except AssertionError as error:
                self.assertIn(f"ended with {OS_ERROR}: ", str(error))
                self.assertIn("the system refuses a thread", str(error))
                self.assertIn("TasksMax=", str(error))
                refused += 1
                continue
            break
        self.assertGreater(refused, 2)
        constrained = kairos.Generation(max_tokens=8, json_schema='{"type":"boolean"}')
        with daemon.client() as client:
            self.assertIn(client.create_session().turn("yes?", generation=constrained).read(),
                          ("true", "false"))

    def test_kv_memory_too_small_for_the_model(self) -> None:
        arguments = ["1MiB" if word == "256MiB" else word for word in self.settings()]
        self.assert_ends(CONFIG, "kv.memory of 1048576 bytes holds", "raise kv.memory",
                         arguments=arguments)
        self.assert_found("kv.memory", "fail", "raise kv.memory", arguments=arguments)

    def test_second_instance(self) -> None:
        self.daemon.start()
        words = (f"another kairosd runs on this socket (pid {self.daemon.pid})",
                 "kairosctl drain", "--socket, --control-socket and --catalog-path")
        self.assert_ends(TAKEN, *words)
        row = self.finding("instance")
        self.assertIn(f"a kairosd runs here (pid {self.daemon.pid})", row["words"])
        self.assertIn("kairosctl drain", row["words"])

    def test_second_instance_with_the_same_control_socket(self) -> None:
        self.daemon.start()
        arguments = self.settings()
        for flag in ("--socket", "--catalog-path"):
            arguments[arguments.index(flag) + 1] += ".other"
        words = (f"another program listens on {self.daemon.control}", "--control-socket")
        self.assert_ends(CANNOT_CREATE, *words, arguments=arguments)
        self.assertFalse(os.path.exists(self.daemon.catalog + ".other"), "it made files")
        self.assert_found("control_socket", "fail", *words, arguments=arguments)

    def test_second_instance_on_another_socket_with_the_same_catalog(self) -> None:
        self.daemon.start()
        arguments = self.settings()
        for flag in ("--socket", "--control-socket"):
            arguments[arguments.index(flag) + 1] += ".other"
        words = (f"session catalog: {self.daemon.catalog}: is in use, by another kairosd perhaps "
                 f"(pid {self.daemon.pid})", "--catalog-path")
        self.assert_ends(CANNOT_CREATE, *words, arguments=arguments)
        self.assert_found("catalog", "fail", *words, arguments=arguments)
        self.assertEqual(self.finding("catalog")["severity"], "ok", "it is its own")

    def test_sockets_that_another_user_owns(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to ask as another user")
        self.daemon.start()
        os.chmod(self.folder, 0o711)
        program = tempfile.mkdtemp(prefix="kairos-program-")  # where that user can read it
        self.addCleanup(shutil.rmtree, program)
        os.chmod(program, 0o755)
        shutil.copy(CTL, program)
        shutil.copy(os.environ["KAIROS_LIBRARY"], program + "/libkairos.so.1")
        for arguments in (("--control", self.daemon.control, "ping"),
                          ("run", "--socket", self.daemon.socket)):
            done = subprocess.run([program + "/kairosctl", *arguments], capture_output=True,
                                  text=True, timeout=60, user=NOBODY, group=NOBODY, cwd="/",
                                  extra_groups=[], input="", env={"LD_LIBRARY_PATH": program})
            self.assertEqual(done.returncode, 69, done.stderr)
            self.assertIn(f"permission denied to uid {NOBODY}: only the user", done.stderr)
            self.assertNotIn("is kairosd running", done.stderr)

    def test_group_that_socket_mode_lets_in(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to ask as another user")
        os.chmod(self.folder, 0o711)
        folder = self.folder + "/made"
        self.daemon.socket = folder + "/kairos.sock"
        self.daemon.extra = ("--socket-mode", "0660")
        self.daemon.start()
        program = tempfile.mkdtemp(prefix="kairos-program-")  # where that user can read it
        self.addCleanup(shutil.rmtree, program)
        os.chmod(program, 0o755)
        shutil.copy(CTL, program)
        shutil.copy(os.environ["KAIROS_LIBRARY"], program + "/libkairos.so.1")

        def chat(group: int) -> subprocess.CompletedProcess[str]:
            return subprocess.run([program + "/kairosctl", "run", "--socket", self.daemon.socket],
                                  capture_output=True, text=True, timeout=60, user=NOBODY,
                                  group=group, cwd="/", extra_groups=[], input="",
                                  env={"LD_LIBRARY_PATH": program})
        self.assertEqual(chat(os.getgid()).returncode, 0)
        done = chat(NOBODY)
        self.assertEqual(done.returncode, 69)
        self.assertIn(f"permission denied by the folder {folder}\n", done.stderr)
        self.assertIn(f"by the folder {folder} (uid 0, gid 0, mode 0750)", done.stderr)
        os.chmod(folder, 0o700)
        self.assert_found("folder", "warn", f"{folder}, which belongs to gid 0 with mode 0700",
                          f"chmod g+x {folder}")
        self.assertEqual(self.daemon.terminate(), 0)
        self.daemon.start()
        self.assertIn("preflight check=folder", self.daemon.log_text())

    def test_kairosd_that_dies_during_a_chat(self) -> None:
        for words, flags in (("its first turn may be lost", ()),
                             ("committed versions are kept", ("--session",))):
            self.daemon.start()
            if flags:
                with self.daemon.client() as client:
                    session = client.create_session()
                    session.turn("Hi.", generation=kairos.Generation(max_tokens=1)).read()
                    flags = ("--session", f"{session.id:016x}")
            command = [CTL, "run", "--socket", self.daemon.socket, "--max-tokens", "1500", *flags]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as process:
                process.stdin.write("Tell me a very long story about a ship.\n")
                process.stdin.flush()
                if flags:
                    identity = flags[1]
                else:
                    shown = process.stderr.readline()
                    self.assertRegex(shown, r"^\[session [0-9a-f]{16}\]\n$")
                    identity = shown[9:25]
                self.assertTrue(process.stdout.read(1))
                self.daemon.kill()
                _, told = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 69)
            self.assertIn(words, told)
            self.assertIn(f"go on with --session {identity}\n", told)

    def chat_words(self, *flags: str) -> str:
        """What `kairosctl run` says on stderr in a chat of two turns."""
        done = subprocess.run([CTL, "run", "--socket", self.daemon.socket, "--max-tokens", "1",
                               *flags], input="One.\nTwo.\n", capture_output=True, text=True,
                              timeout=60, check=True)
        return done.stderr

    def test_model_without_a_chat_template(self) -> None:
        model = gguf_edit.Gguf(str(live_daemon.model_path()))
        model.keep_layers(1)
        model.set_string("tokenizer.chat_template", "")
        self.assertEqual(self.finding("chat_template")["severity"], "ok")
        self.daemon.model = model.write(self.folder + "/base.gguf")
        self.assert_found("chat_template", "warn", "base brings no chat template", "Instruct")
        self.daemon.extra = ("--log-level", "info")
        self.daemon.start()
        log = self.daemon.log_text()
        self.assertRegex(log, r"level=warn.* template_missing model=base using=ChatML ")
        self.assertLess(log.index(" model_loading model=base "), log.index(" model_loaded "))
        done = subprocess.run([CTL, "--json", "--control", self.daemon.control, "model", "show"],
                              capture_output=True, text=True, timeout=60, check=True)
        [shown] = json.loads(done.stdout)
        self.assertEqual(shown["chat_template"], "built-in ChatML")
        words = "kairosctl: model base brings no chat template that can be used"
        for flags in ((), ("--json",), ("--model", "base")):
            self.assertEqual(self.chat_words(*flags).count(words), 1, flags)
        self.assertIn("built-in ChatML", self.chat_words())
        with self.daemon.client() as client:
            session = f"{client.create_session().id:016x}"
        self.assertIn(words, self.chat_words("--session", session))
        self.assertIn(f" wire_format={shown['wire_format']}\n", log)

    def test_client_of_an_older_abi(self) -> None:
        self.daemon.start()
        library = ctypes.CDLL(os.environ["KAIROS_LIBRARY"])
        library.kairos_layout_hash.restype = ctypes.c_uint64
        hello = struct.pack("<QIIIIQQIIII64s17Q", 0x314f4c4c4548524b, 256, 8, 0, 0,
                            library.kairos_layout_hash(), 0, 0, 0, 0, 0, b"", *[0] * 17)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(self.daemon.socket)
            client.send(hello)
            answer = client.recv(512)
        code, detail = struct.unpack_from("<ii", answer, 12)
        size, = struct.unpack_from("<I", answer, 92)
        self.assertEqual((code, detail), (9, 13))
        self.assertEqual(answer[96:96 + size].decode(),
                         "hello: no protocol version in common; update libkairos or kairosd")

    def test_sidecar_that_does_not_answer_clients(self) -> None:
        self.daemon.start()
        os.kill(self.daemon.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.daemon.pid, signal.SIGCONT)
        done = subprocess.run([CTL, "run", "--socket", self.daemon.socket], capture_output=True,
                              text=True, timeout=60, input="")
        self.assertEqual(done.returncode, 69)
        self.assertIn("kairosctl: the sidecar does not answer: ", done.stderr)
        self.assertIn("`kairosctl doctor` looks at it", done.stderr)
        self.assert_found("library", "fail", "libkairos cannot attach",
                          f"kairosd is stopped: kill -CONT {self.daemon.pid}")


class Doctor(unittest.TestCase):
    def test_all_is_well_beside_a_running_sidecar_and_without_one(self) -> None:
        with live_daemon.LiveDaemon() as daemon:
            command = [CTL, "doctor", *daemon.arguments()[1:]]
            for last in ("library", "control_socket"):
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertNotIn("FAIL", done.stdout)
                self.assertIn(f"OK    {last} ", done.stdout)
                if daemon.alive():
                    self.assertEqual(daemon.terminate(), 0)


if __name__ == "__main__":
    live_daemon.main()
