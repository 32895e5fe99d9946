"""What tools/bench writes to, and what it leaves alone: it refuses before it measures. And how it ends where nothing was measured."""
import argparse
import errno
import json
import os
import pathlib
import stat
import tempfile
import unittest
import unittest.mock

from checks import main, quietly

from bench_test import made_up, result
from benchmark.main import main as bench, status_of  # tools/, put on the path by checks
from benchmark.paths import MEASURED, UNAVAILABLE
from output_files import write

KINDS = ["csv", "svg", "scatter", "markdown"]
MEASURE = ["--device", "cpu", "--chain", "add_swish_group_norm", "--size", "8x16x16/4", "--dtype", "fp32", "--mode", "eval", "--arm", "linear,eager",
           "--rounds", "2"]


class OutputsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.good = self.folder / "good.json"
        self.good.write_text(json.dumps(result(made_up({"linear": 10, "eager": 20, "tailor": 11}))))
        self.fifo = self.folder / "fifo"
        os.mkfifo(self.fifo)

    def refused(self, *words, says):
        status, out, err = quietly(bench, words)
        self.assertEqual((status, out, err.count("\n")), (2, "", 1), f"{words}: {err}")
        self.assertIn(says, err)

    def test_what_is_no_file_stays(self):
        link = self.folder / "link"
        link.symlink_to(self.fifo)
        for path in (self.fifo, link):
            self.refused(*MEASURE, "--json", path, says="is no plain file")
            for kind in KINDS:
                self.refused("--from", self.good, f"--{kind}", path, says="is no plain file")
            with self.assertRaisesRegex(OSError, "it is no plain file"):  # should it have come in the meantime
                write(path, "text")
        self.assertTrue(stat.S_ISFIFO(self.fifo.stat().st_mode))
        self.assertTrue(link.is_symlink())
        self.refused(*MEASURE, "--json", self.folder, says="is a folder")
        self.refused(*MEASURE, "--json", "", says="without a name")
        self.refused(*MEASURE, "--json", self.folder / "none" / ".." / "a.json", says="no such folder")
        self.refused(*MEASURE, "--json", "/proc/self/none", says="cannot be written to")  # by nobody, whatever its mode says

    def test_an_open_file_of_this_process(self):
        for end in (ends := os.pipe()):
            self.addCleanup(os.close, end)
        self.refused(*MEASURE, "--json", f"/proc/self/fd/{ends[1]}", says="is no plain file")

    def test_two_outputs(self):
        first, link, folder = (self.folder / name for name in ("a.svg", "link.svg", "more"))
        folder.mkdir()
        link.symlink_to(first)
        for second in (first, link, folder / ".." / "a.svg"):
            self.refused("--from", self.good, "--svg", first, "--scatter", second, says="this file is that of --svg")
            self.refused(*MEASURE, "--json", second, "--markdown", first, says="this file is that of --json")
        self.assertFalse(first.exists())

    def test_an_input_is_no_output(self):
        text, link = self.good.read_text(), self.folder / "link.json"
        link.symlink_to(self.good)
        for kind in KINDS:
            for read, written in ((self.good, self.good), (link, self.good), (self.good, link)):
                self.refused("--from", read, f"--{kind}", written, says="this file is read")
        self.refused(*MEASURE, "--library", self.good, "--json", self.good, says="this file is read")
        self.assertEqual(self.good.read_text(), text)

    def test_where_a_link_leads(self):
        """There it is written. The mode stays, and so does all that lies beside it."""
        targets = {kind: self.folder / f"{kind} target" for kind in KINDS}
        links = {kind: self.folder / kind for kind in KINDS}
        for kind in KINDS:
            links[kind].symlink_to(targets[kind].name)
            for name in (f"{kind}.new", f"{kind} target.new"):
                (self.folder / name).write_text("mine")
            if kind != "csv":  # whose link leads nowhere yet
                targets[kind].write_text("old")
                targets[kind].chmod(0o640)
        before = set(self.folder.iterdir())
        status, out, err = quietly(bench, ["--from", self.good, *(word for kind in KINDS for word in (f"--{kind}", links[kind]))])
        self.assertEqual((status, out, err), (0, "", ""))
        self.assertEqual(set(self.folder.iterdir()), before | {targets["csv"]})
        fresh = self.folder / "fresh"
        fresh.touch()
        for kind in KINDS:
            self.assertTrue(links[kind].is_symlink(), kind)
            self.assertIn("mul_batch_norm", targets[kind].read_text(), kind)
            for name in (f"{kind}.new", f"{kind} target.new"):
                self.assertEqual((self.folder / name).read_text(), "mine")
            mode = fresh.stat().st_mode if kind == "csv" else stat.S_IFREG | 0o640
            self.assertEqual(targets[kind].stat().st_mode, mode, kind)

    def test_all_or_nothing(self):
        text, before = self.good.read_text(), set(self.folder.iterdir())
        with self.assertRaises(UnicodeEncodeError):
            write(self.good, "a" * 100_000 + "\udc80")
        self.assertEqual((self.good.read_text(), set(self.folder.iterdir())), (text, before))

    def test_the_figures_of_a_run(self):
        target, link = self.folder / "a.json", self.folder / "link.json"
        link.symlink_to(target)
        status, _, err = quietly(bench, [*MEASURE, "--size", "8x16x16/3,8x16x16/4", "--json", link])
        self.assertEqual((status, err), (0, ""), "one of two sizes could be measured")
        points = json.loads(target.read_text())["points"]
        self.assertEqual([row["arms"]["linear"]["status"] for row in points], [UNAVAILABLE, MEASURED])
        self.assertTrue(link.is_symlink())

    def test_a_full_disk(self):
        """It is said once, measuring goes on, and the next figure is tried again."""
        target, full = self.folder / "a.json", OSError(errno.ENOSPC, "No space left on device")
        for tries, wanted in (([None, full, None], 0), ([None, None, full], 1), ([full] * 3, 1)):
            with unittest.mock.patch("benchmark.results.write", side_effect=tries) as tried:
                status, out, err = quietly(bench, [*MEASURE, "--size", "8x16x16/4,8x32x16/4", "--json", target])
            self.assertEqual((status, err, tried.call_count), (wanted, f"bench: {target} is not written: No space left on device\n", 3))
            self.assertIn("8×32→16", out)


class StatusTest(unittest.TestCase):
    def test_nothing_could_be_measured(self):
        status, out, err = quietly(bench, [*MEASURE, "--size", "8x16x16/3"])
        self.assertEqual((status, err.count("\n")), (1, 1), err)
        self.assertIn("bench: nothing could be measured", err)
        self.assertIn("eager unavailable: ", out, "and why")

    def test_others_that_end_early(self):
        row = {"arms": {"linear": {"status": UNAVAILABLE}}}
        for complete, limit, points, wanted in ((False, None, [row], 130), (False, None, [], 130), (False, 1.0, [], 0), (True, None, [row], 1),
                                                (False, 1.0, [row], 1)):
            run, options = {"complete": complete, "points": points}, argparse.Namespace(time_limit=limit)
            self.assertEqual(quietly(lambda _: status_of(run, options), [])[0], wanted, (complete, limit))

    def test_lists_of_nothing(self):
        for option in ("preset", "chain", "size", "dtype", "mode", "numbers", "arm"):
            for words in (",", ",,", ""):
                status, out, err = quietly(bench, [f"--{option}", words, "--time-limit", "1", "--device", "cpu"])
                self.assertEqual((status, out, err.count("\n")), (2, "", 1), f"{option}: {err}")
                self.assertIn(f"argument --{option}: ", err)


if __name__ == "__main__":
    main()
