"""Scripted and traced functions, which are no module's methods: by themselves, and where a module calls them."""
import json
import os
import subprocess
import tempfile

import torch

from checks import auto, calls_of, load, main, python
from command import COMMAND
from scripted import Following

DOORS = load()
SIG = "linear_sigmoid_mul_add"


def chain(x, w):
    y = torch.nn.functional.linear(x, w)
    return torch.sigmoid(y) * 0.5 + y


def around(x, w):
    return torch.relu(inner(x, w))


with auto(False):
    inner = torch.jit.script(chain)


def inputs():
    torch.manual_seed(1)
    return torch.randn(7, 5), torch.randn(12, 5, requires_grad=True)


def compiled(function=chain):
    """Each function anew: torch keeps what it has scripted."""
    copy = type(function)(function.__code__, function.__globals__, function.__name__)
    copy.__annotations__ = {"x": torch.Tensor, "w": torch.Tensor, "return": torch.Tensor}
    yield "scripted", torch.jit.script(copy)
    yield "traced", torch.jit.trace(copy, inputs())


class FunctionsTest(Following):
    def assert_fused(self, function, fused, what):
        self.assertEqual(f"tailor::{SIG}" in str(function.inlined_graph), fused, what)
        x, w = inputs()
        before = calls_of(SIG)
        y = function(x, w)
        y.sum().backward()
        self.assertEqual(calls_of(SIG) > before, fused, what)
        twin = inputs()[1]
        wanted = torch.relu(chain(x, twin)) if "relu" in str(function.inlined_graph) else chain(x, twin)
        wanted.sum().backward()
        self.assert_near([y.detach(), w.grad], [wanted.detach(), twin.grad], what)

    def sites(self, report, function):
        return [(site["rule"], site["method"], site["fused"]) for site in json.loads(report(function))["sites"]]

    def test_when_asked(self):
        with auto(False):
            for how, function in compiled():
                for run in range(3):  # also a function that has run, and has its plans
                    self.assert_fused(function, False, f"{how}, run {run}")
                self.assertEqual(self.sites(DOORS.inspect, function), [(SIG, "chain", True)], how)
                self.assert_fused(function, False, f"{how}, inspected")
                self.assertEqual(self.sites(DOORS.fuse_, function), [(SIG, "chain", True)], how)
                self.assert_fused(function, True, how)
                self.assertEqual(self.sites(DOORS.unfuse_, function), [(SIG, "chain", False)], how)
                self.assert_fused(function, False, f"{how}, unfused")

    def test_when_it_was_compiled(self):
        code = "import sys, torch; print(torch.jit.load(sys.argv[1])(torch.ones(2, 5), torch.ones(3, 5)).shape)"
        for how, function in compiled():
            self.assert_fused(function, True, how)
            self.assertEqual(self.sites(DOORS.unfuse_, function), [(SIG, "chain", False)], how)
            self.assert_fused(function, False, how)
            with tempfile.TemporaryDirectory() as folder:
                function.save(os.path.join(folder, "plain.pt"))
                self.assertIn("[2, 3]", python(code, os.path.join(folder, "plain.pt")))

    def test_what_a_function_calls(self):
        """Where nothing is fused in the caller itself, its graph calls the other still."""
        with auto(False):
            whole = next(compiled(around))[1]
            self.assert_fused(whole, False, "as it was compiled")
            DOORS.fuse_(inner)
            self.assert_fused(inner, True, "the one that is called")
            self.assertEqual(self.sites(DOORS.unfuse_, whole), [(SIG, "around", False)])
            self.assert_fused(inner, False, "the one that is called")
            self.assert_fused(whole, False, "the one that calls")

    def test_what_a_module_calls(self):
        """Its file holds the function too, which is none of the module's methods."""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.Parameter(inputs()[1].detach())

            def forward(self, x):
                return inner(x, self.w)

        code = "import sys, torch; print(torch.jit.load(sys.argv[1])(torch.ones(2, 5)).shape)"
        DOORS.fuse_(inner)
        model = torch.jit.script(Net())
        self.assertIn("CallFunction", str(model.graph))
        with tempfile.TemporaryDirectory() as folder:
            fused, plain, other = (os.path.join(folder, name) for name in ("fused.pt", "plain.pt", "other.pt"))
            model.save(fused)
            say = subprocess.run([COMMAND, "inspect", fused], capture_output=True, text=True, check=True).stdout
            self.assertIn("needs Tailor to be loaded", say)
            subprocess.run([COMMAND, "unfuse", fused, "-o", other], capture_output=True, check=True)
            self.assertEqual(self.sites(DOORS.unfuse_, model), [(SIG, "forward", False)])
            self.assert_fused(inner, False, "called by a module that was unfused")
            model.save(plain)
            for path in (plain, other):
                self.assertIn("[2, 12]", python(code, path))

    def test_what_is_neither(self):
        module = torch.nn.Linear(2, 2)
        for wrong in (chain, module, torch.jit.script(module).forward, torch.nn.Linear, [inner], torch.ones(2), 3, "text", None):
            for door in (DOORS.fuse_, DOORS.unfuse_, DOORS.inspect):
                with self.assertRaisesRegex(TypeError, f"{door.__name__} takes a scripted or traced module or function, got .*Call torch.jit.script first"):
                    door(wrong)


if __name__ == "__main__":
    main()
