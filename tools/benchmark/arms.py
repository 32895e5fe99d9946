"""The arms: ways to run one chain, and the two yardsticks `linear` and `copy`. Adding one is a function and its row in ARMS."""
import collections
import contextlib
import copy
import functools
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F

from seed_models import build

from .numbers import NUMBERS, USUAL
from .plan import DTYPES, MODES, Point


class Unavailable(Exception):
    """This arm cannot run here."""


def values(result) -> list:
    """An output, or the gradients of all leaves."""
    return list(result) if isinstance(result, (list, tuple)) else [result]


class Setup:
    """What the arms of one point share: the model, its input, and a gradient to go back with. Each takes a copy of the
    model, so that none sees statistics that another has written."""

    def __init__(self, point: Point, device: str, seed: int = 0):
        self.point, self.device, dtype = point, device, DTYPES[point.dtype]
        case = point.case
        with torch.device(device):
            self.model = build(case, seed, randomise=True).to(dtype).train(point.mode != "eval")
            torch.manual_seed(seed + 1)
            # What is unusual comes in: forward that is x, and backward the gradient.
            backward = point.mode == "backward"
            of_x, of_y = (NUMBERS[name].make for name in ((USUAL, point.numbers) if backward else (point.numbers, USUAL)))
            self.x = of_x(case.batch, case.in_features).to(dtype)
            self.y = of_y(case.batch, case.out_features).to(dtype)
        self.x.requires_grad_(backward)
        self.compiler_is_reset = False

    def fresh(self) -> torch.nn.Module:
        """A copy in a class of its own: TorchScript compiles a class once, and graphs belong to the class."""
        model = copy.deepcopy(self.model)
        model.__class__ = type(type(model).__name__, (type(model),), {"__module__": __name__})
        return model

    def call(self, forward: Callable, parameters) -> Callable:
        """One call as the point's mode has it. Backward gives the gradients of the input and of all parameters."""
        x, y = self.x, self.y
        if self.point.mode != "backward":
            return lambda: forward(x)
        leaves = [x, *parameters]
        return lambda: torch.autograd.grad(forward(x), leaves, y)

    def call_module(self, module: torch.nn.Module) -> Callable:
        return self.call(module, module.parameters())

    @functools.cached_property
    def exact(self) -> list:
        """What the same model gives for the same values in float64."""
        twin = copy.copy(self)
        twin.model = copy.deepcopy(self.model).double()
        twin.x = self.x.detach().double().requires_grad_(self.x.requires_grad)
        twin.y = self.y.double()
        return [value.detach() for value in values(twin.call_module(twin.model)())]


def linear_of(model: torch.nn.Module) -> torch.nn.Linear:
    return next(module for module in model.modules() if isinstance(module, torch.nn.Linear))


@contextlib.contextmanager
def switches(point: Point):
    """Torch's switches as all arms of a point have them."""
    old = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = point.dtype == "tf32"
    try:
        with torch.set_grad_enabled(point.mode == "backward"):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = old


@contextlib.contextmanager
def fusing():
    """Tailor fuses what is scripted in here."""
    old = torch.ops.tailor.auto(True)
    try:
        yield
    finally:
        torch.ops.tailor.auto(old)


def linear(setup: Setup) -> Callable:
    layer = copy.deepcopy(linear_of(setup.model))
    weight, bias = layer.weight, layer.bias
    return setup.call(lambda x: F.linear(x, weight, bias), [weight, bias])


def script_linear(setup: Setup) -> Callable:
    return setup.call_module(torch.jit.script(copy.deepcopy(linear_of(setup.model))))


def copy_tail(setup: Setup) -> Callable:
    """The least that a tail apart from its linear can do: read what the linear wrote, and write as much."""
    source, target = setup.y, torch.empty_like(setup.y)
    return lambda: target.copy_(source)


def eager(setup: Setup) -> Callable:
    return setup.call_module(setup.fresh())


def graph(setup: Setup) -> Callable:
    """Eager, captured in a CUDA graph and replayed."""
    if setup.device != "cuda":
        raise Unavailable("it takes a GPU")
    call = eager(setup)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = call()

    def replay():
        captured.replay()
        return result
    return replay


def scripted(setup: Setup) -> Callable:
    """TorchScript without Tailor, frozen where there is nothing to train."""
    module = torch.jit.script(setup.fresh())
    return setup.call_module(torch.jit.freeze(module) if setup.point.mode == "eval" else module)


