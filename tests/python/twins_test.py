"""Ops of one rule of which torch must not make one: where some run with gradients and others without, those would be lost."""
import copy
import itertools
import json
from typing import Any

import torch
import torch.nn.functional as F

from checks import auto, main, reloaded
from models import build
from scripted import Following, is_fused, scripted

P = "self.proj.weight, self.proj.bias"
OFF = "with torch.no_grad():\n    y = {}\n    a = torch.sigmoid(y) * 1.7 + y\n"
ON = "z = {}\nb = torch.sigmoid(z) * 1.7 + z\nreturn a * 1.5, b.tanh()"
READ_AS = ["u: Optional[Tensor] = x\nif u is None:\n    v = self.buf\nelse:\n    v = u\n", "v, w = [x, x]\n", "v = {'q': x}['q']\n", "v = x.t().t()\n"]
BODIES = [
    # a loop, once it is unrolled
    OFF.format("self.proj(x)") + "h = x\nfor i in range(2):\n    z = self.proj(h)\n    h = torch.sigmoid(z) * 1.7 + z\nreturn a * 1.5, h.tanh()",
    "a = x\nwith torch.no_grad():\n    for i in range(2):\n        y = self.proj(x)\n        a = torch.sigmoid(y) * 1.7 + y\n" + ON.format("self.proj(x)"),
    "def step(self, h):\n    y = self.proj(h)\n    return torch.sigmoid(y) * 1.7 + y\ndef forward(self, x):\n    with torch.no_grad():\n"
    "        a = self.step(x)\n    for i in range(3):\n        x = self.step(x)\n    return a * 1.5, x.tanh()",
    "h = x\nwith torch.no_grad():\n    a = F.batch_norm(self.proj(x) * self.scale, self.bn.running_mean, self.bn.running_var)\nfor i in range(2):\n"
    "    h = F.batch_norm(self.proj(h) * self.scale, self.bn.running_mean, self.bn.running_var)\nreturn a * 1.5, h.tanh()",
    # values that torch takes for one
    *[how + OFF.format(f"F.linear({one}, {P})") + ON.format(f"{two} @ self.proj.weight.t() + self.proj.bias")
      for how in READ_AS for one, two in (("v", "x"), ("x", "v"))],
    # what freezing makes constants of
    OFF.format(f"F.linear(x, {P})") + ON.format("x @ self.proj.weight.t() + self.proj.bias"),
    OFF.format("torch.addmm(self.proj.bias, x, self.proj.weight.t())") + ON.format(f"F.linear(x, {P})"),
]
# what leaves another mode behind, and how many calls without gradients come first: torch makes one of the linears
OFF_IF, ON_IF = [f"if x.size(0) > 3:\n    torch.set_grad_enabled({mode})\n" for mode in (False, True)]
LEAVING = [
    ("h = x * 2.0\nz = self.proj(h)\nu = self.scale * 2.0\n" + OFF_IF + "y = F.group_norm(F.silu(self.proj(h) + u), 3)\n"
     "torch.set_grad_enabled(True)\nreturn y, h, z", 0),
    ("h = x * 2.0\nz = self.proj(h)\n" + OFF_IF + "y = self.proj(h)\ny = torch.sigmoid(y) * 1.7 + y\n"
     "torch.set_grad_enabled(True)\nreturn y, h, z", 0),
    ("y = F.batch_norm(self.proj(x) * self.scale, self.buf, self.buf.abs() + 0.1)\ntorch.set_grad_enabled(True)\n"
     "z = self.proj(x)\n" + OFF_IF + "return z, y", 2),
    ("z = x @ self.proj.weight.t() + self.proj.bias\ntorch.set_grad_enabled(False)\nu = torch.tanh(self.scale)\n" + ON_IF +
     "y = F.group_norm(F.silu(x @ self.proj.weight.t() + u), 3)\nreturn z, y", 2),
]
# of the module's own tensors alone; x scales the results
HELD = "v = self.buf.expand(7, 12)\n" + OFF.format(f"F.linear(v, {P})") + ON.format(f"F.linear(v, {P})").replace("a * 1.5, b.tanh()", "(a * x).sum() + (b * x).tanh().sum()")


