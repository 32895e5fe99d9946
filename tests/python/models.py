"""Models as users write them: one net whose parts a forward body combines, and the table of bodies with what becomes of each."""
import copy
import itertools
import linecache
from typing import Dict, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn as nn
import torch.nn.functional as F

B, K, N, G = 7, 5, 12, 3
counter = itertools.count()


class Net(nn.Module):
    """Every part that a body may name, with random statistics and affine parameters."""

    def __init__(self, k=K, n=N, g=G):
        super().__init__()
        self.gemm, self.gemm2, self.proj = nn.Linear(k, n), nn.Linear(k, n), nn.Linear(n, n)
        self.bare = nn.Linear(k, n, bias=False)
        self.w, self.b = nn.Parameter(torch.randn(n, k) * 0.4), nn.Parameter(torch.randn(n))
        self.scale, self.one = nn.Parameter(torch.randn(n)), nn.Parameter(torch.randn(1))
        self.register_buffer("buf", torch.randn(n))
        self.bn, self.gn, self.ln = nn.BatchNorm1d(n), nn.GroupNorm(g, n), nn.LayerNorm(n)
        self.bn_bare = nn.BatchNorm1d(n, affine=False)
        self.bn_cumulative = nn.BatchNorm1d(n, momentum=None)
        self.bn_stateless = nn.BatchNorm1d(n, track_running_stats=False)
        self.gn_bare = nn.GroupNorm(g, n, affine=False)
        self.silu, self.sigmoid = nn.SiLU(), nn.Sigmoid()
        self.factor, self.divisor, self.two = 1.7, -0.6, 2
        randomise(self)


class Pair(NamedTuple):
    y: torch.Tensor
    x: torch.Tensor


def randomise(module):
    with torch.no_grad():
        for norm in module.modules():
            if getattr(norm, "running_mean", None) is not None:
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
            if isinstance(norm, (nn.BatchNorm1d, nn.GroupNorm)) and norm.weight is not None:
                norm.weight.uniform_(0.5, 2)
                norm.bias.normal_()
    return module


def source_of(body):
    """A class around the body, in a file of its own that inspect and TorchScript can read, so that it is compiled anew."""
    name = f"net{next(counter)}.py"
    lines = [line for line in body.strip("\n").split("\n")]
    if not lines[0].lstrip().startswith("def "):
        lines = ["def forward(self, x):", *["    " + line for part in lines for line in part.split("; ")]]
    text = "class Written(Net):\n" + "\n".join("    " + line for line in lines) + "\n"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    return name, text


def build(body, seed=0, **sizes):
    """A net with this forward. Each call makes a new class: TorchScript shares graphs by class."""
    name, text = source_of(body)
    space = {"Net": Net, "torch": torch, "F": F, "nn": nn, "__name__": __name__, "Tensor": torch.Tensor, "Pair": Pair, "Optional": Optional, "Union": Union,
             "Dict": Dict, "List": list, "Tuple": Tuple}
    exec(compile(text, name, "exec"), space)
    torch.manual_seed(seed)
    return space["Written"](**sizes)


