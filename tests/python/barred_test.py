"""Methods that fit no file, whatever they call: what is fused there, and that every report knows it."""
import json

import torch

import models
from checks import auto, main, reloaded
from looped import HELPED, Looping, Normed, Part, UNFIT, build, tensors
from scripted import is_fused, random_inputs, text_of


def summed(x: torch.Tensor):
    s = x.sum()
    for _ in range(x.size(0)):
        s = s * x.mean()
    return torch.add(x, s)


def gated(x: torch.Tensor, w: torch.Tensor):
    y = torch.nn.functional.linear(x, w)
    return torch.sigmoid(y) * 2 + y


def calls_gated(x: torch.Tensor, w: torch.Tensor, range: int):
    return gated(x, w) + summed(x).sum() * range


def in_hundredths(x: torch.Tensor) -> int:
    return int(x * 100)


class Looped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.normed = Normed()

    def forward(self, x):
        return summed(self.normed(x))


class OtherFirst(torch.nn.Module):
    """Its forward fits no file, and calls a method that is fused by itself."""

    def __init__(self):
        super().__init__()
        self.normed = Normed()

    @torch.jit.export
    def other(self, x):
        return summed(self.normed(x))

    def forward(self, x, int: int = 3):
        return self.other(x) * int + in_hundredths(x.mean())


class ByALoop(OtherFirst):
    """And a helper that has a loop, and is not."""

    def forward(self, x, int: int = 3):
        return self.other(x) * int + summed(x).sum() + in_hundredths(x.mean())


class CallsWhatIsBarred(OtherFirst):
    """Its method `one` has no chain of its own, and calls what is fused by itself until that is taken back for another module's sake."""

    def __init__(self):
        super().__init__()
        self.sub = ByALoop()

    @torch.jit.export
    def one(self, x):
        return torch.relu(self.normed(x))

    def forward(self, x, int: int = 3):
        return self.sub(x) * int + in_hundredths(x.mean())


class OneAfterAnother(OtherFirst):
    """What is taken back for the one has a loop, which the other calls, too, beside something else."""

    def __init__(self):
        super().__init__()
        self.looped, self.part = Looped(), Part()

    @torch.jit.export
    def one(self, x, int: int):
        return self.looped(x) * int + self.part(x, x.sum()) + in_hundredths(x.mean())

    def forward(self, x, int: int = 3):
        return self.looped(x) * int + summed(x).sum() + in_hundredths(x.mean())


class BarredTest(Looping):
    def test_loops_of_what_a_caller_that_fits_no_file_calls(self):
        """Others call it, too, and it stays as it is: so nothing is fused there."""
        x, body = random_inputs(3), HELPED.replace("x):", "x, range: int = 3):").replace("i < 3", "i < range")
        expected = tensors(build(body)(x))
        for door in (True, False):
            with auto(door):
                model = torch.jit.script(build(body))
            with auto(False):
                before = self.tailor.inspect(model)
                report = self.tailor.fuse_(model)
                self.assertEqual([before, self.tailor.fuse_(model), self.tailor.inspect(model)], [report] * 3)
                self.assertIn("an argument is called `range`", report)
                self.assertNotIn("tailor::", text_of(model))
                for grad in (True, False):
                    with torch.set_grad_enabled(grad):
                        self.same(torch.jit.freeze(reloaded(model)), expected, x, f"{door}, {grad}, frozen")
                        self.same(reloaded(model), expected, x, f"{door}, {grad}")

    def test_a_caller_whose_loops_are_its_own(self):
        """It calls what is fused, and its loops run ahead."""
        for door in (True, False):
            class Own(Normed):  # nobody has unfused that class
                pass

            model = models.build(UNFIT).eval()
            model.normed = Own()
            with auto(door):
                model = torch.jit.script(model)
            if not door:
                self.tailor.fuse_(model)
            self.assertTrue(is_fused(model))
            self.assertIn("tailor::ahead", str(model.graph))

    def test_what_is_taken_back_for_another_method(self):
        """Two methods that fit no file call what is fused by itself: for the sake of the one, it is taken back in the other, too."""
        first = "@torch.jit.export\ndef go(self, x, range: int):\n    z = self.normed(x)\n    for i in [1, 2]:\n        z = z * i\n    return z * range\n"
        body = HELPED.replace("def forward(self, x):", first + "def forward(self, x, range: int = 3):").replace("i < 3", "i < range")
        with auto(False):
            model = torch.jit.script(build(body))
            ways = (self.tailor.inspect, self.tailor.fuse_, self.tailor.inspect, self.tailor.fuse_)
            reports = [way(model) for way in ways]
        self.assertNotIn("tailor::", text_of(model))
        self.assertEqual([reports[0]] * 3, reports[1:])
        self.assertNotIn('"fused": true', reports[0])

    def test_what_calls_what_is_taken_back(self):
        """Whoever stands first among the methods, each way says the same, and a second time changes nothing."""
        for make in (OtherFirst, ByALoop, CallsWhatIsBarred, OneAfterAnother):
            with auto(False):
                model = torch.jit.script(make().eval())
                before = self.tailor.inspect(model)
                reports, graphs = [], []
                for _ in range(3):
                    reports += [self.tailor.fuse_(model), self.tailor.inspect(model)]
                    methods = ((part, name) for part in model.modules() for name in ("forward", "other", "one"))
                    graphs.append([str(getattr(part, name).graph) for part, name in methods if hasattr(part, name)])
            self.assertEqual([before] * 6, reports, make)
            self.assertEqual([graphs[0]] * 3, graphs, make)
            for site in json.loads(before)["sites"]:
                there = str(getattr(model, site["method"]).inlined_graph)
                self.assertEqual(site["fused"], "tailor::linear" in there, f"{make}, {site}")
            self.tailor.unfuse_(model)

    def test_a_part_that_was_fused_by_itself(self):
        """What takes its fusion back is foreseen, too."""
        with auto(False):
            model = torch.jit.script(ByALoop().eval())
            self.tailor.fuse_(model.normed)
            self.assertTrue(is_fused(model.normed))
            before = self.tailor.inspect(model)
            self.assertEqual([before] * 3, [way(model) for way in (self.tailor.fuse_, self.tailor.inspect, self.tailor.fuse_)])
            self.assertNotIn('"fused": true', before)
            self.tailor.unfuse_(model)

    def test_frozen_after_it_was_fused(self):
        """Calls were inlined by torch then: what was fused in them is the method's own, and stays."""
        body = "def part(self, x):\n    return self.bn(self.gemm(x) * self.scale)\ndef forward(self, x, bool: float = 1.5):\n    return self.part(x) * bool"
        with auto(False):
            model = torch.jit.script(models.build(body).eval())
            self.tailor.fuse_(model)
            model = torch.jit.freeze(model)
            before = self.tailor.inspect(model)
            self.assertEqual([before] * 3, [way(model) for way in (self.tailor.fuse_, self.tailor.inspect, self.tailor.fuse_)])
            self.assertIn('"fused": true', before)
            self.assertTrue(is_fused(model))

    def test_a_function_that_fits_no_file(self):
        with auto(False):
            part, caller = torch.jit.script(gated), torch.jit.script(calls_gated)
            self.tailor.fuse_(part)
            self.assertIn("tailor::", str(caller.inlined_graph))
            self.assertNotIn('"fused": true', self.tailor.fuse_(caller))
            self.assertNotIn("tailor::", str(caller.inlined_graph))


if __name__ == "__main__":
    main()
