"""docs/faults.md, as tools/faults makes it of what became of faults: which tests a row names, what is counted and what is kept."""
import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fault_page  # noqa: E402
import fault_suite  # noqa: E402

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
        self.assertIn("at commit 1234567 (1 fault), 89abcde with changes (1 fault); the last on 20", self.text)

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
        self.assertIn("at commit 1234567 (3 faults), fedcba9 (1 fault); the last on", self.text)
        self.assertIn("`lonely/main` (hung) |", self.row("third"))
        self.assertEqual(self.text.count("commit"), 1)
        self.assertIn("| caught | 3, 1 of them by a test that crashed or hung, the others by tests that failed |\n| survived | 0 |\n", self.text)

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
