"""Random calls of the ops. A case is plain data, so that it can be printed, made smaller and drawn again; `build` makes the
arguments of it, the same ones at each call."""
import dataclasses
import random

import torch
import torch.nn.functional as F

import cases
from cases import OPS

BY_NAME = {op.name: op for op in OPS}
COLUMNS = [1, 2, 3, 4, 6, 7, 8, 9, 12, 15, 16, 17, 24, 30, 31, 32, 33, 48, 63, 64, 65, 96, 128, 129, 256, 257]
FLOATS = cases.FLOATS
OTHERS = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64, torch.complex128]
LAYOUTS = ["transposed", "every second", "1 elements in", "3 elements in", "8 elements in", "expanded", "rows expanded",
           "padded rows", "a row of many", "permuted"]
CONTENTS = ["special", "huge", "tiny", "zero", "minus zero", "constant", "far", "subnormal", "inf", "nan"]
PAIRED = ["whole", "powers", "powers undone", "one above", "zero below it"]
MODES = ["no_grad", "inference_mode", "grad", "enable_grad", "autocast"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 88.0, -104.0, 1e-30, -1e-40, 65504.0, 3e38, -3e38]


class Short:
    """A dataclass that is printed without what is as usual."""

    def __repr__(self):
        told = [f for f in dataclasses.fields(self) if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in told)})".replace("torch.", "")


@dataclasses.dataclass(repr=False)
class Tensor(Short):
    """One tensor argument."""
    shape: tuple
    dtype: torch.dtype = torch.float32
    content: str = "normal"
    layout: str = "contiguous"
    low: float = None  # for what should be positive: this plus the absolute value
    spread: float = 1.0
    share: float = 0.1  # of the elements, of those that are special

    def make(self, seed, device, tf32=False):
        """`tf32`: of float32 only what TF32 has too, so that it matters little which of them a product is made in."""
        generator = torch.Generator("cpu").manual_seed(seed)
        value = torch.randn(self.shape, generator=generator, dtype=torch.float64) * self.spread
        if self.low is not None:
            value = self.low + value.abs()
        value = self.fill(value, generator)
        if self.dtype in OTHERS[:4]:
            value = torch.nan_to_num(value, 0.0, 7.0, -7.0).clamp(-9, 9) * 2
        value = value.to(device, self.dtype)
        if tf32 and self.dtype == torch.float32:
            value = (value.view(torch.int32) & ~0x1FFF).view(torch.float32)
        return laid_out(value, self.layout)

    def fill(self, value, generator):
        if self.content == "normal" or not value.numel():
            return value
        limits = torch.finfo(self.dtype) if self.dtype.is_floating_point else torch.finfo(torch.float32)
        single = {"huge": min(limits.max, 3e38) * 0.3, "large": min(limits.max * 0.3, 1e30), "tiny": limits.tiny * 4,
                  "small": max(limits.tiny * 1024, 1e-30), "subnormal": limits.tiny / 8}.get(self.content)
        if single:
            return value * single
        if self.content in ("zero", "minus zero", "constant"):
            return torch.full_like(value, {"zero": 0.0, "minus zero": -0.0, "constant": float(value.reshape(-1)[0])}[self.content])
        if self.content == "far":
            return value + 300.0
        if self.content in PAIRED:
            return paired(value, self.content)
        flat = value.reshape(-1)  # some elements only
        places = torch.rand(flat.shape, generator=generator) < max(self.share, 1 / flat.numel())
        among = {"special": SPECIAL, "odd": SPECIAL[:-2], "inf": [torch.inf, -torch.inf], "nan": [torch.nan]}[self.content]
        among = torch.tensor(among, dtype=torch.float64)
        flat[places] = among[torch.randint(len(among), flat.shape, generator=generator)][places]
        return flat.reshape(value.shape)


def paired(value, content):
    """One of two matrices of a product that depend on each other; their sums are ordinary all the same."""
    if content == "whole":
        return (value * 3).round()
    inner = value.shape[-1] if value.dim() else 1
    if content in ("powers", "powers undone"):  # far apart, so that a row's small numbers count as much as its large ones
        powers = 2.0 ** (torch.arange(inner, dtype=torch.float64) * 37 % 81 - 40)
        return value * powers if content == "powers" else value / powers
    rows = value.reshape(-1, inner)
    if content == "one above":  # all others of every third row
        rows[::3, 3 % inner] = 2.0**40
    else:
        rows[:, 3 % inner] = 0
    return rows.reshape(value.shape)


