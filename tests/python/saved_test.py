"""What becomes of a fused method's graph outside of Tailor: in a file, in torch's tracer, after many turns."""
import inspect
import json

import torch
import torch.nn.functional as F

from checks import Checks, auto, main, reloaded
from scripted import net_of

WORDS = ["range", "bool", "annotate", "float", "int", "len", "torch", "ops", "list", "print"]
PLACES = {
    "argument": ("scale", "{word}: float = 2.0", "self.scale * {word}"),
    "attribute": ("{word}", "other: float = 2.0", "self.{word} * other"),
    "variable": ("scale", "other: float = 2.0", "{word}"),
}


def model_with(word, place):
    """Of source that is made here: TorchScript reads a class's source from its file."""
    attribute, argument, factor = (text.format(word=word) for text in PLACES[place])
    body = f"        {word} = self.scale * other\n" if place == "variable" else ""
    source = f"""import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8, momentum=None)
        self.{attribute} = torch.nn.Parameter(torch.randn(8))
    def forward(self, x, {argument}):
{body}        return self.bn(self.gemm(x) * ({factor}))
"""
    return net_of(source, f"<{place} {word}>")


CALLS = """import torch
class Talker(torch.nn.Module):
    def forward(self, x):
        for i in range(x.dim()):
            x = x + 0
        n = sorted([x.size(0), x.size(1)])
        if int(x.sum() * 0) > 0:
            print(str(n[0]))
        return x
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.deep, self.gemm, self.bn = torch.nn.ReLU(), torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)
        self.scale, self.talker = torch.nn.Parameter(torch.randn(8)), Talker()
    def chain(self, x):
        return self.bn(self.gemm(x) * self.scale)
"""
# A word of a submodule's as a variable of the caller's, in the method with the chain, beside a fork with it, and in the fork.
BODIES = ["""    def forward(self, x):
        {word} = self.deep(x)
        return self.talker(self.chain({word})) + {word}.sum()
""", """    def forward(self, x):
        future = torch.jit.fork(self.chain, x)
        {word} = self.deep(x)
        return self.talker({word}).sum() + torch.jit.wait(future)
""", """    def forward(self, x):
        {word} = self.deep(x)
        future = torch.jit.fork(self.chain, {word})
        return self.talker({word}).sum() + torch.jit.wait(future)
""", """    def talk(self, x):
        {word} = self.deep(x)
        return self.talker({word}) + {word}
    def forward(self, x):
        future = torch.jit.fork(self.talk, x)
        return self.chain(x) + torch.jit.wait(future).sum()
"""]


