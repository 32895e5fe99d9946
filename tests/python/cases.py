"""The one list of cases: the ops, their chains as an author writes them in plain torch, and arguments to draw for both."""
import itertools

import torch
import torch.nn.functional as F

B, K, N, C, G = 6, 5, 12, 9, 3  # batch, in, out, channels of a 3-D input, groups: all differ, G divides N and C


def swish(v):
    return v * torch.sigmoid(v)


def linear_mul_batch_norm(input, weight, bias, scale, norm_weight, norm_bias, running_mean, running_var, training, momentum,
                          eps, cudnn_enabled):
    y = F.linear(input, weight, bias)
    return torch.batch_norm(y * scale, norm_weight, norm_bias, running_mean, running_var, training, momentum, eps,
                            cudnn_enabled)


def linear_sigmoid_mul_add(input, weight, bias, factor):
    y = F.linear(input, weight, bias)
    return torch.sigmoid(y) * factor + y


def linear_add_swish_group_norm(input, weight, bias, addend, num_groups, norm_weight, norm_bias, eps, cudnn_enabled):
    y = F.linear(input, weight, bias)
    return torch.group_norm(swish(y + addend), num_groups, norm_weight, norm_bias, eps, cudnn_enabled)


def linear_swish_add_group_norm(input, weight, bias, addend, num_groups, norm_weight, norm_bias, eps, cudnn_enabled):
    y = F.linear(input, weight, bias)
    return torch.group_norm(swish(y) + addend, num_groups, norm_weight, norm_bias, eps, cudnn_enabled)


