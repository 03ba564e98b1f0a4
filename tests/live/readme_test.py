#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of README.md and PYTHON.md compile, and run against a live kairosd; the kairosctl
commands of README.md exist.
Every line of a `sh` block of the documents runs, or EXAMPLES says why it does not.

  readme_test.py CC CXX BUILD_FOLDER
"""
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from live_daemon import ROOT, WATCHDOG_S, LiveDaemon, model_path, require_live  # noqa: E402

CC, CXX, BUILD = sys.argv[1:4]
TEXT = (ROOT / "README.md").read_text()


def snippets(language: str, text: str = TEXT) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    assert found, f"no snippets of {language}"
    return found


def snippet(language: str) -> str:
    found = snippets(language)
    assert len(found) == 1, f"{len(found)} snippets of {language}"
    return found[0]


@dataclasses.dataclass(frozen=True)
class Runs:
    """Run as written but for the words `instead`, in a folder with the paths of a checkout."""

    instead: tuple[tuple[str, str], ...] = ()
    typed: str = ""  # on stdin


@dataclasses.dataclass(frozen=True)
class Serves:
    """A kairosd: it gets ready, and ends as asked."""


@dataclasses.dataclass(frozen=True)
class NotRun:
    reason: str


QUICK = Runs((("smollm2-135m", "smollm2-135m --quick"),))
PROGRAM = (("cc ", f"{CC} "), ("c++ ", f"{CXX} "))
BUILDS = NotRun("builds the tree, as whoever runs this test has done")
REFERENCE = NotRun("needs the reference implementation that tools/peers downloads")
EXAMPLES = {
    "tools/demo": NotRun("installs packages and builds; bench_test runs what it calls"),
    "tools/demo --json": NotRun("installs packages and builds; bench_test runs what it calls"),
    "tools/test": NotRun("installs packages and runs all tests, this one too"),
    "tools/peers": NotRun("downloads llama.cpp"),
    "tools/peers --reference": NotRun("downloads the reference implementation"),
    "tools/fidelity.py": REFERENCE,
    "tools/fidelity.py --model MODEL.gguf --data FOLDER --positions 20480": REFERENCE,
    "tests/live/agent_loop_test.py": NotRun("needs programs of the build; it is a test of its own"),
    "tests/crash/kill_rounds.py --help": Runs(),
    "build/release/kairos-bench engine --model smollm2-135m --peer llama-cpp"
    " --plot throughput.svg": Runs((("--peer llama-cpp", "--quick"),)),
    "build/release/kairos-bench engine --model smollm2-135m --stolen-core": QUICK,
    "build/release/kairos-bench kernels": Runs(((" kernels", " kernels --quick"),)),
    "build/release/kairos-bench ring --model smollm2-135m": QUICK,
    "build/release/kairos-bench neighbours --model smollm2-135m": QUICK,
    "build/release/kairos-bench grammar --schemas FILE.jsonl": Runs(
        ((" FILE.jsonl", " FILE.jsonl --quick"),)),
    "build/release/kairos-bench speculation --model smollm2-135m --conversations TALKS.jsonl":
        Runs(((" TALKS.jsonl", " TALKS.jsonl --max-tokens 4"),)),
    "cmake --preset release && cmake --build --preset release": BUILDS,
    "cmake --preset release && cmake --build --preset release --target kairosd kairosctl "
    "kairos-bench": BUILDS,
    "tools/model fetch smollm2-135m": NotRun("another model is tested, and this one may be missing")
    if os.environ.get("KAIROS_TEST_MODEL") else Runs(),
    "build/release/kairosd --model smollm2-135m": Serves(),
    "build/release/kairosctl run": Runs(typed="Say a word.\n/quit\n"),
    "cmake --install build/release --prefix /usr/local && ldconfig": Runs(
        (("/usr/local && ldconfig", "PREFIX"),)),
    "cc hello.c $(pkg-config --cflags --libs kairos) && ./a.out": Runs(PROGRAM[:1]),
    "c++ -std=c++17 hello.cc $(pkg-config --cflags --libs kairos) && ./a.out": Runs(PROGRAM[1:]),
    "build/release/catalog_test --gtest_filter='Catalog.*'": Runs(),
}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/README.md",
             ROOT / "examples/README.md"]


def shell_lines() -> list[str]:
    """In the order of the documents, without comments."""
    lines = []
    for document in DOCUMENTS:
        for block in re.findall(r"^```sh\n(.*?)^```$", document.read_text(), re.M | re.S):
            lines += [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]
    return lines


class Served(LiveDaemon):
    """Started by a line of a document, in a folder."""

    def __init__(self, line: str, folder: pathlib.Path, environment: dict[str, str]) -> None:
        super().__init__(folder=str(folder), environment=environment)
        self.line = line

    def arguments(self) -> list[str]:
        program, *flags = shlex.split(self.line)
        return [f"{self.folder}/{program}", *flags]


class Shell(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, target in (("build/release", BUILD), ("tools", ROOT / "tools"),
                             ("tests", ROOT / "tests"), ("bindings", ROOT / "bindings"),
                             ("cache/kairos/models/smollm2-135m.gguf", model_path())):
            (cls.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.folder / name).symlink_to(target)
        (cls.folder / "hello.c").write_text(snippet("c"))
        (cls.folder / "hello.cc").write_text(snippet("cpp"))
        (cls.folder / "FILE.jsonl").write_text('{"type": "object"}\n')
        talk = [{"role": role, "content": "one two one two one"}
                for role in ("user", "assistant", "user", "assistant")]
        (cls.folder / "TALKS.jsonl").write_text(json.dumps({"messages": talk}) + "\n")
        cls.clean = {"XDG_CACHE_HOME": f"{cls.folder}/cache",
                     "XDG_STATE_HOME": f"{cls.folder}/state",
                     "XDG_RUNTIME_DIR": f"{cls.folder}/run", "PYTHONDONTWRITEBYTECODE": "1",
                     "PKG_CONFIG_PATH": f"{cls.folder}/PREFIX/lib/pkgconfig",
                     "LD_LIBRARY_PATH": f"{cls.folder}/PREFIX/lib"}
        (cls.folder / "run").mkdir()
        cls.daemon = LiveDaemon().start()
        cls.addClassCleanup(cls.daemon.close)

    def test_every_fence_says_what_is_in_it(self):
        for document in DOCUMENTS:
            fences = re.findall(r"^```(.*)$", document.read_text(), re.M)
            self.assertNotIn("", fences[::2], document)

    def test_every_line_is_run_or_says_why_not(self):
        self.assertEqual(set(shell_lines()), set(EXAMPLES))

    def test_lines_run(self):
        for line in dict.fromkeys(shell_lines()):
            example = EXAMPLES.get(line, NotRun("is not in EXAMPLES"))
            with self.subTest(line):
                if isinstance(example, NotRun):
                    print(f"not run: {line}: {example.reason}", flush=True)
                elif isinstance(example, Serves):
                    daemon = Served(line, self.folder, self.clean)
                    self.addCleanup(daemon.close)
                    self.assertEqual(daemon.start().terminate(), 0, daemon.log_text())
                else:
                    self.run_line(line, example)

    def run_line(self, line: str, example: Runs) -> None:
        for word, other in example.instead:
            self.assertIn(word, line)
            line = line.replace(word, other)
        done = subprocess.run(
            ["bash", "-c", line], input=example.typed, cwd=self.folder, text=True,
            env={**os.environ, **self.clean, "KAIROS_SOCKET": self.daemon.socket},
            capture_output=True, timeout=WATCHDOG_S)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        self.assertTrue(done.stdout)


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = LiveDaemon().start()
        cls.folder = tempfile.TemporaryDirectory()
        cls.environment = {**os.environ, "KAIROS_SOCKET": cls.daemon.socket,
                           "LD_LIBRARY_PATH": BUILD, "PYTHONDONTWRITEBYTECODE": "1",
                           "PYTHONPATH": str(ROOT / "bindings" / "python")}

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()
        cls.folder.cleanup()

    def run_program(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                              timeout=240)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_c(self):
        source = pathlib.Path(self.folder.name) / "hello.c"
        program = source.with_suffix("")
        source.write_text(snippet("c"))
        subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Werror",
                        "-I", str(ROOT / "capi" / "include"), "-o", str(program), str(source),
                        "-L", BUILD, "-lkairos"], check=True)
        self.assertGreater(len(self.run_program(str(program))), 20)

    def test_cpp(self):
        source = pathlib.Path(self.folder.name) / "hello.cc"
        program = pathlib.Path(self.folder.name) / "hello_cpp"
        source.write_text(snippet("cpp"))
        subprocess.run([CXX, "-std=c++17", "-Wall", "-Wextra", "-Werror",
                        "-I", str(ROOT / "capi" / "include"), "-o", str(program), str(source),
                        "-L", BUILD, "-lkairos"], check=True)
        self.assertGreater(len(self.run_program(str(program))), 20)

    def test_python(self):
        source = pathlib.Path(self.folder.name) / "hello.py"
        reference = (ROOT / "docs/PYTHON.md").read_text()
        for text in snippets("python") + snippets("python", reference):
            with self.subTest(text):
                source.write_text(text)
                self.assertGreater(len(self.run_program(sys.executable, str(source))), 20)

    def test_kairosctl(self):
        tool = pathlib.Path(BUILD) / "kairosctl"
        rows = re.findall(r"^\| `kairosctl ([a-z ]+?)(?: [A-Z\[].*?)?` \|", TEXT, re.M)
        self.assertIn("session rewind", rows)
        for words in rows:
            with self.subTest(words):
                shown = self.run_program(str(tool), *words.split(), "--help")
                self.assertNotIn("Subcommands:", shown)
        self.assertIn("ok", self.run_program(str(tool), "ping"))


if __name__ == "__main__":
    require_live()
    unittest.main(argv=[sys.argv[0], "-v"])
