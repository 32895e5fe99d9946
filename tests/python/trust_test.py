"""What tools/trust runs and records, and what the page says of a record."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import trust_page  # noqa: E402
from trust_programs import KNOWN, Build, Program  # noqa: E402

# A program as those of tests/fuzz, which counts nothing but says in which environment.
PROBE = """import json, os, sys
place = sys.argv.index("--json")
json.dump({"title": "its own", "what": os.environ.get("TAILOR_HOPPER", "none"), "command": " ".join(["probe.py", *sys.argv[1:place]]),
           "seconds": 1, "counts": {"calls": 3}, "failures": 0}, open(sys.argv[place + 1], "w"))
"""
CI = next(program for program in KNOWN if program.name == "ci")


class RecordTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "probe.py").write_text(PROBE)
        (self.folder / "CMakeCache.txt").write_text(f"TAILOR_TORCH_PYTHON:FILEPATH={sys.executable}\n")
        (self.folder / "libtailor.so").touch()

    def probe(self, **more):
        return Program("probe", "A probe", "--count 9", str(self.folder / "probe.py"), jobs=2, draws=True, **more)

    def test_jobs_and_seed_are_for_whoever_runs_it(self):
        record = self.probe().run(Build(self.folder, jobs=7, seed=5))
        self.assertEqual((record["title"], record["command"]), ("A probe", "probe.py --count 9 --jobs 7 --seed 5"))
        self.assertTrue(self.probe().made(record["command"]))
        self.assertTrue(self.probe().made("probe.py --count 9 --jobs 64"))
        for other in ("probe.py --count 10", "probe.py --count 9 --seconds 4", "TAILOR_HOPPER=always probe.py --count 9"):
            self.assertFalse(self.probe().made(other), other)

    def test_switches_are_set_and_recorded(self):
        program = self.probe(switches={"TAILOR_HOPPER": "always"})
        record = program.run(Build(self.folder))
        self.assertEqual(record["what"], "always")
        self.assertRegex(record["command"], r"^TAILOR_HOPPER=always probe.py --count 9 --jobs [12]$")
        self.assertTrue(program.made(record["command"]))
        self.assertFalse(program.made("probe.py --count 9"))

    def test_the_page_says_what_was_run_otherwise(self):
        def section(command):
            record = {"title": "A probe", "what": "", "command": command, "seconds": 1, "counts": {}, "failures": 0}
            return "\n".join(trust_page.section(record, self.probe()))
        self.assertIn("`tools/trust --only probe` runs `probe.py --count 9`, and has not yet.", section("probe.py --count 8"))
        self.assertNotIn("has not yet", section("probe.py --count 9 --jobs 3"))

    def test_every_known_program_can_be_recorded_as_it_is_run(self):
        for program in KNOWN:
            if program.script:
                words = [str(word) for word in program.arguments(Build(self.folder, seed=3))]
                self.assertTrue(program.made(program.recorded(" ".join([program.program(), *words]))), program.name)


class CiTest(unittest.TestCase):
    TOTALS = "all that came before\n7 tests in 2 programs: 4 passed, 0 failed, 3 skipped\n"

    def record(self, *ended):
        with contextlib.redirect_stdout(io.StringIO()):  # the end of what has failed
            record = CI.record(*ended)
        json.dumps(record)
        return record["failures"], record["counts"]

    def test_the_last_line_counts(self):
        counts = {"tests": 7, "programs": 2, "passed": 4, "skipped": 3}
        self.assertEqual(self.record(self.TOTALS, 0, 1369.4), (0, counts))
        self.assertEqual(self.record(self.TOTALS.replace(" 0 failed", " 2 failed"), 8, 1), (2, counts))
        self.assertEqual(self.record(self.TOTALS, 8, 1), (1, counts), "nothing that was counted failed")

    def test_what_did_not_come_to_the_tests(self):
        self.assertEqual(self.record("ninja: build stopped\n", 1, 1), (1, {}))
        self.assertEqual(self.record("", 0, 1), (1, {}))

    def test_more_than_an_hour(self):
        self.assertEqual(self.record(self.TOTALS, 0, 3600.0)[0], 0)
        self.assertEqual(self.record(self.TOTALS, 0, 3601.0)[0], 1)


if __name__ == "__main__":
    unittest.main()
