"""Files that earlier versions of Tailor wrote are read by this one and compute what they did; tests/files/ keeps them.

`files_test.py --write` adds those of the version that is being made, which its release keeps. What is there is never written again: a
file that has to be is a promise broken.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from typing import Optional, Tuple

import torch

import models
from cases import OPS
from checks import ROOT, Checks, auto, load, main

COMMAND = os.environ.get("TAILOR_COMMAND", str(ROOT / "build" / "tailor"))
FILES = ROOT / "tests" / "files"
VERSION = re.search(r"project\(Tailor VERSION (\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]

BODIES = {
    "linear_mul_batch_norm": "return self.bn(self.gemm(x) * self.scale)",
    "linear_sigmoid_mul_add": "y = self.gemm(x); return torch.sigmoid(y) * self.factor + y",
    "linear_add_swish_group_norm": "y = self.gemm(x) + self.b; return self.gn(torch.sigmoid(y) * y)",
    "linear_swish_add_group_norm": "y = self.gemm(x); return self.gn(torch.sigmoid(y) * y + self.b)",
    "linear_batch_norm_add_div_swish": "y = (self.bn(self.gemm(x)) + self.one) / self.divisor; return y * torch.sigmoid(y)",
    "linear_group_norm_swish_mul_swish": "return F.silu(F.silu(self.gn(self.gemm(x))) * self.scale)",
}

# Nets whose files hold what stands guard for an op, by its name.
GUARDED = {
    "check.each": "return self.bn(self.gemm(x) * self.scale)",
    "unwritten.one": "return self.bn(self.gemm(x) * self.scale)",
    "unwritten.optional_one": "def forward(self, x, b: Optional[Tensor] = None):\n    return self.bn(F.linear(x, self.w, b) * self.scale)",
    "uniform.each": "y = torch.addmm(self.b, x, self.w.t()); y *= self.scale; return self.bn(y)",
    "ahead": "s = x.sum()\nfor i in range(3):\n    s = s * x.mean()\ny = F.linear(x, self.w)\nreturn torch.sigmoid(y) * s + y",
    "ahead_untyped": """y = self.bn(self.gemm(x) * self.scale)
t: Tuple[Tensor, Optional[Tensor]] = (y, None)
for i in range(3):
    t = (t[0] * 2, x)
return t[0]""",
    "fence": "y = F.linear(x, self.w); return torch.sigmoid(y) * self.scale + y",
    "as_silu": "return F.silu((self.bn(self.gemm(x)) + self.one) / self.divisor)",
}


class Small(models.Net):
    """Of a net only what a body names, so that its file is small."""

    def __init__(self, body):
        super().__init__()
        for name in [*self._modules, *self._parameters, *self._buffers]:
            if not re.search(rf"self\.{name}\b", body):
                delattr(self, name)


def small(body):
    torch.manual_seed(7)
    name, text = models.source_of(body)
    space = {"Net": Small, "torch": torch, "F": torch.nn.functional, "Optional": Optional, "Tuple": Tuple, "Tensor": torch.Tensor, "__name__": __name__}
    exec(compile(text, name, "exec"), space)
    return space["Written"](body).double()


def overloads(module, of="linear_"):
    """The overloads of Tailor's ops that a module calls, such as linear_mul_batch_norm.inference."""
    nodes = [node for node in all_nodes(module.inlined_graph) if node.kind().startswith(f"tailor::{of}")]
    return [node.schema().split("(")[0].removeprefix("tailor::") for node in nodes]


def guards(module):
    return {name for name in overloads(module, "") if not name.startswith("linear_")}


def all_nodes(block):
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from all_nodes(inner)


def forms(body):
    """The net fused as a script, as traces of both modes, and frozen."""
    x = torch.randn(models.B, models.K, dtype=torch.float64)
    yield torch.jit.script(small(body))
    for training in (True, False):
        yield torch.jit.trace(small(body).train(training), x, check_trace=False)
    yield torch.jit.freeze(torch.jit.script(small(body).eval()))


