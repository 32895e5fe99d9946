"""Loops whose result is read beside what they read: torch's interpreter would run them in the midst of reading the arguments."""
import io

import torch

from checks import auto, calls_of, main, reloaded
from looped import HELPED, Looping, Normed, UNFIT, build, tensors
from scripted import is_fused, random_inputs, text_of

# That torch's interpreter would lose something takes that a loop reads no constant which is not read behind it, too.
TAIL = """
for i in range(n):
    z = z + z.mean()
return z"""
BODIES = {
    "a tensor": """n = x.size(0)
s = x.sum()
for i in range(n):
    s = s * x.mean()
y = F.linear(x, self.w)
z = torch.sigmoid(y) * s + y""" + TAIL,
    "a step between": """n = x.size(0)
s = x.sum()
for i in range(n):
    s = s * x.mean()
s = torch.sigmoid(s)
y = F.linear(x, self.w)
z = torch.sigmoid(y) * s + y""" + TAIL,
    "a number": """n = x.size(0)
f = 1.0
for i in range(n):
    f = f * float(x.mean())
y = F.linear(x, self.w)
z = torch.sigmoid(y) * f + y""" + TAIL,
    "a branch": """n = x.size(0)
s = x.sum()
if n > 2:
    for i in range(n):
        s = s * x.mean()
y = F.linear(x, self.w)
z = torch.sigmoid(y) * s + y""" + TAIL,
    "a fork": """def part(self, x):
    s = x.sum()
    for i in range(3):
        s = s * x.mean()
    y = F.linear(x, self.w)
    z = torch.sigmoid(y) * s + y
    for i in range(3):
        z = z * 2
    return z
def forward(self, x):
    return torch.jit.wait(torch.jit.fork(self.part, x))""",
    "a tuple beside the op's result": """def part(self, x, k: Optional[float], n: int):
    y = self.bn(self.gemm(x) * self.scale)
    t: Optional[Tuple[Tensor, Optional[float]]] = (y, k)
    for i in range(n):
        if i == 1:
            t = None
        else:
            t = (y, None)
    return y, t
def forward(self, x):
    return self.part(x, 1.0, x.size(0) - 4), self.part(x, None, 2)""",
}

# What torch merges, drops or inlines brings the loop before its reader: of those that freezing inlines, some in a caller of what was fused.
LATER = {
    "equal values": """n = x.size(0)
s, a = x.sum(), torch.sigmoid(x)
for i in range(n):
    s = s * a.mean()
y = F.linear(torch.sigmoid(x), self.w)
z = torch.sigmoid(y) * s + y""" + TAIL,
    "another reader, in a list": """n = x.size(0)
s = x.sum()
for i in range(n):
    s = s * x.mean()
both = [s, self.one]
y = F.linear(x, self.w)
z = torch.sigmoid(y) * s + y
z = z + both[1]""" + TAIL,
    "read out of a list": """n = x.size(0)
s, both = x.sum(), [x, x]
for i in range(n):
    s = s * both[0].mean()
y = F.linear(x, self.w)
z = torch.sigmoid(y) * s + y""" + TAIL,
    "another reader, in training": """n = x.size(0)
s, q = x.sum(), self.scale
for i in range(n):
    s = s * x.mean()
if self.training:
    q = s * 2
y = F.linear(x, self.w)
z = torch.sigmoid(y) * s + y
for i in range(n):
    z = z + z.mean()
return z, q""",
    "a block that is not one": """n = x.size(0)
a = torch.tanh(x)
z = x.sum()
if not self.training:
    s = x.sum()
    for i in range(n):
        s = s * a.mean()
    y = F.linear(a, self.w)
    z = torch.sigmoid(y) * s + y""" + TAIL,
    "a caller": """n = x.size(0)
s = x.sum()
for i in range(n):
    s = s * x.mean()
z = self.part(x, s)""" + TAIL,
    "a caller's own reader": """n = x.size(0)
y = self.part(x, self.one)
s = x.sum()
for i in range(n):
    s = s * y.mean()
z = torch.atan2(y, s)""" + TAIL,
    "a helper of the caller's": """def times(self, y, n: int):
    s = y.sum()
    for i in range(n):
        s = s * y.mean()
    return s
def forward(self, x):
    n = x.size(0)
    y = self.part(x, self.one)
    z = torch.atan2(y, self.times(y, n))
    for i in range(n):
        z = z + z.mean()
    return z""",
    "a helper's own reader": """def both(self, a):
    s = a.sum()
    for i in range(a.size(0)):
        s = s * a.mean() * 3
    return torch.add(a, s).sum()
def forward(self, x):
    q = self.both(torch.tanh(x))
    z = self.normed(x) + q
    for i in range(x.size(0)):
        z = (z + z.mean()) * 0.5
    return z""",
    "a caller that fits no file": UNFIT,
}

# These torch's interpreter does not get through where they are not fused, either.
TORCHS_OWN = {"a caller's own reader", "a helper of the caller's"}


