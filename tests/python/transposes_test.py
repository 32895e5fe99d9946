"""A weight's transpose that stands apart from its product: it raises where it stands, and shows what the weight was there, which the op
cannot know, so that the chain is left alone."""
import json
import pathlib
import subprocess
import tempfile

import torch

from checks import Outcome, auto, main
from command import COMMAND
from doors_test import reloaded
from models import build
from scripted import Following, is_fused, random_inputs, scripted, text_of

CHAIN = "return torch.sigmoid(y) * self.factor + y"
APART = [
    f"wt = self.w.t(); self.buf.add_(1.0); y = x @ wt; {CHAIN}",
    f"wt = self.w.T; t = x.sum(); y = torch.addmm(self.b, x, wt); {CHAIN} + t",
    f"wt = self.w.permute(1, 0); assert x.dim() == 2; y = torch.mm(x, wt).add_(self.b); {CHAIN}",
    "wt = self.w.transpose(-2, 1); t = x.relu(); y = self.b + x @ wt; return self.bn(y * self.scale) + t.sum()",
    "wt = self.w.mT; t = x.relu(); y = torch.matmul(x, wt); return self.gn(F.silu(y + self.scale)) + t.sum()",
    f"with torch.no_grad():\n    wt = self.w.t()\ny = x @ wt\n{CHAIN}",
    f"wt = self.w.t()\nwith torch.no_grad():\n    t = x.relu() @ wt\ny = x @ wt + t\n{CHAIN}",
    f"v = self.w.clone(); wt = v.t(); v.t_(); y = x @ wt; {CHAIN}",
    f"v = self.w.clone(); wt = v.t(); v.unsqueeze_(0); y = x @ wt; {CHAIN}",
    f"v = self.w.detach().clone(); wt = v.t(); v.set_(self.gemm.weight.detach()); y = x @ wt; {CHAIN}",
    f"v = self.w * 1.0; wt = v.t(); v.detach_(); y = torch.addmm(self.b, x, wt); {CHAIN}",
    f"v = self.w.clone(); wt = v.t(); v.mul_(0.5); y = x @ wt; {CHAIN}",
    "wt = self.proj.weight.t(); y = self.gemm(x)\nfor i in range(2):\n    z = y @ wt\n    y = torch.sigmoid(z) * self.factor + z\nreturn y",
    f"wt = self.w.t()\nif x.size(0) > 3:\n    y = x @ wt; {CHAIN}\nreturn self.gemm(x)".replace("; return", "\n    return"),
    "wt = self.w.t(); y = x @ wt; a = self.bn(y * self.scale); z = x @ wt + self.b; return a + torch.sigmoid(z) * self.factor + z + wt.sum()",
    f"wt = self.w.t(); y = torch.add(x @ wt, self.b); k = wt.sum(); {CHAIN} + k",
    "def part(self, wt, x):\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y\ndef forward(self, x):\n    return self.part(self.w.t(), x.relu())",
]

