"""tools/float32-error without a GPU: pages and pictures from made-up results, its verdicts, and what it refuses; with the CPU
in the kernel's place also that errors are what they should be."""
import errno
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

import torch

from checks import ROOT, library, load, main, quietly

from float32_error import page, picture  # tools/, put on the path by checks
from float32_error.arms import bare, path_of, tail_is_exact
from float32_error.inputs import DISTRIBUTIONS, Draw
from float32_error.main import main as tool
from float32_error.mixtures import Mixture
from float32_error.referee import Referee, product, ratio
from float32_error.results import worse
from float32_error.words import verdict

PICTURES = ["float32-by-k.svg", "float32-by-distribution.svg"]
PAGE = f"# A page\n\nBefore.\n\n{page.FIRST}\n\nOld figures.\n\n{page.LAST}\n\nBehind.\n"


def made_up(name, k, tailor, sgemm=4e-7, tf32=3e-4):
    """A row with these largest errors; without Tailor's one that was skipped."""
    figures = {"tailor": tailor, "sgemm": sgemm, "tf32": tf32}
    row = {"distribution": name, "k": k, "rows": 256, "columns": 512, "status": "measured" if tailor is not None else "skipped",
           "arms": {arm: {"max": value, "rms": float(value) / 8} for arm, value in figures.items() if value is not None}}
    return row if tailor is not None else {**row, "reason": "it took `cuda`"}


def result(*cases, search=None):
    return {"float32_error": 1, "complete": True, "date": "2026-01-02 03:04 UTC", "seed": 0, "cases": list(cases), "search": search,
            "machine": {"device": "cuda", "gpu": "Made-up <GPU> & more", "cpu": "Made-up CPU"},
            "versions": {"tailor": "0.1.0", "commit": "abc1234", "torch": "2.11.0", "cuda": "13.0", "triton": "", "python": "3.12"}}


def good():
    names = ["normal", "positive", "wide", "integers_4", "tiny"]
    rows = [made_up(name, k, None if k < 256 else 1e-7) for k in (64, 256, 4096) for name in names[:3]]
    return result(*rows, made_up("integers_4", 4096, 0.0, 0.0, 0.0), made_up("tiny", 4096, 1.0, "inf", "inf"))


FOUND = {"trials": 1234, "skipped": 5, "worse": 1, "seed": 7, "seconds": 60.0, "worst": {
    "seed": 99, "m": 3, "n": 8, "k": 300, "words": "wide+normal, 2 bits", "tailor": 2e-7, "sgemm": 1e-7, "ratio": 2.0}}


class FromTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def written(self, *runs):
        sources = [self.file(f"{turn}.json", run) for turn, run in enumerate(runs)]
        target = self.file("page.md", PAGE)
        done = subprocess.run([sys.executable, ROOT / "tools" / "float32-error", "--from", *sources, "--markdown", target, "--svg",
                               self.folder], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return target.read_text(encoding="utf-8"), done.stdout

    def test_page(self):
        text, out = self.written(good(), result(search=FOUND))
        self.assertTrue(text.startswith("# A page\n\nBefore.\n") and text.endswith(f"{page.LAST}\n\nBehind.\n"))
        self.assertNotIn("Old figures", text)
        for words in ("Made-up <GPU> & more", "abc1234", "In none is Tailor's largest error above SGEMM's", "8 cases",
                      "did not take 3 others", f"]({PICTURES[0]})", f"]({PICTURES[1]})", "1234 trials", "seed 99", "3×300→8",
                      "| `wide` | each element", "| 0.25 | 0.25 | 1.0e-07 | 4.0e-07 | 3.0e-04 |"):
            self.assertIn(words, text)
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            self.assertEqual(len({line.count("|") for line in block.splitlines()}), 1, block)
        self.assertIn("8 cases measured, 3 skipped", out)

    def test_page_says_so_where_it_is_worse(self):
        text, out = self.written(result(made_up("normal", 256, 1e-7), made_up("wide", 256, 5e-7)))
        self.assertIn("**In 1 of them Tailor's largest error is above SGEMM's**", text)
        self.assertIn("WORSE", out)

    def test_a_written_page_is_written_anew(self):
        first, _ = self.written(good())
        again = page.with_measured(first, [good()], str(self.folder / "page.md"), [str(self.folder / name) for name in PICTURES])
        self.assertEqual(again, first)

    def test_the_projects_own_page_has_markers(self):
        text = (ROOT / "docs" / "float32.md").read_text(encoding="utf-8")
        self.assertIn("Made-up", page.with_measured(text, [good()], "docs/float32.md", []))
        with self.assertRaises(page.NoMarkers):
            page.with_measured("# A page\n", [good()], "a.md", [])

    def test_pictures(self):
        self.written(good())
        for name, words in zip(PICTURES, (("normal", "wide", "64", "4k", "10⁻⁷"), ("normal", "integers 4", "0.25", "∞", "0"))):
            tree = xml.etree.ElementTree.parse(self.folder / name)
            found = [node.text for node in tree.iter() if node.text]
            for word in (*words, "Tailor", "cuBLAS SGEMM", "TF32"):
                self.assertIn(word, found, name)
            width, height = (float(tree.getroot().get(side)) for side in ("width", "height"))
            for node in tree.iter():
                if node.tag.endswith("circle"):
                    self.assertTrue(0 < float(node.get("cx")) < width and 0 < float(node.get("cy")) < height, name)

    def test_a_smaller_error_is_drawn_lower_and_further_left(self):
        places = {}
        for name, attribute in (("float32-by-k.svg", "cy"), ("float32-by-distribution.svg", "cx")):
            svg = xml.etree.ElementTree.fromstring(picture.PICTURES[name](result(made_up("normal", 4096, 1e-7))))
            circles = [node for node in svg.iter() if node.tag.endswith("circle") and node.get("fill") in picture.TINTS.values()]
            for node in circles[3:]:  # behind the legend's
                places[name, node.get("fill")] = float(node.get(attribute))
        tints = picture.TINTS
        self.assertGreater(places["float32-by-k.svg", tints["tailor"]], places["float32-by-k.svg", tints["sgemm"]])
        self.assertGreater(places["float32-by-k.svg", tints["sgemm"]], places["float32-by-k.svg", tints["tf32"]])
        self.assertLess(places["float32-by-distribution.svg", tints["tailor"]], places["float32-by-distribution.svg", tints["sgemm"]])

    def test_nothing_measured_of_tailor(self):
        text, out = self.written(result(made_up("normal", 4096, None)))
        self.assertIn("Nothing was measured of Tailor", text)
        self.assertIn("0 cases measured, 1 skipped", out)


class VerdictTest(unittest.TestCase):
    def test_worse(self):
        for tailor, sgemm, bad in ((1e-7, 1e-7, 0), (1.01e-7, 1e-7, 1), (0.0, 0.0, 0), (1e-30, 0.0, 1), ("inf", 1.0, 1),
                                   ("inf", "inf", 0), (None, 1e-7, 0)):
            run = result(made_up("normal", 256, tailor, sgemm))
            self.assertEqual(len(worse(run)), bad, (tailor, sgemm))
            self.assertEqual("WORSE" in verdict(run), bool(bad))

    def test_worse_says_where(self):
        row = made_up("normal", 256, 2e-7, 1e-7)
        row["arms"]["tailor"]["at"] = [3, 77]
        self.assertIn("WORSE, row 3, column 77", verdict(result(row)))

    def test_ratio(self):
        for given, wanted in (((2.0, 1.0), 2.0), ((0.0, 0.0), 0.0), ((1.0, 0.0), math.inf), ((math.inf, math.inf), 1.0),
                              ((1e-8, 0.0, 1e-7), 0.1), ((1.0, math.inf), 0.0)):
            self.assertAlmostEqual(ratio(*given), wanted)


class HereTest(unittest.TestCase):
    """With the CPU's path in the kernel's place."""

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        load()

    def test_the_tail_changes_nothing(self):
        self.assertTrue(tail_is_exact("cpu"))
        for name in ("normal", "wide", "huge", "tiny", "subnormal", "one_hot_weight"):
            x, weight = DISTRIBUTIONS[name].make(Draw("cpu", 5), 32, 64, 256)
            self.assertTrue(torch.equal(bare(x, weight), torch.nn.functional.linear(x, weight)), name)
        self.assertEqual(path_of(lambda: bare(torch.ones(2, 3), torch.ones(4, 3)))[1], "cpu")

    def test_no_distribution_leaves_float32(self):
        for name, kind in DISTRIBUTIONS.items():
            for k in (16, 257):
                x, weight = kind.make(Draw("cpu", 1), 24, 40, k)
                self.assertEqual((x.shape, weight.shape, x.dtype, weight.dtype), ((24, k), (40, k), torch.float32, torch.float32), name)
                size = product(x.abs(), weight.abs())
                self.assertLess(size.max().item(), 3e38, name)
                self.assertTrue(bool(x.isfinite().all()) and bool(weight.isfinite().all()) and bool((x != 0).any()), name)

    def test_errors_are_seen(self):
        x, weight = torch.randn(5, 40), torch.randn(8, 40)
        referee = Referee(x, weight)
        exact = referee.exact.float()
        self.assertLessEqual(referee.error(exact)["max"], 2.0**-24)
        exact[2, 3] += referee.size[2, 3].float() * 1e-3
        self.assertAlmostEqual(referee.error(exact)["max"], 1e-3, delta=1e-6)
        exact[1, 1] = torch.nan
        self.assertEqual(referee.error(exact)["max"], math.inf)
        nothing = Referee(torch.zeros(1, 4), weight[:, :4])
        self.assertEqual((nothing.error(torch.zeros(1, 8))["max"], nothing.error(torch.full((1, 8), 1e-45))["max"]), (0.0, math.inf))

    def test_mixtures_come_again_from_their_seed(self):
        for seed in range(12):
            first, again = (Mixture(seed, "cpu", list(DISTRIBUTIONS)) for _ in range(2))
            self.assertTrue(torch.equal(first.x, again.x) and torch.equal(first.weight, again.weight), seed)
            self.assertEqual(first.words, again.words)
            self.assertLess(product(first.x.abs(), first.weight.abs()).max().item(), 2.0**122)

    def test_run(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "a.json")
            status, out, err = quietly(tool, ["--device", "cpu", "--k", "16,64", "--distribution", "normal,integers_4,huge", "--library",
                                        library(), "--json", target])
            self.assertEqual((status, err), (0, ""), out)
            run = json.loads(target.read_text())
        self.assertTrue(run["complete"])
        self.assertEqual([(row["distribution"], row["k"]) for row in run["cases"]],
                         [(name, k) for k in (16, 64) for name in ("normal", "integers_4", "huge")])
        for row in run["cases"]:
            self.assertEqual(row["arms"]["tailor"], row["arms"]["sgemm"], "the CPU's linear is torch's")
            self.assertEqual(row["arms"]["tailor"]["max"] == 0, row["distribution"] == "integers_4")
            self.assertLess(row["arms"]["tailor"]["max"], 1e-6)
        self.assertIn("In none is Tailor's largest error above SGEMM's", out)

    def test_a_full_disk(self):
        full = OSError(errno.ENOSPC, "No space left on device")
        words = ["--device", "cpu", "--k", "16", "--distribution", "normal,integers_4", "--library", library(), "--json", "a.json"]
        for tries, wanted in (([full, None, None], 0), ([None, None, full], 1)):
            with unittest.mock.patch("benchmark.results.write", side_effect=tries):
                status, out, err = quietly(tool, words)
            self.assertEqual((status, err), (wanted, "float32-error: a.json is not written: No space left on device\n"))
            self.assertIn("In none is Tailor's largest error above SGEMM's", out)

    def test_search(self):
        status, out, err = quietly(tool, ["--device", "cpu", "--search", "0", "--seed", "5", "--library", library()])
        self.assertEqual((status, err), (0, ""), out)
        self.assertIn("1 trials", out)
        self.assertIn("--search 0 --seed 5", out)

    def tearDown(self):
        torch.set_grad_enabled(True)  # the tool has no use for gradients


class WrongUseTest(unittest.TestCase):
    def test_exit_status_and_one_line(self):
        for words in (["--distribution", "nobody"], ["--k", "0"], ["--k", "many"], ["--search", "-1"], ["--search", "soon"],
                      ["--nonsense"], ["--from", "/nowhere.json"], ["--from", __file__], ["--from", "a.json", "--quick"],
                      ["--from", "a.json", "--search", "1"], ["--quick", "--k", "64"], ["--search", "1", "--svg", "/tmp"], ["--json", "/nowhere/a.json"],
                      ["--markdown", "/nowhere.md"], ["--svg", "/nowhere"], ["--device", "cpu", "--library", "/nowhere/libtailor.so"]):
            status, out, err = quietly(tool, words)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), f"{words}: {err}")
            self.assertTrue(err.startswith("float32-error: "), err)

    def test_what_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo, picture = pathlib.Path(folder, "fifo"), pathlib.Path(folder, PICTURES[0])
            os.mkfifo(fifo)
            picture.mkdir()
            for words, says in ((["--json", fifo], "is no plain file"), (["--markdown", fifo], "is no plain file"), (["--svg", folder], "is a folder"),
                                (["--json", ""], "without a name")):
                status, out, err = quietly(tool, ["--device", "cpu", *words])
                self.assertEqual((status, out, err.count("\n")), (2, "", 1), f"{words}: {err}")
                self.assertIn(says, err)

    def test_help(self):
        status, out, _ = quietly(tool, ["--help"])
        self.assertEqual(status, 0)
        for name in DISTRIBUTIONS:
            self.assertIn(name, out)


if __name__ == "__main__":
    main()
