"""The fuzzers run for hours: what is wrong with their arguments they say at once."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

from checks import ROOT, library, main

PROGRAMS = [[pathlib.Path(library()).with_name("tests") / name] for name in ("fuzz_files", "fuzz_pass")]
OPS = [sys.executable, "-W", "ignore", ROOT / "tests" / "fuzz" / "ops_fuzz.py"]


class ArgumentsTest(unittest.TestCase):
    def refused(self, program, *words, says):
        done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        self.assertRegex(done.stderr, says)

    def test_numbers(self):
        for program in [*PROGRAMS, OPS]:
            for words in (("--count", -1), ("--count", 0, "--seconds", -1), ("--count", "x")):
                self.refused(program, *words, says="number|invalid")

    def test_where_the_record_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            for program in [*PROGRAMS, OPS]:
                for path in (folder, f"{folder}/none/x.json"):
                    self.refused(program, "--count", 1, "--json", path, says="cannot be written")


if __name__ == "__main__":
    main()
