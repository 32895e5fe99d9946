"""docs/faults.md, as tools/faults makes it of what became of faults: which tests a row names, what is counted and what is kept.
And the record of a run."""
import contextlib
import dataclasses
import io
import json
import pathlib
import re
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fault_page  # noqa: E402
import fault_suite  # noqa: E402
from load_tool import load_tool  # noqa: E402

SLEEPS = '[ "$0" = --gtest_list_tests ] || sleep 60'
TESTS = ["a/T.one", "a/T.two", "b/T.one", "b/T.two", "b/T.three", "lonely/main"]


def fault(*tests, gpu=False):
    return types.SimpleNamespace(file="x.cpp", breaks="`x` is wrong", tests=list(tests), gpu_tests=[], gpu=gpu)


def caught(*tests, commit="1234567"):
    return {"outcome": "caught", "by": dict.fromkeys(tests, "failed"), "commit": commit}


class PageTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.page = pathlib.Path(temporary.name, "faults.md")
        for name, value in {"PAGE": self.page, "EXPLAINED": pathlib.Path(temporary.name, "never.toml")}.items():
            patch = unittest.mock.patch.object(fault_page, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.faults = {"first": fault("a", "b"), "second": fault("b"), "third": fault("lonely"), "on-a-gpu": fault("a", gpu=True)}

    def write(self, done, **more):
        never = fault_page.write(self.faults, TESTS, done, **more)
        self.text = self.page.read_text()
        return never

    def row(self, name):
        return next(line for line in self.text.splitlines() if line.startswith(f"| {name} |"))

    def test_tests_are_counted_against_the_rows(self):
        never = self.write({"first": caught("a/T.one", "b/T.one"), "second": caught("b/T.two", "gone/main", commit="89abcde with changes")}, anew=True)
        self.assertEqual(never, ["a/T.two", "b/T.three", "lonely/main"])
        for line in ("| faults planted | 2 |", "| not planted: they need a GPU | 1 |", "| not planted yet | 1 |",
                     "| tests (one with many parameters counts once) | 6 |", "| seen to fail | 3 |", "| never seen to fail | 3 |",
                     "| `lonely/main` | one of the tests of `third` |", "| `b/T.three` | one of the tests of `first`, `second` |"):
            self.assertIn(line + "\n", self.text)
        self.assertRegex(self.text, r"\nThe last fault was planted on 20\d\d-\d\d-\d\d. Each row says at which commit its fault was planted last.\n")
        self.assertTrue(self.row("first").endswith(" | 1234567 | `a/T.one`, `b/T.one` |"))
        self.assertIn(" | 89abcde with changes | ", self.row("second"))

    def test_a_row_names_all_that_no_other_does(self):
        self.write({"first": caught(*TESTS[:5]), "second": caught(*TESTS[1:5])}, anew=True)
        self.assertIn("`a/T.one`, `a/T.two`, `b/T.one`, `b/T.two`, `b/T.three` |", self.row("first"))
        self.assertIn("`a/T.two`, `b/T.one`, `b/T.two` and 1 more |", self.row("second"))

    def test_the_fault_that_may_hide_a_test_comes_first(self):
        self.write({"first": caught(*TESTS[:4]), "second": caught(*TESTS[:4])}, anew=True)
        self.assertIn("and 1 more |", self.row("second"))
        self.assertIn("| `b/T.three` | one of the tests of `second`, `first` |\n", self.text)

    def test_some_are_added(self):
        self.write({"first": caught("a/T.one"), "second": {"outcome": "survived", "by": {}, "commit": "1234567"}}, anew=True)
        before = self.row("first")
        never = self.write({"second": caught("b/T.two"), "third": {**caught(commit="fedcba9"), "by": {"lonely/main": "hung"}}})
        self.assertEqual(never, ["a/T.two", "b/T.one", "b/T.three"])
        self.assertEqual(self.row("first"), before)
        self.assertIn(" | fedcba9 | `lonely/main` (hung) |", self.row("third"))
        self.assertEqual(self.text.count("The last fault was planted"), 1)
        self.assertIn("| caught | 3, 1 of them by a test that crashed or hung, the others by tests that failed |\n| survived | 0 |\n", self.text)

    def test_pages_that_did_not_keep_the_commit_of_each(self):
        """They had a line of all commits, which grew and grew."""
        self.write({"first": caught("a/T.one", "b/T.one"), "second": {"outcome": "survived", "by": {}, "commit": "1234567"}}, anew=True)
        self.page.write_text(re.sub(r"The last fault .*", "Planted, and some of them again later, at commit 49a1fab with changes (66 faults), "
                             "ee36518 (4 faults), 85f0ac9 with changes (2 faults); the last on 2020-02-03.", self.text)
                             .replace(" last at |", "").replace("|---|---|---|---|---|", "|---|---|---|---|").replace(" | 1234567 |", " |"))
        told = "is one from 49a1fab to 85f0ac9, when this page did not keep which.\n"
        never = self.write({})
        self.assertEqual(never, ["a/T.two", "b/T.two", "b/T.three", "lonely/main"])
        self.assertIn("was planted on 2020-02-03. Each row says at which commit its fault was planted last; `earlier`, in 2 rows, " + told, self.text)
        self.assertTrue(self.row("first").endswith(" `x` is wrong | earlier | `a/T.one`, `b/T.one` |"))
        self.assertTrue(self.row("second").endswith(" `x` is wrong | earlier |  |"))
        text = self.text
        self.write({})
        self.assertEqual(self.text, text)
        self.write({"first": caught("a/T.one", commit="fedcba9 with changes")})
        self.assertIn("`earlier`, in 1 row, " + told, self.text)
        self.assertNotIn("2020-02-03", self.text)
        self.assertTrue(self.row("first").endswith(" | fedcba9 with changes | `a/T.one` |"))
        self.write({"second": caught("b/T.two")})
        self.assertNotIn("earlier", self.text)

    def test_nothing_is_planted(self):
        self.write({"first": caught("a/T.one")}, anew=True)
        text = self.text
        self.write({})
        self.assertEqual(self.text, text)
        del self.faults["first"]
        self.assertIn("a/T.one", self.write({}))

    def test_what_cannot_fail_is_explained(self):
        fault_page.EXPLAINED.write_text('"b/*" = "it needs two"\n')
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.write({"first": caught("b/T.one")}, anew=True)
        self.assertIn("| `b/T.two` | it needs two |\n", self.text)
        self.assertIn("explains b/T.one, which has been seen to fail", said.getvalue())


class RunTest(unittest.TestCase):
    """tools/faults as a whole, with a copy, tests and results that are made up."""
    RESULTS = {"first": {"outcome": "caught", "by": {"a/T.one": "failed", "b/T.one": "hung"}}, "second": {"outcome": "caught", "by": {"b/T.one": "failed"}},
               "third": {"outcome": "survived", "by": {}}, "fourth": {"outcome": "does not build", "text": "error: it"}}

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.tool = load_tool("faults")
        self.planted = []
        self.faults = {name: self.tool.Fault(name, f"{folder}/x.cpp", "old", "new", "`x` is wrong", ["a"], short=name == "first")
                       for name, folder in (("first", "ops"), ("second", "passes"), ("third", "ops"), ("fourth", "ops"))}
        workshop = unittest.mock.Mock(folder=self.folder, build=self.folder)
        workshop.ninja.return_value = ""
        self.written = unittest.mock.Mock(return_value=0)
        for name, value in {"read_faults": lambda: self.faults, "Workshop": lambda *_: workshop, "Suite": unittest.mock.MagicMock(),
                            "work_through": self.work_through, "page": self.written}.items():
            patch = unittest.mock.patch.object(self.tool, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def work_through(self, faults, workshop, suite, done, at_once):
        self.planted = [fault.name for fault in faults]
        done.update({name: {**self.RESULTS[name], "fault": dataclasses.asdict(self.faults[name])} for name in self.planted})

    def run_tool(self, *words):
        said = io.StringIO()
        file = self.folder / "record.json"
        with unittest.mock.patch.object(sys, "argv", ["faults", *words, "--json", str(file), "-D", "X=Y"]), contextlib.redirect_stdout(said), \
                contextlib.redirect_stderr(said):
            status = self.tool.main()
        return status, json.loads(file.read_text())

    def test_the_record(self):
        status, record = self.run_tool("--add", "--at-once", "2", "--work", "/elsewhere")
        self.assertEqual(status, 2)
        self.assertEqual(record["counts"], {"faults planted": 4, "caught": 2, "survived": 1, "that did not build": 1, "tests seen to fail": 2})
        self.assertEqual((record["failures"], record["command"]), (2, "tools/faults --add --at-once 2"))
        self.assertEqual(record["tables"], {"in": {"ops": {"planted": 3, "caught": 1}, "passes": {"planted": 1, "caught": 1}}})

    def test_the_record_of_some(self):
        status, record = self.run_tool("--short")
        self.assertEqual((status, record["counts"]["faults planted"], record["failures"], record["command"]), (0, 1, 0, "tools/faults --short"))
        self.written.assert_not_called()

    def test_what_an_earlier_run_saw(self):
        (self.folder / "results.json").write_text(json.dumps({"first": {**self.RESULTS["first"], "fault": dataclasses.asdict(self.faults["first"])}}))
        _, record = self.run_tool("--resume")
        self.assertEqual(self.planted, ["second", "third", "fourth"])
        self.assertEqual(record["counts"]["seen by an earlier run"], 1)

    def test_other_rows_stay_with_add(self):
        for words, anew in (["--add"], False), ([], True), (["--add", "--only", "third"], False):
            self.run_tool(*words)
            self.assertEqual(self.written.call_args.kwargs["anew"], anew, words)


class ProgramTest(unittest.TestCase):
    def run_program(self, command, **properties):
        with tempfile.TemporaryDirectory() as folder:
            entry = {"name": "it", "command": ["sh", "-c", command], "properties": [{"name": k, "value": v} for k, v in properties.items()]}
            return fault_suite.Program(entry, pathlib.Path(folder)).run(["main"], limit=3)

    def test_exit_status(self):
        self.assertEqual(self.run_program("exit 0").passed, {"main"})
        self.assertEqual(self.run_program("exit 77").skipped, {"main"})
        for command, how in (("exit 1", "failed"), ("kill -SEGV $$", "crashed"), (SLEEPS, "hung")):
            self.assertEqual(self.run_program(command).failed, {"main": how})

    def test_what_it_should_say(self):
        says = {"PASS_REGULAR_EXPRESSION": ["nothing at all", "fo+und"]}
        self.assertEqual(self.run_program("echo it is foound; exit 1", **says).passed, {"main"})
        self.assertEqual(self.run_program("echo it is lost", **says).failed, {"main": "failed"})
        self.assertEqual(self.run_program("echo found; " + SLEEPS, **says).failed, {"main": "hung"})


if __name__ == "__main__":
    unittest.main()
