"""Forward hooks of a module's own, which are not among its methods, and which torch runs from outside the graph of forward."""
import copy
import json
from typing import Tuple

import torch

from checks import auto, main, reloaded
from scripted import Following, random_inputs


def before_forward(self, inputs: Tuple[torch.Tensor]) -> Tuple[torch.Tensor]:
    y = self.gemm(inputs[0])
    return (torch.sigmoid(y) * 2.0 + y,)


def after_forward(self, inputs: Tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
    return self.bn(self.gemm(output) * self.scale)


class Hooked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)  # of some weights' gradients eager in float32 is off as far as this test allows
        self.gemm, self.bn = torch.nn.Linear(5, 5), torch.nn.BatchNorm1d(5)
        self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 5))
        self.register_forward_pre_hook(before_forward)
        self.register_forward_hook(after_forward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class HooksTest(Following):
    RULES = [("linear_sigmoid_mul_add", "before_forward"), ("linear_mul_batch_norm", "after_forward")]

    def found(self, report, model, fused):
        sites = json.loads(getattr(torch.ops.tailor, report)(model))["sites"]
        self.assertEqual([site["fused"] for site in sites], [fused] * len(sites), report)
        return [(site["rule"], site["method"]) for site in sites]

    def test_of_the_outermost_module(self):
        eager = Hooked()
        with auto(False):
            later = torch.jit.script(copy.deepcopy(eager))
            self.assertEqual(self.found("inspect", later, True), self.RULES)
            self.assertEqual(self.found("fuse_", later, True), self.RULES)
        again = reloaded(later)
        for name, fused in (("fused", later), ("a file", again)):
            for rule, _ in self.RULES:
                self.assert_calls(rule, lambda: fused(random_inputs(0)), name)
            fused.load_state_dict(eager.state_dict())
            self.follow(fused, copy.deepcopy(eager), name)
        self.assertEqual(self.found("unfuse_", again, False), self.RULES)
        again.load_state_dict(eager.state_dict())
        with auto(False):
            self.assert_no_calls(lambda: self.follow(again, copy.deepcopy(eager), "unfused"), "unfused")

    def test_when_it_is_scripted(self):
        fused = torch.jit.script(Hooked())
        for rule, _ in self.RULES:
            self.assert_calls(rule, lambda: fused(random_inputs(0)), rule)

    def test_of_a_submodule(self):
        class Whole(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Hooked()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.inner(x)

        eager = Whole()
        fused = torch.jit.script(copy.deepcopy(eager))
        self.follow(fused, copy.deepcopy(eager), "a submodule's hooks")
        sites = [(rule, "forward") for rule, _ in self.RULES]
        for model in (fused, reloaded(fused)):
            self.assertEqual(self.found("inspect", model, True), sites)


if __name__ == "__main__":
    main()
