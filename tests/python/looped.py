"""Models with loops beside what is fused: what torch's interpreter would lose there, it loses in some call after the first."""
import torch
import torch.nn.functional as F

import models
from checks import Checks

# The loop is a helper's, which reads what it read before, and what was fused is called.
HELPED = """def both(self, a):
    k = a.sum()
    for i in range(a.size(0)):
        k = k * a.mean() * 3
    return torch.add(a, k).sum()
def forward(self, x):
    q = self.both(torch.tanh(x))
    z = self.normed(x) + q
    i = 0
    while i < 3:
        z = (z + z.mean()) * 0.5
        i += 1
    return z"""

# With an argument that hides what a file says for a loop.
UNFIT = """def rooted(self, a):
    for i in range(a.size(0)):
        a = torch.tanh(a)
    return a
def forward(self, x, range: int = 3):
    a = self.rooted(x)
    s = a.sum()
    while bool(s.mean() < 30.0):
        s = s + a.abs().mean() + 3
    q = torch.add(a, s).mean()
    z = self.normed(x) + q
    while bool(z.mean() < 30.0):
        z = z + z.abs().mean() * range
    return z"""


class Part(torch.nn.Module):
    """Fused by itself, where it is called from."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(models.N, models.K) * 0.4)

    def forward(self, x, s):
        y = torch.nn.functional.linear(x, self.w)
        return torch.sigmoid(y) * s + y


class Normed(torch.nn.Module):
    """Has the constant 3 in it once it is fused: of its check, which stands for the third step."""

    def __init__(self):
        super().__init__()
        self.gemm, self.gn, self.b = torch.nn.Linear(models.K, models.N), torch.nn.GroupNorm(4, models.N), torch.nn.Parameter(torch.randn(models.N))

    def forward(self, x):
        return torch.group_norm(F.silu(self.gemm(x) + self.b), 4, self.gn.weight, self.gn.bias, 1e-5, True)


def build(body):
    model = models.build(body).eval()
    for name, part in (("part", Part), ("normed", Normed)):
        if f"self.{name}(" in body and f"def {name}" not in body:
            setattr(model, name, part())
    return model


def tensors(value):
    """All that is in tuples, but for the None that the last body puts there."""
    if not isinstance(value, tuple):
        return [value]
    return [tensor for one in value if one is not None for tensor in tensors(one)]


class Looping(Checks):
    def same(self, model, expected, x, what):
        for call in range(3):
            results = tensors(model(x))
            self.assertTrue(all(isinstance(one, torch.Tensor) for one in results), f"{what}, call {call}")
            torch.testing.assert_close(results, expected, msg=lambda text: f"{what}, call {call}: {text}")
