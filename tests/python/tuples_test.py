"""Tuples that hold what may be missing, in files of graphs into which calls were inlined."""
import json
from typing import Optional, Tuple

import torch

from checks import Checks, auto, main, reloaded
from scripted import is_fused, net_of, source_of_part

CALLS = "return self.part(x, x, 1.0), self.part(x), self.part(x, None, 2.0), self.part(x, x + 1)"
BODIES = {
    "a list": "all = [(a, k)]; all.append((None, None)); return y, all",
    "a list of constants": "all = [(k, 3)]; all.append((None, 4)); return y, all",
    "a dictionary": "all = {'given': (a, k)}; all['none'] = (None, None); return y, all",
    "tuples in tuples": "all = [((a, k), y)]; all.append(((None, 0.5), y)); return y, all",
    "lists that are added": "all = [(x.size(0), k)]; more = [(3, k)]; all += more; all.append((4, None)); return y, all",
    "a loop": """t = (a, k)
        for i in range(x.size(0) - 2):
            t = (None, k) if i % 2 == 0 else (x, None)
        return y, t""",
    "a while loop": """t = (k, x.size(0))
        while t[1] > 2:
            t = (None, t[1] - 1)
        return y, t""",
    "branches": """t = (a, k) if x.size(0) > 2 else (a, 0.25 if k is None else k)
        all = [t]; all.append((None, None)); return y, all""",
    "a branch that is folded": """b = a
        if a is None:
            b = y
        all = [(b, y)]; all.append((None, y)); return all""",
    "one of the author's": "t = (a, k); all = [t, (x, 0.5), (None, None)]; return y, all, t[0] is None",
    "a call's result": "return y, None if a is None else (a, y)",
    "half of a call's result": """b: Optional[torch.Tensor] = None
        if a is not None:
            b = a
        return y, b""",
    "a union of constants": """all = [(self.any_of(3), 1)]; all.append(('x', 3))
        named = {'one': (self.any_of(3), 1)}
        pair = (self.any_of('a'), self.any_of(1))
        for i in range(x.size(0)):
            pair = (pair[1], 2)
        return y, len(all), len(named), isinstance(pair[0], str)""",
    "a union of what is computed": "all = [(self.one_more(3), 1)]; all.append(('x', 3)); return y, len(all)",
    "a union, asked for its type": "all = [(1, self.any_of(3))]; return y, self.asks_of_unions(all)",
    "a fork": "all = torch.jit.wait(torch.jit.fork(self.listed, k)); all.append((3, None)); return y, all",
    "a fork, asked for its type": "return y, self.asks(torch.jit.wait(torch.jit.fork(self.listed, k)))",
    "asked for its type": "all = [(1, k)]; return y, self.asks(all)",
}
FORWARDS = {
    "a call's result": "(y, c), (z, d) = self.part(x), self.part(x, x); all = [(y, c)]; all.append((z, d)); return all, [c, d]",
    "half of a call's result": """y, b = self.part(x, x)
        all = [(y, b)]
        for i in range(3):
            all.append((y, None))
            y, b = self.part(x, b)
            all = all + [(y, b)]
        return all""",
}