def classes():
    """New ones: torch compiles a class once."""

    class Child(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.proj = torch.nn.Linear(12, 12)

        @torch.jit.export
        def first(self, x):
            y = F.linear(x, self.proj.weight, self.proj.bias)
            return torch.sigmoid(y) * 1.7 + y

        def forward(self, x):
            y = x @ self.proj.weight.t() + self.proj.bias
            return torch.sigmoid(y) * 1.7 + y

    class OfTwoMethods(torch.nn.Module):
        def __init__(self, child):
            super().__init__()
            self.child = child

        def forward(self, x):
            with torch.no_grad():
                a = self.child.first(x)
            return a * 1.5, self.child(x).tanh()

    class InALoop(OfTwoMethods):
        def forward(self, x):
            with torch.no_grad():
                a = self.child.first(x)
            for _ in range(2):
                x = self.child.first(x)
            return a * 1.5, x.tanh()

    return Child, OfTwoMethods, InALoop


def of_x(found):
    return found[0], {"x": found[1]["x"]}


@torch.jit.interface
class Switch(torch.nn.Module):
    def turn(self, n: int) -> int:
        pass


class TurnsOff(torch.nn.Module):
    def turn(self, n: int) -> int:
        torch.set_grad_enabled(False)
        return n


class TurnsOn(torch.nn.Module):
    def turn(self, n: int) -> int:
        torch.set_grad_enabled(True)
        return n


class Idle(torch.nn.Module):
    def wait(self, n: int) -> int:
        return n


@torch.jit.interface
class Waiting(torch.nn.Module):
    def wait(self, n: int) -> int:
        pass


@torch.jit.script
class autocast_of_ours:  # which is none of torch's
    def __init__(self):
        pass

    def __enter__(self):
        torch.set_grad_enabled(False)

    def __exit__(self, kind: Any, value: Any, trace: Any):
        pass


@torch.jit.script
class On:
    def __init__(self):
        pass

    def __enter__(self):
        pass

    def __exit__(self, kind: Any, value: Any, trace: Any):
        torch.set_grad_enabled(True)


@torch.jit.interface
class Turner:
    def turn(self, n: int) -> int:
        pass


@torch.jit.script
class TurnerOff:
    def __init__(self):
        pass

    def turn(self, n: int) -> int:
        torch.set_grad_enabled(False)
        return n


@torch.jit.script
class TurnerOn:
    def __init__(self):
        pass

    def turn(self, n: int) -> int:
        torch.set_grad_enabled(True)
        return n


@torch.jit.script
class Nothing:
    def __init__(self):
        pass

    def __enter__(self):
        pass

    def __exit__(self, kind: Any, value: Any, trace: Any):
        pass


def beside(part: Waiting, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = part.wait(1)
    y = F.linear(x, weight)
    return (torch.sigmoid(y) * 1.7 + y) * float(n)


def out_of_sight():
    """Whose modes are left by what is not inlined; and one that leaves none."""

    class Net(torch.nn.Module):
        off: Switch
        on: Switch
        idle: Waiting

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.off, self.on, self.idle, self.proj = TurnsOff(), TurnsOn(), Idle(), torch.nn.Linear(12, 12)

    class BehindAnInterface(Net):
        def forward(self, x):
            h = x * 2.0
            z = self.proj(h)
            if x.size(0) > 3:
                self.off.turn(1)
            y = self.proj(h)
            y = torch.sigmoid(y) * 1.7 + y
            self.on.turn(1)
            return y, h, z

    class InABlock(Net):
        def forward(self, x):
            h = x * 2.0
            z = self.proj(h)
            n = 0
            if x.size(0) > 3:
                with autocast_of_ours():
                    n = 1
            y = self.proj(h)
            y = torch.sigmoid(y) * 1.7 + y
            with On():
                n += 1
            return y, h, z

    class OneOfTwo(Net):  # a union, to torch
        def forward(self, x):
            h = x * 2.0
            z = self.proj(h)
            turner: Turner = TurnerOn()
            if x.size(0) > 3:
                turner = TurnerOff()
            turner.turn(1)
            y = self.proj(h)
            y = torch.sigmoid(y) * 1.7 + y
            self.on.turn(1)
            return y, h, z

    class LeavesNone(Net):
        def forward(self, x):
            with Nothing():
                n = self.idle.wait(1)
            y = self.proj(x * 2.0)
            return torch.sigmoid(y) * 1.7 + y, x * float(n)

    return BehindAnInterface, InABlock, OneOfTwo, LeavesNone


class TwinsTest(Following):
    def gradients(self, net):
        """Of x and of all parameters, and who of the results has one."""
        x = torch.linspace(-1, 1, 84).reshape(7, 12).requires_grad_()
        net.zero_grad()
        results = net(x)
        torch.set_grad_enabled(True)  # the script may have left it off
        results = results if isinstance(results, tuple) else (results,)
        sum(result.sum() for result in results).backward()
        return [r.requires_grad for r in results], {"x": x.grad, **{name: p.grad for name, p in net.named_parameters()}}

    def assert_gradients(self, net, wanted, what, calls=4):
        """Torch changes what runs from call to call."""
        for call in range(calls):
            has, gradients = self.gradients(net)
            self.assertEqual(has, wanted[0], (what, call))
            for name, its in wanted[1].items():
                self.assertEqual(gradients[name] is None, its is None, (what, name, call))
                if its is not None:
                    self.assert_near(gradients[name], its, (what, name, call))

    def test_one_chain_with_and_without_gradients(self):
        for body in BODIES:
            wanted = self.gradients(build(body).eval())
            model = scripted(body).eval()
            self.assertTrue(is_fused(model), body)
            before = str(model.graph)
            self.assert_gradients(copy.deepcopy(model), of_x(wanted), body)  # torch's copies have other parameters
            for net in (reloaded(model), model):
                self.assert_gradients(net, wanted, body)
            torch.ops.tailor.fuse_(model)
            self.assertEqual(str(model.graph), before, "once more nothing changes")
            torch.ops.tailor.unfuse_(model)
            self.assertNotIn("tailor::", str(model.graph))
            with auto(False):
                self.assert_gradients(model, wanted, body, calls=1)

    def test_frozen(self):
        """Then only x has gradients; a module is made fused that has run without them. Where it is not right unfused, nothing is asked."""
        asked = 0
        for body in [*BODIES, HELD]:
            wanted = of_x(self.gradients(build(body).eval().requires_grad_(False)))
            frozen = torch.jit.freeze(scripted(body, on=False).eval())
            nets = [frozen, reloaded(frozen), torch.jit.freeze(scripted(body).eval())]
            try:
                with auto(False):
                    self.assert_gradients(torch.jit.freeze(scripted(body, on=False).eval()), wanted, body)
            except (AssertionError, RuntimeError):
                continue
            asked += 1
            for net in nets:
                torch.ops.tailor.fuse_(net)
                with torch.no_grad():
                    for _ in range(3):
                        net(torch.ones(7, 12))
                self.assert_gradients(net, wanted, body)
        self.assertGreater(asked, len(BODIES) / 2)

    def test_where_another_mode_is_left(self):
        """What torch does of such a script it does of the fused one: there is nothing fused in it."""
        for body, calls in LEAVING:
            plain, net = scripted(body, on=False).eval(), scripted(body).eval()
            for each in (plain, net):
                for _ in range(calls):
                    with torch.no_grad():
                        each(torch.ones(7, 12))
                    torch.set_grad_enabled(True)
            for _ in range(3):
                self.assert_gradients(net, self.gradients(plain), body, calls=1)
            self.assertFalse(is_fused(net), body)

    def test_where_a_mode_is_left_out_of_sight(self):
        """Through an interface, and by a class whose `with` block gives nothing back: the report names it."""
        left_by = ("TurnsO(ff|n).turn", "(On|autocast_of_ours).__exit__", "TurnerO(ff|n).turn")
        for which, fused in ((0, False), (1, False), (2, False), (3, True)):
            for on, from_file in itertools.product((True, False), repeat=2):
                if which == 2 and from_file:
                    continue  # torch cannot save a call of one of several
                with auto(False):
                    plain = torch.jit.script(out_of_sight()[which]())
                with auto(on):
                    net = torch.jit.script(out_of_sight()[which]())
                if from_file:
                    plain, net = reloaded(plain), reloaded(net)
                torch.ops.tailor.fuse_(net)
                self.assertEqual(is_fused(net), fused, (which, on))
                if not fused:
                    self.assertRegex(torch.ops.tailor.inspect(net), f"may leave another mode behind, as `{left_by[which]}` does,")
                for _ in range(4):
                    with auto(False):
                        wanted = self.gradients(plain)
                    self.assert_gradients(net, wanted, (which, on), calls=1)

    def test_beside_a_call_of_nobody_knows_what(self):
        """A scripted function by itself has no classes to ask."""
        report = json.loads(torch.ops.tailor.fuse_(torch.jit.script(beside)))
        self.assertEqual([site["fused"] for site in report["sites"]], [False])
        self.assertIn("may leave another mode behind", report["sites"][0]["reason"])

    def test_called_in_two_modes(self):
        """By a parent, whether or not that is to be fused itself."""
        for which in (1, 2):
            of_eager = classes()
            wanted = self.gradients(of_eager[which](of_eager[0]()))
            for on in (True, False):
                of_scripted = classes()
                child = torch.jit.script(of_scripted[0]())
                self.assertTrue(is_fused(child))
                with auto(on):
                    net = torch.jit.script(of_scripted[which](child))
                what = f"parent {which}, auto {on}"
                self.assertEqual(is_fused(net), on, what)
                self.assert_gradients(net, wanted, what)
                torch.ops.tailor.fuse_(net)
                self.assertTrue(is_fused(net), what)
                self.assert_gradients(net, wanted, what + ", fused later")


if __name__ == "__main__":
    main()
