"""Door 1, when a module is scripted or traced, and door 2, when asked: everything a user does with a model afterwards."""
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch

import models
from checks import auto, calls_of, library, main, python, reloaded, sites
from models import BN, SIG, SIX, build
from scripted import Following, is_fused, random_inputs, scripted, text_of


class Doubling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.net = torch.nn.Linear(3, 3), models.doubled(20)

    def forward(self, x):
        return self.gemm(self.net(x))


class DoorOneTest(Following):
    def each(self):
        for row in SIX:
            yield row, scripted(row.body), build(row.body)

    def test_scripting_is_all(self):
        for row, fused, eager in self.each():
            self.assertTrue(is_fused(fused, row.rule), row.body)
            self.assert_calls(row.rule, lambda: fused(random_inputs(0)), "the first call", None)
            eager(random_inputs(0))
            self.follow(fused, eager, row.body)

    def test_one_call_is_one_op(self):
        for row, fused, _ in self.each():
            for training in (True, False):
                fused.train(training)
                for gradients in (True, False):
                    for _ in range(4):
                        before = calls_of(row.rule)
                        with torch.set_grad_enabled(gradients):
                            fused(random_inputs(1))
                        self.assertEqual(calls_of(row.rule), before + 1, f"{row.body}: training {training}, gradients {gradients}")

    def test_nested_modules(self):
        class Outer(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.layers = inner, torch.nn.Sequential(torch.nn.Linear(12, 5), copy.deepcopy(inner))

            def forward(self, x):
                return self.layers(self.inner(x))
        for row in SIX:
            eager = Outer(build(row.body))
            fused = torch.jit.script(Outer(build(row.body)))
            fused.load_state_dict(eager.state_dict())
            self.assertEqual(text_of(fused).count(f"tailor::{row.rule}"), 2, row.body)
            self.follow(fused, eager, f"nested {row.body}", calls=3)

    def test_calls_that_double(self):
        """What is too large once its calls are inlined is left alone, in a word, and compiles."""
        code = "import torch, checks, doors_test; checks.load(); torch.jit.script(doors_test.Doubling())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertIn("Tailor left 'forward' alone: a graph would have more than 2000000 nodes", done.stderr)

    def test_sequential(self):
        layers = [torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU()]
        fused, eager = torch.jit.script(torch.nn.Sequential(*layers)), torch.nn.Sequential(*copy.deepcopy(layers))
        self.follow(fused, eager, "a plain Sequential")

    def test_state_dict_moves_in_and_out(self):
        for row, fused, eager in self.each():
            torch.manual_seed(99)
            other = models.randomise(build(row.body, seed=8))
            fused(random_inputs(0))
            fused.load_state_dict(other.state_dict())
            eager.load_state_dict(fused.state_dict())
            self.follow(fused, other, f"loaded into {row.body}")

    def test_training_with_an_optimizer(self):
        for row, fused, eager in self.each():
            for optimizer in (torch.optim.SGD, torch.optim.AdamW):
                pair = [(m.train(), optimizer(m.parameters(), lr=0.01)) for m in (fused, eager)]
                for step in range(6):
                    losses = []
                    for model, rule in pair:
                        rule.zero_grad()
                        loss = model(random_inputs(step)).square().mean()
                        loss.backward()
                        if optimizer is torch.optim.AdamW:  # its first steps take the sign of gradients that are zero but for noise
                            for p in model.parameters():
                                if p.grad is not None and p.grad.abs().max() < 1e-5:
                                    p.grad.zero_()
                        rule.step()
                        losses.append(loss.detach())
                    self.assert_near([losses[0]], [losses[1]], f"{row.body} {optimizer.__name__}: loss of step {step}", 50)
                self.assert_near([fused(random_inputs(9))], [eager(random_inputs(9))], f"{row.body} after {optimizer.__name__}", 50)
                eager.load_state_dict(fused.state_dict())

    def test_conversions(self):
        for row, fused, eager in self.each():
            fused(random_inputs(0)), eager(random_inputs(0))
            for dtype in (torch.float64, torch.float32):
                fused.to(dtype), eager.to(dtype)
                fused.load_state_dict(eager.state_dict())  # what one call left of float32 differs by its rounding
                self.follow(fused, eager, f"{row.body} to {dtype}", inputs=lambda s: random_inputs(s, dtype=dtype), calls=2, modes=(True, False))
            for change, dtype in ((lambda m: m.to(torch.bfloat16), torch.bfloat16), (lambda m: m.float(), torch.float32), (lambda m: m.half(), torch.float16)):
                change(fused), change(eager)
                for model in (fused, eager):
                    model.eval()
                with torch.no_grad():
                    x = random_inputs(3, dtype=dtype)
                    actual, expected = fused(x), eager(x)
                    self.assert_same(actual, expected, f"{row.body} as {dtype}", (0.2, 0.1) if dtype != torch.float32 else None)

    def test_freezing_of_parameters(self):
        for row, fused, eager in self.each():
            for model in (fused, eager):
                for name, p in model.named_parameters():
                    p.requires_grad_(name.endswith(("scale", "one", "gn.weight", "gemm.bias")))
            self.follow(fused, eager, f"{row.body}, some parameters frozen")

    def test_copies_and_files(self):
        for row, fused, eager in self.each():
            fused.train()(random_inputs(0)), eager.train()(random_inputs(0))
            loaded = reloaded(fused)
            self.assertTrue(is_fused(loaded, row.rule), f"loaded {row.body}")
            self.assert_calls(row.rule, lambda: loaded(random_inputs(1)), "loaded")
            copy.deepcopy(eager)(random_inputs(1))
            twin = copy.deepcopy(fused)
            self.assertTrue(is_fused(twin, row.rule), f"deepcopy of {row.body}")
            other = models.twin(eager)
            with torch.no_grad():
                self.assert_near([twin(random_inputs(2))], [other(random_inputs(2))], f"deepcopy of {row.body}")
            self.assert_state(twin, other, "deepcopy")
            self.assert_state(fused, eager, "the original is untouched")
            again = reloaded(fused)
            self.follow(again, models.twin(eager), f"loaded {row.body}")

    def test_map_location_and_extra_files(self):
        fused = scripted(SIX[0].body)
        meta = reloaded(fused, map_location="cpu")
        self.assert_state(meta, fused, "map_location")

    def test_auto_off(self):
        old = torch.ops.tailor.auto(False)
        try:
            self.assertTrue(old, "on by default")
            self.assertFalse(torch.ops.tailor.auto(False))
            for row in SIX:
                self.assertFalse(is_fused(torch.jit.script(build(row.body))), row.body)
        finally:
            torch.ops.tailor.auto(True)

    def test_a_hopeless_module_compiles_as_before(self):
        with self.assertRaises(Exception) as with_door:
            torch.jit.script(build("return self.nothing_of_the_kind(x)"))
        with auto(False), self.assertRaises(Exception) as without:
            torch.jit.script(build("return self.nothing_of_the_kind(x)"))
        self.assertIs(type(with_door.exception), type(without.exception))

    def test_the_environment_hooks_and_exit(self):
        code = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
seen = []
if sys.argv[2] == 'hooks':
    torch._C._jit_set_emit_hooks(lambda m: seen.append('module'), lambda f: seen.append('function'))
torch.ops.load_library(os.environ['TAILOR_LIBRARY'])
import models
m = torch.jit.script(models.build(models.SPELLINGS[0].body))
f = torch.jit.script(models.function_of('def f(x, w):\\n    y = F.linear(x, w)\\n    return torch.sigmoid(y) * 2.0 + y\\n'))
for _ in range(3):
    m(torch.randn(7, 5)).sum().backward()
    f(torch.randn(7, 5), torch.randn(12, 5))
print('tailor::' in str(m.graph), 'tailor::' in str(f.graph), sorted(set(seen)))
if sys.argv[2] == 'hooks':
    torch._C._jit_set_emit_hooks(*torch._C._jit_get_emit_hooks())
"""
        here = os.path.dirname(os.path.abspath(__file__))
        self.assertEqual(python(code, here, "plain").strip(), "True True []")
        self.assertEqual(python(code, here, "hooks").strip(), "True True ['function', 'module']")
        self.assertEqual(python(code, here, "plain", TAILOR_AUTO="0").strip(), "False False []")


class DoorTwoTest(Following):
    def unfused(self, row, **options):
        return scripted(row.body, on=False, **options), build(row.body, **options)

    def test_report(self):
        for row in SIX:
            model, _ = self.unfused(row)
            before = text_of(model)
            seen = json.loads(torch.ops.tailor.inspect(model))
            self.assertEqual(text_of(model), before, "inspect changes nothing")
            done = json.loads(torch.ops.tailor.fuse_(model))
            for report in (seen, done):
                self.assertEqual(list(report), ["tailor", "sites"], report)
                self.assertEqual(len(report["sites"]), 1, report)
                self.assertEqual((report["sites"][0]["rule"], report["sites"][0]["method"], report["sites"][0]["fused"]), (row.rule, "forward", True), report)
            self.assertTrue(is_fused(model, row.rule))
            text = text_of(model)
            torch.ops.tailor.fuse_(model)
            self.assertEqual(text_of(model), text, f"twice: {row.body}")

    def test_report_of_forked_calls(self):
        """A forked linear is a site of whoever forks it, as one that is called is a site of whoever calls it."""
        class Whole(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                future = torch.jit.fork(self.inner, x)
                return torch.jit.wait(future)

        for row in SIX:
            with auto(False):
                model = reloaded(torch.jit.script(Whole(build(row.body))))
            for report in (torch.ops.tailor.inspect, torch.ops.tailor.fuse_, torch.ops.tailor.inspect, torch.ops.tailor.unfuse_):
                found = json.loads(report(model))["sites"]
                self.assertEqual([(site["rule"], site["method"]) for site in found], [(row.rule, "forward")], row.body)
            self.assertFalse(is_fused(model), row.body)

    def test_modules_that_have_already_run(self):
        for row in SIX:
            for warm in ("gradients", "no_grad", "both", "autocast"):
                model, eager = self.unfused(row)
                for turn in range(4):
                    for m in (model, eager):
                        if warm in ("gradients", "both"):
                            m(random_inputs(turn)).sum().backward()
                        if warm in ("no_grad", "both"):
                            with torch.no_grad():
                                m(random_inputs(turn))
                        if warm == "autocast":
                            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                                m(random_inputs(turn))
                            m.load_state_dict(build(row.body).state_dict())
                torch.ops.tailor.fuse_(model)
                self.assert_calls(row.rule, lambda: model(random_inputs(5)), f"{row.body}: the next call after {warm}")
                eager(random_inputs(5))
                if warm == "autocast":
                    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                        self.assert_calls(row.rule, lambda: model(random_inputs(6)), f"{row.body}: the next call under autocast")
                        eager(random_inputs(6))
                    model.load_state_dict(eager.state_dict())
                self.follow(model, eager, f"{row.body} fused after {warm}", modes=(True, False))
                torch.ops.tailor.unfuse_(model)
                self.assert_no_calls(lambda: model(random_inputs(7)), f"{row.body}: the next call after unfuse_")

    def test_unfused_parents_of_a_fused_child(self):
        """Whatever the order in which they are unfused, that of addresses: a plan holds what the callees were when it was made."""
        for turn in range(12):
            with auto(False), torch.set_grad_enabled(turn % 2 == 0):
                model = torch.jit.script(torch.nn.Sequential(torch.nn.Sequential(build(SIX[0].body))))
                torch.ops.tailor.fuse_(dict(model.named_modules())["0.0"])
                self.assert_calls(BN, lambda: model(random_inputs(turn)), "the child")
                torch.ops.tailor.unfuse_(model)
                self.assertNotIn("tailor::", str(model.inlined_graph))
                self.assert_no_calls(lambda: model(random_inputs(turn)), "unfused")

    def test_a_parent_that_has_already_run(self):
        class Parent(torch.nn.Module):
            def __init__(self, child):
                super().__init__()
                self.child = child

            def forward(self, x):
                return self.child(x) + 1
        with auto(False):
            parent = torch.jit.script(Parent(build(SIX[0].body)))
            for _ in range(4):
                parent(random_inputs(0))
        torch.ops.tailor.fuse_(parent)
        self.assert_calls(BN, lambda: parent(random_inputs(0)), "the parent's next call")
        self.assertTrue(is_fused(parent))

    def test_wrapped_and_plain_modules(self):
        model, _ = self.unfused(SIX[0])
        torch.ops.tailor.fuse_(model._c)
        self.assertTrue(is_fused(model))
        known = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 3)))  # of such a class torch could make a module
        for wrong in (torch.ones(2), 3, "text", None, (model,), [model], known[0], torch.nn.Linear(2, 3)):
            for op in ("fuse_", "unfuse_", "inspect", "settle_", "release_"):
                with self.assertRaisesRegex(TypeError, "takes a scripted or traced module", msg=f"{op} of {wrong}"):
                    getattr(torch.ops.tailor, op)(wrong)

    def test_interrupts_go_on(self):
        class Interrupting:
            left = 0

            @property
            def __class__(self):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
                return object
        outcomes = []
        while not outcomes or value.left <= 0:
            value = Interrupting()
            value.left = len(outcomes) + 1
            with self.assertRaises((KeyboardInterrupt, TypeError)) as caught:
                torch.ops.tailor.settle_(value)
            outcomes.append(type(caught.exception))
        self.assertGreater(outcomes.count(KeyboardInterrupt), len(outcomes) // 2, "torch itself loses some of them")

    def test_a_second_copy_of_the_library(self):
        code = """
import os, sys, torch
torch.ops.load_library(os.environ['TAILOR_LIBRARY'])
torch.ops.load_library(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import models
m = torch.jit.script(models.build(models.SPELLINGS[0].body))
m(torch.randn(7, 5)).sum().backward()
print([count for name, count in torch.ops.tailor.calls().items() if 'backward' in name and count], len(torch.ops.tailor.inspect(m)) > 0)
"""
        here = os.path.dirname(os.path.abspath(__file__))
        with tempfile.TemporaryDirectory() as folder:
            second = os.path.join(folder, "libtailor.so")
            shutil.copyfile(library(), second)
            done = subprocess.run([sys.executable, "-c", code, second, here], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "TAILOR_LIBRARY": library()})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), "[1] True", "the first copy goes on")
        self.assertEqual(done.stderr.count("Tailor is loaded already"), 1, done.stderr)
        self.assertIn(f"from {os.path.realpath(library())}", done.stderr.replace(library(), os.path.realpath(library())))
        self.assertIn(second, done.stderr)

    def test_closed(self):
        code = """
import ctypes, _ctypes, os, sys, torch
torch.ops.load_library(os.environ['TAILOR_LIBRARY'])
for path in (os.environ['TAILOR_LIBRARY'], sys.argv[1]):
    _ctypes.dlclose(ctypes.CDLL(path)._handle)
torch.jit.script(torch.nn.Linear(2, 3))(torch.ones(2))
"""
        with tempfile.TemporaryDirectory() as folder:
            second = shutil.copyfile(library(), os.path.join(folder, "libtailor.so"))
            done = subprocess.run([sys.executable, "-c", code, second], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "TAILOR_LIBRARY": library()})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_instance_follows(self):
        with auto(False):
            first = build(SIX[0].body)
            second = type(first)()
            second.scale = torch.nn.Parameter(torch.randn(models.B, 1))
            first, second = torch.jit.script(first), torch.jit.script(second)
        torch.ops.tailor.fuse_(first)
        for model in (first, second):
            self.assert_calls(BN, lambda: model(random_inputs(0)), "each instance of the class")
        torch.ops.tailor.unfuse_(second)
        self.assert_no_calls(lambda: first(random_inputs(0)), "unfused for each instance")

    def test_settle_and_release(self):
        for row in SIX:
            model, eager = scripted(row.body).eval(), build(row.body).eval()
            json.loads(torch.ops.tailor.settle_(model))
            with torch.no_grad():
                for turn in range(4):
                    for m in (model, eager):
                        m.gemm.weight.mul_(1.1)  # seen by the version counter
                    self.assert_near([model(random_inputs(turn))], [eager(random_inputs(turn))], f"settled {row.body}")
            torch.ops.tailor.release_(model)
            self.follow(model, eager, f"released {row.body}")

    def test_several_methods(self):
        model = scripted("def forward(self, x):\n    return self.bn(self.gemm(x) * self.scale)\n"
                         "@torch.jit.export\ndef other(self, x):\n    y = self.gemm2(x)\n    return torch.sigmoid(y) * self.factor + y", on=False)
        report = sites(torch.ops.tailor.fuse_(model))
        self.assertEqual({site["rule"] for site in report if site["fused"]}, {BN, SIG}, report)
        self.assertIn("other", {site["method"] for site in report}, report)
        eager = build("y = self.gemm2(x); return torch.sigmoid(y) * self.factor + y")
        self.assert_near([model.other(random_inputs(1))], [eager(random_inputs(1))], "the exported method")


if __name__ == "__main__":
    main()
