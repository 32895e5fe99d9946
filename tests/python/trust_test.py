"""What tools/trust runs and records, and what the page says of a record."""
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fault_overlay  # noqa: E402
import fault_suite  # noqa: E402
from load_tool import load_tool  # noqa: E402
import trust_page  # noqa: E402
import trust_record  # noqa: E402
from trust_programs import KNOWN, Build, Program  # noqa: E402

# A program as those of tests/fuzz, which counts nothing but says in which environment.
PROBE = """import json, os, sys
place = sys.argv.index("--json")
json.dump({"title": "its own", "what": os.environ.get("TAILOR_HOPPER", "none"), "command": " ".join(["probe.py", *sys.argv[1:place]]),
           "seconds": 1, "counts": {"calls": 3}, "failures": 0}, open(sys.argv[place + 1], "w"))
"""
READER = pathlib.Path(os.environ.get("TAILOR_LIBRARY", ROOT / "build/libtailor.so")).parent / "tests/fuzz_reader"
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

    def test_what_has_no_record(self):
        """Faults are planted a few at a time, too: the page of their own knows of those."""
        with unittest.mock.patch.object(trust_page, "read_records", dict):
            rows = [line for line in trust_page.page(KNOWN).splitlines() if line.startswith("| ")][1:]
        for program, row in zip(KNOWN, rows, strict=True):
            by_parts = program.name in ("faults", "faults_gpu")
            self.assertEqual(row, f"| {program.title} | " + ("not all in one run; when each, and what became of it, is in [faults.md](faults.md)" if by_parts else "not run") + " | | |")

    def test_every_known_program_can_be_recorded_as_it_is_run(self):
        for program in KNOWN:
            if program.script:
                words = [str(word) for word in program.arguments(Build(self.folder, seed=3))]
                self.assertTrue(program.made(program.recorded(" ".join([program.program(), *words]))), program.name)


class LineTest(unittest.TestCase):
    """What is said of a run that came to its end, or not."""
    RECORD = {"title": "A probe", "what": "", "command": "probe.py --count 1000 --seconds 60", "seconds": 60.03, "failures": 0,
              "counts": {"calls": 90, "models": 800}, "asked": {"models": 1000}}

    def test_at_its_limit_of_time(self):
        told = "stopped at its limit of 60 s, short of its count"
        self.assertEqual(trust_record.line("probe", self.RECORD), f"probe: 800 of 1,000 models; 0 failed; 60 s; {told}")
        self.assertIn(f"`: 90 calls, 800 of 1,000 models; 0 failed; it {told}. No date", "\n".join(trust_page.section(self.RECORD)))

    def test_short_for_another_reason(self):
        for other in ({"seconds": 30}, {"command": "probe.py --count 1000"}, {"command": "probe.py --count 1000 --seconds 0"}):
            self.assertEqual(trust_record.stopped({**self.RECORD, **other}), "stopped short of its count")
        self.assertEqual(trust_record.amount({**self.RECORD, "counts": {}}), "0 of 1,000 models")

    def test_as_many_as_were_asked_for(self):
        for other in ({"counts": {"models": 1000}}, {"counts": {"models": 800}, "asked": {"models": 0}}):
            record = {**self.RECORD, **other}
            self.assertEqual(trust_record.line("probe", record), f"probe: {record['counts']['models']:,} models; 0 failed; 60 s")
            self.assertIn(" models; 0 failed. No date", "\n".join(trust_page.section(record)))
        self.assertEqual(trust_record.line("probe", {**self.RECORD, "asked": {}}), "probe: 90 calls, 800 models; 0 failed; 60 s")

    def test_the_programs_of_python_say_it(self):
        """Those in C++ do as fuzz_reader does, below."""
        code = ("import program\np = program.Program('Probe', 'does nothing')\np.has_time = lambda: False\n"
                "p.finish({'counts': {'calls': 3}, 'asked': {'calls': p.options.count}})")
        for count, told in ("3", False), ("0", False), ("4", True):
            done = subprocess.run([sys.executable, "-c", code, "--count", count], cwd=ROOT / "tests/fuzz", capture_output=True, text=True, check=True)
            self.assertEqual("stopped short: 3 of 4 calls\n" in done.stdout, told, done.stdout)


