"""What is kept of settled weights: the same results bit for bit, whatever becomes of the weights, and memory that goes again."""
import gc
import json
import os
import subprocess
import sys
import unittest

os.environ.setdefault("TAILOR_HOPPER", "always")  # also where it is slower; strips_test says otherwise

import torch

from checks import Checks, load, main

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
ROWS, INNER, COLUMNS = 200, 300, 320


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(INNER, COLUMNS)

    def forward(self, x):
        y = self.gemm(x)
        return torch.sigmoid(y) * 2.0 + y


class Settled(Checks):
    def kept(self, answer):
        return json.loads(answer)["kept_bytes"]


class AnswersTest(Settled):
    """On any machine."""

    def test_what_is_settled(self):
        model = torch.jit.script(Net().eval())
        self.assertEqual(json.loads(self.tailor.settle_(model))["weights"], 1)
        self.assertEqual(self.kept(self.tailor.release_(model)), 0)

    def test_constants_of_frozen_graphs(self):
        model = torch.jit.freeze(torch.jit.script(Net().eval()))
        self.assertGreaterEqual(json.loads(self.tailor.settle_(model))["weights"], 1)
        self.tailor.release_(model)

    def test_a_bound_that_is_none(self):
        for bound, said in (("16MiB", True), ("-5", True), ("4096", False), ("", False), ("9" * 30, False)):
            done = subprocess.run([sys.executable, __file__, "--settles"], capture_output=True, text=True,
                                  env={**os.environ, "TAILOR_KEEP_MIB": bound}, check=False)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            self.assertEqual(f"TAILOR_KEEP_MIB={bound}" in done.stderr, said, done.stderr[-2000:])

    def test_only_modules(self):
        for op in (self.tailor.settle_, self.tailor.release_):
            for other in (torch.ones(2, 2), torch.nn.Linear(2, 2), lambda x: x, torch.jit.script(torch.nn.Linear(2, 2)).forward):
                with self.assertRaisesRegex(TypeError, "takes a scripted or traced module, .* Call torch.jit.script first"):
                    op(other)


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class KeptTest(Settled):
    def setUp(self):
        torch.manual_seed(0)
        self.net = Net().cuda().eval()
        self.model = torch.jit.script(self.net)
        self.x = torch.randn(ROWS, INNER, device="cuda")

    def tearDown(self):
        self.tailor.release_(self.model)

    def run_model(self, what="a call"):
        with torch.no_grad():
            return self.assert_calls("linear_sigmoid_mul_add", lambda: self.model(self.x), what, "fp16x3")

    def fresh(self):
        """What a call gives with nothing kept."""
        self.tailor.release_(self.model)
        out = self.run_model()
        self.tailor.settle_(self.model)
        return out

    def test_same_bits_and_bytes_that_come_and_go(self):
        before = self.run_model()
        self.assertEqual(self.kept(self.tailor.settle_(self.model)), 0, "nothing before the first call")
        for _ in range(3):
            self.assert_bitwise(self.run_model(), before, "settled")
        self.assertGreaterEqual(self.kept(self.tailor.settle_(self.model)), COLUMNS * INNER * 4)
        self.assertEqual(self.kept(self.tailor.release_(self.model)), 0)
        self.assert_bitwise(self.run_model(), before, "released")

    def test_it_is_kept_indeed(self):
        """A write that leaves no trace is not seen: that is the user's word."""
        self.tailor.settle_(self.model)
        before = self.run_model()
        self.net.gemm.weight.data.mul_(2)
        self.assert_bitwise(self.run_model(), before, "written to behind torch's back")
        self.assertFalse(torch.equal(self.fresh(), before))

    def test_what_torch_can_see_is_seen(self):
        def other_data():
            self.net.gemm.weight.data = torch.randn(COLUMNS, INNER, device="cuda")
        weight = self.net.gemm.weight
        ways = {"in place": lambda: weight.mul_(-2), "by a view": lambda: weight.view(-1)[3:].add_(1), "other data": other_data,
                "data with other strides": lambda: setattr(weight, "data", torch.randn(COLUMNS, INNER + 4, device="cuda")[:, :INNER])}
        self.tailor.settle_(self.model)
        for what, way in ways.items():
            before = self.run_model()
            with torch.no_grad():
                way()
            out = self.run_model(what)
            self.assertFalse(torch.equal(out, before), what)
            self.assert_bitwise(out, self.fresh(), what)

    def test_memory_that_comes_back(self):
        """A weight that is gone, and another at its address. torch 2.11 keeps a Python module alive that an op was given, so
        what it is made of is given here."""
        for seed in range(20):
            torch.manual_seed(seed)
            net = Net().cuda().eval()
            model, x = torch.jit.script(net), torch.randn(ROWS, INNER, device="cuda")
            with torch.no_grad():
                right = model(x)
                self.tailor.settle_(model._c)
                self.assert_bitwise(model(x), right, f"seed {seed}")
            self.assertEqual(self.kept(self.tailor.settle_(self.model._c)) // (COLUMNS * INNER * 4), 1, "this one's alone")
            del net, model
        gc.collect()
        self.assertEqual(self.kept(self.tailor.release_(self.model._c)), 0, "what was kept of weights that are gone is gone")

    def test_linears_whose_tail_is_apart(self):
        """With gradients, and with batch statistics."""
        class Normed(Net):
            def __init__(self):
                super().__init__()
                self.scale, self.bn = torch.nn.Parameter(torch.randn(COLUMNS)), torch.nn.BatchNorm1d(COLUMNS)

            def forward(self, x):
                return self.bn(self.gemm(x) * self.scale)

        for gradients in (False, True):
            model = torch.jit.script(Normed().cuda())

            def step():
                with torch.set_grad_enabled(gradients):
                    return self.assert_calls("linear", lambda: model(self.x), "the linear by itself", "fp16x3")
            before = step()
            self.tailor.settle_(model)
            for _ in range(2):
                self.assert_bitwise(step(), before, f"gradients {gradients}")
            self.assertGreaterEqual(self.kept(self.tailor.settle_(model)), COLUMNS * INNER * 4)
            with torch.no_grad():
                model.gemm.weight.data.mul_(2)  # that leaves no trace
            self.assert_bitwise(step(), before, "what is kept is used")
            if gradients:
                self.assert_learns_from_the_weight_of_now(model)
            self.tailor.release_(model)

    def assert_learns_from_the_weight_of_now(self, model):
        """A step of an optimizer is a write that torch sees."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(self.x).square().sum().backward()
        optimizer.step()
        settled = model(self.x)
        self.tailor.release_(model)
        self.assert_bitwise(settled, model(self.x), "after a step")

    def test_streams(self):
        self.tailor.settle_(self.model)
        expected = self.run_model()
        with torch.no_grad():
            self.net.gemm.weight.mul_(1.5)
        streams, found = [torch.cuda.Stream() for _ in range(4)], []
        torch.cuda.synchronize()
        for stream in streams * 5:
            with torch.cuda.stream(stream):
                found.append(self.run_model())
        torch.cuda.synchronize()
        self.assertFalse(torch.equal(found[0], expected))
        right = self.fresh()
        for out in found:
            self.assert_bitwise(out, right, "on side streams")

    def test_graphs_keep_nothing(self):
        self.tailor.settle_(self.model)
        self.run_model()
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(side):
            self.model(self.x)
            side.synchronize()
            with torch.cuda.graph(graph, stream=side):
                out = self.model(self.x)
        torch.cuda.synchronize()
        self.tailor.release_(self.model)
        for seed in range(5):
            with torch.no_grad():
                self.net.gemm.weight.data.normal_()
                graph.replay()
                self.assert_bitwise(out, self.run_model(), f"replay {seed}")

    def test_bound(self):
        for mebibytes, kept in (("2", "[1, 2, 2, 2, 2, 2]"), ("0", "[0, 0, 0, 0, 0, 0]"), ("100", "[1, 2, 3, 4, 4, 4]"), (str(2**63), "[1, 2, 3, 4, 4, 4]")):
            done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--calls"], capture_output=True, text=True,
                                  env={**os.environ, "TAILOR_KEEP_MIB": mebibytes}, check=False)
            self.assertEqual(done.stdout.strip(), kept, f"TAILOR_KEEP_MIB={mebibytes}: {done.stderr[-2000:]}")


    def test_what_cannot_be_kept_is_not_planned_with(self):
        """Few rows by a settled weight go by its kept halves. Nothing is kept in a graph, nor without memory for it: then the way is another."""
        for mebibytes, paths in (("", "fp16x3 bf16x6"), ("0", "bf16x6 bf16x6")):
            done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--paths"], capture_output=True, text=True,
                                  env={**os.environ, "TAILOR_KEEP_MIB": mebibytes, "TAILOR_HOPPER": ""}, check=False)
            self.assertEqual(done.stdout.strip(), paths, f"TAILOR_KEEP_MIB={mebibytes}: {done.stderr[-2000:]}")


class Four(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.all = torch.nn.ModuleList([torch.nn.Linear(512, 508) for _ in range(4)])

    def forward(self, x):
        return x


def calls():
    """Prints how many MiB are kept after each call. One weight's are just below one."""
    tailor, net = load(), Four().cuda()
    model, x, kept = torch.jit.script(net), torch.randn(300, 512, device="cuda"), []
    tailor.settle_(model)
    with torch.no_grad():
        for i in (0, 1, 2, 3, 0, 3):
            tailor.linear_sigmoid_mul_add(x, net.all[i].weight, net.all[i].bias, 2.0)
            kept.append((json.loads(tailor.settle_(model))["kept_bytes"] + (1 << 20) - 1) >> 20)
    print(kept)


def paths():
    """Prints which ways 64 rows by a settled weight go, and the same while a graph is captured."""
    tailor, found = load(), []
    net = torch.nn.Linear(4096, 4096).cuda()
    model, x = torch.jit.script(net), torch.randn(64, 4096, device="cuda")
    tailor.settle_(model._c)

    def call():
        before = tailor.calls()
        with torch.no_grad():
            tailor.linear_sigmoid_mul_add(x, net.weight, net.bias, 2.0)
        found.extend(key.split("/")[1] for key, count in tailor.calls().items() if count > before.get(key, 0))
    call()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        call()
    print(*found)


if __name__ == "__main__":
    if not HOPPER:
        print("settled_test: no GPU of compute capability 9.0 here, most of it is skipped", flush=True)
    if "--calls" in sys.argv:
        calls()
    elif "--paths" in sys.argv:
        paths()
    elif "--settles" in sys.argv:
        model = torch.jit.script(Net())
        load().settle_(model._c)  # the module itself torch 2.11 would keep alive, into the end of the process
    else:
        main()