def compiled(setup: Setup, **options) -> Callable:
    if not setup.compiler_is_reset:  # else the ninth model of a class would quietly run eagerly
        torch.compiler.reset()
        setup.compiler_is_reset = True
    return setup.call_module(torch.compile(setup.fresh(), dynamic=False, **options))


def compiled_max(setup: Setup) -> Callable:
    return compiled(setup, mode="max-autotune-no-cudagraphs")


def fused(setup: Setup) -> torch.jit.ScriptModule:
    with fusing():
        return torch.jit.script(setup.fresh())


def tailor(setup: Setup) -> Callable:
    return setup.call_module(fused(setup))


def tailor_frozen(setup: Setup) -> Callable:
    with fusing():
        module = torch.jit.freeze(torch.jit.script(setup.fresh()))
        torch.ops.tailor.fuse_(module)
    return setup.call_module(module)


def settled(setup: Setup) -> Callable:
    module = fused(setup)
    torch.ops.tailor.settle_(module)
    return setup.call_module(module)


def three_fp16(setup: Setup) -> Callable:
    """What three products of halves cannot be faster than; with backward each of its three products three times."""
    x, weight = setup.x.detach().half(), linear_of(setup.model).weight.detach().half()
    if setup.point.mode != "backward":
        return lambda: [F.linear(x, weight) for _ in range(3)]
    of_out = setup.y.detach().half()
    return lambda: [(F.linear(x, weight), of_out @ weight, of_out.t() @ x) for _ in range(3)]


def batch_norm(norm: torch.nn.BatchNorm1d) -> list:
    return [norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.training, norm.momentum, norm.eps, True]


def group_norm(norm: torch.nn.GroupNorm) -> list:
    return [norm.num_groups, norm.weight, norm.bias, norm.eps, True]


OPERANDS = {
    "linear_mul_batch_norm": lambda m: [m.scale, *batch_norm(m.bn)],
    "linear_sigmoid_mul_add": lambda m: [m.f],
    "linear_add_swish_group_norm": lambda m: [m.bias, *group_norm(m.group_norm)],
    "linear_swish_add_group_norm": lambda m: [m.bias, *group_norm(m.group_norm)],
    "linear_batch_norm_add_div_swish": lambda m: [*batch_norm(m.bn), m.bias, m.d],
    "linear_group_norm_swish_mul_swish": lambda m: [*group_norm(m.group_norm), m.multiply_weight],
}


def op(setup: Setup) -> Callable:
    """The op itself, called from Python."""
    rule, model = setup.point.case.rule, setup.fresh()
    weight, bias, operands = linear_of(model).weight, linear_of(model).bias, OPERANDS[rule](model)
    function = getattr(torch.ops.tailor, rule).default
    return setup.call(lambda x: function(x, weight, bias, *operands), model.parameters())


class Kind(NamedTuple):
    make: Callable
    words: str
    chain: bool = True  # it computes the whole chain
    tailor: bool = False  # its time counts only if a kernel of Tailor's ran
    modes: tuple = tuple(MODES)  # in the others it says nothing


ARMS = {
    "linear": Kind(linear, "the bare F.linear; with backward its three matrix products", chain=False),
    "copy": Kind(copy_tail, "copying as many bytes as the linear writes", chain=False, modes=("eval", "train")),
    "eager": Kind(eager, "plain PyTorch"),
    "jit": Kind(scripted, "TorchScript without Tailor, frozen in eval"),
    "compile": Kind(compiled, "torch.compile"),
    "tailor": Kind(tailor, "the scripted model, fused", tailor=True),
    "graph": Kind(graph, "eager, replayed from a CUDA graph", modes=("eval", "train")),
    "max": Kind(compiled_max, "torch.compile(mode='max-autotune-no-cudagraphs')"),
    "tailor_frozen": Kind(tailor_frozen, "fused, frozen, fused again", tailor=True, modes=("eval",)),
    "settled": Kind(settled, "fused, and its weights settled", tailor=True, modes=("eval", "train")),
    "three_fp16": Kind(three_fp16, "each product three times in float16, by cuBLAS and without a tail", chain=False),
    "op": Kind(op, "the fused op called from Python, without TorchScript", tailor=True),
    "script_linear": Kind(script_linear, "the linear as a scripted module", chain=False),
}
TIMED = ["linear", "copy", "eager", "jit", "compile", "tailor"]
HOSTED = ["linear", "script_linear", "eager", "jit", "op", "tailor"]


class Arm:
    """One arm of one point: its call, and what was seen of it."""

    def __init__(self, name: str, call: Callable):
        self.name, self.kind, self.call = name, ARMS[name], call
        self.samples, self.paths = [], collections.Counter()
