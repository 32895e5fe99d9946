"""The tailor command from outside: what goes in, what comes out, and exit statuses."""
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import warnings

import torch

import models
from checks import library, main
from command import COMMAND, INPUT, NET, TWO_MORE, Command, outputs
from scripted import net_of, source_of_part

BATCH_NORM = "linear_mul_batch_norm"


class Every(torch.nn.Module):
    def __init__(self, nets):
        super().__init__()
        self.nets = torch.nn.ModuleList(nets)

    def forward(self, x):
        for net in self.nets:
            net(x)
        return x


class CommandTest(Command):
    # ---- fuse, inspect, unfuse

    def test_fuses_verifies_and_reports(self):
        report, drawing = self.folder / "report.json", self.folder / "graph.svg"
        text = self.done("fuse", self.source, "-o", self.target, f"--expect={BATCH_NORM}=1", INPUT, "--report", report, "--svg", drawing)
        self.assertRegex(text, rf"{BATCH_NORM}\s+forward\s+\S+:\d+\s+fused\n")
        self.assertIn("fused 1 of 1 sites\n", text)
        sites = json.loads(report.read_text())["sites"]
        self.assertEqual([(site["rule"], site["fused"]) for site in sites], [(BATCH_NORM, True)])
        self.assertTrue(drawing.read_text().lstrip().startswith("<"))
        plain, fused = outputs(self.source, self.target)
        torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)
        self.assertEqual(sorted(os.listdir(self.folder)), ["fused.pt", "graph.svg", "model.pt", "report.json"])
        self.assertNotIn("Call", drawing.read_text())  # though the original has run

    def test_keeps_what_else_is_in_the_file(self):
        self.done("fuse", self.source, "-o", self.target)
        code = ("import sys, torch; torch.ops.load_library(sys.argv[1]); extra = {'note.txt': '', 'sub/b.bin': ''}\n"
                "m = torch.jit.load(sys.argv[2], _extra_files=extra); print([extra, list(m.state_dict()), m.training])")
        def contents(path):
            return subprocess.run([sys.executable, "-W", "ignore", "-c", code, library(), path], capture_output=True, text=True, check=True).stdout
        self.assertEqual(contents(self.target), contents(self.source))
        self.assertIn("hello", contents(self.target))

    def test_writes_what_torch_folds_as_it_reads(self):
        for name, body in {
            "both None": """m = k
        if x.size(0) == 6: m = None
        return y, m""",
            "a loop that never runs twice": """while a is None:
            a = x
        return y, k""",
        }.items():
            torch.jit.script(net_of(source_of_part(body, "return self.part(x), self.part(x, x, 1.0)"), f"<{name}>").eval()).save(str(self.source))
            with self.subTest(name):
                self.done("fuse", self.source, "-o", self.target, f"--expect={BATCH_NORM}=3", "--input=float32[5,6]")

    def test_fusing_twice_changes_nothing_more(self):
        self.done("fuse", self.source, "-o", self.target)
        self.done("fuse", self.target, "-o", self.target)
        torch.testing.assert_close(*outputs(self.source, self.target), atol=1e-4, rtol=1e-4)

    def test_a_frozen_product(self):
        """Its site is verified with the transpose of the constant as its weight."""
        net = models.build("return self.bn((x @ self.gemm.weight.t() + self.gemm.bias) * self.scale)").eval()
        torch.jit.freeze(torch.jit.script(net)).save(str(self.source))
        self.assertIn("1 chain checked", self.done("fuse", self.source, "-o", self.target, f"--expect={BATCH_NORM}=1", INPUT))
        torch.testing.assert_close(*outputs(self.source, self.target), atol=1e-4, rtol=1e-4)

    def test_every_spelling_is_verified_by_itself(self):
        rows = [row for row in models.SPELLINGS if "def forward(self, x, " not in row.body]
        nets = [models.build(row.body) for row in rows]
        torch.jit.script(Every(nets)).save(str(self.source))
        sites = sum(row.sites for row in rows)
        self.assertGreater(sites, 60)
        self.assertIn(f"{sites} chains checked by themselves", self.done("fuse", self.source, "-o", self.target))

    def test_in_place(self):
        self.done("fuse", self.source, "-o", self.source)
        self.assertIn("needs Tailor to be loaded", self.done("inspect", self.source))
        self.assertEqual(os.listdir(self.folder), ["model.pt"])

    def test_inspect_writes_nothing(self):
        text = self.done("inspect", self.source)
        self.assertRegex(text, rf"{BATCH_NORM}.*would fuse\n")
        self.assertRegex(text, r"gemm\.weight\s+parameter\s+float32\s+\[12,5\]\n")
        self.assertRegex(text, r"bn\.num_batches_tracked\s+buffer\s+int64\s+\[\]\n")
        self.assertIn("loads without Tailor", text)
        self.assertEqual(os.listdir(self.folder), ["model.pt"])
        self.assertEqual(self.source.read_bytes(), self.model)

    def test_inspect_of_a_fused_file_says_so(self):
        torch.jit.script(models.build("a = self.bn(self.gemm(x) * self.scale)\ny = self.gemm2(x)\nreturn a, torch.sigmoid(y) * self.factor + y")).save(self.source)
        self.done("fuse", self.source, "-o", self.target, "--rule", BATCH_NORM)
        text = self.done("inspect", self.target)
        self.assertRegex(text, rf"{BATCH_NORM}\s.*\sis fused\n")
        self.assertRegex(text, r"linear_sigmoid_mul_add\s.*\swould fuse\n")
        self.assertIn("would fuse 1 of 2 sites, 1 is fused already\n", text)
        text = self.done("fuse", self.target, "-o", self.folder / "again.pt")
        self.assertIn("fused 1 of 2 sites, 1 is fused already\n1 chain checked by itself", text)

    def test_help_names_rules_where_they_can_be_chosen(self):
        for command, named in ("fuse", True), ("inspect", True), ("unfuse", False):
            self.assertEqual("Rules:" in self.done("help", command), named, command)

    def test_unfuse_gives_a_file_that_plain_torch_runs(self):
        self.done("fuse", self.source, "-o", self.target)
        self.done("unfuse", self.target, "-o", self.folder / "plain.pt")
        torch.manual_seed(1)
        x = torch.randn(models.B, models.K)
        before, after = torch.jit.load(self.source), torch.jit.load(self.folder / "plain.pt")
        self.assertTrue(torch.equal(before(x), after(x)))
        self.assertIn("loads without Tailor", self.done("inspect", self.folder / "plain.pt"))

    def test_other_rules_leave_it_alone(self):
        text = self.done("fuse", self.source, "-o", self.target, "--rule", "linear_sigmoid_mul_add")
        self.assertIn("fused 0 of 1 sites", text)
        self.assertIn("left: ", text)
        self.assertIn("loads without Tailor", self.done("inspect", self.target))

    # ---- what it says no to

    def test_wrong_use(self):
        self.refused(2)
        self.refused(2, "fuse", self.source, says="-o OUT")
        self.refused(2, "fuse", "", "-o", self.target, says="fuse wants the name of a file, got ''")
        self.refused(2, "fuse", self.source, "-o", self.target, "--rule", "nothing", says=BATCH_NORM)
        self.refused(2, "fuse", self.source, "-o", self.target, "--input=float32[3,", says="--input")

    def test_writes_over_nothing_that_it_reads(self):
        (self.folder / "link").symlink_to("model.pt")
        inputs, kept = self.folder / "x.pt", dict(leaves=("link", "model.pt", "x.pt"))
        torch.save(torch.randn(models.B, models.K), inputs)
        other = str(self.folder) + "/./"
        self.refused(2, "inspect", self.source, "--report", other + "model.pt", says="is the input", **kept)
        self.refused(2, "inspect", self.folder / "link", "--report", self.source, says="is the input", **kept)
        self.refused(2, "fuse", self.source, "-o", self.target, "--input-file", inputs, "--svg", inputs, says="--input-file", **kept)
        self.refused(2, "fuse", self.source, "-o", self.target, "--report", other + "fused.pt", says="written twice", **kept)
        self.assertEqual(self.source.read_bytes(), self.model)
        self.done("fuse", self.source, "-o", other + "model.pt")  # in place, all the same

    def test_writes_over_nothing_that_is_open(self):
        printed = self.folder / "printed"
        for words in (("--report", "/dev/stdout"), ("--svg", "/proc/self/fd/1"), ("--report", printed)):
            with open(printed, "w") as file:
                result = subprocess.run([COMMAND, "inspect", self.source, *words], stdout=file, stderr=subprocess.PIPE, text=True)
            self.assertEqual((result.returncode, printed.read_text()), (2, ""), result)
            self.assertIn("is where messages go", result.stderr)
        self.refused(6, "inspect", self.source, "--report", "/dev/stdout", says="stands for an open file", leaves=("model.pt", "printed"))

    def test_names_that_a_terminal_would_obey(self):
        name = self.folder / "a\nb\x1b[31m.pt"
        self.refused(3, "inspect", name, says=r"a\x0ab\x1b[31m.pt: cannot open: No such file")
        self.refused(6, "fuse", self.source, "-o", name / "out.pt", says=r"a\x0ab\x1b[31m.pt/out.pt: cannot be written")
        self.refused(2, "fuse", self.source, "-o", self.target, "--report", self.target, says="written twice")
        name.write_bytes(self.model)
        self.assertIn(r"a\x0ab\x1b[31m.pt loads without Tailor", self.done("inspect", name))
        self.done("fuse", self.source, "-o", self.target)
        self.assertIn(r"a\x0ab\x1b[31m.pt loads without Tailor", self.done("unfuse", self.target, "-o", name))
        long = self.folder / "/".join(["x" * 200] * 4)
        self.refused(3, "inspect", long, says=f"{long}: cannot open", leaves=(name.name, "fused.pt", "model.pt"))

    def test_input_file_of_something_else(self):
        inputs = self.folder / "x.pt"
        torch.save({"a": torch.ones(2), "b": torch.ones(2)}, inputs)
        result = self.refused(3, "fuse", self.source, "-o", self.target, "--input-file", inputs, says="holds a GenericDict",
                              leaves=("model.pt", "x.pt"))
        self.assertEqual(result.stderr.count("x.pt"), 1)
        for other in (collections.OrderedDict(a=torch.ones(2)), torch.nn.Linear(2, 2).state_dict(), torch.ones(2).numpy()):
            torch.save(other, inputs)
            result = self.refused(3, "fuse", self.source, "-o", self.target, "--input-file", inputs, says="no OrderedDict or other class",
                                  leaves=("model.pt", "x.pt"))
            self.assertNotIn("ASSERT", result.stderr)

    def test_a_norm_that_always_raises(self):
        """torch's batch norm raises where eps is 0, and torch leaves out what stands behind a raise as it compiles a file."""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.bn, self.never, self.scale = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12), torch.nn.BatchNorm1d(12, eps=0.0), torch.nn.Parameter(torch.randn(12))

            def forward(self, x):
                return self.never(x), self.bn(self.gemm(x) * self.scale)
        torch.jit.script(Net()).save(self.source)
        self.assertIn("fused 1 of 1 sites", self.done("fuse", self.source, "-o", self.target))

    def test_closed_standard_streams(self):
        for descriptor, status in ((0, 0), (1, 6), (2, 0)):
            for words in (["inspect"], ["fuse", "-o", self.target]):
                result = self.run_command(words[0], self.source, *words[1:], preexec_fn=lambda: os.close(descriptor))
                self.assertEqual(result.returncode, status, result)
                self.assertEqual(self.target.exists(), words[0] == "fuse" and status == 0)
                self.target.unlink(missing_ok=True)

    def test_torch_warns_of_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = models.build(NET)
            net.register_buffer("sparse", torch.eye(3).to_sparse_csr())
            net.register_buffer("complex", torch.zeros(2, dtype=torch.complex32))
            torch.jit.script(net).save(self.source)
        self.done("inspect", self.source)
        self.done("fuse", self.source, "-o", self.target)

    def test_library_that_is_tailor_once_more(self):
        copy = self.folder / "copy.so"
        shutil.copyfile(library(), copy)
        self.refused(3, "inspect", self.source, "--library", copy, says="copy.so: cannot be loaded as a library: ", leaves=("copy.so", "model.pt"))
        self.done("inspect", self.source, "--library", library())  # which is loaded already

    def test_expectation_not_met(self):
        report = self.folder / "report.json"
        result = self.refused(5, "fuse", self.source, "-o", self.target, f"--expect={BATCH_NORM}=2", "--report", report,
                              says=f"expected 2 sites of {BATCH_NORM}, fused 1; the table says what")
        self.assertIn("fused 1 of 1 sites", result.stdout)

    def test_inputs_that_the_model_does_not_take(self):
        self.refused(4, "fuse", self.source, "-o", self.target, INPUT, INPUT, says="verification failed")
        self.refused(4, "fuse", self.source, "-o", self.target, "--input=float32[3,4]", says="verification failed")
        self.refused(4, "fuse", self.source, "-o", self.target, INPUT, "--input=3", says="forward takes (Tensor x): describe each with --input")
        self.refused(3, "fuse", self.source, "-o", self.target, "--input-file", self.folder, says="not a regular file; give the name of a file in it")
        torch.jit.script(models.build(TWO_MORE)).save(self.source)
        self.refused(4, "fuse", self.source, "-o", self.target, INPUT, INPUT, "--input=3",
                     says="Expected a value of type 'Dict[str, Tensor]' for argument 'd'")

    def test_help(self):
        self.assertIn("tailor fuse IN -o OUT", self.done("--help"))
        self.assertIn("--expect NAME=COUNT", self.done("help", "fuse"))
        self.assertRegex(self.done("--version"), r"tailor \d+\.\d+\.\d+")
        self.refused(2, "help", "fuse", "more", says="'more'")
        self.refused(2, "--version", "more", says="'more'")

    def test_unreadable_input(self):
        other = self.folder / "other"
        for content, says in ((b"", "empty"), (b"hello", "not a torch file"), (self.model[:-1], "was cut off"), (self.model[5000:], "model.pt")):
            self.source.write_bytes(content)
            self.refused(3, "fuse", self.source, "-o", self.target)
        torch.save({"a": torch.ones(2)}, self.source)
        self.refused(3, "inspect", self.source, says="torch.save wrote it")
        torch.save({"a": torch.ones(2)}, self.source, _use_new_zipfile_serialization=False)
        self.refused(3, "inspect", self.source, says="pickle")
        self.refused(3, "inspect", other, says="No such file or directory; give the name of a file")
        self.refused(3, "inspect", self.folder, says="not a regular file; give the name of a file in it")
        os.mkfifo(other)
        self.refused(3, "inspect", other, says="not a regular file; copy what it holds", leaves=("model.pt", "other"))

    def test_calls_that_double(self):
        """Short in the file, and longer than all memory once they are inlined."""
        torch.jit.script(models.doubled(19)).save(self.source)
        for words in (("inspect", self.source), ("fuse", self.source, "-o", self.target), ("unfuse", self.source, "-o", self.target)):
            self.refused(3, *words, says="nodes with all calls inlined, which takes too much memory")

    def test_missing_library(self):
        torch.library.define("tailor_test::twice", "(Tensor x) -> Tensor")
        torch.jit.script(models.build("return torch.ops.tailor_test.twice(x)")).save(self.source)
        self.refused(3, "inspect", self.source, says="needs the library that defines 'tailor_test::twice'")

    def test_damaged_files(self):
        """Random damage: refused, or what torch loads from it is what it was."""
        chance = random.Random(0)
        expected = None
        for _ in range(int(os.environ.get("TAILOR_MUTANTS", 40))):
            damaged = bytearray(self.model)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            self.source.write_bytes(damaged)
            result = self.run_command("inspect", self.source)
            self.assertIn(result.returncode, (0, 3), result)
            if result.returncode == 3:
                self.assertRegex(result.stderr, r"\Atailor: [^\n]+\n\Z")
                continue
            if expected is None:
                (self.folder / "whole.pt").write_bytes(self.model)
                expected = torch.jit.load(self.folder / "whole.pt").state_dict()
            for name, value in torch.jit.load(self.source).state_dict().items():
                self.assertTrue(torch.equal(value, expected[name]), name)


if __name__ == "__main__":
    main()