def linear_batch_norm_add_div_swish(input, weight, bias, norm_weight, norm_bias, running_mean, running_var, training,
                                    momentum, eps, cudnn_enabled, addend, divisor):
    y = F.linear(input, weight, bias)
    z = torch.batch_norm(y, norm_weight, norm_bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
    return swish((z + addend) / divisor)


def linear_group_norm_swish_mul_swish(input, weight, bias, num_groups, norm_weight, norm_bias, eps, cudnn_enabled, scale):
    y = F.linear(input, weight, bias)
    return swish(swish(torch.group_norm(y, num_groups, norm_weight, norm_bias, eps, cudnn_enabled)) * scale)


class Op:
    """One overload of one op and its chain. `eager` takes the overload's arguments, by name, in the schema's order."""

    def __init__(self, chain, overload="default", number=None):
        self.chain, self.stem, self.overload, self.number = chain, chain.__name__, overload, number
        self.name = self.stem if overload == "default" else f"{self.stem}.{overload}"
        names = chain.__code__.co_varnames[: chain.__code__.co_argcount]
        self.inference = overload.startswith("inference")
        self.arguments = [n for n in names if not (self.inference and n in ("training", "momentum"))]
        self.batch_norm, self.group_norm = "running_mean" in names, "num_groups" in names
        # The first of them: a chain with two needs rows of its own where tests ask for this one.
        self.vector = next((n for n in names if n in ("scale", "addend")), None)
        self.scalar = next((n for n in names if n in ("factor", "divisor")), None)

    def __repr__(self):
        return self.name

    def __call__(self, arguments):
        return getattr(getattr(torch.ops.tailor, self.stem), self.overload)(*arguments.values())

    def eager(self, arguments):
        extra = {"training": False, "momentum": 0.0} if self.inference else {}
        return self.chain(**arguments, **extra)

    def tensors(self, arguments):
        """Names of the tensors that may be differentiated."""
        return [n for n, v in arguments.items() if isinstance(v, torch.Tensor) and not n.startswith("running")
                and (v.is_floating_point() or v.is_complex())]


OPS = [
    Op(linear_mul_batch_norm),
    Op(linear_mul_batch_norm, "inference"),
    Op(linear_sigmoid_mul_add),
    Op(linear_sigmoid_mul_add, "Tensor"),
    Op(linear_add_swish_group_norm),
    Op(linear_swish_add_group_norm),
    Op(linear_batch_norm_add_div_swish),
    Op(linear_batch_norm_add_div_swish, "Tensor"),
    Op(linear_batch_norm_add_div_swish, "inference"),
    Op(linear_batch_norm_add_div_swish, "inference_Tensor"),
    Op(linear_group_norm_swish_mul_swish),
]
CHAINS = [op for op in OPS if op.overload == "default"]


DEVICE = "cpu"  # where draw puts its tensors unless told otherwise


def draw(op, seed=0, dtype=torch.float32, device=None, *, x=(B, K), w=(N, K), b=(N,), vector=None, norm=(N,), norm_bias="norm",
         stats=(N,), number=(), groups=G, training=True, momentum=0.1, eps=1e-5):
    """Arguments in the schema's order; a shape of None leaves that argument out. A norm's bias has its weight's shape unless
    it is given one."""
    if norm_bias == "norm":
        norm_bias = norm
    generator = torch.Generator("cpu").manual_seed(1000 + seed)
    if vector is None:
        vector = (1,) if op.stem == "linear_batch_norm_add_div_swish" else (N,)

    def normal(shape, low=None, spread=1.0):
        if shape is None:
            return None
        value = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu") * spread
        if low is not None:
            value = low + value.abs()
        return value.to(dtype).to(device or DEVICE)

    half = max(1, (w or (1,))[-1]) ** -0.5
    values = {
        "input": normal(x), "weight": normal(w, spread=half), "bias": normal(b), "scale": normal(vector),
        "addend": normal(vector), "num_groups": groups, "norm_weight": normal(norm, low=0.5), "norm_bias": normal(norm_bias),
        "running_mean": normal(stats), "running_var": normal(stats, low=0.5), "training": training, "momentum": momentum,
        "eps": eps, "cudnn_enabled": True, "factor": 1.7, "divisor": -0.6,
    }
    if op.overload.endswith("Tensor"):
        values.update(factor=normal(number), divisor=normal(number, low=0.5))
    return {name: values[name] for name in op.arguments}


def constant_groups(op, groups, width, device="cpu", value=1000.1):
    """Arguments of a group norm all of whose groups hold one value, far from 0 against the root of eps: each group gives its
    norm's bias, and a mean that is off by its last bit shows."""
    columns = groups * width
    arguments = draw(op, device=device, x=(3, 5), w=(columns, 5), b=(columns,), norm=(columns,), groups=groups, vector=(columns,))
    arguments["weight"].zero_()
    arguments["bias"].copy_(value * (1 + torch.arange(groups, device=device)).repeat_interleave(width))
    if "addend" in arguments:
        arguments["addend"].fill_(0.3)
    return arguments


def in_double(arguments):
    return {n: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for n, v in arguments.items()}


def optional_parts(op, training=(True, False), norms="together"):
    """Every optional argument present and absent, as overrides for draw. A norm's weight and its bias come and go together, or
    also "apart", each alone where nothing else is absent, or in "every" combination."""
    axes = [[("b", (N,)), ("b", None)]]
    if op.batch_norm or op.group_norm:
        axes.append([(("norm", "norm_bias"), shapes) for shapes in itertools.product([(N,), None], repeat=2)])
    if op.batch_norm and not op.inference:
        axes.append([(("stats", "training"), ((N,), t)) for t in training] + [(("stats", "training"), (None, True))])
    for choice in itertools.product(*axes):
        overrides = {}
        for names, values in choice:
            overrides.update(zip(names, values) if isinstance(names, tuple) else [(names, values)])
        apart = overrides.get("norm") != overrides.get("norm_bias")
        if not apart or norms == "every" or (norms == "apart" and overrides["b"] and overrides.get("stats", True)):
            yield overrides


def torch_fails(op, arguments, names, order=1):
    """What torch 2.11 says, or None, where it is eager that has no gradient, or a wrong one, in these names: a norm with a bias
    and no weight, and the bias among them. `order` 2 is the gradient of the gradient."""
    if arguments.get("norm_weight") is not None or arguments.get("norm_bias") is None or "norm_bias" not in names:
        return None
    if op.batch_norm:
        return "Jacobian mismatch" if order == 2 else None
    return "tensor does not have a device" if order == 1 else "is invalid for input of size"


# Shapes that no fast path covers or that the chain refuses: eager decides which. Names say what is strange.
STRANGE = {
    "1-D x": dict(x=(K,)), "0-D x": dict(x=()), "1-D x and weight": dict(x=(K,), w=(K,), b=None),
    "3-D x": dict(x=(B, C, K), norm=(C,), stats=(C,)), "3-D x, norms of the features": dict(x=(B, C, K)),
    "3-D x, C = features": dict(x=(B, N, K)), "3-D x, C = K = features": dict(x=(B, N, N), w=(N, N)),
    "4-D x": dict(x=(2, C, 4, K), norm=(C,), stats=(C,)), "3-D x of batch 1": dict(x=(1, C, K), norm=(C,), stats=(C,)),
    "3-D x of length 1": dict(x=(B, C, 1), w=(N, 1), norm=(C,), stats=(C,)), "3-D x, batch 0": dict(x=(0, C, K), norm=(C,), stats=(C,)),
    "3-D x, C 0": dict(x=(B, 0, K), norm=(0,), stats=(0,)),
    "batch 0": dict(x=(0, K)), "batch 1": dict(x=(1, K)), "batch 2": dict(x=(2, K)), "K 0": dict(x=(B, 0), w=(N, 0)), "K 1": dict(x=(B, 1), w=(N, 1)),
    "features 0": dict(w=(0, K), b=(0,), vector=(0,), norm=(0,), stats=(0,)), "features 1": dict(w=(1, K), b=(1,), vector=(1,), norm=(1,), stats=(1,), groups=1),
    "batch 0 and features 0": dict(x=(0, K), w=(0, K), b=(0,), vector=(0,), norm=(0,), stats=(0,)),
    "x too wide": dict(x=(B, K + 2)), "1-D x too wide": dict(x=(K + 2,)), "3-D x too wide": dict(x=(B, C, K + 2), norm=(C,), stats=(C,)),
    "1-D weight": dict(w=(K,), b=None), "1-D weight, 0-D bias": dict(w=(K,), b=()), "0-D weight": dict(w=()), "3-D weight": dict(w=(2, N, K)), "one feature broadcast": dict(w=(1, K), b=(1,)),
    "bias too long": dict(b=(N + 1,)), "bias of one": dict(b=(1,)), "0-D bias": dict(b=()), "2-D bias": dict(b=(B, N)), "bias of rank 3": dict(b=(2, B, N)),
    "bias too long and x too wide": dict(x=(B, K + 2), b=(N + 1,)),
    "norm too long": dict(norm=(N + 1,)), "norm of one": dict(norm=(1,)), "2-D norm": dict(norm=(N, 1)), "statistics too long": dict(stats=(N + 1,)),
    "statistics of one": dict(stats=(1,)), "no statistics in eval": dict(stats=None, training=False),
    "groups do not divide": dict(groups=5), "one group": dict(groups=1), "one value in a group": dict(groups=N), "0 groups": dict(groups=0),
    "negative groups": dict(groups=-1), "more groups than channels": dict(groups=24), "2-D scalar": dict(number=(1, 1)), "scalar per column": dict(number=(N,)),
    "scalar too long": dict(number=(N + 1,)), "eps 0": dict(eps=0.0), "negative eps": dict(eps=-1e-3), "momentum 0": dict(momentum=0.0), "momentum 1": dict(momentum=1.0),
    "vector too long and norm too long": dict(vector=(N + 1,), norm=(N + 2,)),
}
for shape in [(N,), (1,), (), (N, 1), (1, N), (B, N), (B, 1), (2, B, N), (1, B, N), (2, 1, N), (N, N), (0,), (N + 1,), (B,), (1, 1, 1, 1), (2, B, 1)]:
    STRANGE[f"vector {shape}"] = dict(vector=shape)
    STRANGE[f"3-D x, vector {shape}"] = dict(x=(B, C, K), norm=(C,), stats=(C,), vector=shape)
STRANGE["3-D x, vector per channel"] = dict(x=(B, C, K), norm=(C,), stats=(C,), vector=(C, 1))
STRANGE["raised rank, norms to match"] = dict(vector=(2, B, N), norm=(B,), stats=(B,))

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
MIXED = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64, torch.complex128]


def views(value):
    """Views with the values of `value` that are laid out in other ways."""
    if not value.dim():
        return
    if value.dim() >= 2:
        yield "transposed", value.transpose(0, 1).contiguous().transpose(0, 1)
    wide = value.new_zeros(*value.shape[:-1], 2 * value.shape[-1])
    wide[..., ::2] = value
    yield "every second", wide[..., ::2]
    for offset in (1, 3, 8):
        flat = value.new_zeros(value.numel() + offset)
        flat[offset:] = value.reshape(-1)
        yield f"{offset} elements in", flat[offset:].view(value.shape)
    yield "expanded", value[..., :1].contiguous().expand(value.shape)
    if value.dim() >= 2:
        yield "rows expanded", value[:1].contiguous().expand(value.shape)
        padded = value.new_zeros(value.shape[0], value.shape[1] + 3)
        padded[:, : value.shape[1]] = value
        yield "padded rows", padded[:, : value.shape[1]]
        yield "a row of many", value.new_zeros(3, *value.shape).copy_(value)[1]


LATTICE = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 88.0, -88.0, 104.0, -104.0, 3e4, -3e4, 3e38, -3e38, torch.inf, -torch.inf, torch.nan]