REFUSED = [
    # body, shape of the weight that is its argument
    ("def forward(self, x, w, go: bool):\n    wt = w.t()\n    if go:\n        y = x @ wt\n        x = torch.sigmoid(y) * self.factor + y\n    return x", (3, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    wt = w.t(); self.buf.add_(1); y = x @ wt\n    return torch.sigmoid(y) * self.factor + y".replace("; ", "\n    "), (3, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    wt = w.mT\n    assert go, 'go'\n    y = torch.matmul(x, wt)\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    ("def forward(self, x, w, go: bool):\n    wt = w.transpose(0, 1)\n    for i in range(int(go)):\n        y = x @ wt\n        x = torch.sigmoid(y) * self.factor + y\n    return x", (5,)),
    ("def forward(self, x, w, go: bool):\n    wt = w.permute(1, 0)\n    if go:\n        y = torch.addmm(self.b, x, wt)\n        x = torch.sigmoid(y) * self.factor + y\n    return x", (2, 12, 5)),
    # these are no transposes of matrices, and refused by nobody
    ("def forward(self, x, w, go: bool):\n    wt = w.t()\n    self.buf.add_(1)\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    ("def forward(self, x, w, go: bool):\n    wt = w.mT\n    self.buf.add_(1)\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y", (3, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    wt = w.transpose(1, -2)\n    self.buf.add_(1)\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y", (3, 5, 12)),
]


class TransposesTest(Following):
    def test_apart(self):
        """Fused, unfused, and from files of both."""
        for body in APART:
            for through in (lambda m: m, reloaded):
                model = through(scripted(body))
                self.assertEqual(str(model.inlined_graph).count("aten::numpy_T"), body.count(".T"), body)
                self.follow(model, build(body), body, calls=2, modes=(True, False))

    def test_apart_unfuses_bit_for_bit(self):
        for body in APART:
            for through in (lambda m: m, reloaded):
                model, plain = through(scripted(body)), through(scripted(body, on=False))
                torch.ops.tailor.unfuse_(model)
                self.assertNotIn("tailor::", text_of(model), body)
                self.assertEqual(text_of(model).count("aten::numpy_T"), text_of(plain).count("aten::numpy_T"), body)
                for gradients in (True, False):
                    x = random_inputs(3)
                    with auto(False), torch.jit.optimized_execution(False):
                        mine, theirs = (self.one_call(each, x, gradients) for each in (model, plain))
                    for a, b in zip([*mine[0], *mine[1].values()], [*theirs[0], *theirs[1].values()], strict=True):
                        self.assertEqual(a is None, b is None, body)
                        if a is not None:
                            self.assert_bitwise(a.detach(), b.detach(), body)
                    self.assert_state(model, plain, body)

    def test_a_second_time(self):
        for body in APART:
            model = scripted(body)
            fused = str(model.graph)
            torch.ops.tailor.fuse_(model)
            self.assertEqual(str(model.graph), fused, body)
            reasons = [site["reason"] for site in json.loads(torch.ops.tailor.inspect(model))["sites"]]
            self.assertTrue(any("the weight's transpose, stands apart" in reason for reason in reasons), (body, reasons))

    def test_frozen(self):
        for body in APART:
            if "buf" in body or "set_" in body:  # torch freezes no module that writes to what it holds
                continue
            eager = build(body).eval()
            for model in (torch.jit.freeze(scripted(body).eval()), torch.jit.freeze(scripted(body, on=False).eval())):
                torch.ops.tailor.fuse_(model)
                x = random_inputs(5)
                self.assert_near([model(x).detach()], [eager(x).detach()], body)

    def test_what_transposes_refuse(self):
        """Where it stands, before whatever else happens, and whether the product runs or not."""
        for body, shape in REFUSED:
            for go in (False, True):
                for through in (lambda m: m, reloaded):
                    fused, plain = through(scripted(body)), through(scripted(body, on=False))
                    unfused = reloaded(fused)
                    torch.ops.tailor.unfuse_(unfused)
                    x, w = random_inputs(1), torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)
                    for name, model in (("fused", fused), ("unfused", unfused)):
                        what = f"{name}, {body}, weight {shape}, {go}"
                        with auto(False), torch.jit.optimized_execution(False):
                            twin = reloaded(plain)
                            mine, theirs = Outcome(lambda: model(x, w, go)), Outcome(lambda: twin(x, w, go))
                        self.assertEqual((mine.error, mine.text), (theirs.error, theirs.text), what)
                        if theirs.error is None:
                            self.assert_near([mine.value.detach()], [theirs.value.detach()], what)
                        self.assert_state(model, twin, what)

    def test_the_command_takes_them(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder, "model.pt"), pathlib.Path(folder, "fused.pt")
            for body in APART:
                scripted(body, on=False).save(str(source))
                done = subprocess.run([COMMAND, "fuse", source, "-o", target, "--report", pathlib.Path(folder, "report.json")], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), body)


    def test_two_products_of_one_in_two_modes(self):
        """torch makes one of two equal nodes, also across no_grad: none may be put between a transpose and its products."""
        body = "wt = self.w.t()\nwith torch.no_grad():\n    y = x @ wt\n    a = torch.sigmoid(y) * self.factor + y\nz = x.relu() @ wt\nreturn a + (torch.sigmoid(z) * 0.3 + z)"
        self.follow(scripted(body), build(body), body)


class PlansTest(Following):
    def test_what_has_run_forgets_a_fused_child(self):
        """Whatever the order in which they are unfused: a plan holds what the callees were when it was made."""
        for turn in range(12):  # the order is that of addresses
            with auto(False), torch.set_grad_enabled(turn % 2 == 0):
                model, x = torch.jit.script(self.family()), random_inputs(turn)
                torch.ops.tailor.fuse_(model.middle.child)
                self.assert_calls("linear_mul_batch_norm", lambda: model(x))
                torch.ops.tailor.unfuse_(model)
                self.assertNotIn("tailor::", str(model.inlined_graph))
                self.assert_no_calls(lambda: model(x), "unfused")

    @staticmethod
    def family():
        """Of new classes: TorchScript shares graphs by class."""
        class Child(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.bn, self.scale = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12), torch.nn.Parameter(torch.randn(12))

            def forward(self, x):
                return self.bn(self.gemm(x) * self.scale)

        class Middle(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.child = Child()

            def forward(self, x):
                return self.child(x) + 1

        class Parent(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.middle = Middle()

            def forward(self, x):
                return self.middle(x) * 2

        return Parent()


if __name__ == "__main__":
    main()