# What torch can read of a frozen graph it must be able to read of one that was fused before.
FROZEN = {
    "a loop": """s: Tuple[torch.Tensor, Optional[torch.Tensor]] = (x, None)
        for i in range(x.size(0)):
            s = (x, s[0])
        return y, s""",
    "tuples in tuples": """s: Tuple[torch.Tensor, Tuple[int, Optional[torch.Tensor]]] = (x, (1, None))
        for i in range(x.size(0)):
            s = (x, (i, s[0]))
        return y, s""",
    "what a call was given": """s: Tuple[Tuple[Tuple[Optional[torch.Tensor], str]]] = (((a, "s"),),)
        for i in range(x.size(0)):
            for j in range(2):
                s = (((x, "s"),),)
        return y, s""",
    "what a caller decided": """s: Tuple[Optional[float]] = (k,)
        j = 0
        while j < 3:
            j += 1
            for i in range(2):
                for _ in range(2):
                    s = s
            for i in range(2):
                if k is None:
                    s = (1.5,)
        return y, s""",
    "two loops": """s: Tuple[torch.Tensor, int, Optional[bool]] = (x, x.size(0), True)
        for i in range(2):
            s = (x, x.size(0), None)
        for i in range(x.size(0)):
            if i == 1:
                s = (x, 3, True)
        return y, s""",
    "loops in loops": """s: Tuple[Optional[int], Optional[int], torch.Tensor] = (1, None, x)
        for i in range(x.size(0)):
            s = s
            for j in range(2):
                s = (1, n, x)
        return y, s""",
    "a union": """s: Tuple[Union[int, str, None], torch.Tensor, Optional[str]] = (None, x, None)
        for i in range(x.size(0)):
            s = s
            for j in range(2):
                s = (None, x + 1, 'a')
        return y, s""",
    "branches that differ": """s: Tuple[torch.Tensor, Any] = (y, None)
        for i in range(x.size(0)):
            if i == 0:
                s = (y, 3)
            elif i == 1:
                s = (y, [y])
        return s[0]""",
    "a branch": """s: Tuple[torch.Tensor, Optional[torch.Tensor]] = (x, None)
        if x.size(0) > 3:
            s = (x, s[0])
        return y, s""",
}
FROZEN_FORWARDS = {
    "what a call was given": "return self.part(x, x, 1.0)",
    "what a caller decided": "k = 0.5 if x.size(0) > 9 else 1.0; return self.part(x, None, k)",
}


@torch.jit.script
class Holder:
    def __init__(self, one: complex):
        self.one = one


class OfHolders(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)
        self.scale = torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = self.bn(self.gemm(x) * self.scale)
        a: Tuple[Optional[int], Holder] = (1, Holder(1j))
        both = [a, a]
        return y, both[0][0], both[1][1].one