@unittest.skipUnless(READER.exists(), "this compiler makes no fuzz_reader")
class ReaderTest(unittest.TestCase):
    def test_what_it_was_asked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, short, told in (("--count 20 --seconds 60", False, r"[\d,]+ inputs; 0 failed; \d+ s"),
                                       ("--count 1000000000 --seconds 1", True, r"[\d,]+ of 1,000,000,000 inputs; 0 failed; \d+ s; "
                                        "stopped at its limit of 1 s, short of its count")):
                file = pathlib.Path(folder, "record.json")
                done = subprocess.run([READER, "--corpus", ROOT / "tests/fuzz/corpus", *words.split(), "--json", file], text=True,
                                      cwd=folder, capture_output=True, check=True)
                self.assertEqual("stopped short: " in done.stdout, short, done.stdout)
                self.assertRegex(trust_record.line("fuzz_reader", json.loads(file.read_text())), rf"^fuzz_reader: [\d,]+ edges reached, {told}$")


# As nvidia-smi of a machine with two GPUs, or of none.
SMI = """#!/bin/sh
[ -e {folder}/no-gpu ] && exit 9
case "$1" in
  -L) echo "GPU 0: A Card"; echo "GPU 1: A Card" ;;
  *name,driver*) echo "A Card, 1.2, 80 GB"; echo "A Card, 1.2, 80 GB" ;;
  *) echo "A Card"; echo "A Card" ;;
esac
"""

# Calls and what the tools report of them: of races two, and of initialisation nothing, for it ends before it calls anything.
SANITIZER = """#!/bin/sh
for last; do :; done
case "$2 $TAILOR_HOPPER $last" in
  "racecheck always 2") echo "7 cases; cuda 5, hopper 9"; echo "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)"; exit 3 ;;
  racecheck*) echo "7 cases; cuda 5, hopper 9"; echo "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)" ;;
  initcheck*) echo "========= ERROR SUMMARY: 0 errors" ;;
  *) echo "7 cases; cuda 5, hopper 9"; echo "========= ERROR SUMMARY: 0 errors" ;;
esac
"""

CHECKED = """import unittest
class Checked(unittest.TestCase):
    def test_a(self): self.assertEqual(1, {wanted})
    def test_b(self): self.skipTest("it is 'late'")
    @unittest.skip("this needs two GPUs")
    def test_c(self): pass
    @unittest.skip("this needs two GPUs")
    def test_d(self): pass
unittest.main(argv=["it", "-q", *__import__("sys").argv[1:]])
"""


