"""Tensors of the program's that a graph holds as its own: closed over by what is traced, made constants by freezing, kept by an op of
somebody else's. Another name may write to them inside a chain."""
import copy

import torch

from checks import auto, main
from scripted import Following, is_fused

STEP = torch.arange(8.0) - 3.5
HELD = {}
LIBRARY = torch.library.Library("tailor_outside_test", "DEF")
LIBRARY.define("held(str name) -> Tensor")
LIBRARY.impl("held", lambda name: HELD[name], "CompositeImplicitAutograd")
LIBRARY.define("held_beside(Tensor other) -> Tensor")
LIBRARY.impl("held_beside", lambda other: HELD["scale"], "CompositeExplicitAutograd")


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8)
        self.register_buffer("scale", torch.ones(8))


class ViewOfABuffer(Part):
    """The buffer is an attribute of the graph, a view of it a constant."""

    def __init__(self):
        super().__init__()
        self.hidden = [self.scale.view(8)]

    def forward(self, x):
        y = self.gemm(x) * self.scale
        w = self.hidden[0].mul_(STEP)
        return self.bn(y) + w


class PartOfATensor(Part):
    """Two constants, one a part of the other."""

    def __init__(self):
        super().__init__()
        self.whole = [torch.ones(16)]
        self.half = [self.whole[0][:8]]

    def forward(self, x):
        y = self.gemm(x) * self.half[0]
        w = self.whole[0].mul_(torch.cat([STEP, STEP]))
        return self.bn(y) + w[8:]


class OneTensor(Part):
    """A constant with many readers, of which a copy of a graph had several."""

    def __init__(self):
        super().__init__()
        self.hidden = [torch.ones(8)]

    def forward(self, x):
        y = self.gemm(x) * self.hidden[0]
        z = x.sum()
        for _ in range(70):
            z = z + self.hidden[0].sum()
        w = self.hidden[0].mul_(STEP)
        return self.bn(y) + w + z


class GivenItsOwn(Part):
    """The caller hands in what freezing has made a constant."""

    def forward(self, x, u):
        y = self.gemm(torch.relu(x)) * self.scale
        u.mul_(2.0)
        return self.bn(y)


class Holds(Part):
    def forward(self, x):
        t = torch.ops.tailor_outside_test.held("scale")
        y = self.gemm(x) * self.scale
        w = t.mul_(torch.arange(8) - 3.5)
        return self.bn(y) + w


class HoldsBeside(Part):
    def forward(self, x):
        t = torch.ops.tailor_outside_test.held_beside(x.relu())
        y = self.gemm(x) * self.scale
        w = t.mul_(torch.arange(8) - 3.5)
        return self.bn(y) + w


class WritesToAConstant(Part):
    """It is none of the chain's operands."""

    def __init__(self):
        super().__init__()
        self.hidden = [torch.ones(8)]

    def forward(self, x):
        y = self.gemm(x) * self.scale
        self.hidden[0].add_(1.0)
        return self.bn(y) + self.hidden[0]


class WritesToPartOfAConstant(WritesToAConstant):
    def forward(self, x):
        y = self.gemm(x) * self.scale
        self.hidden[0][:3].add_(1.0)
        return self.bn(y) + self.hidden[0]


class WritesToACopy(WritesToAConstant):
    """Which no schema says it is."""

    def forward(self, x):
        y = self.gemm(x) * self.scale
        z = self.hidden[0].expand(7, 8).contiguous()
        z += x.sum(1, keepdim=True)
        return self.bn(y) + z


class OutsideTest(Following):
    def compare(self, make, compiled, call, reset, what):
        """Eager and fused from the same state, call after call; each has tensors of its own."""
        for training in (False, True):
            outcomes = []
            for fuses in (False, True):
                torch.manual_seed(0)
                model = make().train(training)
                reset(model)
                with auto(fuses):
                    runs = compiled(model) if fuses else model
                model.bn.reset_running_stats()
                with torch.no_grad():
                    outcomes.append([])
                    for _ in range(4):
                        reset(model)
                        outcomes[-1].append((call(runs, model).clone(), model.bn.running_var.clone()))
            for turn, (eager, fused) in enumerate(zip(*outcomes)):
                self.assert_near(fused, eager, f"{what}, {'train' if training else 'eval'}, call {turn}")

    def test_traced(self):
        for kind in (ViewOfABuffer, PartOfATensor, OneTensor):
            def reset(model):
                for tensor in (model.scale, *getattr(model, "whole", []), *getattr(model, "hidden", [])):
                    tensor.fill_(1.0)
            self.compare(kind, lambda m: torch.jit.trace(m, torch.ones(7, 5), check_trace=False),
                         lambda runs, model: runs(torch.linspace(-1, 1, 35).view(7, 5).sin()), reset, kind.__doc__)

    def test_frozen(self):
        def fused(model):
            frozen = torch.jit.freeze(torch.jit.script(model))
            torch.ops.tailor.fuse_(frozen._c)
            self.assertTrue(is_fused(frozen), torch.ops.tailor.inspect(frozen))  # the memory is looked at when it is there
            return frozen
        x = torch.linspace(-1, 1, 35).view(7, 5).sin()
        torch.manual_seed(0)
        eager = GivenItsOwn().eval()
        eager.scale.copy_(STEP)
        model = copy.deepcopy(eager)
        with auto(False):
            runs = fused(model)
        for _ in range(4):
            with torch.no_grad():
                expected, actual = eager(x, eager.scale), runs(x, model.scale)
            self.assert_near([actual], [expected], "a buffer of its own")
            self.assert_near([model.scale], [eager.scale], "what was written")

    def test_writes_to_constants_beside_a_chain(self):
        for kind in (WritesToAConstant, WritesToPartOfAConstant, WritesToACopy):
            def reset(model):
                for tensor in (model.scale, *model.hidden):
                    tensor.fill_(1.0)

            def fused(model):
                traced = torch.jit.trace(model, torch.ones(7, 5), check_trace=False)
                self.assertTrue(is_fused(traced), torch.ops.tailor.inspect(traced))  # whether memory is shared is asked when it is there
                return traced
            self.compare(kind, fused, lambda runs, model: runs(torch.linspace(-1, 1, 35).view(7, 5).sin()), reset, kind.__name__)

    def test_ops_that_hold(self):
        for kind in (Holds, HoldsBeside):
            def reset(model):
                HELD["scale"] = model.scale.fill_(1.0)
            self.compare(kind, torch.jit.script, lambda runs, model: runs(torch.linspace(-1, 1, 35).view(7, 5).sin()), reset, kind.__name__)

    def test_what_is_new_is_fused(self):
        """Writes to what the graph itself has made, beside constants."""
        class Fresh(Part):
            def forward(self, x):
                y = self.gemm(x) * self.scale
                z = torch.zeros(8)
                z.add_(1.0)
                return self.bn(y) + z
        with auto(True):
            traced = torch.jit.trace(Fresh().eval(), torch.ones(7, 5))
        self.assertTrue(is_fused(traced), torch.ops.tailor.inspect(traced))


if __name__ == "__main__":
    main()
