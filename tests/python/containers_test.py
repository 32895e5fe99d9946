"""Modules, and objects of scripted classes, that hang in lists, tuples, dictionaries, optionals and in one another."""
import copy
import io
import json
import zipfile
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F

from checks import auto, load, main, reloaded
from command import Command
from models import K, build, randomise
from scripted import Following, random_inputs

BATCH_NORM, SIGMOID = "linear_mul_batch_norm", "linear_sigmoid_mul_add"
NETS = [build(body).eval() for body in ("return self.bn(self.gemm(x) * self.scale)", "y = self.gemm(x); return torch.sigmoid(y) * self.factor + y")]
MATRICES = sum(p.dim() == 2 for p in NETS[0].parameters())


@torch.jit.interface
class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-differ
        pass


@torch.jit.interface
class Layer(torch.nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # pylint: disable=arguments-differ
        pass


@torch.jit.interface
class Step:
    def take(self, x: torch.Tensor) -> torch.Tensor:
        pass


@torch.jit.script
class Scaled:
    def __init__(self, weight: torch.Tensor):
        self.weight = weight
        self.mean = torch.ones(weight.size(0)).cumsum(0)

    def take(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight)
        return F.batch_norm(y * self.mean, self.mean, self.mean)

    def other(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@torch.jit.script
class Pair:
    def __init__(self, blocks: List[Block], step: Step):
        self.blocks = blocks
        self.step = step

    def take(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[0].forward(self.step.take(x))


def block(i):
    """Those of one number are of one class."""
    return torch.jit.script(randomise(copy.deepcopy(NETS[i])))


def scaled(rows=K):
    return Scaled(torch.linspace(-1, 1, rows * K).sin().view(rows, K))


class InAList(torch.nn.Module):
    parts: List[Block]

    def __init__(self, *parts):
        super().__init__()
        self.parts = list(parts) or [block(0), block(0), block(1)]

    def forward(self, x):
        return self.parts[0].forward(x) + self.parts[1].forward(x) - self.parts[2].forward(x)


class InADict(torch.nn.Module):
    parts: Dict[str, Block]
    numbered: Dict[int, Block]
    others: Dict[float, Block]

    def __init__(self):
        super().__init__()
        self.parts, self.numbered, self.others = {"left": block(0)}, {7: block(1)}, {0.5: block(0)}

    def forward(self, x):
        return self.parts["left"].forward(x) + self.numbered[7].forward(x) + self.others[0.5].forward(x)


class InATuple(torch.nn.Module):
    parts: Tuple[int, Block, Optional[Block]]

    def __init__(self):
        super().__init__()
        self.parts = (1, block(0), block(1))

    def forward(self, x):
        last = self.parts[2]
        assert last is not None
        return self.parts[1].forward(x) + last.forward(x)


class Perhaps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.jit.Attribute(block(0), Optional[Block])
        self.none = torch.jit.Attribute(None, Optional[Block])

    def forward(self, x):
        part, none = self.part, self.none
        if none is not None:
            x = none.forward(x)
        assert part is not None
        return part.forward(x)


class Anything(torch.nn.Module):
    parts: List[Any]

    def __init__(self):
        super().__init__()
        self.parts = [1, "two", block(0), scaled()]

    def forward(self, x):
        return x + len(self.parts)


class AnObject(torch.nn.Module):
    part: Step

    def __init__(self):
        super().__init__()
        self.part = scaled()

    def forward(self, x):
        return self.part.take(x)


class OfKnownClass(torch.nn.Module):
    parts: List[Scaled]

    def __init__(self):
        super().__init__()
        self.parts = [scaled(), scaled()]

    def forward(self, x):
        return self.parts[1].take(x)


class InAnObject(torch.nn.Module):
    part: Step

    def __init__(self):
        super().__init__()
        self.part = Pair([block(0)], scaled())

    def forward(self, x):
        return self.part.take(x)


class Nested(torch.nn.Module):
    parts: List[Dict[str, Tuple[int, List[Block]]]]

    def __init__(self):
        super().__init__()
        self.parts = [{"a": (1, [block(0)])}]

    def forward(self, x):
        return self.parts[0]["a"][1][0].forward(x)


class ListOfLayers(torch.nn.Module):
    parts: List[Layer]

    def __init__(self):
        super().__init__()
        self.parts = [torch.jit.script(torch.nn.Linear(K, K))]

    def forward(self, x):
        return self.parts[0].forward(x)


class Circle(torch.nn.Module):
    parts: List[Block]
    things: List[Any]

    def __init__(self):
        super().__init__()
        self.parts, self.things = [block(0)], [1]

    @torch.jit.export
    def close(self, part: Block):
        self.parts.append(part)
        self.things.append(self.things)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0].forward(x)


class Makes(torch.nn.Module):
    def forward(self, x):
        steps: List[Step] = [Scaled(x[:, :1] * x[:1])]
        return steps[0].take(x)


class CallsAnotherMethod(torch.nn.Module):
    part: Scaled

    def __init__(self):
        super().__init__()
        self.part = scaled()

    def forward(self, x):
        return self.part.other(x)


class OnlyNames(torch.nn.Module):
    part: Optional[Scaled]

    def __init__(self):
        super().__init__()
        self.part = None

    def forward(self, x):
        return x if self.part is None else x + 1


class OnlyAsks(torch.nn.Module):
    def forward(self, x):
        things: List[Any] = [x]
        return x + 1 if isinstance(things[0], Scaled) else x


KINDS = {
    InAList: [("parts.0.forward", BATCH_NORM), ("parts.2.forward", SIGMOID)],
    InADict: [("parts.left.forward", BATCH_NORM), ("numbered.7.forward", SIGMOID)],
    InATuple: [("parts.1.forward", BATCH_NORM), ("parts.2.forward", SIGMOID)],
    Perhaps: [("part.forward", BATCH_NORM)],
    Anything: [("parts.2.forward", BATCH_NORM), ("parts.3.take", BATCH_NORM)],
    AnObject: [("part.take", BATCH_NORM)],
    OfKnownClass: [("forward", BATCH_NORM)],
    InAnObject: [("part.blocks.0.forward", BATCH_NORM), ("part.step.take", BATCH_NORM)],
    Nested: [("parts.0.a.1.0.forward", BATCH_NORM)],
}


def plain(kind):
    with auto(False):
        model = torch.jit.script(kind().eval())
        torch.ops.tailor.unfuse_(model)  # its classes may be fused: others have them, too
    return model


def ops_in_file(model):
    file = io.BytesIO()
    torch.jit.save(model, file)
    with zipfile.ZipFile(file) as archive:
        return sum(archive.read(name).count(b"ops.tailor.") for name in archive.namelist() if name.endswith(".py"))


class ContainersTest(Following):
    def test_each_is_found(self):
        for kind, wanted in KINDS.items():
            self.assert_sites(plain(kind), wanted, kind.__name__)

    def test_they_run_fused_and_unfused(self):
        x = random_inputs(1)
        for kind, wanted in KINDS.items():
            model = plain(kind)
            with auto(False), torch.no_grad():
                expected = model(x)
                torch.ops.tailor.fuse_(model)
                called = [rule for method, rule in wanted if kind is not Anything]  # which calls none of them
                for fused in (model, reloaded(model)):
                    for rule in called:
                        got = self.assert_calls(rule, lambda: fused(x), kind.__name__)
                        self.assert_near([got], [expected], kind.__name__)
                    self.assertGreater(ops_in_file(fused), 0, kind.__name__)
                    torch.ops.tailor.unfuse_(fused)
                    self.assertEqual(ops_in_file(fused), 0, kind.__name__)
                    self.assert_no_calls(lambda: self.assertTrue(torch.equal(fused(x), expected), kind.__name__))

    def test_what_scripting_has_fused_is_unfused(self):
        with auto(True):
            model = torch.jit.script(InAList(torch.jit.script(build("return self.bn(self.gemm(x) * self.scale)"))))
        self.assertGreater(ops_in_file(model), 0)
        found = json.loads(torch.ops.tailor.unfuse_(model))["sites"]
        self.assertEqual([site["method"] for site in found], ["parts.0.forward"])
        self.assertEqual(ops_in_file(model), 0)

    def test_a_linear_alone(self):
        """Behind an interface it is a site, as a submodule's is."""
        found = json.loads(torch.ops.tailor.inspect(plain(ListOfLayers)))["sites"]
        self.assertEqual([site["method"] for site in found], ["parts.0.forward"])

    def test_in_a_circle(self):
        """torch cannot save one."""
        model = plain(Circle)
        model.close(model)
        for report in (torch.ops.tailor.inspect, torch.ops.tailor.fuse_, torch.ops.tailor.unfuse_):
            self.assertEqual([site["method"] for site in json.loads(report(model))["sites"]], ["parts.0.forward"])
        self.assertEqual(json.loads(torch.ops.tailor.settle_(model))["weights"], MATRICES)
        torch.ops.tailor.release_(model)

    def test_what_else_the_file_has_in_it(self):
        """Classes of which a method is not called, or of which there is no object: another model has had them fused."""
        for kind in (CallsAnotherMethod, OnlyNames, OnlyAsks):
            model = plain(kind)
            with auto(False):
                torch.ops.tailor.fuse_(torch.jit.script(Makes()))
            self.assertGreater(ops_in_file(model), 0, kind.__name__)
            torch.ops.tailor.unfuse_(model)
            self.assertEqual(ops_in_file(model), 0, kind.__name__)

    def test_their_weights_are_settled(self):
        for kind, weights in ((InAList, 3 * MATRICES), (InAnObject, MATRICES + 1), (Nested, MATRICES)):
            model = plain(kind)
            for op in (torch.ops.tailor.settle_, torch.ops.tailor.release_):
                self.assertEqual(json.loads(op(model))["weights"], weights, kind.__name__)


class CommandTest(Command):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        load()

    def test_on_such_files(self):
        plain_file, again = self.folder / "plain.pt", self.folder / "again.pt"
        for kind, wanted in KINDS.items():
            plain(kind).save(self.source)
            shape = random_inputs(1).shape
            count = len(wanted)
            text = self.done("fuse", self.source, "-o", self.target, f"--input=float32[{shape[0]},{shape[1]}]")
            self.assertIn(f"fused {count} of {count} sites\n", text, kind.__name__)
            text = self.done("inspect", self.target)
            self.assertIn(f"would fuse 0 of {count} sites, {count} {'is' if count == 1 else 'are'} fused already\n", text, kind.__name__)
            self.assertIn("fused.pt needs Tailor to be loaded\n", text, kind.__name__)
            self.assertIn("plain.pt loads without Tailor\n", self.done("unfuse", self.target, "-o", plain_file), kind.__name__)
            self.assertEqual(ops_in_file(torch.jit.load(plain_file)), 0, kind.__name__)
            self.assertIn("would fuse", self.done("inspect", plain_file), kind.__name__)
            self.done("fuse", plain_file, "-o", again, f"--expect={BATCH_NORM}={sum(rule == BATCH_NORM for _, rule in wanted)}")

    def test_their_tensors_are_listed(self):
        plain(InAList).save(self.source)
        text = self.done("inspect", self.source)
        self.assertRegex(text, r"parts\.0\.gemm\.weight\s+parameter\s")
        self.assertRegex(text, r"parts\.2\.bn\.running_mean\s+buffer\s")
        plain(AnObject).save(self.source)
        self.assertRegex(self.done("inspect", self.source), r"part\.weight\s+attribute\s")

    def test_what_a_file_only_names(self):
        """A class with a fused method of which there is no object; and what is called as Tailor is, or a text about it."""
        model = plain(OnlyNames)
        with auto(False):
            torch.ops.tailor.fuse_(torch.jit.script(Makes()))
            model.save(self.source)
            self.assertIn("needs Tailor to be loaded", self.done("inspect", self.source))
            self.assertIn("loads without Tailor", self.done("unfuse", self.source, "-o", self.target))
            self.assertEqual(ops_in_file(torch.jit.load(self.target)), 0)
            torch.jit.script(SpeaksOfTailor()).save(self.source)
        self.assertIn("loads without Tailor", self.done("inspect", self.source))
        self.assertIn("loads without Tailor", self.done("unfuse", self.source, "-o", self.target))

    def test_what_cannot_be_undone(self):
        """Nobody fused it: its author calls the library."""
        torch.jit.script(AsksTailor()).save(self.source)
        self.assertIn("needs Tailor to be loaded", self.done("inspect", self.source))
        self.refused(4, "unfuse", self.source, "-o", self.target, says="not written: some of Tailor's ops could not be undone")


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tailor = torch.nn.ReLU()


class SpeaksOfTailor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ops = Named()

    def forward(self, x):
        assert x.dim() == 2, "it's \"ops.tailor.uniform(x)\" that wants a matrix"
        return self.ops.tailor.forward(x)


class AsksTailor(torch.nn.Module):
    def forward(self, x):
        return x * len(torch.ops.tailor.calls())


if __name__ == "__main__":
    main()