def write():
    with auto(True):
        for rule, body in BODIES.items():
            seen = set()
            for module in forms(body):
                torch.ops.tailor.fuse_(module)
                names = overloads(module)
                if len(names) != 1 or names[0] in seen:
                    continue
                seen.add(names[0])
                write_one(module, names[0])
        for name, body in GUARDED.items():
            module = torch.jit.script(small(body))
            if name not in guards(module):
                raise RuntimeError(f"this holds no tailor::{name}: {body}")
            write_one(module, f"guards/{name}")


def write_one(module, name):
    path = FILES / VERSION / f"{name}.pt"
    if path.exists():
        print(f"{path} is there already, and stays as it is")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    module.save(path)
    copy = torch.jit.load(path)
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(models.B, models.K, dtype=torch.float64, generator=generator)
    expected = {"input": x.tolist(), "output": copy(x).tolist(),
                "state": {key: value.tolist() for key, value in copy.state_dict().items() if "running" in key}}
    module.save(path, _extra_files={"expected.json": json.dumps(expected)})
    without_origins(path)
    print(path, path.stat().st_size)


def without_origins(path):
    """The file without the records that say where its code came from, of this machine's folders."""
    with zipfile.ZipFile(path) as old:
        records = {name: old.read(name) for name in old.namelist() if not name.endswith(".debug_pkl")}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in records.items():
            packed = name.endswith((".py", ".json"))
            new.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)


class FilesTest(Checks):
    def files(self):
        return sorted(FILES.glob("*/*.pt"))

    def close(self, got, expected, what):
        torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=1e-9, msg=lambda m: f"{what}: {m}")

    def test_every_op_of_every_version_is_kept(self):
        """The ops of the first version; a version that adds one adds its file."""
        names = {path.stem for path in self.files()}
        self.assertEqual(names, {op.name for op in OPS}, "a new op has its file once this ran with --write")
        self.assertTrue((FILES / VERSION).is_dir(), f"no files of version {VERSION}: run this with --write")

    def test_every_guard_is_kept(self):
        """Each op of the library that a graph may hold is in a file of the first version that had it."""
        schemas = {schema.name.removeprefix("tailor::") + (f".{schema.overload_name}" if schema.overload_name else "")
                   for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("tailor::")}
        asked_by_users = ("auto", "calls", "fp16x3", "fuse_", "inspect", "release_", "reset_calls", "settle_", "unfuse_", "version")
        guards_there = {name for name in schemas if name.split(".")[0] not in asked_by_users} - {op.name for op in OPS}
        self.assertEqual({path.stem for path in self.guarded()}, guards_there)
        for path in self.guarded():
            self.assertIn(path.stem, guards(torch.jit.load(path)))

    def guarded(self):
        return sorted(FILES.glob("*/guards/*.pt"))

    def test_they_load_and_compute_what_they_did(self):
        for path in [*self.files(), *self.guarded()]:
            for undo in (False, True):
                with self.subTest(file=path, unfused=undo), torch.no_grad():
                    extra = {"expected.json": ""}
                    module = torch.jit.load(path, _extra_files=extra)
                    self.assertIn(path.stem, overloads(module, ""))
                    if undo:
                        torch.ops.tailor.unfuse_(module)
                        self.assertEqual(overloads(module, ""), [])
                    expected = json.loads(extra["expected.json"])
                    self.close(module(torch.tensor(expected["input"], dtype=torch.float64)), expected["output"], "output")
                    for name, value in expected["state"].items():
                        self.close(module.state_dict()[name], value, name)

    def test_they_still_learn(self):
        """A gradient arrives at the input, which no kernel for inference would give."""
        for path in self.files():
            module = torch.jit.load(path)
            x = torch.randn(models.B, models.K, dtype=torch.float64, requires_grad=True)
            module(x).square().sum().backward()
            self.assertGreater(x.grad.abs().sum().item(), 0, path)

    def test_the_command_says_that_a_file_is_from_another_version(self):
        """What a later version may write: an op that this one does not have, an argument that it does not know, another guard;
        and a torch that is newer."""
        op, guard = FILES / "0.1/linear_sigmoid_mul_add.pt", FILES / "0.1/guards/check.pt"
        call = b"ops.tailor.linear_sigmoid_mul_add(x, weight, bias, factor"
        of_another = "it was fused by another version of Tailor: "
        for file, what, instead, says in (
                (op, call, b"ops.tailor.linear_sew(x, weight, bias, factor", of_another + "'tailor::linear_sew' is not known to this one\n"),
                (op, call, call + b", 3",
                 of_another + "it calls 'tailor::linear_sigmoid_mul_add' with other arguments than this one knows\n"),
                (guard, b"ops.tailor.check(", b"ops.tailor.look(", of_another + "'tailor::look' is not known to this one\n"),
                (op, b"3\n", b"999\n", "Attempted to read a PyTorch file with version 999, ")):
            with self.subTest(instead=instead), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "new.pt")
                with zipfile.ZipFile(file) as old, zipfile.ZipFile(path, "w") as new:
                    for name in old.namelist():
                        changes = name.endswith("/version" if instead == b"999\n" else ".py")
                        new.writestr(name, old.read(name).replace(what, instead) if changes else old.read(name))
                for command in (["inspect", path], ["fuse", path, "-o", path.with_name("out.pt")], ["unfuse", path, "-o", path.with_name("out.pt")]):
                    done = subprocess.run([COMMAND, *command], capture_output=True, text=True)
                    self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (3, "", 1), done)
                    self.assertTrue(done.stderr.startswith(f"tailor: {path}: cannot be loaded: {says}"), done)
                    self.assertEqual([each.name for each in pathlib.Path(folder).iterdir()], ["new.pt"])
                with self.assertRaises(RuntimeError) as raised:  # and without the command
                    torch.jit.load(path)
                if b"ops.tailor" in instead:
                    self.assertIn(instead.decode().split("(")[0].removeprefix("ops.").replace(".", "::"), str(raised.exception))


