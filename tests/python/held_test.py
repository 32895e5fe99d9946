"""Loops whose result a fused op reads beside what they read: torch's interpreter runs them among the op's arguments."""
import io

import torch

import models
from checks import Checks, auto, main, reloaded
from scripted import is_fused, random_inputs

# That torch's interpreter would lose something takes that a loop reads no constant which is not read behind it, too.
TAIL = """
for i in range(n):
    z = z * 2
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


def tensors(value):
    """All that is in tuples, but for the None that the last body puts there."""
    if not isinstance(value, tuple):
        return [value]
    return [tensor for one in value if one is not None for tensor in tensors(one)]


class HeldTest(Checks):
    def same(self, model, expected, x, what):
        for call in range(3):
            results = tensors(model(x))
            self.assertTrue(all(isinstance(one, torch.Tensor) for one in results), f"{what}, call {call}")
            torch.testing.assert_close(results, expected, msg=lambda text: f"{what}, call {call}: {text}")

    def test_every_door(self):
        x = random_inputs(3)
        for name, body in BODIES.items():
            expected = tensors(models.build(body).eval()(x))
            with auto(False):
                plain = torch.jit.script(models.build(body).eval())
            written = io.BytesIO()
            torch.jit.save(plain, written)
            with auto(True):
                self.same(torch.jit.script(models.build(body).eval()), expected, x, f"{name}, scripted")
            fused = torch.jit.load(io.BytesIO(written.getvalue()))
            self.tailor.fuse_(fused)
            self.assertTrue(is_fused(fused), name)
            self.assertIn("tailor::held", str(fused.graph), name)
            text = str(fused.graph)
            self.tailor.fuse_(fused)
            self.assertEqual(str(fused.graph), text, f"{name}, fused twice")
            self.same(fused, expected, x, f"{name}, fused")
            self.same(reloaded(fused), expected, x, f"{name}, reloaded")
            with auto(True), torch.no_grad():
                self.same(torch.jit.load(io.BytesIO(written.getvalue())), expected, x, f"{name}, run")
            self.tailor.unfuse_(fused)
            self.assertNotIn("tailor::", str(fused.graph), name)
            self.same(reloaded(fused), expected, x, f"{name}, unfused")


class Half(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.5

    def both(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 0.5 + y


@torch.jit.interface
class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass

    def both(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pass


class CallsHalves(torch.nn.Module):
    inner: Halves

    def __init__(self):
        super().__init__()
        self.gemm, self.inner = torch.nn.Linear(5, 8), Half()

    def forward(self, x):
        y = self.gemm(x)
        z = torch.sigmoid(y) * 2.0 + y
        inner, k = self.inner, z
        for _ in range(x.size(0)):
            k = inner.forward(k)
        return z, inner.both(z, k)


class FrozenTest(Checks):
    def test_whose_method_is_called(self):
        eager, x = CallsHalves().eval(), random_inputs(4)
        with auto(False):
            model = torch.jit.script(eager)
        self.tailor.fuse_(model)
        self.assertTrue(is_fused(model))
        frozen = torch.jit.freeze(model)
        for call in range(3):
            torch.testing.assert_close(frozen(x), eager(x), msg=lambda text: f"call {call}: {text}")


if __name__ == "__main__":
    main()
