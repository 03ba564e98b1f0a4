#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs into an empty prefix, moves the prefix, and builds against it as a stranger would.

  install_test.py SOURCE BUILD CMAKE CC CXX LIBDIR
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = map(pathlib.Path, sys.argv[1:3])
CMAKE, CC, CXX, LIBDIR = sys.argv[3:7]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n"
                             f"{done.stdout}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        top = pathlib.Path(cls.folder.name)
        run(CMAKE, "--install", BUILD, "--prefix", top / "first")
        # Nothing installed may remember where it was put.
        (top / "first").rename(top / "moved")
        cls.top, cls.prefix = top, top / "moved"
        cls.pkg = {**os.environ, "PKG_CONFIG_PATH": str(cls.prefix / LIBDIR / "pkgconfig"),
                   "LD_LIBRARY_PATH": str(cls.prefix / LIBDIR)}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_InstallsEveryPart(self):
        expected = ["bin/kairosd", "bin/kairosctl", "bin/kairos-bench", f"{LIBDIR}/libkairos.so",
                    f"{LIBDIR}/libkairos.so.1", f"{LIBDIR}/pkgconfig/kairos.pc",
                    f"{LIBDIR}/cmake/kairos/kairosConfig.cmake", "include/kairos/kairos.h",
                    "lib/systemd/system/kairos.service",
                    *(f"share/man/man1/{name}.1" for name in ("kairosd", "kairosctl",
                                                              "kairos-bench")),
                    "share/bash-completion/completions/kairosctl",
                    "share/zsh/site-functions/_kairosctl",
                    "share/fish/vendor_completions.d/kairosctl.fish"]
        missing = [path for path in expected if not (self.prefix / path).exists()
                   or not (self.prefix / path).stat().st_size]
        self.assertEqual(missing, [])

    def test_ServiceNamesTheProgramsBelowThePrefixOfTheInstall(self):
        unit = (self.prefix / "lib/systemd/system/kairos.service").read_text()
        programs = re.findall(r"^Exec\w+=(\S+)", unit, re.M)
        self.assertEqual(programs, [str(self.top / "first/bin" / name)
                                    for name in ("kairosd", "kairosctl")])

    def test_InstalledSidecarHasNoCrashPoints(self):
        program = (self.prefix / "bin/kairosd").read_bytes()
        for name in (b"KAIROS_KILL_AT", b"KAIROS_RING_START"):
            self.assertNotIn(name, program)
        self.assertFalse((self.prefix / "bin/kairosd_for_tests").exists())

    def test_InstallsNoPrivateHeader(self):
        headers = {path.name for path in (self.prefix / "include").rglob("*") if path.is_file()}
        self.assertEqual(headers, {"kairos.h", "kairos.hpp", "attachment.hpp", "values.hpp"})

    def test_InstalledProgramsFindTheirLibrary(self):
        env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        for name in ("kairosd", "kairosctl", "kairos-bench"):
            with self.subTest(name):
                run(self.prefix / "bin" / name, "--help", env=env)

    def test_BuildsTheExamplesByPkgConfig(self):
        out = self.top / "examples"
        run("make", "-C", SOURCE, "-f", "Makefile.examples", f"OUT={out}", f"CC={CC}", f"CXX={CXX}",
            env=self.pkg)
        sources = [*(SOURCE / "examples").rglob("*.c"), *(SOURCE / "examples").rglob("*.cc")]
        self.assertEqual({source.suffix for source in sources}, {".c", ".cc"})
        for source in sources:
            program = out / source.relative_to(SOURCE / "examples").with_suffix("")
            self.assertTrue(program.exists(), program)

    def test_BuildsTheProgramOfTheReadme(self):
        code = (SOURCE / "README.md").read_text().split("```c\n")[1].split("```")[0]
        source = self.top / "hello.c"
        source.write_text(code)
        flags = run("pkg-config", "--cflags", "--libs", "kairos", env=self.pkg).split()
        run(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", source, "-o", self.top / "hello", *flags)

    def test_BuildsByFindPackageAndRuns(self):
        build = self.top / "consumer"
        run(CMAKE, "-S", SOURCE / "tests/install/consumer", "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={CC}",
            f"-DCMAKE_CXX_COMPILER={CXX}")
        run(CMAKE, "--build", build)
        run(build / "consumer_c", self.top / "nobody.sock", env=self.pkg)
        run(build / "consumer_cxx", self.top / "nobody.sock", env=self.pkg)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