class FileTest(Checks):
    def test_names_that_are_words_of_torchscript(self):
        """Also those that only torch.nn's code says, which is part of a fused method."""
        fused = 0
        for place in PLACES:
            for word in WORDS:
                if place == "attribute" and hasattr(torch.nn.Module, word):
                    continue
                with self.subTest(word=word, place=place):
                    model, x = model_with(word, place), torch.randn(4, 6)
                    self.tailor.auto(False)
                    try:
                        plain = torch.jit.script(model)
                        try:
                            expected = reloaded(plain).eval()(x)
                        except RuntimeError:
                            continue  # no word for a name in any case
                    finally:
                        self.tailor.auto(True)
                    self.tailor.fuse_(plain)
                    fused += "tailor::linear" in str(plain.inlined_graph)
                    plain = reloaded(reloaded(plain))
                    self.assert_same(reloaded(plain).eval()(x), expected, "fused", (1e-6, 1e-5))
                    self.tailor.unfuse_(plain)
                    self.assert_same(reloaded(reloaded(plain)).eval()(x), expected, "unfused", (1e-6, 1e-5))
        self.assertGreater(fused, 18, "most of them are fused all the same")

    def test_words_of_what_is_inlined(self):
        for word in ("range", "sorted", "int", "str", "print"):
            for i, body in enumerate(BODIES):
                model, x = net_of(CALLS + body.format(word=word), f"<body {i} {word}>"), torch.rand(4, 6)
                with auto(False):
                    plain = torch.jit.script(model.eval())
                expected = reloaded(plain)(x)
                self.tailor.fuse_(plain)
                self.assertIn("tailor::linear", str(plain.inlined_graph), f"{word} {i}")
                self.assert_same(reloaded(plain)(x), expected, f"fused, {word} {i}", (1e-5, 1e-5))
                self.tailor.unfuse_(plain)
                self.assert_same(reloaded(plain)(x), expected, f"unfused, {word} {i}", (1e-5, 1e-5))

    def test_a_name_that_hides_a_word_is_a_reason(self):
        """Where a file would say the word; nobody is to be sent to find another name for nothing."""
        for place in ("argument", "attribute"):
            for word, is_said in (("bool", True), ("annotate", True), ("range", True), ("int", False), ("sorted", False)):
                report = self.tailor.inspect(torch.jit.script(model_with(word, place)))
                self.assertEqual(f"an {place} is called `{word}`" in report, is_said, report)
                self.assertEqual('"fused": false' in report, is_said, report)
        gate = """import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.range, self.gemm = torch.nn.Parameter(torch.randn(8)), torch.nn.Linear(6, 8)
    def forward(self, x, float: float):
        y = self.gemm(x)
        return (torch.sigmoid(y) * float + y) * self.range + self.range
"""
        with auto(False):
            model = torch.jit.script(net_of(gate, "<no loop>"))
        self.assertNotIn("which hides", self.tailor.fuse_(model))
        reloaded(reloaded(reloaded(model)))

    def test_words_of_what_is_inlined_as_attributes(self):
        """The submodule says them all, and torch calls what holds an attribute as the attribute is called."""
        for word in ("range", "sorted", "int", "str", "print"):
            source = CALLS.replace("self.scale", f"self.{word}") + BODIES[0].format(word="y").replace("y.sum()", f"self.{word}.sum()")
            with auto(False):
                model = torch.jit.script(net_of(source, f"<attribute {word}>").eval())
            before, after = self.tailor.inspect(model), self.tailor.fuse_(model)
            self.assertEqual(before, after, word)
            if word == "range":  # the others what is called says, and not who calls it
                self.assertIn("an attribute is called `range`", before)
            reloaded(reloaded(model))


class NamesNoLine(torch.nn.Module):
    """A file has no place for its call of F.silu, but for the call of the module."""

    def __init__(self):
        super().__init__()
        self.gemm, self.gn, self.scale = torch.nn.Linear(6, 8), torch.nn.GroupNorm(2, 8), torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = self.gn(self.gemm(x))
        t = torch.ones([1])
        y = F.silu(y)
        y = y * self.scale
        return F.silu(y) + t


class LinesTest(Checks):
    def test_no_line_but_the_author_s(self):
        with auto(False):
            model = torch.jit.script(torch.nn.Sequential(NamesNoLine()))
        line = inspect.getsourcelines(NamesNoLine.forward)[1] + 2
        for loaded in (False, True):
            reason = json.loads(self.tailor.inspect(model))["sites"][0]["reason"]
            place = "" if loaded else f" in saved_test.py:{line + 1}"
            self.assertIn(f"`ones` in saved_test.py:{line} stands between the norm and `silu`{place}, so that", reason)
            model = reloaded(model)


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn, self.scale = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        return self.bn(self.gemm(x) * self.scale)

    def other(self, x):
        y = self.gemm(x)
        return torch.sigmoid(y) * 2.0 + y


class TraceTest(Checks):
    def test_several_methods_at_a_time(self):
        x = torch.randn(4, 6)
        for training in (False, True):
            for names in (("forward",), ("forward", "other"), ("other", "forward")):
                traced = torch.jit.trace_module(Two().train(training), {name: x for name in names})  # it checks its traces
                for name in names:
                    self.assertIn("tailor::linear", str(getattr(traced, name).inlined_graph), f"{names}, training {training}")

    def test_graphs_do_not_grow(self):
        for made in (Two(), net_of(CALLS + BODIES[1].format(word="y"), "<grows>")):  # the second with a fork
            model = torch.jit.script(made.eval())
            sizes = []
            for _ in range(5):
                self.tailor.unfuse_(model)
                self.tailor.fuse_(model)
                sizes.append(str(model.graph).count("\n"))
            self.assertEqual(len(set(sizes)), 1, sizes)


