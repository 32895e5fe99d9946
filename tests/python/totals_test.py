"""The lines that a run of the tests ends with: of texts, and behind CTest itself."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import test_totals  # noqa: E402

GOOGLE = """[==========] Running 4 tests from 2 test suites.
[ RUN      ] Sum.Small
[       OK ] Sum.Small (0 ms)
[ RUN      ] Sum.Large
sum_test.cpp:3: Failure
[  FAILED  ] Sum.Large (12 ms)
[ RUN      ] Each/Sum.Of/0
text without an end of line[       OK ] Each/Sum.Of/0 (1 ms)
[ RUN      ] Each/Sum.Of/1
[  FAILED  ] Each/Sum.Of/1, where GetParam() = 4 (0 ms)
[ RUN      ] Sum.Gpu
[  SKIPPED ] Sum.Gpu (0 ms)
[==========] 5 tests from 2 test suites ran. (13 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Sum.Gpu
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] Sum.Large
[  FAILED  ] Each/Sum.Of/1, where GetParam() = 4
"""
# As the programs of tests/fuzz leave it.
RECORD = {"title": "Models", "what": "", "command": "models --count 1000 --seconds 900", "seconds": 71.2, "counts": {"models": 1000, "calls": 9},
          "asked": {"models": 1000}, "tables": {}, "failures": 0}


def python(ran, end):
    return f"{'-' * 70}\nRan {ran} test{'s' * (ran != 1)} in 0.123s\n\n{end}\n"


class CountTest(unittest.TestCase):
    def test_google_test(self):
        self.assertEqual(test_totals.of_google_test(GOOGLE), (2, 2, 1))

    def test_unittest(self):
        self.assertEqual(test_totals.of_unittest(python(7, "OK")), (7, 0, 0))
        self.assertEqual(test_totals.of_unittest(python(1, "OK (skipped=1)")), (0, 0, 1))
        self.assertEqual(test_totals.of_unittest(python(0, "NO TESTS RAN (skipped=1)")), (0, 0, 1))
        end = "FAILED (failures=1, errors=2, skipped=3, expected failures=1, unexpected successes=1)"
        self.assertEqual(test_totals.of_unittest(python(20, end)), (13, 4, 3))
        self.assertEqual(test_totals.of_unittest(python(5, "FAILED (errors=1)") + python(3, "OK")), (3, 0, 0), "the last")
        self.assertEqual(test_totals.of_unittest(python(1, "FAILED (failures=4)")), (0, 4, 0), "parts of one test")

    def test_programs(self):
        self.assertEqual(test_totals.of_program("all is well\n", False, False), (1, 0, 0))
        self.assertEqual(test_totals.of_program("no GPU here\n", False, True), (0, 0, 1))
        self.assertEqual(test_totals.of_program("", True, False), (0, 1, 0))
        self.assertEqual(test_totals.of_program(python(2, "OK (skipped=2)"), False, True), (0, 0, 2))
        self.assertEqual(test_totals.of_program(GOOGLE, True, False), (2, 2, 1))
        crashed = "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n[ RUN      ] A.C\n"
        self.assertEqual(test_totals.of_program(crashed, True, False), (1, 1, 0))


@unittest.skipUnless(shutil.which("ctest"), "there is no ctest here")
class CTestTest(unittest.TestCase):
    """A small project that takes the totals from tools/cmake as Tailor's does."""

    @staticmethod
    def entry(test):
        """Its command, and where that has a record to leave, the rest of it: $2 is the place."""
        name, command = test
        return (name, command, "") if isinstance(command, str) else (name, command[0], f" it --json [[{command[1]}]]")

    def run_tests(self, tests, *options):
        """Exit status and the lines of both outputs."""
        project = f"""cmake_minimum_required(VERSION 3.25)
project(Small NONE)
enable_testing()
include({ROOT}/tools/cmake/TailorTotals.cmake)
tailor_test_totals({sys.executable})
""" + "".join(f"add_test(NAME {name} COMMAND sh -c [[{command}]]{more})\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n"
              for name, command, more in map(self.entry, tests.items()))
        (self.folder / "CMakeLists.txt").write_text(project)
        build = self.folder / "build tree"
        subprocess.run(["cmake", "-S", self.folder, "-B", build], check=True, capture_output=True)
        done = subprocess.run(["ctest", "--test-dir", build, *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "google").write_text(GOOGLE)
        (self.folder / "python").write_text(python(4, "OK (skipped=1)"))
        self.good = {"python/a": f"cat {self.folder}/python", "plain": "true", "skipped": "exit 77"}

    def test_comes_last_and_leaves_the_exit_status(self):
        status, lines, errors = self.run_tests(self.good)
        self.assertEqual((status, lines[-1], errors), (0, "6 tests in 3 programs: 4 passed, 0 failed, 2 skipped", ""))
        bad = {**self.good, "google": f"cat {self.folder}/google; exit 1", "crash": "kill -SEGV $$"}
        status, lines, errors = self.run_tests(bad, "--output-on-failure", "-j", "2")
        self.assertEqual((status, lines[-1]), (8, "12 tests in 5 programs: 6 passed, 3 failed, 3 skipped"))
        self.assertEqual(errors, "Errors while running CTest\n", "which is CTest's own, and all that comes after")
        # What failed or was skipped in the run before does not count, although CTest leaves its lists.
        mended = {**bad, "crash": "true", "skipped": "true"}
        status, lines, errors = self.run_tests(mended, "-R", "crash|skipped")
        self.assertEqual((status, lines[-1], errors), (0, "2 tests in 2 programs: 2 passed, 0 failed, 0 skipped", ""))

    def test_what_records_say_comes_before(self):
        (self.folder / "left").write_text(json.dumps(RECORD))
        (self.folder / "short").write_text(json.dumps({**RECORD, "counts": {"models": 83}, "seconds": 900, "failures": 2}))
        paths = {name: self.folder / f"{name} record.json" for name in ("whole", "ends", "breaks", "skips")}

        def run(**commands):
            tests = {name: (command, paths[name]) for name, command in commands.items()}
            return self.run_tests({**tests, "plain": "true"})[1][-len(tests) - 1:]

        leaves = f'cp {self.folder}/left "$2"'
        self.assertEqual(run(whole=leaves, ends=f'cp {self.folder}/short "$2"; exit 1', breaks='echo "{" >"$2"; exit 1', skips="exit 77"), [
            "breaks: it left no record",
            "ends: 83 of 1,000 models; 2 failed; 15 min; stopped at its limit of 900 s, short of its count",
            "skips: skipped",
            "whole: 1,000 models; 0 failed; 71 s",
            "5 tests in 5 programs: 2 passed, 2 failed, 1 skipped"])
        # What the run before has left is not of this one.
        self.assertEqual(run(whole="true", skips=leaves), [
            "skips: 1,000 models; 0 failed; 71 s", "whole: it left no record", "3 tests in 3 programs: 3 passed, 0 failed, 0 skipped"])
        listed = subprocess.run(["ctest", "--test-dir", self.folder / "build tree", "--show-only=json-v1"], capture_output=True, text=True, check=True)
        self.assertTrue(listed.stdout.startswith("{"), "nothing is said before")


if __name__ == "__main__":
    unittest.main()
