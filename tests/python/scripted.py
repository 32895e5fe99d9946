"""Following a scripted model and its eager twin through the same calls: values, gradients, buffers, parameters."""

import json
import linecache

import torch

import models
from checks import Checks, Outcome, auto, reloaded


def scripted(body, on=True, **options):
    """The scripted net of this body; `on` says whether door 1 may fuse it."""
    with auto(on):
        return torch.jit.script(models.build(body, **options))


def net_of(source, name):
    """Of source that is made as the test runs: TorchScript reads a class's source from its file."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    made = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), made)  # pylint: disable=exec-used
    return made["Net"]()


PART = """import torch
from typing import *
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)
        self.scale = torch.nn.Parameter(torch.randn(8))
    def part(self, x, a: Optional[torch.Tensor] = None, k: Optional[float] = None{more}):
        y = self.bn(self.gemm(x) * self.scale)
        {body}
    def any_of(self, k: Union[int, str]) -> Union[int, str]:
        return k
    def one_more(self, k: Union[int, str]) -> Union[int, str]:
        if isinstance(k, int):
            return k + 1
        return k
    def listed(self, k: Optional[float]) -> List[Tuple[int, Optional[float]]]:
        all = [(1, k)]; all.append((2, 1.0)); return all
    def asks(self, what: Any):
        return torch.jit.isinstance(what, List[Tuple[int, Optional[float]]])
    def asks_of_unions(self, what: Any):
        return torch.jit.isinstance(what, List[Tuple[int, Union[int, str]]])
    def forward(self, x):
        {forward}
"""


def source_of_part(body, forward, more=""):
    """A net that calls a part of itself, in which `body` follows a chain's result `y`; both may be several lines."""
    return PART.format(body=body, forward=forward, more=more)


def text_of(module):
    """The graphs of all methods, calls inlined."""
    names = [name for name in module._c._method_names()]
    return "\n".join(str(getattr(module, name).inlined_graph) for name in names)


def is_fused(module, rule=None):
    return f"tailor::{rule or 'linear_'}" in text_of(module)


def flat(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def random_inputs(seed, rows=models.B, columns=models.K, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64).to(device, dtype)


class Following(Checks):
    def one_call(self, model, x, gradients):
        """Outputs and gradients by name; x counts as a parameter."""
        for p in model.parameters():
            p.grad = None
        x = x.clone().requires_grad_(gradients)
        with torch.set_grad_enabled(gradients):
            out = flat(model(x))
        if not gradients:
            return out, {}
        weights = [torch.linspace(0.5, 1.5, o.numel(), device=o.device).reshape(o.shape) for o in out]
        loss = sum((o.float() * w).square().sum() for o, w in zip(out, weights))
        if loss.requires_grad:
            loss.backward()
        grads = {name: p.grad for name, p in model.named_parameters()}
        return [o.detach() for o in out], {**grads, "x": x.grad}

    def follow(self, fused, eager, what, modes=(True, False, True), inputs=None, gradients=(True, False), calls=3, loose=1.0):
        """Both models make the same calls in each mode, with and without gradients; all that can be seen must agree."""
        step = 0
        for with_gradients in gradients:
            for training in modes:
                fused.train(training)
                eager.train(training)
                for turn in range(calls):
                    step += 1
                    x = inputs(step) if inputs else random_inputs(step, models.B + (turn == 2))
                    label = f"{what}: call {turn}, {'train' if training else 'eval'}, {'gradients' if with_gradients else 'no_grad'}"
                    expected = Outcome(lambda: self.one_call(eager, x, with_gradients))
                    actual = Outcome(lambda: self.one_call(fused, x, with_gradients))
                    if expected.error or actual.error:
                        self.assert_outcome(actual, expected, label)
                    else:
                        self.assert_call(actual.value, expected.value, label, loose)
                    self.assert_state(fused, eager, label)

    def assert_call(self, actual, expected, what, loose=1.0):
        """Outputs and gradients; a gradient that cancels to zero is as exact as the largest one allows."""
        self.assert_near(actual[0], expected[0], what, loose)
        self.assertEqual(list(actual[1]), list(expected[1]), f"{what}: names of parameters")
        size = max([g.abs().max().item() for g in expected[1].values() if g is not None and g.numel()], default=0.0)
        for name, grad in expected[1].items():
            self.assertEqual(actual[1][name] is None, grad is None, f"{what}: gradient of {name} is there")
            if grad is not None:
                self.assert_near([actual[1][name]], [grad], f"{what}: gradient of {name}", loose, size)

    def assert_near(self, actual, expected, what, loose=1.0, size=None):
        for mine, theirs in zip(actual, expected, strict=True):
            if size is None:
                size = torch.nan_to_num(theirs.detach()).abs().max().item() if theirs.numel() else 0.0
            scale = loose * (2e-5 if theirs.dtype == torch.float32 else 1e-9 if theirs.dtype == torch.float64 else 4e-2)
            self.assert_same(mine, theirs, what, (scale * (1 + min(size, 1e30)), 10 * scale), strides=False)

    def assert_state(self, fused, eager, what):
        mine, theirs = fused.state_dict(), eager.state_dict()
        self.assertEqual(list(mine), list(theirs), f"{what}: state_dict keys")
        for name, value in theirs.items():
            self.assert_same(mine[name], value, f"{what}: {name}", (1e-4, 1e-4) if value.dtype == torch.float32 else None)

    def assert_sites(self, model, wanted, what):
        """All reports say the same, before a file and after one, unfused and fused."""
        tailor = torch.ops.tailor
        for turn, report in enumerate((tailor.inspect, tailor.fuse_, tailor.inspect, tailor.unfuse_, tailor.inspect, tailor.fuse_)):
            found = sorted((site["method"], site["rule"]) for site in json.loads(report(model))["sites"])
            self.assertEqual(found, sorted(wanted), f"{what}, report {turn}")
        model = reloaded(model)
        for turn, report in enumerate((tailor.inspect, tailor.fuse_, tailor.unfuse_, tailor.inspect)):
            found = sorted((site["method"], site["rule"]) for site in json.loads(report(model))["sites"])
            self.assertEqual(found, sorted(wanted), f"{what}, report {turn} of the file")
        self.assertFalse(is_fused(model), what)

    def same_refusal(self, fused, plain, x, what, any_text=False):
        """Both refuse x, which may be several arguments, or give the same, and leave the same state."""
        mine = Outcome(lambda: fused(*flat(x)))
        # Door 3 must not fuse the plain one, nor the executor move its work before its checks, as it does once it has profiled.
        with auto(False), torch.jit.optimized_execution(False):
            theirs = Outcome(lambda: plain(*flat(x)))
        self.assertEqual(mine.error, theirs.error, f"{what}: {mine} where the unfused model gives {theirs}\n{mine.exception}")
        if theirs.error is None:
            for left, right in zip(flat(mine.value), flat(theirs.value), strict=True):
                self.assert_same(left, right, what, (1e-5, 1e-4) if right.dtype == torch.float64 else None)
        elif not any_text:
            self.assertEqual(mine.text, theirs.text, f"{what}: message")
        self.assert_state(fused, plain, f"{what}, after {theirs}")
        return theirs
