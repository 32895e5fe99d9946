"""tools/bench: what it measures, what it refuses to show, and that all it writes is well-formed. A GPU part is skipped
without one."""
import collections
import copy
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

import torch

from checks import ROOT, library, load, main, quietly

from benchmark import arms, measure, plan  # tools/, put on the path by checks
from benchmark.clock import CpuTimer
from benchmark.compare import compare
from benchmark.main import main as bench
from benchmark.page import page
from benchmark.paths import MEASURED, NOT_FUSED, REFERENCE, verdict
from benchmark.picture import picture
from benchmark.results import csv_rows, over_linear, tail
from benchmark.tables import Lines

RULE = "linear_mul_batch_norm"
ARMS = "linear,copy,eager,jit,tailor,op"
TINY = ["--device", "cpu", "--threads", "1", "--chain", "mul_batch_norm,add_swish_group_norm", "--size", "8x16x128",
        "--dtype", "fp32", "--rounds", "3"]


def made_up(times, dtype="fp32", mode="eval", spread=0.01, chain=RULE):
    """A row with these medians."""
    entries = {arm: {"status": MEASURED, "us": us, "p10": us * (1 - spread), "p90": us * (1 + spread), "rounds": 9}
               for arm, us in times.items()}
    if "tailor" in entries:
        entries["tailor"]["paths"] = {"cuda": 9}
    return {"chain": chain, "batch": 8, "in": 16, "out": 128, "groups": 0, "dtype": dtype, "mode": mode, "measure": "time",
            "arms": entries}


def result(*rows):
    return {"format": 1, "complete": True, "date": "2026-01-02 03:04 UTC", "planned": len(rows), "seed": 0, "flush": True,
            "machine": {"device": "cuda", "gpu": "Made-up <GPU> & more", "gpu_memory_bytes": 2**34, "multiprocessors": 4,
                        "driver": "1.2", "cpu": "Made-up CPU", "cores": 2, "threads": 2, "cpu_capability": "AVX2"},
            "versions": {"tailor": "0.1.0", "commit": "abc1234", "torch": "2.11.0", "cuda": "13.0", "triton": "",
                         "python": "3.12"}, "points": list(rows)}


class RefusalTest(unittest.TestCase):
    """No time of Tailor's where the reference ran."""

    def test_verdict(self):
        for added, wanted in (
                ({f"{RULE}/cuda": 5}, MEASURED), ({f"{RULE}/cpu": 5, f"{RULE}/cuda_backward": 5}, MEASURED),
                ({f"{RULE}/reference": 5}, REFERENCE), ({f"{RULE}/cuda": 99, f"{RULE}/reference": 1}, REFERENCE),
                ({f"{RULE}/cuda": 5, f"{RULE}/reference_backward": 5}, REFERENCE), ({}, NOT_FUSED),
                ({"linear_sigmoid_mul_add/cuda": 5}, NOT_FUSED), ({f"{RULE}/cuda": 5, f"{RULE}/reference": 0}, MEASURED)):
            self.assertEqual(verdict(RULE, added), wanted, added)

    def entry(self, path):
        arm = arms.Arm("tailor", None)
        arm.samples, arm.paths = [987654.0] * 3, collections.Counter({f"{RULE}/{path}": 3})
        return measure.entry(arm, {"max_error": 987654.0}, RULE)

    def written(self, entry):
        row = made_up({"linear": 10, "copy": 1, "eager": 20, "tailor": 1})
        row["arms"]["tailor"] = entry
        run = result(row)
        lines = Lines(list(row["arms"]), False)
        return row, [json.dumps(run), lines.row(row) + lines.notes([row]), page([run], "a.md"), picture([run]),
                     str(list(csv_rows(run))), compare(run, run)]

    def test_no_time_in_any_output(self):
        row, texts = self.written(self.entry("reference"))
        self.assertIsNone(over_linear(row, "tailor"))
        self.assertEqual(tail(row), {})
        for text in texts:
            self.assertIn("reference", text)
            self.assertNotIn("987654", text)

    def test_a_time_where_a_kernel_ran(self):
        row, texts = self.written(self.entry("cuda"))
        self.assertEqual(over_linear(row, "tailor"), 98765.4)
        self.assertTrue(all("98765" in text for text in texts))


class RunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.files = [f"--{kind}={cls.folder / name}" for kind, name in (
            ("json", "a.json"), ("csv", "a.csv"), ("svg", "a.svg"), ("markdown", "a.md"))]
        cls.done = subprocess.run(
            [sys.executable, ROOT / "tools" / "bench", *TINY, "--arm", ARMS, "--mode", "eval,train,backward",
             "--library", library(), "--commit", "abc1234", *cls.files], capture_output=True, text=True, check=False)
        if cls.done.returncode == 0:
            cls.run_ = json.loads((cls.folder / "a.json").read_text())

    def setUp(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)

    def test_json(self):
        run = self.run_
        self.assertTrue(run["complete"])
        self.assertEqual((run["versions"]["torch"], run["versions"]["commit"]), (torch.__version__, "abc1234"))
        self.assertRegex(run["versions"]["tailor"], r"^\d+\.\d+")
        self.assertEqual((run["machine"]["device"], run["machine"]["threads"]), ("cpu", 1))
        self.assertEqual(len(run["points"]), run["planned"])
        self.assertEqual([(row["chain"], row["mode"]) for row in run["points"]],
                         [(chain, mode) for mode in plan.MODES for chain in (RULE, "linear_add_swish_group_norm")])
        for row in run["points"]:
            self.assertEqual((row["batch"], row["in"], row["out"], row["dtype"]), (8, 16, 128, "fp32"))
            wanted = [arm for arm in ARMS.split(",") if arm != "copy" or row["mode"] != "backward"]
            self.assertEqual(list(row["arms"]), wanted)
            for arm in ("linear", "eager", "jit"):
                entry = row["arms"][arm]
                self.assertEqual((entry["status"], entry["rounds"]), (MEASURED, 3))
                self.assertLess(0, entry["p10"])
                self.assertLessEqual(entry["p10"], entry["us"])
                self.assertLessEqual(entry["us"], entry["p90"])
            self.assertLess(row["arms"]["eager"]["rms_error"], 1e-3)
            self.assertLessEqual(row["arms"]["eager"]["rms_error"], row["arms"]["eager"]["max_error"])

    def test_a_time_of_tailors_is_there_if_and_only_if_no_reference_ran(self):
        for row in self.run_["points"]:
            for arm in ("tailor", "op"):
                entry = row["arms"][arm]
                fast = not any(path.startswith("reference") for path in entry["paths"])
                self.assertTrue(entry["paths"], "the op ran")
                self.assertEqual((entry["status"], "us" in entry), (MEASURED, True) if fast else (REFERENCE, False))

    def test_the_table(self):
        lines = [line for line in self.done.stdout.splitlines() if "8×16→128" in line]
        self.assertEqual(len(lines), len(self.run_["points"]))
        self.assertEqual(self.done.stderr, "", "progress is for terminals")

    def test_csv(self):
        with open(self.folder / "a.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), sum(len(row["arms"]) for row in self.run_["points"]))
        for row in rows:
            self.assertEqual(row["status"] == MEASURED, re.fullmatch(r"[\d.e-]+", row["us"]) is not None, row)

    def test_svg(self):
        tree = xml.etree.ElementTree.parse(self.folder / "a.svg")
        words = [node.text for node in tree.iter() if node.text]
        for word in ("mul_batch_norm", "8×16→128", "eager", "tailor", "fp32, inference"):
            self.assertIn(word, words)

    def test_markdown(self):
        text = (self.folder / "a.md").read_text()
        for words in ("](a.svg)", torch.__version__, "abc1234", "### Inference", "### Training forward",
                      "### Forward and backward", self.run_["machine"]["cpu"]):
            self.assertIn(words, text)
        widths = [len(line.split("|")) for line in text.splitlines() if line.startswith("|")] + [0]
        blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        self.assertGreaterEqual(len(blocks), 4)
        for block in blocks:
            self.assertEqual(len({line.count("|") for line in block.splitlines()}), 1, block)
        self.assertGreater(max(widths), 8)

    def test_scatter(self):
        """Of sizes that were measured: a dot for each with a time of Tailor's, none for the others, and what is said of many."""
        rows = []
        for i, dtype in enumerate(["bf16", "tf32"] * 12):
            rows.append(made_up({"linear": 10.0 * (i + 1), "eager": 40.0, "tailor": (10.0 + i % 5) * (i + 1)}, dtype))
            rows[-1].update(batch=8 * (i + 1))
            for arm, peak in (("eager", 100), ("tailor", 100 + (i == 7))):
                rows[-1]["arms"][arm]["peak_bytes"] = peak
        rows[0]["arms"]["tailor"] = {"status": REFERENCE, "paths": {"reference": 9}}
        target, page_of_it = self.folder / "many.json", self.folder / "many.md"
        target.write_text(json.dumps(result(*rows)))
        status, _, err = quietly(bench, ["--from", target, "--scatter", self.folder / "many.svg", "--markdown", page_of_it])
        self.assertEqual(status, 0, err)
        tree = xml.etree.ElementTree.parse(self.folder / "many.svg")
        titles = [node.text for node in tree.iter() if node.tag.endswith("title")]
        self.assertEqual(len(titles), 23 + 1, "and one for the chain's name")
        words = [node.text for node in tree.iter() if node.text]
        mean = 1.0
        for row in rows[1::2]:
            mean *= over_linear(row, "tailor") ** (1 / 12)
        self.assertIn(f"geometric mean {mean:.3f}", words)
        self.assertIn("1.40  80×16→128", words)
        text = page_of_it.read_text()
        self.assertIn("](many.svg)", text)
        self.assertIn(f"tf32 {mean:.3f} (largest 1.40: 80×16→128 mul_batch_norm)", text)
        self.assertIn("more memory than eager in 1 of 23 cases, 1.01 times as much at most: tf32 mul_batch_norm 64×16→128.", text)
        self.assertIn("no more memory than eager, 1.00 times as much at most", page([result(*rows[1:7])], "a.md"))
        self.assertNotIn("Geometric", page([result(*rows[:18])], "a.md"), "nine sizes are few")

    def test_from_writes_the_same_again(self):
        again = self.folder / "again"
        again.mkdir()
        words = [word.replace(str(self.folder), str(again)) for word in self.files[1:]]
        status, _, err = quietly(bench, ["--from", self.folder / "a.json", *words])
        self.assertEqual(status, 0, err)
        for name in ("a.csv", "a.svg", "a.md"):
            self.assertEqual((again / name).read_text(), (self.folder / name).read_text(), name)
        status, out, _ = quietly(bench, ["--from", self.folder / "a.json"])
        self.assertEqual((status, out.count("8×16→128")), (0, len(self.run_["points"])))

    def test_merging_two_machines(self):
        target = self.folder / "gpu.json"
        target.write_text(json.dumps(result(made_up({"linear": 10, "copy": 1, "eager": 40, "tailor": 11}, "bf16"))))
        files = [self.folder / "both.md", self.folder / "both.svg"]
        status, _, err = quietly(bench, ["--from", target, self.folder / "a.json", "--markdown", files[0], "--svg", files[1]])
        self.assertEqual(status, 0, err)
        text = files[0].read_text()
        self.assertLess(text.index("## Made-up <GPU>"), text.index(f"## {self.run_['machine']['cpu']}"))
        self.assertIn("| 10.0 ±1% | 1.00 ±1% | 40.0 ±1% | 11.0 ±1% | 1.10 | 1.00 |", text)
        xml.etree.ElementTree.parse(files[1])

    def test_compare_with_itself(self):
        status, out, _ = quietly(bench, ["--compare", self.folder / "a.json", self.folder / "a.json"])
        self.assertEqual(status, 0)
        self.assertIn("\n0 of ", out)


class HereTest(unittest.TestCase):
    """In this process, for what would cost too much otherwise."""

    def test_an_arm_that_fails_does_not_stop_the_others(self):
        def broken(setup):
            raise RuntimeError("no compiler here\n  and advice")
        conditions = measure.Conditions("cpu", CpuTimer(), dict, rounds=2)
        point = plan.Point(plan.sized(RULE, 8, 16, 128), "fp32", "eval")
        with mock.patch.dict(arms.ARMS, compile=arms.Kind(broken, "")):
            row = measure.measure(point, ["linear", "compile", "eager"], conditions)
        self.assertEqual(row["arms"]["compile"], {"status": "unavailable", "reason": "RuntimeError: no compiler here"})
        self.assertEqual(row["arms"]["eager"]["status"], MEASURED)
        self.assertIn("compile unavailable: RuntimeError: no compiler here", Lines(["compile"], False).notes([row]))

    def test_backward_is_that_of_all_parameters(self):
        point = plan.Point(plan.sized("linear_batch_norm_add_div_swish", 8, 16, 128), "fp32", "backward")
        setup = arms.Setup(point, "cpu")
        with arms.switches(point):
            gradients, yardstick = arms.eager(setup)(), arms.linear(setup)()
        self.assertEqual([tuple(g.shape) for g in gradients], [(8, 16), *(tuple(p.shape) for p in setup.model.parameters())])
        self.assertEqual([tuple(g.shape) for g in yardstick], [(8, 16), (128, 16), (128,)])
        self.assertLess(measure.error(gradients, setup.exact)["max_error"], 1e-3)

    def test_arms_do_not_see_each_others_statistics(self):
        point = plan.Point(plan.sized(RULE, 8, 16, 128), "fp32", "train")
        setup = arms.Setup(point, "cpu")
        before = copy.deepcopy(setup.model.state_dict())
        with arms.switches(point):
            arms.eager(setup)()
        self.assertTrue(all(torch.equal(value, before[name]) for name, value in setup.model.state_dict().items()))

    def test_error_is_seen(self):
        exact = [torch.zeros(4, dtype=torch.float64)]
        self.assertEqual(measure.error(torch.tensor([0.0, 3.0, -4.0, 0.0]), exact), {"max_error": 4.0, "rms_error": 2.5})
        self.assertNotEqual(measure.error(torch.tensor([0.0, torch.nan, 1, 1]), exact)["max_error"], 1.0)

    def test_the_op_takes_its_operands(self):
        load()
        for rule in plan.MODELS:
            point = plan.Point(plan.sized(rule, 8, 16, 128), "fp64", "eval")
            setup = arms.Setup(point, "cpu")
            with arms.switches(point):
                self.assertLess(measure.error(arms.op(setup)(), setup.exact)["max_error"], 1e-9, rule)

    def test_time_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "a.json")
            status, out, err = quietly(bench, ["--device", "cpu", "--preset", "cpu", "--arm", "linear,eager", "--rounds", "999999999",
                                        "--time-limit", "1", "--json", target])
            self.assertEqual((status, err), (0, ""))
            self.assertIn("the time limit is reached: 0 of 36 points", out)
            self.assertFalse(json.loads(target.read_text())["complete"])

    def test_host_mode(self):
        status, out, err = quietly(bench, ["--host", "--device", "cpu", "--chain", "mul_batch_norm", "--size", "2x4x8", "--dtype",
                                    "fp32", "--rounds", "2", "--arm", "linear,script_linear,eager,tailor", "--library", library()])
        self.assertEqual((status, err), (0, ""))
        self.assertIn("script_linear for tailor", out)


