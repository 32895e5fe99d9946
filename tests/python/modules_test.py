"""Which linears of a module with submodules are sites: each once, whoever calls it, and whether a file was between or not."""
import inspect
import json
import pathlib
import textwrap
import unittest
from typing import Any, List

import torch

from checks import auto, main, python, reloaded
from models import K, N, SIX, build
from scripted import Following, random_inputs


@torch.jit.interface
class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-differ
        pass


class ThroughAnInterface(torch.nn.Module):
    part: Block

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part.forward(x)


@torch.jit.interface
class Layer(torch.nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-differ
        pass


class OneLayer(ThroughAnInterface):
    part: Layer


def through(part: Block, x: torch.Tensor) -> torch.Tensor:
    return part.forward(x)


class GivenToAFunction(torch.nn.Module):
    """Which knows the part by its interface only; its caller knows the class."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return through(self.part, x)


class TwoOfOneClass(torch.nn.Module):
    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = ThroughAnInterface(one), ThroughAnInterface(other)

    def forward(self, x):
        return self.one(x) + self.other(x)


class HoldsItself(torch.nn.Module):
    part: Block

    def __init__(self, part):
        super().__init__()
        self.gemm, self.part = torch.nn.Linear(K, K), part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x)
        return self.part.forward(torch.sigmoid(y) * 0.5 + y)


class LendsItsWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(K, N)

    def forward(self, x):
        return x + self.part.weight.sum()


class LeftToTheCaller(torch.nn.Module):
    """Whose caller runs `part` on what forward gives."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return torch.relu(x)


class Caller(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)


class Projection(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.gemm = part.gemm

    def forward(self, x):
        return self.gemm(x)


class Across(torch.nn.Module):
    """Its linear is in one submodule and its norm in another."""

    def __init__(self, part):
        super().__init__()
        self.projection, self.scale, self.bn = Projection(part), part.scale, part.bn

    def forward(self, x):
        return self.bn(self.projection(x) * self.scale)


class Both(torch.nn.Module):
    """Two submodules of one source and two classes, of which nobody calls the second."""

    def __init__(self, part):
        super().__init__()
        self.part, self.other = part, type(part)()
        self.other.more = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.part(x)


class OneLinearInTwoMethods(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(5, 12)

    def project(self, x):
        return self.gemm(x)

    def forward(self, x):
        return self.project(x)

    @torch.jit.export
    def gate(self, x):
        y = self.project(x)
        return torch.sigmoid(y) * 0.5 + y


class WithoutSwish(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.gn = torch.nn.Linear(5, 12), torch.nn.GroupNorm(3, 12)

    def forward(self, x):
        y = self.gn(self.gemm(x))
        return y * y


class CallEachOther(torch.nn.Module):
    """Of whose methods its caller calls none but forward."""

    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(5, 12)

    def forward(self, x):
        return x

    @torch.jit.export
    def gate(self, x):
        y = self.gemm(x)
        return torch.sigmoid(y) * 0.5 + y

    @torch.jit.export
    def once(self, x):
        return self.gate(x) + 1

    @torch.jit.export
    def thrice(self, x):
        return self.once(x) + self.gate(x * 2)


class ModulesTest(Following):
    def each(self, *classes):
        for row in SIX:
            for kind in classes:
                for on in (False, True):
                    with auto(on):
                        yield row, torch.jit.script(kind(build(row.body))), f"{kind.__name__} of {row.body}, {'on' if on else 'off'}"

    def test_what_is_called_through_an_interface(self):
        for row, model, what in self.each(ThroughAnInterface):
            self.assert_sites(model, [("part.forward", row.rule)], what)

    def test_what_a_function_is_given_as_an_interface(self):
        for row, model, what in self.each(GivenToAFunction):
            self.assert_sites(model, [("part.forward", row.rule)], what)

    def test_other_modules_behind_the_interface_of_one_class(self):
        with auto(False):
            model = torch.jit.script(TwoOfOneClass(build(SIX[0].body), build(SIX[1].body)))
        self.assertEqual(model.one._c._type(), model.other._c._type())
        self.assert_sites(model, [("one.part.forward", SIX[0].rule), ("other.part.forward", SIX[1].rule)], "two of one class")

    def test_a_class_that_holds_itself(self):
        """Behind an interface: the outer one is reported, under its own name."""
        with auto(False):
            model = torch.jit.script(HoldsItself(HoldsItself(build(SIX[0].body))))
        self.assertEqual(model._c._type(), model.part._c._type())
        self.assert_sites(model, [("forward", "linear_sigmoid_mul_add"), ("part.part.forward", SIX[0].rule)], "itself")

    def test_a_linear_behind_an_interface(self):
        """With nothing after it; one that only lends its weight is no site."""
        layer = torch.nn.Linear(K, N)
        for sites, model in ((["part.forward"], OneLayer(layer)), (["part.forward"], OneLayer(torch.nn.Sequential(layer))), ([], LendsItsWeight())):
            with auto(False):
                model = torch.jit.script(model)
            for report in (torch.ops.tailor.inspect, torch.ops.tailor.fuse_):
                for each in (model, reloaded(model)):
                    found = [site["method"] for site in json.loads(report(each))["sites"]]
                    self.assertEqual(found, sites, f"{report} of {model}")

    def test_what_nobody_calls(self):
        for row, model, what in self.each(LeftToTheCaller):
            self.assert_sites(model, [("part.forward", row.rule)], what)

    def test_what_is_called_is_its_callers(self):
        for row, model, what in self.each(Caller):
            self.assert_sites(model, [("forward", row.rule)], what)
            self.assert_sites(reloaded(model), [("forward", row.rule)], what)

    def test_a_chain_across_modules(self):
        with auto(False):
            model = torch.jit.script(Across(build(SIX[0].body)))
        self.assert_sites(model, [("forward", SIX[0].rule)], "across")

    def test_two_classes_of_one_source(self):
        for on in (False, True):
            with auto(on):
                model = torch.jit.script(Both(build(SIX[0].body)))
            self.assert_sites(model, [(method, SIX[0].rule) for method in ("forward", "other.forward")], f"two, {on}")

    def test_two_methods_that_share_a_linear(self):
        """Of which the one that nobody calls is fused, and the caller's is not."""
        with auto(False):
            model = torch.jit.script(Caller(OneLinearInTwoMethods()))
        wanted = [("forward", "", False), ("part.gate", "linear_sigmoid_mul_add", True)]
        for turn in range(2):
            for report in (torch.ops.tailor.inspect, torch.ops.tailor.fuse_, torch.ops.tailor.inspect):
                found = sorted((site["method"], site["rule"], site["fused"]) for site in json.loads(report(model))["sites"])
                self.assertEqual(found, wanted, f"turn {turn}")
            undone = json.loads(torch.ops.tailor.unfuse_(model))["sites"]
            self.assertEqual([site["method"] for site in undone], ["part.gate"])
            model = reloaded(model)

    def test_a_call_while_torchs_optimiser_was_off(self):
        """Then torch keeps callees that are not inlined, and hands them out when they are to be."""
        row = SIX[0]
        with auto(False):
            model = reloaded(torch.jit.script(Caller(Caller(build(row.body)))))
            with torch.jit.optimized_execution(False):
                model(random_inputs(1))
        self.assert_sites(model, [("forward", row.rule)], "after a call without optimiser")
        with torch.jit.optimized_execution(False), auto(False):
            model = torch.jit.script(Caller(Caller(WithoutSwish())))
            model(random_inputs(1))
            reason = json.loads(torch.ops.tailor.inspect(model))["sites"][0]["reason"]
        line = inspect.getsourcelines(WithoutSwish.forward)[1] + 1
        self.assertIn(f"after `group_norm` in modules_test.py:{line} ", reason)

    def test_methods_that_call_each_other(self):
        with auto(False):
            model = torch.jit.script(Caller(CallEachOther()))
        self.assert_sites(model, [("part.thrice", "linear_sigmoid_mul_add")] * 2, "methods that call each other")


class Deep(torch.nn.Module):
    links: List[Any]

    def __init__(self):
        super().__init__()
        self.links = [1]

    @torch.jit.export
    def grow(self, n: int):
        for _ in range(n):
            one: List[Any] = []
            one.append(self.links)
            self.links = one

    def forward(self, x):
        return x


class DeepTest(unittest.TestCase):
    def test_what_is_nested_too_deeply(self):
        """In a process of its own, which it would end; torch takes it apart by recursion, too."""
        said = python(textwrap.dedent("""
            import os, torch
            from checks import load
            from modules_test import Deep
            load()
            model = torch.jit.script(Deep())
            model.grow(1000)
            torch.ops.tailor.fuse_(model)
            model.grow(50000)
            for op in ("fuse_", "unfuse_", "inspect", "settle_"):
                try:
                    getattr(torch.ops.tailor, op)(model)
                except ValueError as error:
                    print("nested more than" in str(error), flush=True)
            os._exit(0)
        """), PYTHONPATH=str(pathlib.Path(__file__).parent))
        self.assertEqual(said, "True\n" * 4)


if __name__ == "__main__":
    main()
