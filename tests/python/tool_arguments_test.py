"""Tools that run for hours say at once what is wrong with their arguments, and small ones too: one line, and status 2."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from checks import ROOT, library, main

from arguments import at_least  # tools/, put on the path by checks

POINT = {"nodes": 300, "sites": 9, "fused": 6, "seconds": 0.01, "copy_seconds": 0.002}


class ToolsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_tool(self, tool, *words):
        """In a folder that is empty, where no program is found: no GPU, no sanitizer, no valgrind."""
        return subprocess.run([sys.executable, "-W", "ignore", ROOT / "tools" / tool, *map(str, words)], capture_output=True, text=True,
                              timeout=120, check=False, cwd=self.folder, env={**os.environ, "PATH": str(self.folder)})

    def refused(self, tool, *words, says):
        done = self.run_tool(tool, *words)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), f"{tool} {words}: {done.stderr}")
        self.assertRegex(done.stderr, f"^tools/{tool}: .*{says}")

    def helped(self, tool, *says):
        done = self.run_tool(tool, "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in says:
            self.assertIn(words, done.stdout)


class LongTest(ToolsTest):
    LEAST = {"faults": ["--list"], "gpu-check": ["nowhere"], "gpu-sanitize": [], "trust": ["--list"]}  # should they not refuse

    def test_where_the_record_goes(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for tool in ("faults", "gpu-check", "gpu-sanitize"):
            for path, says in ((self.folder, "is a folder"), (self.folder / "none" / "x.json", "no such folder"), (fifo, "is no plain file")):
                self.refused(tool, *self.LEAST[tool], "--json", path, says=f"argument --json: .*{says}")
        self.assertEqual(list(self.folder.iterdir()), [fifo], "trying leaves nothing")

    def test_numbers(self):
        for tool, option, least in (("faults", "--at-once", 1), ("faults", "--jobs", 1), ("trust", "--jobs", 1), ("trust", "--seed", 0),
                                    ("gpu-check", "--at-once", 1), ("gpu-sanitize", "--at-once", 1)):
            for number in (least - 1, "x"):
                self.refused(tool, *self.LEAST[tool], option, number, says=f"argument {option}: takes a number from {least} on, got '{number}'")
        for least in (0, 1):
            self.assertEqual(at_least(least)(str(least)), least)
            self.assertRaises(argparse.ArgumentTypeError, at_least(least), "-1")

    def test_options_have_one_name(self):
        for tool, option in (("faults", "--jso"), ("faults", "--wor"), ("gpu-check", "--at"), ("gpu-sanitize", "--js"), ("trust", "--see")):
            self.refused(tool, *self.LEAST[tool], f"{option}=1", says="unrecognized arguments: ")

    def test_report_of_the_gpu_s_tests(self):
        (self.folder / "CTestTestfile.cmake").write_text("")
        for name, text in {"nvidia-smi": 'echo "GPU 0: A Card"', "ctest": """echo '{"tests": [{"name": "a", "command": ["none"],
            "properties": [{"name": "LABELS", "value": ["gpu"]}]}]}'"""}.items():
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)
        done = self.run_tool("gpu-check", self.folder, self.folder / "none" / "report")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^gpu-check: .*none/report cannot be written: No such file or directory\n$")


class SmallTest(ToolsTest):
    def program(self, text):
        path = self.folder / "pass_time"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def test_pass_time(self):
        self.helped("pass_time.py", "pass-time.md and pass-time.svg in it are replaced")
        self.refused("pass_time.py", says="arguments are required: PROGRAM, FOLDER")
        self.refused("pass_time.py", self.folder / "none", self.folder, says="none cannot be run: No such file")
        good = self.program(f"echo '{json.dumps(POINT)}'")
        self.refused("pass_time.py", good, self.folder / "none", says="no such folder")
        done = self.run_tool("pass_time.py", good, self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("| 300 | 9 | 6 | 10.0 | 33.3 | 6.7 | 5.0 |  |", (self.folder / "pass-time.md").read_text())
        self.assertIn("</svg>", (self.folder / "pass-time.svg").read_text())
        for text, says in (("exit 3", "ended with status 3"), ("echo hello", "printed something else"), ("", "printed something else"),
                           ("echo '{}'", "printed something else")):
            self.refused("pass_time.py", self.program(text), self.folder, says=says)

    def test_graphs(self):
        self.helped("graphs.py", "FILE is replaced: docs/graphs.md of this checkout, if nothing is said")
        self.refused("graphs.py", self.folder / "none", self.folder / "page", says="none is no library of Tailor's")
        self.refused("graphs.py", library(), self.folder / "none" / "page", says="no such folder")

    def test_totals(self):
        self.helped("test_totals.py", "Testing/Temporary/Begun")
        self.refused("test_totals.py", says="there is no log of CTest in Testing/Temporary")
        self.refused("test_totals.py", "start", says="invalid choice")
        self.assertEqual(self.run_tool("test_totals.py", "begin").returncode, 0)
        self.assertTrue((self.folder / "Testing" / "Temporary" / "Begun").exists())


if __name__ == "__main__":
    main()