class Twice(nn.Module):
    """Each of these in one another doubles what calls are inlined to."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(self.inner(x))


def doubled(times):
    net = nn.ReLU()
    for _ in range(times):
        net = Twice(net)
    return net


def function_of(source):
    """A free function from its source."""
    name = f"function{next(counter)}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"torch": torch, "F": F, "Tensor": torch.Tensor, "Optional": Optional, "__name__": __name__}
    exec(compile(source, name, "exec"), space)
    return space[source.split("(")[0].split()[-1]]


def twin(model):
    """A copy with parameters of its own."""
    return copy.deepcopy(model)


class Row(NamedTuple):
    body: str
    rule: Optional[str]  # what it becomes; None: it must stay; "either": both are right
    reason: str = ""     # a pattern that the reason must match
    sites: int = 1       # how many of its linears are fused
    no_gradient: bool = False  # eager refuses in backward, because the body overwrites what that needs


BN, SIG, ADD, SWISH, DIV, GN = ("linear_mul_batch_norm", "linear_sigmoid_mul_add", "linear_add_swish_group_norm",
                                "linear_swish_add_group_norm", "linear_batch_norm_add_div_swish",
                                "linear_group_norm_swish_mul_swish")

SPELLINGS = [
    # batch_norm(y * scale)
    Row("x = self.gemm(x); x = x * self.scale; return self.bn(x)", BN),
    Row("return self.bn(self.scale * self.gemm(x))", BN),
    Row("return self.bn(torch.mul(self.gemm(x), self.scale))", BN),
    Row("y = self.gemm(x); y = y.mul(self.scale); return self.bn(y).relu()", BN),
    Row("y = F.linear(x, self.w, self.b); return self.bn(y * self.scale)", BN),
    Row("y = F.linear(x, self.w); return self.bn(y * self.scale)", BN),
    Row("y = self.bare(x); return self.bn(y * self.scale)", BN),
    Row("y = x @ self.w.t() + self.b; return self.bn(y * self.scale)", BN),
    Row("y = self.bare(x) + self.b; return self.bn(y * self.scale)", BN),
    Row("y = self.b + F.linear(x, self.w); return self.bn(y * self.scale)", BN),
    Row("y = F.linear(x, self.w); y += self.b; return self.bn(y * self.scale)", BN),
    Row("y = self.b + x @ self.w.t(); return self.bn(y * self.scale)", BN),
    Row("y = torch.matmul(x, self.w.t()) + self.b; return self.bn(y * self.scale)", BN),
    Row("y = torch.addmm(self.b, x, self.w.t()); return self.bn(y * self.scale)", BN),
    Row("y = x @ self.w.transpose(-2, 1); return self.bn(y * self.scale)", BN),
    Row("y = torch.addmm(self.b, x, self.w.transpose(0, -1)); return self.bn(y * self.scale)", BN),
    Row("y = self.gemm(x); y = F.batch_norm(y * self.scale, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias, self.training, 0.2, 1e-3); return y", BN),
    Row("return F.batch_norm(self.gemm(x) * self.scale, self.bn.running_mean, self.bn.running_var)", BN),
    Row("return torch.batch_norm(self.gemm(x) * self.scale, None, None, None, None, True, 0.1, 1e-5, False)", BN),
    Row("y = self.gemm(x); y.mul_(self.scale); return self.bn(y)", BN),
    Row("y = self.gemm(x); y *= self.scale; return self.bn(y)", BN),
    Row("return self.bn_bare(self.gemm(x) * self.scale)", BN),
    Row("return self.bn_cumulative(self.gemm(x) * self.scale)", BN),
    Row("return self.bn_stateless(self.gemm(x) * self.scale)", BN),
    Row("y = self.gemm(x) * (self.scale + 1); return self.bn(y)", BN),
    Row("y = self.gemm(x); s = torch.exp(self.scale); return self.bn(y * s)", BN),
    Row("return self.bn(self.gemm(x) * self.scale.unsqueeze(0))", BN),
    Row("return self.bn(self.gemm(x) * self.one)", BN),
    Row("y = self.gemm(x); n = y.size(0); return self.bn(y * self.scale) / n", BN),
    Row("y = self.gemm(x); z = y * self.scale; n = y.dim() + z.shape[1]; return self.bn(z) * n", BN),
    Row("x = self.gemm(x); x = self.bn(x * self.scale); return self.bn_bare(self.proj(x) * self.buf)", BN, sites=2),
    Row("for i in range(2):\n    x = self.bn(self.proj(self.gemm(x)[:, :12]) * self.scale)[:, :5]\nreturn x", BN),
    Row("if x.size(0) > 3:\n    return self.bn(self.gemm(x) * self.scale)\nelse:\n    return self.bn(self.gemm2(x) * self.scale)", BN, sites=2),
    Row("a = self.bn(self.gemm(x) * self.scale); b = self.bn(self.gemm(x) * self.scale); return a + b", BN, sites=2),
    Row("y = self.gemm(x); assert y.dim() == 2; return self.bn(y * self.scale)", BN),
    Row("def helper(self, y):\n    return self.bn(y * self.scale)\ndef forward(self, x):\n    return self.helper(self.gemm(x))", BN),
    Row("def forward(self, x, s: Optional[Tensor] = None):\n    if s is None:\n        s = self.scale\n    return self.bn(self.gemm(x) * s)", BN),
    Row("def part(self, x):\n    return self.gemm(x), x\ndef forward(self, x):\n    t = self.part(x); return self.bn(t[0] * self.scale) + t[-1].sum()", BN),
    Row("def part(self, x):\n    return Pair(self.gemm(x), x)\ndef forward(self, x):\n    p = self.part(x); return self.bn(p.y * self.scale) + p.x.sum()", BN),
    Row("t = (self.gemm(x), x); y, z = t; return self.bn(y * self.scale) + t[1].sum() + z.sum()", BN),
    # sigmoid(y) * factor + y
    Row("x = self.gemm(x); r = x; x = torch.sigmoid(x); x = x * self.factor; return x + r", SIG),
    Row("y = self.gemm(x); return y + y.sigmoid() * self.factor", SIG),
    Row("y = self.gemm(x); return self.factor * self.sigmoid(y) + y", SIG),
    Row("y = self.gemm(x); return torch.add(torch.sigmoid(y) * 2.0, y)", SIG),
    Row("y = self.gemm(x); return torch.add(y, torch.sigmoid(y) * self.two, alpha=1)", SIG),
    Row("y = self.gemm(x); return torch.sigmoid(y).mul_(self.factor).add_(y)", SIG, no_gradient=True),
    Row("y = self.gemm(x); s = torch.sigmoid(y); s *= self.factor; s += y; return s", SIG, no_gradient=True),
    Row("y = x @ self.w.t() + self.b; return torch.sigmoid(y) * self.factor + y", SIG),
    Row("y = self.bare(x) + self.b; return torch.sigmoid(y) * self.factor + y", SIG),
    Row("y = x @ self.w.t(); return torch.sigmoid(y) * self.factor + y", SIG),
    # group_norm(swish(y + addend))
    Row("x = self.gemm(x) + self.scale; x = torch.sigmoid(x) * x; return self.gn(x)", ADD),
    Row("x = self.scale + self.gemm(x); return self.gn(x * torch.sigmoid(x))", ADD),
    Row("return self.gn(F.silu(self.gemm(x) + self.scale))", ADD),
    Row("return self.gn(self.silu(torch.add(self.gemm(x), self.scale)))", ADD),
    Row("y = self.gemm(x); y += self.scale; return self.gn(F.silu(y, inplace=True))", ADD),
    Row("y = F.silu(self.gemm(x) + self.scale); return F.group_norm(y, 4, None, None, 1e-3)", ADD),
    Row("return self.gn_bare(self.silu(self.gemm(x) + self.scale))", ADD),
    Row("return F.group_norm(F.silu(F.linear(x, self.w, self.b) + self.buf), 3, self.gn.weight, self.gn.bias)", ADD),
    # group_norm(swish(y) + addend)
    Row("x = self.gemm(x); x = torch.sigmoid(x) * x; x = x + self.scale; return self.gn(x)", SWISH),
    Row("x = self.gemm(x); return self.gn(self.scale + x * x.sigmoid())", SWISH),
    Row("return self.gn(F.silu(self.gemm(x)) + self.scale)", SWISH),
    Row("return self.gn(F.silu(self.gemm(x)).add_(self.scale))", SWISH),
    # swish((batch_norm(y) + addend) / divisor)
    Row("x = self.bn(self.gemm(x)); x = x + self.one; x = x / self.divisor; return x * torch.sigmoid(x)", DIV),
    Row("x = (self.one + self.bn(self.gemm(x))) / self.divisor; return torch.sigmoid(x) * x", DIV),
    Row("return F.silu(torch.div(self.bn(self.gemm(x)) + self.scale, 2))", DIV),
    Row("x = self.bn(self.gemm(x)); x += self.one; x /= self.divisor; return self.silu(x)", DIV),
    Row("return F.silu(torch.div(self.bn(self.gemm(x)) + self.one, self.divisor, rounding_mode=None))", DIV),
    Row("x = self.bn(self.gemm(x)) + self.one; x.div_(self.divisor, rounding_mode=None); return F.silu(x)", DIV),
    Row("return F.silu((self.bn_stateless(self.bare(x)) + self.one) / self.divisor)", DIV),
    # swish(swish(group_norm(y)) * scale)
    Row("x = self.gn(self.gemm(x)); x = x * torch.sigmoid(x); x = x * self.scale; return x * torch.sigmoid(x)", GN),
    Row("return F.silu(self.scale * F.silu(self.gn(self.gemm(x))))", GN),
    Row("x = F.silu(self.gn(self.gemm(x))) * self.scale; return torch.sigmoid(x) * x", GN),
    Row("x = F.silu(self.gn_bare(self.gemm(x)), inplace=True); x.mul_(self.scale); return F.silu(x, inplace=True)", GN),
]

# A spelling of each rule.
SIX = [next(row for row in SPELLINGS if row.rule == rule) for rule in dict.fromkeys(row.rule for row in SPELLINGS)]

NEAR_MISSES = [
    Row("t = (self.gemm(x), x); return self.bn(t[0] * self.scale) + t[0].sum()", None, "read"),
    Row("return self.bn(self.gemm(x) * 2.0)", None, "number|scalar"),
    Row("return self.bn(self.gemm(x) * self.factor)", None, "number|scalar"),
    Row("return self.gn(F.silu(self.gemm(x) + 1.0))", None, "number|scalar"),
    Row("y = self.gemm(x); return self.bn(y * self.scale), y", None, "read|return|output|use"),
    Row("y = self.gemm(x); z = y * self.scale; return self.bn(z), z", None, "read|return|output|use"),
    Row("y = self.gemm(x); return self.bn(y * self.scale) + y.sum()", None, "read|sum|use"),
    Row("y = self.gemm(x); s = torch.sigmoid(y); return s * self.factor + y + s", None, "read|use"),
    Row("y = self.gemm(x) + self.scale; s = torch.sigmoid(y); return self.gn(y * s), s", None, "returned"),
    Row("y = self.gemm(x); s = torch.sigmoid(y); return self.gn(y * s + self.scale), s", None, "returned"),
    Row("y = (self.bn(self.gemm(x)) + self.one) / self.divisor; s = torch.sigmoid(y); return y * s, s", None, "returned"),
    Row("y = self.gn(self.gemm(x)); s = torch.sigmoid(y); return F.silu(y * s * self.scale), s", None, "returned"),
    Row("y = F.silu(self.gn(self.gemm(x))) * self.scale; s = torch.sigmoid(y); return y * s, s", None, "returned"),
    Row("y = self.gemm(x); l = [y]; return self.bn(y * self.scale) + l[0]", None),
    Row("y = self.gemm(x); self.buf = y; return self.bn(y * self.scale)", None),
    Row("y = self.gemm(x); return torch.add(torch.sigmoid(y) * self.factor, y, alpha=2)", None, "alpha"),
    Row("return self.gn(F.silu(torch.add(self.gemm(x), self.scale, alpha=3)))", None, "alpha"),
    Row("y = self.gemm(x); return torch.sigmoid(y) * self.factor - y", None),
    Row("y = self.gemm(x); return torch.sigmoid(self.gemm2(x)) * self.factor + y", None, "reads"),
    Row("y = self.gemm(x); return torch.sigmoid(y) * self.factor + self.gemm2(x)", None, "another|read|add"),
    Row("y = self.gemm(x); return torch.sigmoid(y) * y + y", None),
    Row("y = self.gemm(x); return torch.sigmoid(y) * self.factor * y", None),
    Row("y = self.gemm(x); return torch.tanh(y) * self.factor + y", None),
    Row("x = self.bn(self.gemm(x)) + self.one; x = torch.div(x, self.divisor, rounding_mode='floor'); return F.silu(x)", None, "round|div"),
    Row("x = self.divisor / (self.bn(self.gemm(x)) + self.one); return F.silu(x)", None),
    Row("x = (self.bn(self.gemm(x)) + self.one) / self.divisor; return torch.sigmoid(x)", None),
    Row("x = (self.bn(self.gemm(x)) - self.one) / self.divisor; return F.silu(x)", None),
    Row("return self.gn(F.silu(self.scale - self.gemm(x)))", None),
    Row("return self.ln(F.silu(self.gemm(x) + self.scale))", None, "layer_norm|group_norm"),
    Row("y = self.gemm(x) + self.scale; return self.gn(F.relu(y))", None),
    Row("y = self.gemm(x) + self.scale; return self.gn(F.gelu(y))", None),
    Row("y = self.gemm(x); t = y + self.scale; return self.gn(torch.sigmoid(y) * t)", None),
    Row("y = self.gemm(x); z = self.gemm2(x); return self.gn(torch.sigmoid(z) * y + self.scale)", None),
    Row("y = self.gemm(x); return self.gn(y * y + self.scale)", None),
    Row("x = F.silu(self.gn(self.gemm(x))); return x * self.scale", None),
    Row("x = self.gn(self.gemm(x)) * self.scale; return F.silu(x)", None),
    Row("return self.bn(self.gemm(x))", None),
    Row("return self.gemm(x)", None),
    Row("y = self.gemm(x); v = y.view(-1); v.add_(1); return self.bn(y * self.scale)", None),
    Row("y = self.gemm(x); z = y * self.scale; z[:, 0] = 1.0; return self.bn(z)", None),
    Row("y = self.gemm(x); y.relu_(); return self.bn(y * self.scale)", None),
    Row("x = x.clone(); y = self.gemm(x); x.add_(1); return self.bn(y * self.scale) + x.sum()", None, "writ|in.place|chang|add_"),
    Row("s = self.buf.clone(); z = self.gemm(x) * s; s.add_(1); return self.bn(z) + s", None, "writ|in.place|chang|add_"),
    Row("z = self.gemm(x) * self.buf; self.buf.add_(1); return self.bn(z)", None, "writ|in.place|chang|add_"),
    Row("z = self.gemm(x) * self.bn.num_batches_tracked; return self.bn(z)", None),
    Row("y = self.gemm(x)\nif x.size(0) > 3:\n    y = y * self.scale\nreturn self.bn(y)", None),
    Row("y = self.gemm(x)\nfor i in range(2):\n    y = y * self.scale\nreturn self.bn(y)", None),
    Row("return self.bn((self.gemm(x) * self.scale).detach())", None),
    Row("return self.bn(self.gemm(x).double().float() * self.scale)", None),
    Row("return self.bn(F.dropout(self.gemm(x), 0.0) * self.scale)", None),
    Row("return F.instance_norm((self.gemm(x) * self.scale).unsqueeze(0)).squeeze(0)", None),
    Row("y = torch.add(x @ self.w.t(), self.b, alpha=2); return self.bn(y * self.scale)", None, "alpha|"),
    Row("y = self.gemm(x); y = y.view(y.size(0), y.size(1)); return self.bn(y * self.scale)", None),
]

# Writes that are harmless or not seen from the graph: fused or not, the values are eager's.
EITHER = [
    Row("y = torch.addmm(self.b, x, self.w.t(), beta=2.0); return self.bn(y * self.scale)", "either"),
    Row("y = self.gemm(x); self.buf.add_(1); return self.bn(y * self.buf)", "either"),
    Row("y = self.gemm(x) * self.scale; self.bn.running_mean.add_(1); return self.bn(y)", "either"),
    Row("y = self.bn(self.gemm(x) * self.buf); self.buf.mul_(0.9); return y", "either"),
    Row("y = self.gemm(x); self.bn.running_var.mul_(1.1); z = self.bn(y * self.bn.running_var); return z", "either"),
    Row("z = self.gemm(x) * self.bn.running_mean; return self.bn(z)", "either"),
    Row("x = x.clone(); y = self.bn(self.gemm(x) * self.scale); x.add_(y.sum()); return x", "either"),
    Row("y = torch.jit.fork(self.gemm, x); z = torch.jit.wait(y) * self.scale; return self.bn(z)", "either"),
    Row("def part(self, x):\n    return self.bn(self.gemm(x) * self.scale)\ndef forward(self, x):\n    return torch.jit.wait(torch.jit.fork(self.part, x))", "either"),
    Row("y = x @ self.w.t() + self.b + self.scale; return self.gn(F.silu(y))", "either"),
    Row("y = self.bn(torch.mul(self.gemm(x), self.scale)); return y.relu_()", "either"),
    Row("y = torch.dropout(self.gemm(x), 0.0, False); return self.bn(y * self.scale)", "either"),
    Row("y = self.gemm(x); z = y; z.mul_(self.scale); return self.bn(y)", "either"),
    Row("y = self.gemm(x); y.add_(self.scale); return self.gn(F.silu(y)), y", "either"),
    Row("s = self.buf; s += 1; y = self.gemm(x) * self.buf; return self.bn(y)", "either"),
    Row("s = [self.scale]; return self.bn(self.gemm(x) * s[0])", "either"),
    Row("try_ = self.gemm(x)\nwhile bool(try_.sum() > 1e9):\n    try_ = try_ * 2\nreturn self.bn(try_ * self.scale)", "either"),
    Row("y = self.gemm(x).float(); return self.bn(y * self.scale)", "either"),
    Row("x = self.bn(self.gemm(x)) + self.one; x = torch.div(x, self.divisor, rounding_mode=None); return F.silu(x)", "either"),
    Row("x = (self.bn(self.gemm(x)) + self.one) * self.divisor; return F.silu(x)", "either"),
    Row("self.gemm.weight.detach().mul_(0.99); return self.bn(self.gemm(x) * self.scale)", "either"),
    Row("y = self.gemm(x); self.gemm.weight.detach().mul_(0.9); return self.bn(y * self.scale)", "either"),
]
