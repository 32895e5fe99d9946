"""Fused modules under autocast: around the call, while they are fused, and in the script itself."""
import copy

import torch

from checks import auto, main
from models import SIX, build
from scripted import Following, is_fused, random_inputs, scripted


class AutocastTest(Following):
    def test_autocast(self):
        for row in SIX:
            fused, eager = scripted(row.body), build(row.body)
            for training in (True, False):
                fused.train(training), eager.train(training)
                for _ in range(3):
                    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                        actual, expected = fused(random_inputs(1)), eager(random_inputs(1))
                    self.assertEqual(actual.dtype, expected.dtype, f"{row.body} under autocast")
                    self.assert_same(actual.float(), expected.float(), f"{row.body} under autocast", (0.15, 0.08))

    def test_fused_inside_autocast(self):
        """What is on while a module is fused is not written into it: torch's own inlining would, of what the module calls."""
        body = "def part(self, x):\n    return torch.sigmoid(self.gemm(x)) * self.factor\ndef forward(self, x):\n    y = self.gemm(x); return self.bn(y * self.scale) + self.part(x)"
        with torch.autocast("cpu", torch.bfloat16):
            fused = scripted(body)
            later = scripted(body, on=False)
            torch.ops.tailor.fuse_(later)
        for model in (fused, later):
            self.assertTrue(is_fused(model))
            self.assertNotIn("autocast", str(model.graph))
            self.follow(model, build(body), "fused inside autocast")

    def test_autocast_to_another_dtype(self):
        """Than the one that is a device's own: torch writes it into the plan, which has to be made anew where that is known."""
        in_place = "x = self.gemm(x); x *= self.scale; return self.bn(x)"  # the author's own spelling stands there, too
        for body in (*(row.body for row in SIX), in_place):
            model, eager, x = scripted(body, on=False), build(body), random_inputs(1)

            def gradient(net):
                net.zero_grad()
                with torch.autocast("cpu", torch.float16):
                    y = net(x)
                y.float().square().sum().backward()
                return y.dtype, net.gemm.weight.grad

            for _ in range(3):
                with auto(False):
                    gradient(model)
            torch.ops.tailor.fuse_(model)
            wanted = gradient(eager)
            for call in range(3):
                dtype, found = gradient(model)
                self.assertEqual(dtype, wanted[0], f"{body}, call {call}")
                self.assert_near([found], [wanted[1]], f"{body}, call {call}", loose=2000)  # of 16 bits

    def test_a_method_that_is_called_inside_autocast(self):
        """By another method of its module: what it is fused to has to be known by then."""
        class Casts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm = torch.nn.Linear(64, 64)

            def gate(self, x):
                y = self.gemm(x)
                return torch.sigmoid(y) * 2.0 + y

            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    y = self.gate(x)
                return y

        torch.manual_seed(0)
        net, x = Casts(), torch.randn(8, 64)
        with auto(False):
            plain = torch.jit.script(copy.deepcopy(net))(x)
        for on in (True, False):
            class Again(Casts):  # graphs belong to the class
                pass
            net.__class__ = Again
            with auto(on):
                model = torch.jit.script(copy.deepcopy(net))
            for _ in range(2):
                torch.ops.tailor.fuse_(model)
                self.assert_no_calls(lambda: self.assertTrue(torch.equal(model(x), plain)), f"inside autocast, {on}")

    def test_beside_a_method_that_is_called_inside_autocast(self):
        """That one's op is taken out, and another one stays: fusing once more changes not even names."""
        class Part(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm = torch.nn.Linear(5, 12)

            def forward(self, x):
                y = self.gemm(x)
                return torch.sigmoid(y) * 2.0 + y

        class Beside(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.part, self.gemm, self.bn = Part(), torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)
                self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 12))

            def forward(self, x):
                y = self.bn(self.gemm(x) * self.scale)
                with torch.autocast("cpu", torch.bfloat16):
                    z = self.part(x)
                return y + z

        model = torch.jit.script(Beside())
        graphs = []
        for _ in range(2):
            torch.ops.tailor.fuse_(model)
            graphs.append(str(model.graph))
        self.assertIn("tailor::linear_mul_batch_norm", graphs[0])
        self.assertNotIn("tailor::linear_sigmoid_mul_add", graphs[0])
        self.assertEqual(*graphs)


if __name__ == "__main__":
    main()