class NumbersTest(unittest.TestCase):
    """Rows of unusual numbers are named everywhere, and none is taken for another."""

    def test_they_are_named(self):
        usual, sparse = (made_up({"linear": 10, "eager": 20, "tailor": us}) for us in (11, 33))
        sparse["numbers"] = "sparse"
        run = result(usual, sparse)
        for text in (page([run], "a.md"), picture([run]), Lines(["tailor"], False, True).row(sparse), compare(run, run), str(list(csv_rows(run)))):
            self.assertIn("sparse", text)
            self.assertIn("33", text)
        self.assertIn("one in a hundred", page([run], "a.md"))
        self.assertNotIn("Numbers, where", page([result(usual)], "a.md"))
        self.assertNotIn("in one file only", compare(run, run))

    def test_older_results(self):
        """They do not say it, and were of normal numbers."""
        older, newer = (made_up({"linear": 10, "tailor": 11}) for _ in range(2))
        newer["numbers"] = "normal"
        self.assertNotIn("in one file only", compare(result(older), result(newer)))


class CompareTest(unittest.TestCase):
    def judged(self, old, new, spread=0.01):
        """The last word of each arm's line."""
        text = compare(result(made_up(old, spread=spread)), result(made_up(new, spread=spread)))
        lines = [line for line in text.splitlines() if line.startswith("mul_batch_norm")]
        return [word if (word := line.split()[-1]) in ("SLOWER", "faster") else "" for line in lines], text

    def test_more_than_the_spread(self):
        old, new = {"linear": 100.0, "eager": 200.0, "tailor": 110.0}, {"linear": 100.0, "eager": 190.0, "tailor": 115.0}
        self.assertEqual(self.judged(old, new)[0], ["", "faster", "SLOWER"])
        self.assertEqual(self.judged(old, new, spread=0.2)[0], ["", "", ""])

    def test_a_slower_machine_is_not_a_slower_tailor(self):
        words, text = self.judged({"linear": 100.0, "tailor": 110.0}, {"linear": 108.0, "tailor": 118.8})
        self.assertEqual(words, ["SLOWER", ""])
        self.assertIn("1 of 2 got slower", text)

    def test_a_time_that_is_gone(self):
        old, new = (result(made_up({"linear": 100.0, "tailor": 110.0})) for _ in range(2))
        new["points"][0]["arms"]["tailor"] = {"status": REFERENCE, "paths": {"reference": 9}}
        self.assertIn("SLOWER: had a time, now reference", compare(old, new))


