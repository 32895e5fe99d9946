"""Modules that do, between the parts of a chain, what a graph does not show."""
import torch


@torch.jit.ignore
def write_behind_the_graph(t: torch.Tensor) -> None:
    with torch.no_grad():
        t.add_(0.5)


class Calls(torch.nn.Module):
    """Calls Python, which the graph cannot see into, between the parts of a chain."""

    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)
        self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 12))

    def forward(self, x):
        y = self.gemm(x) * self.scale
        write_behind_the_graph(self.scale)
        return self.bn(y)


def write_and_return(t: torch.Tensor) -> torch.Tensor:
    t.add_(1)
    return t


class Awaits(torch.nn.Module):
    """Waits, between the parts of a chain, for a call that is made there and no sooner."""

    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)
        self.register_buffer("scale", torch.linspace(-1, 1, 12))

    def forward(self, x):
        later = torch.jit._awaitable(write_and_return, self.scale)
        y = self.gemm(x) * self.scale
        written = torch.jit._awaitable_wait(later)
        return self.bn(y) + written


class Differentiates(torch.nn.Module):
    """Adds, between the parts of a chain, to a gradient that the chain has read."""

    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)

    def forward(self, x):
        s = torch.ones(12).requires_grad_(True)
        (s * s).sum().backward()
        scale = s.grad
        assert scale is not None
        y = self.gemm(x) * scale
        (s * 3).sum().backward()
        return self.bn(y)


class Casts(torch.nn.Module):
    """Calls a submodule, which is scripted and fused first, inside autocast."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.inner(x)
        return y
