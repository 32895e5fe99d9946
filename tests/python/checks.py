"""What the Python tests share: the library, outcomes (a value or an exception) and comparisons that say what differs."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=UserWarning)

# How far two correct evaluations of one chain may lie apart, absolute and relative. ContractTest holds the tight one.
TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.complex128: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-4),
    torch.complex64: (2e-5, 2e-4),
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (6e-2, 6e-2),
}


def library():
    path = os.environ.get("TAILOR_LIBRARY", str(ROOT / "build" / "libtailor.so"))
    if not os.path.exists(path):
        sys.exit(f"no library at {path}: build it first, or name it in TAILOR_LIBRARY")
    return path


def load():
    torch.ops.load_library(library())
    return torch.ops.tailor


def python(code, *arguments, **environment):
    """Runs code in a process of its own; returns what it printed."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TAILOR_LIBRARY": library(), **environment})
    if done.returncode:
        raise AssertionError(f"exit {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def reloaded(model, **options):
    file = io.BytesIO()
    torch.jit.save(model, file)
    file.seek(0)
    return torch.jit.load(file, **options)


def last_line(text):
    """The message without TorchScript's traceback and without the name of the class that the interpreter puts before it."""
    lines = [line for line in str(text).splitlines() if line.strip()] or [""]
    last = lines[-1].strip()
    head, colon, rest = last.partition(": ")
    return rest if colon and head.replace(".", "").isidentifier() and head.endswith(("Error", "Exception")) else last


class Outcome:
    """What a call came to: its value, or its exception's class and last line."""

    def __init__(self, call):
        self.value = self.error = self.text = self.exception = None
        try:
            self.value = call()
        except Exception as error:  # noqa: BLE001, any class is a result here
            self.error, self.text, self.exception = type(error), last_line(error), str(error)

    def __str__(self):
        if self.error:
            return f"{self.error.__name__}: {self.text}"
        return describe(self.value)


def describe(value):
    if not isinstance(value, torch.Tensor):
        return repr(value)[:300]
    where = f"{value.dtype} on {value.device}, {value.layout}"
    shape = "nested" if value.is_nested else f"shape {tuple(value.shape)}"
    strides = f", strides {value.stride()}" if value.layout == torch.strided and not value.is_nested else ""
    return f"{type(value).__name__} {where}, {shape}{strides}"


def copied(value):
    """An independent copy with the same strides and offset; leaves stay leaves, expanded tensors stay expanded."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided or value.is_nested:
        return value.detach().clone().requires_grad_(value.requires_grad)
    sizes = [1 if stride == 0 and size else size for size, stride in zip(value.shape, value.stride())]
    base = value.detach().as_strided(sizes, value.stride(), value.storage_offset())
    room = value.storage_offset() + sum((n - 1) * s for n, s in zip(sizes, value.stride())) + 1
    twin = torch.zeros(max(room, 0), dtype=value.dtype, device=value.device)
    twin = twin.as_strided(sizes, value.stride(), value.storage_offset()).copy_(base).expand(value.shape)
    return twin.requires_grad_(value.requires_grad)


def dense(value):
    if value.is_nested:
        return value.to_padded_tensor(0.0)
    return value if value.layout == torch.strided else value.to_dense()


def distance(actual, expected):
    if not expected.numel():
        return "nothing to compare"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    mine, theirs = actual.detach().to(wide).reshape(-1), expected.detach().to(wide).reshape(-1)
    off = torch.where((mine == theirs) | (mine.isnan() & theirs.isnan()), 0.0, (mine - theirs).abs())
    place = int(torch.nan_to_num(off, nan=torch.inf).argmax())
    return (f"largest distance {off[place].item():g} at element {place}: {actual.reshape(-1)[place].item()} where "
            f"{expected.reshape(-1)[place].item()} was expected")


class Checks(unittest.TestCase):
    """Base of every test case here."""

    longMessage = True

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)  # small tensors; CTest runs files side by side
        cls.tailor = load()

    def assert_same(self, actual, expected, what="", tolerance=None, strides=True):
        """Values, dtype, shape, strides and device; tuples and dictionaries of tensors too."""
        if isinstance(expected, dict):
            self.assertEqual(list(actual), list(expected), f"{what}: keys")
            for name in expected:
                self.assert_same(actual[name], expected[name], f"{what}: {name}", tolerance, strides)
            return
        if isinstance(expected, (tuple, list)):
            self.assertEqual(len(actual), len(expected), what)
            for place, (left, right) in enumerate(zip(actual, expected)):
                self.assert_same(left, right, f"{what}[{place}]", tolerance, strides)
            return
        if not isinstance(expected, torch.Tensor):
            self.assertEqual(actual, expected, what)
            return
        self.assertIsInstance(actual, torch.Tensor, what)
        self.assertIs(type(actual), type(expected), f"{what}: {describe(actual)} where {describe(expected)} was expected")
        self.assertEqual((actual.dtype, actual.device, actual.layout), (expected.dtype, expected.device, expected.layout), what)
        self.assertEqual(actual.is_nested, expected.is_nested, what)
        if not expected.is_nested:
            self.assertEqual(tuple(actual.shape), tuple(expected.shape), f"{what}: shape")
            if strides and expected.layout == torch.strided:
                self.assertEqual(actual.stride(), expected.stride(), f"{what}: strides of shape {tuple(expected.shape)}")
        if expected.device.type == "meta":
            return
        actual, expected = dense(actual.detach()), dense(expected.detach())
        if expected.is_floating_point() or expected.is_complex():
            absolute, relative = tolerance or TOLERANCE[expected.dtype]
            close = torch.allclose(actual, expected, rtol=relative, atol=absolute, equal_nan=True)
        else:
            close = torch.equal(actual, expected)
        if not close:
            self.fail(f"{what}: {describe(expected)}: {distance(actual, expected)}")

    def assert_outcome(self, actual, expected, what="", tolerance=None, strides=True):
        """The same value, or the same class of exception with the same last line."""
        if expected.error is None:
            if actual.error is not None:
                self.fail(f"{what}: raised {actual} where eager gives {expected}\n{actual.exception}")
            self.assert_same(actual.value, expected.value, what, tolerance, strides)
            return
        if actual.error is None:
            self.fail(f"{what}: gives {actual} where eager raises {expected}")
        stale = "modified by an inplace operation"
        if stale in expected.text and stale in actual.text:
            return  # it goes on to name a node of the autograd graph, which is not eager's
        self.assertEqual((actual.error.__name__, actual.text), (expected.error.__name__, expected.text), f"{what}: exception")

    def assert_bitwise(self, actual, expected, what=""):
        same = actual.detach().contiguous().view(torch.uint8).equal(expected.detach().contiguous().view(torch.uint8))
        self.assertTrue(same, f"{what}: not bit for bit: {distance(actual, expected)}")

    def assert_calls(self, op, call, what="", path=None):
        """The call must take the op; with a path, that path. Returns what the call gives."""
        before = calls_of(op, path)
        value = call()
        self.assertGreater(calls_of(op, path), before, f"{what}: {op} was not called on {path or 'any path'}: {all_calls()}")
        return value

    def assert_no_calls(self, call, what=""):
        before = all_calls()
        value = call()
        self.assertEqual(all_calls(), before, f"{what}: an op of Tailor ran")
        return value


def all_calls():
    return dict(torch.ops.tailor.calls())


def calls_of(op, path=None):
    return sum(count for key, count in all_calls().items()
               if key.split("/")[0] == op and (path is None or key.split("/", 1)[1] == path))


def sites(report):
    return json.loads(report)["sites"]


class auto:
    """Doors 1 and 3 on or off for a while."""

    def __init__(self, on):
        self.on = on

    def __enter__(self):
        self.old = torch.ops.tailor.auto(self.on)

    def __exit__(self, *_):
        torch.ops.tailor.auto(self.old)


def quietly(tool, words):
    """Exit status, stdout and stderr of a tool's main, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = tool([str(word) for word in words])
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


def main():
    unittest.main(argv=[sys.argv[0], "-q", *sys.argv[1:]])