def laid_out(value, layout):
    """A tensor of this value (or, expanded, of this shape) that lies in memory in another way."""
    if not value.dim():
        return value
    if layout == "every second":
        return torch.stack([value, value], -1).flatten(-2)[..., ::2]
    if layout.endswith("elements in"):
        offset = int(layout.split()[0])
        return value.new_zeros(value.numel() + offset)[offset:].view(value.shape).copy_(value)
    if layout == "expanded":
        return value[..., :1].contiguous().expand(value.shape)
    if value.dim() >= 2 and layout == "rows expanded":
        return value[:1].contiguous().expand(value.shape)
    if value.dim() >= 2 and layout == "transposed":
        return value.mT.contiguous().mT
    if value.dim() >= 3 and layout == "permuted":
        return value.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "wider rows":  # 8 elements and 24 are whole packets of 16 bytes in all dtypes
        return F.pad(value, (8, 16), value=float("nan") if value.is_floating_point() else 7)[..., 8:-16]
    if layout == "padded rows":
        return F.pad(value, (0, 3))[..., :value.shape[-1]]
    if layout == "a row of many":
        return value.new_zeros(3, *value.shape).copy_(value)[1]
    return value


@dataclasses.dataclass(repr=False)
class Case(Short):
    op: str
    seed: int
    tensors: dict  # name: Tensor, or None where an optional one is left out
    others: dict  # what is no tensor
    device: str = "cpu"
    mode: str = "no_grad"
    leaves: tuple = ()  # which of them want a gradient
    same: tuple = ()  # (a, b): argument a is the very tensor that b is
    cotangent: str = "contiguous"  # the layout of the gradient that comes in
    by_backward: bool = False  # .backward() instead of autograd.grad
    twice: bool = False  # a gradient of the gradient
    written: str = ""  # what is written to between forward and backward
    tf32: bool = False  # allowed; the matrices hold no other numbers

    def build(self):
        """The arguments in the schema's order."""
        values = {}
        op = BY_NAME[self.op]
        for place, name in enumerate(op.arguments):
            if name in self.others:
                values[name] = self.others[name]
                continue
            spec = self.tensors[name]
            tf32 = self.tf32 and name in ("input", "weight")
            value = None if spec is None else spec.make(self.seed * 16 + place, self.where(op, name), tf32)
            values[name] = value.requires_grad_() if name in self.leaves else value
        for a, b in self.same:
            if values[a] is not None and values[b] is not None:  # either may have been left out after they were drawn
                values[a] = values[b]
        return values

    def autocast_dtype(self):
        return torch.bfloat16 if self.seed % 2 else torch.float16

    def where(self, op, name):
        # Traces hold numbers on the CPU, whatever the device of the rest.
        return "cpu" if name == op.scalar and self.seed % 8 and self.device == "cuda" else self.device


def draw(seed, device="cpu"):
    """The case of this seed. Most are sound; each kind of oddity comes in a few of a hundred, and some together."""
    r = random.Random(seed)
    odd = lambda probability: r.random() < probability  # noqa: E731
    op = r.choice(OPS)
    dtype = r.choices([*FLOATS, r.choice(OTHERS)], [20, 42, 18, 14, 6])[0]  # the order of cases.FLOATS: float64 first
    columns = r.choice(COLUMNS) if odd(0.8) else r.randint(0, 300)
    width = r.choice([1, 2, 3, 4, 5, 7, 8, 16, 33]) if odd(0.97) else 0
    rows = r.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33, 70]) if odd(0.97) else 0
    rank = r.choices([2, 3, 1, 4, 0, 5], [80, 10, 4, 3, 1, 2])[0]
    middle = tuple(r.choice([1, 2, 3, 4, 6]) for _ in range(rank - 2))
    x = {0: (), 1: (width,)}.get(rank, (rows, *middle, width))
    channels = middle[0] if middle and odd(0.8) else columns
    column = (columns,)

    vector = r.choices(["column", "one", "odd"], [80, 12, 8])[0]
    if op.stem == "linear_batch_norm_add_div_swish":
        vector = r.choices(["column", "one", "odd"], [30, 60, 10])[0]
    strange = [(rows, columns), (1, columns), (rows, 1), (2, rows, columns), (0,), (columns + 1,), (rows,), (1,) * 4]
    vector_shape = {"column": column, "one": r.choice([(), (1,), (1, 1)]), "odd": r.choice(strange)}[vector]
    case = with_arguments(r, op, seed, dtype, x, (columns, width), channels, vector_shape, device)
    disturb(r, case, columns, width)
    if odd(0.01) and case.mode != "autocast":
        case.device = "meta"
    if case.mode == "grad":
        differentiate(r, op, case)
    return case


