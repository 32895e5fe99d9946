"""What torch does not inline, objects behind an interface and `with`; and types that are declared, which inlining would lose."""
import itertools
import json
from typing import Any, Optional, Tuple, Union

import torch

from checks import auto, main, reloaded
from models import K, N
from scripted import Following, is_fused, random_inputs


@torch.jit.interface
class Formula:
    def of(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        pass


@torch.jit.script
class Gate:
    def __init__(self):
        pass

    def of(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.linear(x, weight)
        return torch.sigmoid(y) * 0.5 + y


def work_out(formula: Formula, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return formula.of(x, weight)


class GivesAnObject(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(N, K))

    def forward(self, x):
        return work_out(Gate(), x, self.weight)


@torch.jit.script
class Twice:
    def __init__(self):
        pass

    def of(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x.sum() * weight.sum(1)


@torch.jit.script
class Stranger:
    """Who could stand behind the interface, and is made elsewhere."""

    def __init__(self):
        pass

    def of(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.linear(x, weight)
        return torch.sigmoid(y) * 0.25 + y


class AsksAStranger(GivesAnObject):
    def forward(self, x):
        return Stranger().of(x, self.weight)


class GivesOneOfTwo(GivesAnObject):
    def forward(self, x):
        formula: Formula = Gate()
        if x.size(0) > 100:
            formula = Twice()
        return work_out(formula, x, self.weight)


def one_of_two(b: Union[int, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        if isinstance(b, int):
            x = x + float(b)
        b = x
    return x


def anything(b: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x + 1.0
        b = "a"
    return x


def in_a_tuple(b: Optional[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    pair = (b, 1)
    for _ in range(2):
        first, _ = pair
        if first is not None:
            x = x + first
        pair = (x, 2)
    return x


def another_object(formula: Formula, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 3:
        formula = Twice()
    return formula.of(x, weight)


class Fuses(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.gemm = torch.nn.Parameter(torch.randn(N, K)), torch.nn.Linear(K, N)

    def gate(self, x):
        y = self.gemm(x)
        return torch.sigmoid(y) * 0.5 + y


class OfOneOfTwo(Fuses):
    def forward(self, x):
        return self.gate(one_of_two(2, x))


class OfAnything(Fuses):
    def forward(self, x):
        return self.gate(anything(2, x))


class OfATuple(Fuses):
    def forward(self, x):
        return self.gate(in_a_tuple(None, x))


class OfAnotherObject(Fuses):
    def forward(self, x):
        return self.gate(x) + another_object(Gate(), x, self.weight)


class OfOneOfTwoObjects(Fuses):
    def forward(self, x):
        formula: Formula = Gate()
        if x.size(0) > 100:
            formula = Twice()
        return self.gate(x) + work_out(formula, x, self.weight)


class Sometimes(Fuses):
    """Of whose gates it is declared that they may be missing."""

    def maybe(self, x) -> Optional[torch.Tensor]:
        return self.gate(x)

    def with_a_number(self, x) -> Tuple[Optional[torch.Tensor], int]:
        return self.gate(x), 1

    def of_many(self, x) -> Optional[torch.Tensor]:
        return x if x.size(0) > 100 else None

    def same(self, y: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        return y


class ResultInATuple(Sometimes):
    def forward(self, x):
        pair, z = (self.maybe(x), 1), x.sum()
        for _ in range(2):
            first, _ = pair
            if first is not None:
                z = z + first
            pair = (None, 1)
        return z


class TupleInAList(Sometimes):
    def forward(self, x):
        pairs, z = [self.with_a_number(x)], x.sum()
        pairs.append((None, 2))
        for first, n in pairs:
            if first is not None:
                z = z + first * n
        return z


class TupleInADict(Sometimes):
    def forward(self, x):
        pairs, z = {"a": self.with_a_number(x)}, x.sum()
        pairs["b"] = (None, 2)
        for first, n in pairs.values():
            if first is not None:
                z = z + first * n
        return z


class OneOfTwoInATuple(Sometimes):
    def choose(self, x, one: Optional[torch.Tensor], other: Optional[torch.Tensor], first: bool):
        chosen = one if first else other
        pair, z = (chosen, 1), self.gate(x)
        for _ in range(2):
            if pair[0] is None:
                pair = (z, 1)
            else:
                pair = (None, 1)
        return z

    def forward(self, x):
        return self.choose(x, x, x, x.size(0) > 3)


class InAFuture(Sometimes):
    def forward(self, x):
        futures = [torch.jit.fork(self.maybe, x)]
        futures.append(torch.jit.fork(self.of_many, x))
        z = x.sum()
        for future in futures:
            y = torch.jit.wait(future)
            if y is not None:
                z = z + y
        return z


class PassedThrough(Sometimes):
    def forward(self, x):
        z = self.gate(x)
        pair = (self.same(z), self.same(None))
        for _ in range(1):
            pair = (None, z)
        second = pair[1]
        return z if second is None else z + second


class ThroughATuple(Fuses):
    def project(self, x) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        return self.gemm(x), None

    def forward(self, x):
        y, _ = self.project(x)
        return torch.sigmoid(y) * 0.5 + y


OPTIONAL = (ResultInATuple, TupleInAList, TupleInADict, OneOfTwoInATuple, InAFuture, PassedThrough)


class OfOneOfTwoModes(Fuses):
    """Whose gate, of an argument that may be anything, is run in two modes; in the first, more than once."""

    def open(self, x, what: Any):
        return self.gate(x)

    def forward(self, x):
        z = x.sum()
        for _ in range(2):
            with torch.no_grad():
                without = self.open(x, 1)
            z = z + without
        return z + self.open(x, "a")


class AndOnceMore(OfOneOfTwoModes):
    def forward(self, x):
        z = x.sum()
        for _ in range(2):
            with torch.no_grad():
                without = self.open(x, 1)
            z = z + without
        return z + self.gate(x)


class InALoop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(K, K)

    def forward(self, x):
        for _ in range(2):
            y = self.gemm(x)
            x = torch.sigmoid(y) * 0.5 + y
        return x


class HidesAWord(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = InALoop()

    def forward(self, range):  # pylint: disable=redefined-builtin
        with torch.no_grad():
            without = self.part(range)
        return self.part(range) - 0.5 * without


@torch.jit.script
class Opened:
    def __init__(self, x: torch.Tensor, weight: torch.Tensor):
        self.x = x
        self.weight = weight

    def __enter__(self) -> torch.Tensor:
        y = torch.nn.functional.linear(self.x, self.weight)
        return torch.sigmoid(y) * 0.5 + y

    def __exit__(self, kind: Any, value: Any, trace: Any):
        pass


class Opens(GivesAnObject):
    def forward(self, x):
        with Opened(x, self.weight) as y:
            z = y * 2
        return z


class KeptCallsTest(Following):
    def test_an_object_that_a_function_knows_by_an_interface(self):
        for on in (False, True):
            with auto(on):
                self.assert_sites(torch.jit.script(GivesAnObject()), [("of", "linear_sigmoid_mul_add")], f"an object, {on}")

    def test_what_is_called_by_with_and_of_objects_behind_an_interface(self):
        """What torch does not inline: it is fused, and unfused, where it stands."""
        for kind, method in ((GivesOneOfTwo, "of"), (Opens, "__enter__")):
            model, x = torch.jit.script(kind()), random_inputs(3)
            before = kind.forward(model, x)
            self.assert_sites(model, [(method, "linear_sigmoid_mul_add")], kind.__name__)
            torch.ops.tailor.reset_calls()
            self.assert_near([model(x)], [before], kind.__name__)
            self.assertEqual(torch.ops.tailor.calls()["linear_sigmoid_mul_add/cpu"], 1, kind.__name__)
            with auto(False):
                torch.jit.script(AsksAStranger())(x)
            self.assertEqual(torch.ops.tailor.calls()["linear_sigmoid_mul_add/cpu"], 1, "a class of which this module makes no object")
            torch.ops.tailor.unfuse_(model)
            torch.ops.tailor.reset_calls()
            self.assert_near([reloaded(model)(x)], [before], kind.__name__)
            self.assertEqual(torch.ops.tailor.calls()["linear_sigmoid_mul_add/cpu"], 0, kind.__name__)

    def test_types_that_a_callee_declares(self):
        """Inlined, its variables would have the types of what they are given first: torch would read no file of that."""
        for kind, on in itertools.product((OfOneOfTwo, OfAnything, OfATuple, OfAnotherObject, OfOneOfTwoObjects, *OPTIONAL), (True, False)):
            with auto(on):
                model, x = torch.jit.script(kind()), random_inputs(3)
            before = kind.forward(model, x)
            torch.ops.tailor.fuse_(model)
            self.assertTrue(is_fused(model, "linear_sigmoid_mul_add"), kind.__name__)
            self.assert_near([model(x), reloaded(model)(x)], [before] * 2, f"{kind.__name__}, {on}")
            torch.ops.tailor.unfuse_(model)
            self.assert_near([model(x), reloaded(model)(x)], [before] * 2, f"{kind.__name__}, {on}, unfused")

    def test_two_modes_and_a_declared_type(self):
        """What was fused in the callee, torch would make one of once it runs the caller, and lose what wants a gradient."""
        for kind, on, from_file in itertools.product((OfOneOfTwoModes, AndOnceMore), (True, False), (True, False)):
            with auto(on):
                model, x = torch.jit.script(kind()), random_inputs(3)
            torch.ops.tailor.fuse_(model)
            self.assertTrue(is_fused(model), kind.__name__)
            model = reloaded(model) if from_file else model
            kind.forward(model, x).sum().backward()
            wanted = model.gemm.weight.grad
            for call in range(4):
                model.gemm.weight.grad = None
                model(x).sum().backward()
                self.assertIsNotNone(model.gemm.weight.grad, f"{kind.__name__}, {on}, {from_file}, call {call}")
                self.assert_near([model.gemm.weight.grad], [wanted], f"{kind.__name__}, {on}, {from_file}, call {call}")

    def test_a_chain_through_a_declared_tuple(self):
        """The linear in a method that gives it beside what may be missing, and what follows in its caller."""
        for on in (True, False):
            with auto(on):
                model, x = torch.jit.script(ThroughATuple()), random_inputs(3)
            before = ThroughATuple.forward(model, x)
            torch.ops.tailor.fuse_(model)
            self.assertTrue(is_fused(model, "linear_sigmoid_mul_add"))
            self.assert_near([model(x), reloaded(model)(x)], [before] * 2, str(on))

    def test_an_argument_that_hides_a_word_beside_two_modes(self):
        """Nothing is fused in it, and nothing that it calls: that would have to be inlined, and no file could say it."""
        for on in (True, False):
            with auto(on):
                model, x = torch.jit.script(HidesAWord()), random_inputs(3)
            before = HidesAWord.forward(model, x)
            for _ in range(2):
                self.assertFalse(any(site["fused"] for site in json.loads(torch.ops.tailor.fuse_(model))["sites"]))
                self.assertFalse(is_fused(model))
                self.assert_near([model(x), reloaded(model)(x)], [before] * 2, str(on))


if __name__ == "__main__":
    main()