class Transposed(torch.nn.Module):
    def forward(self, x):
        x[:, 0] = 1
        return x.T


class Wrapped(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner


class Recurrent(Wrapped):
    def forward(self, x):
        return self.inner(x)[0]


class Attention(Wrapped):
    def forward(self, x):
        return self.inner(x, x, x)[0]


class Exported(torch.nn.Module):
    """Without `forward`."""

    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(4, 4)

    @torch.jit.export
    def encode(self, x):
        return self.gemm(x)

    @torch.jit.export
    def decode(self, x):
        return x.relu()


class Drawing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.state = 1.0

    @torch.jit.export
    def __getstate__(self) -> Tuple[float, bool]:
        return self.state, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[float, bool]) -> None:
        self.training = state[1]
        self.state = float(torch.rand([1]).item())

    def forward(self, x):
        return x + self.state


class Changed(torch.nn.Module):
    """It calls an operator that has changed since the first version of files: torch then puts the record of the version elsewhere."""

    def forward(self, x):
        return x + torch.linspace(0.0, 1.0, 4)


class GoodFilesTest(unittest.TestCase):
    """What torch writes and reads, the command reads too."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tailor(self, *words):
        return subprocess.run([COMMAND, *words], capture_output=True, text=True)

    def accepted(self, *words):
        done = self.tailor(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def test_modules_for_which_torch_makes_up_ops(self):
        """Nodes of no line: torch writes that they come from the characters 0 to 1 of an empty text."""
        linear, quantize = torch.nn.Linear(4, 4), torch.ao.quantization.quantize_dynamic
        for module in (Recurrent(torch.nn.LSTM(4, 4)), Recurrent(torch.nn.GRU(4, 4)), torch.nn.GRUCell(4, 4), torch.nn.LSTMCell(4, 4),
                       Attention(torch.nn.MultiheadAttention(4, 2)), torch.nn.TransformerEncoderLayer(4, 2), torch.nn.EmbeddingBag(4, 4),
                       Transposed(), Changed(), *(quantize(torch.nn.Sequential(linear), {torch.nn.Linear}, dtype=d) for d in (torch.qint8, torch.float16))):
            with self.subTest(module=str(module)):
                path, plain = self.folder / "good.pt", self.folder / "plain.pt"
                torch.jit.script(module).save(path)
                self.accepted("inspect", path)
                self.accepted("unfuse", path, "-o", plain)
                torch.jit.load(plain)

    def test_code_whose_origin_is_nowhere(self):
        """Every place set far outside its text, in all ways that torch's own deserialiser lets pass: read, or refused in one line."""
        path = self.folder / "good.pt"
        torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), Transposed())).save(path)
        with zipfile.ZipFile(path) as old:
            records = {name: old.read(name) for name in old.namelist()}
        for number in (0, 1, 0x7f, 0xff):
            with zipfile.ZipFile(path, "w") as new:
                for name, data in records.items():
                    # Places are the small numbers of a pickle: K and a byte, M and two.
                    new.writestr(name, re.sub(rb"K.(?=[KMJ\x86\x87t])", b"K" + bytes([number]), data, flags=re.S) if name.endswith("debug_pkl") else data)
            done = self.tailor("inspect", path)
            self.assertIn(done.returncode, (0, 3), done)
            self.assertEqual(done.stderr.count("\n"), done.returncode // 3, done)

    def test_names_that_only_torch_would_choose(self):
        module = torch.jit.script(torch.nn.Linear(2, 2))
        for name in ("....pt", "...pt", "..pt", "a\tb.pt", "a\nb.pt"):
            with self.subTest(name=name):
                module.save(self.folder / name)
                self.accepted("inspect", self.folder / name)
        keys = ("a\\b", "/abs", "a//b", "./a", "a\nb")
        path, plain = self.folder / "extra.pt", self.folder / "plain.pt"
        torch.jit.save(module, path, _extra_files={key: "hello" for key in keys})
        self.accepted("unfuse", path, "-o", plain)
        extra = {key: "" for key in keys}
        torch.jit.load(plain, _extra_files=extra)
        self.assertEqual(extra, {key: b"hello" for key in keys})
        torch.jit.save(module, path, _extra_files={"../a": "hello"})
        done = self.tailor("inspect", path)
        self.assertEqual(done.returncode, 3)
        self.assertIn("which leads out of a folder it is unpacked to", done.stderr)

    def test_code_that_draws_random_numbers_while_it_is_loaded(self):
        """torch asks the system where they begin, and in the process that tries a file nothing can be opened any more."""
        path = self.folder / "drawing.pt"
        torch.jit.script(Drawing()).save(path)
        self.accepted("inspect", path)

    def test_a_module_without_forward_is_drawn(self):
        path, picture = self.folder / "exported.pt", self.folder / "exported.svg"
        torch.jit.script(Exported()).save(path)
        self.accepted("inspect", path, "--svg", picture)
        text = picture.read_text()
        self.assertIn("Exported.decode", text)
        self.assertIn("Exported.encode", text)
        torch.jit.script(torch.nn.Module()).save(path)
        self.accepted("inspect", path, "--svg", picture)
        self.assertIn("a module without methods", picture.read_text())

    def test_inputs_that_no_machine_holds(self):
        path = self.folder / "model.pt"
        torch.jit.script(torch.nn.Linear(4, 4)).save(path)
        done = self.tailor("fuse", path, "-o", self.folder / "out.pt", "--input", "float32[99999999,99999999]")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("this machine's memory", done.stderr)

    def test_an_input_file_that_lies(self):
        model, values, lie = self.folder / "model.pt", self.folder / "values.pt", self.folder / "lie.pt"
        torch.jit.script(small(BODIES["linear_mul_batch_norm"]).float()).save(model)
        for whole in (torch.randn(models.B, models.K), [torch.randn(models.B, models.K)], (torch.randn(models.B, models.K),)):
            torch.save(whole, values)
            self.accepted("fuse", model, "-o", self.folder / "out.pt", "--input-file", values)
        with zipfile.ZipFile(values) as old, zipfile.ZipFile(lie, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name)[:16] if name.endswith("/0") else old.read(name))
        done = self.tailor("fuse", model, "-o", self.folder / "out.pt", "--input-file", lie)
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("but its record has 16 bytes", done.stderr)


if __name__ == "__main__":
    load()
    if "--write" in sys.argv:
        write()
    else:
        main()