def with_arguments(r, op, seed, dtype, x, weight, channels, vector_shape, device):
    """A case of these shapes, with the arguments that may be left out and what is no tensor drawn."""
    odd = lambda probability: r.random() < probability  # noqa: E731
    columns, width = weight
    column = (columns,)

    def tensor(shape, **options):
        return Tensor(tuple(shape), dtype, **options)

    half = max(1, width) ** -0.5
    tensors = {
        "input": tensor(x), "weight": tensor(weight, spread=half), "bias": tensor(column) if odd(0.8) else None,
        "scale": tensor(vector_shape), "addend": tensor(vector_shape),
        "norm_weight": tensor((channels,), low=0.5), "norm_bias": tensor((channels,)),
        "running_mean": tensor((channels,)), "running_var": tensor((channels,), low=0.5),
    }
    if odd(0.1):
        tensors["norm_weight"] = tensors["norm_bias"] = None
    for name in ("norm_weight", "norm_bias"):
        if odd(0.03):
            tensors[name] = None
    training = odd(0.5)
    if odd(0.1 if training else 0.01):
        tensors["running_mean"] = tensors["running_var"] = None
    if odd(0.01):
        tensors[r.choice(["running_mean", "running_var"])] = None
    divisors = [g for g in range(1, channels + 1) if channels % g == 0] or [1]
    others = {
        "num_groups": r.choice(divisors) if odd(0.96) else r.choice([0, -1, 5, channels * 2, 1 << 40]),
        "training": training, "momentum": r.choice([0.1, 0.1, 0.3, 0.0, 1.0]) if odd(0.98) else r.choice([-0.5, 2.0, float("nan")]),
        "eps": r.choice([1e-5, 1e-5, 1e-3, 0.7]) if odd(0.95) else r.choice([0.0, 1e-12, 1e-31, -1e-3, float("inf"), float("nan"), 1e30]),
        "cudnn_enabled": odd(0.7),
        "factor": number(r), "divisor": number(r),
    }
    if op.overload.endswith("Tensor"):
        shape = () if odd(0.9) else r.choice([(1,), (1, 1), column, (columns + 1,)])
        tensors[op.scalar] = Tensor(shape, dtype if odd(0.7) else r.choice([*FLOATS, torch.int64, torch.bool]), low=0.5)

    return Case(op.name, seed, {n: t for n, t in tensors.items() if n in op.arguments},
                {n: v for n, v in others.items() if n in op.arguments and n not in tensors}, device)


def number(r):
    if r.random() < 0.9:
        return r.choice([1.7, -0.6, 0.5, 2, -3, 1.0])
    return r.choice([0, 0.0, -0.0, True, False, float("inf"), float("nan"), 1e300, 1e-300, 2**40, 1 + 2j])


def disturb(r, case, columns, width):
    """Wrong sizes, other dtypes, layouts and contents, arguments that are one tensor; and the mode."""
    there = [n for n, t in case.tensors.items() if t is not None]
    pick = lambda: case.tensors[r.choice(there)]  # noqa: E731
    while r.random() < 0.06:
        spec = pick()
        options = [spec.shape + (1,), spec.shape[1:], (1,) + spec.shape]
        if spec.shape:
            place = r.randrange(len(spec.shape))
            options += [spec.shape[:place] + (max(0, spec.shape[place] + by),) + spec.shape[place + 1:] for by in (1, -1, 7)] * 2
        spec.shape = r.choice(options)
    while r.random() < 0.06:
        pick().dtype = r.choice([*FLOATS, *FLOATS, *OTHERS])
    if r.random() < 0.03:  # what people do: a 16-bit model whose norm stayed float32
        for name in ("norm_weight", "norm_bias", "running_mean", "running_var"):
            if case.tensors.get(name):
                case.tensors[name].dtype = torch.float32
    while r.random() < 0.35:
        pick().layout = r.choice(LAYOUTS)
    while r.random() < 0.15:
        pick().content = r.choice(CONTENTS)
    if r.random() < 0.02 and columns and columns == width:
        case.same = (("weight", "input"),)
    if r.random() < 0.03:
        a, b = r.choice(there), r.choice(there)
        if case.tensors[a].shape == case.tensors[b].shape and a != b:
            case.same = ((a, b),)
    case.mode = r.choices(MODES, [45, 10, 36, 5, 4])[0]
    spare_eager(case)