class ForkedTest(Checks):
    def test_constants_that_a_file_makes_arguments(self):
        """Loading, torch hands a forked graph those as arguments that the graph around it has too."""
        class Forked(Two):
            def forward(self, x):
                future = torch.jit.fork(self.part, x)
                y = self.gemm(x)
                return torch.sigmoid(y) * 1.5 + y + torch.jit.wait(future) + x.size(0) * x.size(1)

            def part(self, x):
                y = self.gemm(x)
                v = x @ self.gemm.weight.transpose(0, 1) + self.gemm.bias
                return self.bn(v * self.scale) + (torch.sigmoid(y) * 1.5 + y)
        eager, x = Forked().eval(), torch.randn(4, 6)
        model, first = torch.jit.script(eager), None
        for turn in range(3):
            sites = json.loads(self.tailor.inspect(model))["sites"]
            self.assertEqual(first := first or sites, sites, f"turn {turn}")
            self.assertTrue(all(site["fused"] for site in sites), sites)
            model = reloaded(model)
            self.tailor.unfuse_(model)
            model = reloaded(model)
            self.assertNotIn("tailor", model.code, f"turn {turn}")
            self.assert_same(model(x), eager(x), f"unfused, turn {turn}", (1e-5, 1e-5))
            fused = json.loads(self.tailor.fuse_(model))["sites"]
            self.assertEqual([site["fused"] for site in fused], [True] * len(first), f"turn {turn}: {fused}")
            self.assert_same(model(x), eager(x), f"fused, turn {turn}", (1e-5, 1e-5))

    def test_loops_that_are_left_early(self):
        """Torch writes such a loop in what is forked once, and cannot write what it then reads: the call with it stays a call."""
        for loop, stays in ((WHILE, True), (BREAK, True), (RETURN, True), (FOR, False)):
            for forked in FORKS:
                what, x = f"{forked}\n{loop}", torch.randn(4, 6)
                with auto(False):
                    model = torch.jit.script(net_of(LOOPS.format(loop=loop, forked=forked, sub="Sub()" if "sub" in forked else None), f"<{what}>"))
                expected = model(x, 20)
                methods = sorted(["forward", FORKS[forked] if stays else "forward"])
                for turn in range(3):
                    for report in (self.tailor.inspect, self.tailor.fuse_):
                        sites = json.loads(report(model))["sites"]
                        self.assertTrue(all(site["fused"] for site in sites), sites)
                        self.assertEqual(sorted(site["method"] for site in sites), methods, f"turn {turn}, {what}")
                    before = ran(self.tailor)
                    self.assert_same(model(x, 20), expected, f"turn {turn}, {what}", (1e-5, 1e-5))
                    self.assertEqual(ran(self.tailor) - before, 2, f"turn {turn}, {what}")
                    model = reloaded(reloaded(model))
                self.tailor.unfuse_(model)
                model = reloaded(reloaded(model))
                self.assertFalse("tailor" in model.code or '"fused": true' in self.tailor.unfuse_(model), what)
                self.assert_same(model(x, 20), expected, f"unfused, {what}", (1e-5, 1e-5))


WHILE, BREAK, RETURN, FOR = """
    while t > 10:
        t -= 2
    return t""", """
    for i in range(t):
        if i > 3:
            break
        t -= 1
    return t""", """
    for i in range(t):
        if i > 3:
            return i
    return t""", """
    for i in range(5):
        t += i
    return t"""
FORKS = {"self.sub, x, t": "sub.forward", "gate, x, self.weight, t": "gate"}
LOOPS = """import torch
def count(t: int) -> int:{loop}
def gate(x, weight, t: int):
    y = torch.nn.functional.linear(x, weight)
    return torch.sigmoid(y) * 2.0 + y + count(t)
class Sub(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(6, 8)
    def forward(self, x, t: int):
        y = self.gemm(x)
        return torch.sigmoid(y) * 2.0 + y + count(t)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sub, self.gemm, self.weight = {sub}, torch.nn.Linear(6, 8), torch.nn.Parameter(torch.randn(8, 6))
    def forward(self, x, t: int):
        future = torch.jit.fork({forked})
        y = self.gemm(x)
        return torch.sigmoid(y) * 2.0 + y + torch.jit.wait(future) + count(t)
"""


def ran(tailor):
    return sum(count for path, count in tailor.calls().items() if path.startswith("linear_sigmoid_mul_add/") and "backward" not in path)


if __name__ == "__main__":
    main()