class TuplesTest(Checks):
    def test_files_of_what_was_frozen_first(self):
        body = """s: Tuple[torch.Tensor, Optional[torch.Tensor]] = (x, x)
        for i in range(x.size(0)):
            s = s
            for j in range(2):
                s = (s[0], x)
        for i in range(x.size(0)):
            s = (s[0], None)
        return y, s"""
        x = torch.randn(5, 6)
        eager = net_of(source_of_part(body, "return self.part(x)"), "<frozen first>").eval()
        with auto(False):
            model = torch.jit.freeze(torch.jit.script(eager), preserved_attrs=["bn"])
        self.tailor.fuse_(model)
        self.assertTrue(is_fused(model))
        for generation in range(4):
            self.assert_equal(model(x), eager(x), generation)
            model = reloaded(model)
        text = str(model.graph)
        self.tailor.fuse_(model)
        self.assertEqual(str(model.graph), text)

    def test_files_of_frozen_modules(self):
        x = torch.randn(5, 6)
        for name, body in FROZEN.items():
            source = source_of_part(body, FROZEN_FORWARDS.get(name, "return self.part(x)"), ", n: Optional[int] = None")
            eager = net_of(source, f"<frozen {name}>").eval()
            with auto(True):
                model = torch.jit.script(eager)
            self.assertTrue(is_fused(model), name)
            model, unfused = torch.jit.freeze(model), torch.jit.freeze(model)
            self.tailor.unfuse_(unfused)
            for generation in range(3):
                self.assert_equal(model(x), eager(x), f"{name}, {generation}")
                self.assert_equal(unfused(x), eager(x), f"{name}, unfused, {generation}")
                model, unfused = reloaded(model), reloaded(unfused)

    def test_files_of_files(self):
        """What is read from a file and saved again has lost what torch knew of the first."""
        x = torch.randn(5, 6)
        for name, body in BODIES.items():
            source = source_of_part(body, FORWARDS.get(name, CALLS))
            eager = net_of(source, f"<{name}>").eval()
            expected = eager(x)
            for door in (True, False):
                with auto(door):
                    model = torch.jit.script(net_of(source, f"<{name} {door}>").eval())
                model.load_state_dict(eager.state_dict())
                self.tailor.fuse_(model)
                text = str(model.graph)
                self.assertTrue(is_fused(model), name)
                self.tailor.fuse_(model)
                self.assertEqual(str(model.graph), text, f"{name}, fused twice")
                for generation in range(3):
                    self.assert_equal(model(x), expected, f"{name}, {generation}")
                    model = reloaded(model)
                self.tailor.unfuse_(model)
                self.assert_equal(reloaded(reloaded(model))(x), expected, f"{name}, unfused")

    def assert_equal(self, mine, its, what):
        self.assertIs(type(mine), type(its), what)
        if isinstance(its, torch.Tensor):
            self.assert_same(mine, its, what, (1e-5, 1e-5))
        elif isinstance(its, (list, tuple, dict)):
            self.assertEqual(len(mine), len(its), what)
            for one in its if isinstance(its, dict) else range(len(its)):
                self.assert_equal(mine[one], its[one], f"{what}, {one}")
        else:
            self.assertEqual(mine, its, what)

    def test_where_a_union_may_be_none(self):
        """Its caller calls a part that is fused by itself, and every report knows that."""
        source = source_of_part(
            "return [(y, n), (y, None), (y, 3)]", "return self.part(x), self.part(x, n=4)", ", n: Union[int, str, None] = None"
        )
        with auto(False):
            model = torch.jit.script(net_of(source, "<union>"))
        ways = (self.tailor.inspect, self.tailor.fuse_, self.tailor.inspect, self.tailor.fuse_)
        first, *others = (json.loads(way(model))["sites"] for way in ways)
        self.assertEqual([first] * 3, others)
        self.assertEqual([(site["method"], site["fused"]) for site in first], [("forward", True)] * 2 + [("part", True)])

    def test_what_torch_cannot_compare(self):
        """Over two equal constants of such tuples it fails: so each reader cannot be given one of its own."""
        tuple_of = "a: Tuple[int, Optional[{kind}]] = (1, {value})"
        bodies = {
            "a list": f"{tuple_of}; return y, [a, a]",
            "a list and a dictionary": f"{tuple_of}; return y, [a], {{{{'a': a}}}}",
            "deep inside": "a: Tuple[int, Tuple[Any, Optional[{kind}]]] = (1, (2, {value})); return y, [a, a], a",
            "anything": "a: Tuple[int, Any] = (1, {value}); return y, [a, a], a",
            "a loop": f"""{tuple_of}; b = a
        for i in range(x.size(0)):
            b = a
        return y, b, [b, a]""",
            "a branch": f"""{tuple_of}; b = a
        if x.size(0) > 3:
            b = (2, None)
        return y, b, [b, a]""",
        }
        kinds = {"complex": "1j", "torch.device": "torch.device('cpu')", "Union[int, float, complex]": "1j", "float": "1.0"}
        x = torch.randn(4, 6)
        for kind, value in kinds.items():
            for name, body in bodies.items():
                source = source_of_part(body.format(kind=kind, value=value), "return self.part(x)")
                eager = net_of(source, f"<{kind}, {name}>").eval()
                for door in (True, False):
                    with auto(door):
                        model = torch.jit.script(net_of(source, f"<{kind}, {name}, {door}>").eval())
                    model.load_state_dict(eager.state_dict())
                    report = json.loads(self.tailor.fuse_(model))
                    for _ in range(3):  # the executor makes another graph each time
                        self.assert_equal(model(x), eager(x), f"{kind}, {name}")
                    self.assert_equal(torch.jit.freeze(model)(x), eager(x), f"{kind}, {name}, frozen")
                    self.assertEqual({site["fused"] for site in report["sites"]}, {kind == "float"}, f"{kind}, {name}")
                    if kind != "float":
                        self.assertIn("may hold a complex number or a device", report["sites"][0]["reason"])
                    self.tailor.unfuse_(model)
                    self.assert_equal(model(x), eager(x), f"{kind}, {name}, unfused")

    def test_objects_can_be_compared(self):
        model, x = torch.jit.script(OfHolders().eval()), torch.randn(4, 6)
        with auto(False):
            twin = torch.jit.script(OfHolders().eval())
        twin.load_state_dict(model.state_dict())
        expected = twin(x)
        self.tailor.fuse_(model)
        self.assertTrue(is_fused(model))
        for generation in range(3):
            self.assert_equal(model(x), expected, generation)
            model = reloaded(model)


if __name__ == "__main__":
    main()