def spare_eager(case):
    """Leaves out what eager itself has no one answer to."""
    tensors, others = case.tensors, case.others
    batch_norm, group_norm = "running_mean" in tensors, "num_groups" in others

    def specs(*names):
        """Those of these arguments that are there, each also as the other argument that it is."""
        names = [*names, *(b for a, b in case.same if a in names)]
        return [tensors[name] for name in names if tensors.get(name)]

    def tame(names, instead):
        for spec in specs(*names):
            spec.content = instead.get(spec.content, spec.content)

    dtypes = {t.dtype for t in tensors.values() if t}
    if others.get("divisor") in (0, 1e-300) and dtypes & {torch.bfloat16, torch.float16}:
        others["divisor"] = 0.5  # the sign of what rounds to nothing decides between infinite and NaN
    if torch.float64 in dtypes:  # it is the referee of the others, and has none of its own
        tame(tensors, {"huge": "normal", "special": "normal", "far": "normal"})
    if case.mode == "grad":
        # At infinity a derivative is chance; and near it what overflows first, of the sums over the rows, where eager adds up
        # g · (x - mean), in float64 on the CPU, and the ops g · (x - mean) / deviation.
        tame(["divisor"], {"subnormal": "normal", "tiny": "small"})
        # The linear's gradients are sums, and torch adds up in an order that depends on how the matrices lie in memory.
        tame(["input", "weight"], {"huge": "large", "special": "odd"})
    if not batch_norm and not group_norm:
        return
    before_norm = ["bias", "addend", "running_mean"]
    if others.get("training"):
        before_norm += ["input", "weight", "scale"]  # eager on the CPU makes these statistics in float64
    if group_norm:
        spare_group_norm(case, specs, tame)
    tame(before_norm, {"huge": "far", "special": "inf"})  # a mean of 1e38 leaves nothing of the rest but chance, in float64 too
    if case.mode == "grad" or dtypes & {torch.bfloat16, torch.float16}:
        tame(tensors, {"huge": "large", "special": "odd"})  # what overflows first is a matter of one rounding
    if batch_norm:
        spare_batch_norm(case, specs, tame)


def spare_group_norm(case, specs, tame):
    tensors, others = case.tensors, case.others
    if tensors["weight"].shape[:1] == (others["num_groups"],):
        # A group of one is its own mean, and gives the norm's bias. But eager multiplies both by the weight before it subtracts,
        # in float64 too, and what that loses is as large as the weight. CpuTest.test_a_group_of_one has what is right.
        tame(["norm_weight"], dict.fromkeys(("inf", "special", "huge", "large"), "normal"))
        tame(["scale"], {"inf": "normal", "special": "normal"})
    if any(spec.content in ("huge", "large", "special") for spec in specs("input", "weight")):
        # The variance overflows, though not in float64: an infinite factor makes NaN of both results, for reasons of their own.
        tame(["scale"], {"inf": "normal", "special": "normal"})
    if others["num_groups"] == 1 << 40 and any(0 in spec.shape for spec in specs(*tensors)):
        others["num_groups"] = 1 << 10  # of no channels: eager makes a mean of each group, and has no memory for that


def spare_batch_norm(case, specs, tame):
    if case.mode == "grad":
        for spec in specs("norm_weight", "norm_bias", "running_mean", "running_var"):
            spec.layout = "contiguous"  # torch 2.11's backward on the CPU reads them, and beyond, as if they were so
    if case.device != "cuda":
        return
    tame(["norm_weight"], {"huge": "large", "special": "inf"})  # times 1 / deviation, as the kernels have it, it overflows earlier
    statistics = specs("running_mean", "running_var")
    dtype = dtype_at_norm(case)
    if case.others.get("training") and {s.dtype for s in statistics} - {dtype}:
        # torch 2.11 on CUDA reads one as if it were of the other's dtype, or past what it has kept, and gives another result each
        # time. Statistics in float32 of 16-bit numbers are what people have.
        kept = dtype.itemsize == 2 and {s.dtype for s in statistics} == {torch.float32}
        for spec in statistics:
            spec.dtype = torch.float32 if kept else dtype


def dtype_at_norm(case):
    """Of what a batch norm reads."""
    dtype, scale = case.tensors["input"].dtype, case.tensors.get("scale")
    if case.mode == "autocast" and dtype != torch.float64:
        dtype = case.autocast_dtype()
    return torch.promote_types(dtype, scale.dtype) if scale and scale.shape else dtype


def differentiate(r, op, case):
    names = [n for n, t in case.tensors.items() if t and (t.dtype.is_floating_point or t.dtype.is_complex)]
    names = [n for n in names if not n.startswith("running") or r.random() < 0.02]
    case.leaves = tuple(n for n in names if r.random() < 0.6) if r.random() < 0.7 else tuple(names)
    case.cotangent = r.choice(LAYOUTS) if r.random() < 0.4 else "contiguous"
    case.by_backward = r.random() < 0.3
    case.twice = not case.by_backward and r.random() < 0.08
    if any(t and t.dtype.itemsize == 2 for t in case.tensors.values()):
        case.twice = False  # nothing but noise
    if r.random() < 0.05:
        case.written = r.choice([n for n, t in case.tensors.items() if t])