class AheadTest(Looping):
    def check_every_door(self, body, name):
        """Also frozen, which inlines what is called."""
        x = random_inputs(3)
        expected = tensors(build(body)(x))
        with auto(False):
            plain = torch.jit.script(build(body))
        written = io.BytesIO()
        torch.jit.save(plain, written)
        with auto(True):
            self.same(torch.jit.script(build(body)), expected, x, f"{name}, scripted")
            self.same(torch.jit.freeze(torch.jit.script(build(body))), expected, x, f"{name}, scripted and frozen")
        fused = torch.jit.load(io.BytesIO(written.getvalue()))
        self.tailor.fuse_(fused)
        self.assertTrue(is_fused(fused), name)
        self.assertIn("tailor::ahead", str(fused.graph), name)
        text = str(fused.graph)
        self.tailor.fuse_(fused)
        self.assertEqual(str(fused.graph), text, f"{name}, fused twice")
        self.same(fused, expected, x, f"{name}, fused")
        self.same(reloaded(fused), expected, x, f"{name}, reloaded")
        with auto(False), torch.no_grad():
            self.same(reloaded(fused), expected, x, f"{name}, without gradients")
        self.same(torch.jit.freeze(fused), expected, x, f"{name}, frozen")
        with auto(True), torch.no_grad():
            self.same(torch.jit.load(io.BytesIO(written.getvalue())), expected, x, f"{name}, run")
        self.tailor.unfuse_(fused)
        self.assertNotIn("tailor::", text_of(fused), name)
        if name not in TORCHS_OWN:
            self.same(reloaded(fused), expected, x, f"{name}, unfused")

    def test_every_door(self):
        for name, body in BODIES.items():
            self.check_every_door(body, name)

    def test_what_is_before_its_reader_later(self):
        for name, body in LATER.items():
            self.check_every_door(body, name)

    def test_where_only_a_part_is_fused(self):
        body = """n = x.size(0)
q, v = torch.tanh(x[:, :1]), torch.relu(x)
for i in range(n):
    v = v + q.mean()
z = torch.atan2(q, self.part(v, self.one))""" + TAIL
        x = random_inputs(3)
        with auto(False):
            model = torch.jit.script(build(body))
            self.tailor.fuse_(model.part)
            self.assertTrue(is_fused(model.part))
            for name, each in (("fused", model), ("frozen", torch.jit.freeze(model)), ("reloaded", torch.jit.freeze(reloaded(model)))):
                self.same(each, tensors(build(body)(x)), x, name)

    def test_the_executor_sees_what_nobody_else_did(self):
        """And with auto off fuses nothing besides."""
        x, body = random_inputs(3), HELPED.replace("return z", "return z, self.bn(self.gemm(x) * self.scale)")
        with auto(False), torch.no_grad():
            model = torch.jit.script(build(body))
            self.tailor.fuse_(model.normed)
            self.assertTrue(is_fused(model.normed))
            before = calls_of("linear_mul_batch_norm")
            self.same(model, tensors(build(body)(x)), x, "a part fused")
            self.assertEqual(calls_of("linear_mul_batch_norm"), before)
            self.assertNotIn("tailor::", str(model.graph))

    def test_methods_behind_an_interface_once_they_are_inlined(self):
        """By freezing, after which only the executor sees the loop of the one beside what was fused."""
        eager, x = CallsOften().eval(), random_inputs(4)
        with auto(False), torch.no_grad():
            model = torch.jit.script(eager)
            self.tailor.fuse_(model)
            self.assertTrue(is_fused(model))
            self.assertNotIn("tailor::", str(model.inner.graph))
            self.same(torch.jit.freeze(model), tensors(eager(x)), x, "frozen")
            self.tailor.unfuse_(model)  # its classes are others', too

    def test_methods_behind_an_interface_in_a_frozen_module(self):
        eager, x = CallsOften().eval(), random_inputs(4)
        with auto(True):
            model = torch.jit.freeze(torch.jit.script(eager))
            self.assertTrue(is_fused(model))
            self.same(model, tensors(eager(x)), x, "frozen")
        with auto(False):
            self.tailor.fuse_(model)  # the order that the README recommends
            self.assertIn("tailor::ahead", str(model.graph))
            self.same(model, tensors(eager(x)), x, "frozen, and fused again")

    def test_callers_without_a_loop_stay_as_they_are(self):
        with auto(False):
            model = torch.jit.script(build("return torch.relu(self.gn(self.part(x, self.one)))"))
        text = str(model.graph)
        self.tailor.fuse_(model)
        self.assertTrue(is_fused(model))
        self.assertEqual(str(model.graph), text)

    def test_callers_of_who_knows_what_stay_as_they_are(self):
        with auto(True):
            self.assertNotIn("tailor::", str(torch.jit.script(fold_often).graph))


@torch.jit.interface
class Folds(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pass


def fold_often(inner: Folds, x: torch.Tensor):
    for _ in range(3):
        x = inner.forward(x, x)
    return x


class Threefold(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(x.size(0)):
            y = y * x.mean() * 3
        return torch.add(x, y).sum()


class CallsOften(torch.nn.Module):
    inner: Folds

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.normed, self.inner = Normed(), Threefold()

    def forward(self, x):
        a = torch.tanh(x)
        k = self.inner.forward(a, a.sum())
        z = self.normed(x)
        for _ in range(x.size(0)):
            z = (z + z.mean()) * 0.5
        return z, k


if __name__ == "__main__":
    main()