class WrongUseTest(unittest.TestCase):
    def test_exit_status_and_one_line(self):
        for words in (["--arm", "nobody"], ["--size", "3x4"], ["--size", "0x4x4"], ["--chain", "relu"], ["--dtype", "int8"],
                      ["--mode", "test"], ["--preset", "all"], ["--rounds", "0"], ["--time-limit", "soon"], ["--nonsense"],
                      ["--from", "/nowhere.json"], ["--compare", "/nowhere.json", "/nowhere.json"],
                      ["--json", "/nowhere/a.json"], ["--svg", "/nowhere/../tmp/a.svg"], ["--scatter", "/nowhere/a.svg"], ["--csv", "/tmp"], ["--from", "a.json", "--arm", "eager"],
                      ["--from", __file__], ["--device", "cpu", "--dtype", "tf32"],
                      ["--device", "cpu", "--library", "/nowhere/libtailor.so"]):
            status, out, err = quietly(bench, words)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), f"{words}: {err}")
            self.assertTrue(err.startswith("bench: "), err)

    def test_help(self):
        status, out, _ = quietly(bench, ["--help"])
        self.assertEqual(status, 0)
        for name in [*arms.ARMS, *plan.PRESETS]:
            self.assertIn(name, out)


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU here")
class GpuTest(unittest.TestCase):
    def test_every_arm(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "a.json")
            status, out, err = quietly(bench, ["--size", "256x256x256", "--dtype", "bf16,tf32", "--mode", "eval,train,backward",
                                        "--arm", f"{ARMS},graph,tailor_frozen,script_linear", "--rounds", "5", "--json", target,
                                        "--library", library()])
            self.assertEqual((status, err), (0, ""), out)
            for row in json.loads(target.read_text())["points"]:
                for arm, entry in row["arms"].items():
                    self.assertNotIn("reason", entry, f"{row['chain']} {row['mode']} {arm}")
                    self.assertGreater(entry["us"], 0)  # no more: what else runs on the GPU meanwhile is in it
                self.assertGreater(row["arms"]["eager"]["peak_bytes"], 0)
        self.assertFalse(torch.backends.cuda.matmul.allow_tf32)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("bench_test: no GPU here, the part for one is skipped", flush=True)
    main()