class ToolTest(unittest.TestCase):
    """Those of tools/, with a GPU, a sanitizer and tests that are none."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "CMakeCache.txt").write_text(f"TAILOR_TORCH_PYTHON:FILEPATH={sys.executable}\n")
        for name, text in {"nvidia-smi": SMI.replace("{folder}", str(self.folder)), "compute-sanitizer": SANITIZER}.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        patch = unittest.mock.patch.dict(os.environ, {"PATH": f"{self.folder}:{os.environ['PATH']}"})
        patch.start()
        self.addCleanup(patch.stop)
        fault_suite.has_gpu.cache_clear()
        self.addCleanup(fault_suite.has_gpu.cache_clear)

    def run_tool(self, name):
        program = next(program for program in KNOWN if program.name == name)
        self.assertEqual(program.why_not(Build(self.folder)), "")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            record = program.run(Build(self.folder))
        self.assertTrue(program.made(record["command"]), record["command"])
        self.assertEqual((record["title"], record["gpu"]), (program.title, "2 A Card"), said.getvalue())
        self.assertIn(", 2 A Card, ", "\n".join(trust_page.section(record, program)))
        return record

    def gpu_check(self, **programs):
        """With these Python files, and one more program, among tests that need a GPU, and one that needs none."""
        lines = ["add_test(other sh -c [[exit 1]])"]
        for name, text in programs.items():
            (self.folder / f"{name}.py").write_text(text)
            lines.append(f"add_test(python/{name} {sys.executable} {self.folder}/{name}.py)")
        (self.folder / "left").write_text(json.dumps({**LineTest.RECORD, "tables": {"by kernel": {"cuda": {"an_op": 3, "another": 4}}}}) + "\n")
        lines.append(f'add_test(fuzz sh -c [[cp {self.folder}/left "$2"]] it --json {self.folder}/fuzz.json)')
        names = [*(f"python/{name}" for name in programs), "fuzz"]
        lines.append(f"set_tests_properties({' '.join(names)} PROPERTIES LABELS gpu)")
        lines += [f"set_tests_properties(python/{name} PROPERTIES TIMEOUT 1)" for name in programs if name == "hangs"]
        (self.folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        return self.run_tool("gpu_check")

    @unittest.skipUnless(shutil.which("ctest"), "there is no ctest here")
    def test_gpu_check(self):
        record = self.gpu_check(good=CHECKED.replace("{wanted}", "1"))
        self.assertEqual(record["counts"], {"tests": 5, "programs": 2, "passed": 2, "skipped": 3})
        self.assertEqual(record["failures"], 0)
        self.assertEqual(record["tables"]["skipped, because"], {"it is 'late'": 1, "this needs two GPUs": 2})
        self.assertEqual(record["tables"]["calls that ran a kernel"], {"cuda": {"fuzz": 7}})
        self.assertEqual(record["tables"]["program"]["fuzz"]["but"], "stopped at its limit of 60 s, short of its count")
        self.assertEqual(record["tables"]["program"]["python/good"]["skipped"], 3)
        report = (self.folder / "gpu-check.txt").read_text()
        for told in ("A Card, 1.2, 80 GB\n", "skipped 2: this needs two GPUs\n", "== python/good: 1 passed, 0 failed, 3 skipped\n"):
            self.assertIn(told, report)

    @unittest.skipUnless(shutil.which("ctest"), "there is no ctest here")
    def test_gpu_check_runs_on_all_gpus(self):
        sees = "import os\nprint('sees', os.environ['CUDA_VISIBLE_DEVICES'])\n"
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # until setUp's patch ends
        self.gpu_check(a=sees, b=sees)
        report = (self.folder / "gpu-check.txt").read_text()
        self.assertEqual(sorted(re.findall("^sees (.*)", report, re.M)), ["0,1", "1,0"])
        with unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "7,3,5"}):
            self.assertEqual([fault_suite.gpus_from(place)["CUDA_VISIBLE_DEVICES"] for place in (0, 1, 2, 3)], ["7,3,5", "3,5,7", "5,7,3", "7,3,5"])

    @unittest.skipUnless(shutil.which("ctest"), "there is no ctest here")
    def test_gpu_check_fails(self):
        bad = CHECKED.replace("{wanted}", "2")
        record = self.gpu_check(bad=bad, breaks="import os\nos.abort()\n", hangs="import time\ntime.sleep(60)\n", finds_none="exit(77)\n")
        self.assertEqual(record["failures"], 4)
        self.assertIn("== python/hangs: 0 passed, 1 failed, 0 skipped, hung\n", (self.folder / "gpu-check.txt").read_text())

    def test_gpu_sanitize(self):
        record = self.run_tool("gpu_sanitize")
        self.assertEqual(record["counts"], {"runs": 28, "cases": 49 + 5 * 49 + 49, "reports": 9})
        self.assertEqual(record["failures"], 8, "one run with reports, seven without calls")
        self.assertEqual(record["tables"]["by tool"]["racecheck"], {"runs": 7, "cases": 5 * 49, "reports": 2}, "by five processes each")
        self.assertEqual(record["tables"]["by tool"]["synccheck"], {"runs": 7, "cases": 49, "reports": 0})
        self.assertEqual(record["tables"]["calls by path"]["hopper"], {"memcheck": 63, "racecheck": 5 * 63, "synccheck": 63, "initcheck": 0})

    def test_processes_that_share_calls_make_each_once(self):
        sanitize = load_tool("gpu-sanitize")
        for tool in sanitize.TOOLS:
            shares = [list(sanitize.of_share(range(100), tool, share)) for share in range(sanitize.SHARES.get(tool, 1))]
            self.assertTrue(all(shares), tool)
            self.assertEqual(sorted(sum(shares, [])), list(range(100)), tool)

    def test_faults_are_planted_where_they_can_be(self):
        planted = {program.name: program for program in KNOWN if program.script == "tools/faults"}
        words = [str(word) for word in planted["faults"].command(Build(self.folder, jobs=3))]
        self.assertEqual(words[-7:], ["--add", "--at-once", "3", "--work", f"{self.folder}/faults", "-D", f"TAILOR_TORCH_PYTHON={sys.executable}"])
        with unittest.mock.patch("fault_overlay.mount", side_effect=fault_overlay.Unmountable("not here")):
            self.assertIn("no overlay can be mounted here", planted["faults"].why_not(None))
            self.assertEqual(planted["faults_gpu"].why_not(None), "", "in a copy")

    def test_why_not(self):
        (self.folder / "no-gpu").touch()
        (self.folder / "CTestTestfile.cmake").touch()
        there = {program.name: program for program in KNOWN}
        for name in ("gpu_check", "gpu_sanitize", "faults_gpu"):
            self.assertEqual(there[name].why_not(None), "it needs a GPU")
        for tool, words in (("gpu-check", [self.folder]), ("gpu-sanitize", [])):
            done = subprocess.run([ROOT / "tools" / tool, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (2, f"{tool}: this machine has no GPU\n"))
        (self.folder / "no-gpu").unlink()
        fault_suite.has_gpu.cache_clear()
        os.environ["PATH"] = str(self.folder)
        (self.folder / "compute-sanitizer").unlink()
        self.assertEqual(there["gpu_sanitize"].why_not(None), "there is no compute-sanitizer in the PATH")


class CiTest(unittest.TestCase):
    TOTALS = "all that came before\n7 tests in 2 programs: 4 passed, 0 failed, 3 skipped\n"

    def record(self, *ended):
        with contextlib.redirect_stdout(io.StringIO()):  # the end of what has failed
            record = CI.record(*ended, {})
        json.dumps(record)
        return record["failures"], record["counts"]

    def test_the_last_line_counts(self):
        counts = {"tests": 7, "programs": 2, "passed": 4, "skipped": 3}
        self.assertEqual(self.record(self.TOTALS, 0, 1369.4), (0, counts))
        self.assertEqual(self.record(self.TOTALS.replace(" 0 failed", " 2 failed"), 8, 1), (2, counts))
        self.assertEqual(self.record(self.TOTALS, 8, 1), (1, counts), "nothing that was counted failed")

    def test_short_runs_have_their_rows(self):
        record = CI.record(self.TOTALS, 0, 1, {"fuzz_pass": LineTest.RECORD, "stress": {**LineTest.RECORD, "asked": {}, "failures": 2}})
        lines = trust_page.section(record, CI)
        for row in ("| short runs | how many | failed | seconds | but |",
                    "| fuzz_pass | 800 of 1,000 models | 0 | 60.03 | stopped at its limit of 60 s, short of its count |",
                    "| stress | 90 calls, 800 models | 2 | 60.03 |  |"):
            self.assertIn(row, lines)
        self.assertEqual(record["failures"], 0, "which the totals count")

    def test_what_did_not_come_to_the_tests(self):
        self.assertEqual(self.record("ninja: build stopped\n", 1, 1), (1, {}))
        self.assertEqual(self.record("", 0, 1), (1, {}))

    def test_more_than_an_hour(self):
        self.assertEqual(self.record(self.TOTALS, 0, 3600.0)[0], 0)
        self.assertEqual(self.record(self.TOTALS, 0, 3601.0)[0], 1)


class RunTest(unittest.TestCase):
    """tools/trust as a whole, with programs that are made up."""

    def test_what_is_kept(self):
        tool, events = load_tool("trust"), []

        def program(name, why_not, failures):
            def run(build):
                events.append(name)
                return {**LineTest.RECORD, "failures": failures}
            return types.SimpleNamespace(name=name, how=lambda: name, why_not=lambda build: why_not, run=run)

        kept, said = {}, io.StringIO()
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.multiple(
                tool, PAGE=pathlib.Path(folder, "trust.md"), page=lambda known: "made", write_record=kept.__setitem__,
                commit=lambda: events.append("commit") or "1234567"), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            self.assertEqual(tool.run([program("good", "", 0)], None), 0)
            self.assertEqual(tool.run([program("left out", "it needs two moons", 0), program("bad", "", 2)], None), 1)
            self.assertEqual(tool.PAGE.read_text(), "made")
        self.assertEqual(events, ["commit", "good", "commit", "bad"], "of the sources with which it began")
        self.assertEqual({name: (record["commit"], record["failures"]) for name, record in kept.items()}, {"good": ("1234567", 0), "bad": ("1234567", 2)})
        for told in ("[1/2] left out: not run, it needs two moons\n", "good: 800 of 1,000 models; 0 failed; 60 s; stopped", "trust: failures in bad\n"):
            self.assertIn(told, said.getvalue())


class OptionsTest(unittest.TestCase):
    def test_every_option_is_in_the_readme(self):
        for tool in ("trust", "gpu-check", "gpu-sanitize"):
            rows = [line.split(" | ") for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `--")]
            named = {option for row in rows if f"`tools/{tool}`" in row[1] for option in re.findall(r"`(--[a-z-]+)", row[0])}
            said = subprocess.run([sys.executable, ROOT / "tools" / tool, "--help"], capture_output=True, text=True, check=True).stdout
            there = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", said, re.MULTILINE)) - {"--help"}
            self.assertGreater(len(there), 0, said)
            self.assertEqual(there, named, tool)


if __name__ == "__main__":
    unittest.main()
