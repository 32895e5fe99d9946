"""The ops and the scripted nets on CUDA. Skips without a GPU and says so; tools/gpu-check runs it where there is one."""
import itertools
import subprocess
import sys
import threading
import unittest

import torch

import cases
import models
from cases import B, C, CHAINS, K, N, OPS, draw
from checks import Outcome, calls_of, copied, library, main
from gpu_replays import Replays
from models import SIX
from scripted import Following, is_fused, random_inputs, scripted

GPU = torch.cuda.is_available()
needs_gpu = unittest.skipUnless(GPU, "there is no GPU here")
WIDE = dict(x=(257, 72), w=(136, 72), b=(136,), norm=(136,), stats=(136,), groups=8)


def wide(op, seed=0, dtype=torch.float32, **changes):
    """Sizes that a kernel's tiles do not divide."""
    vector = None if op.stem.endswith("div_swish") else (136,)
    return draw(op, seed, dtype, "cuda", **{**WIDE, "vector": vector, **changes})


@needs_gpu
class GpuOpsTest(Replays):
    def each(self, ops=OPS):
        for op in ops:
            for training in [False] if op.inference or not op.batch_norm else [True, False]:
                yield op, training

    def compare(self, op, arguments, what, tolerance=None, state=True):
        mine, theirs = copied(arguments), copied(arguments)
        expected, actual = Outcome(lambda: op.eager(theirs)), Outcome(lambda: op(mine))
        self.assert_outcome(actual, expected, f"{op} {what}", tolerance)
        for name, value in theirs.items():
            if state and isinstance(value, torch.Tensor):
                self.assert_same(mine[name], value, f"{op} {what}: {name} afterwards", tolerance)

    def test_every_dtype_with_each_optional_part(self):
        for op in OPS:
            for dtype, parts in itertools.product(cases.FLOATS, cases.optional_parts(op)):
                self.compare(op, draw(op, dtype=dtype, device="cuda", **parts), f"{dtype} {parts}")

    def test_strange_shapes(self):
        for (op, training), (name, shape) in itertools.product(self.each(), cases.STRANGE.items()):
            self.compare(op, draw(op, device="cuda", **{"training": training, **shape}), f"{name}, training {training}")

    def test_mixed_dtypes(self):
        for (op, training), base, dtype in itertools.product(self.each(), (torch.float32, torch.bfloat16), cases.MIXED):
            reference = draw(op, dtype=base, training=training, device="cuda")
            for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                arguments = {**copied(reference), name: (reference[name] * 2).to(dtype)}
                # torch writes nonsense to statistics of another dtype than the input's, another at each run
                self.compare(op, arguments, f"{base} but {name} {dtype}, training {training}", (6e-2, 6e-2),
                             state=not name.startswith("running"))

    def test_one_argument_on_the_cpu(self):
        for op, training in self.each():
            reference = draw(op, training=training, device="cuda")
            for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                self.compare(op, {**copied(reference), name: reference[name].cpu()}, f"{name} on the CPU, training {training}")

    def test_views(self):
        for op, training in self.each(CHAINS):
            reference = draw(op, training=training, device="cuda")
            for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                for layout, view in cases.views(reference[name]):
                    written = training and name.startswith("running") and "expanded" in layout
                    # Where all rows are equal, cuDNN's variance is not quite zero: eager is 3e-5 off, the kernel right.
                    equal_rows = training and name == "input" and layout == "rows expanded"
                    self.compare(op, {**reference, name: view}, f"{name} {layout}, training {training}", (2e-4, 1e-3) if equal_rows else None, state=not written)

    def test_layouts_of_a_3d_input(self):
        for op, training in self.each(CHAINS):
            arguments = draw(op, training=training, device="cuda", x=(B, C, K), norm=(C,), stats=(C,))
            for order in itertools.permutations(range(3)):
                view = arguments["input"].permute(order).contiguous().permute([order.index(i) for i in range(3)])
                self.compare(op, {**arguments, "input": view}, f"3-D as {order}, training {training}")

    def test_special_values(self):
        lattice = torch.tensor(cases.LATTICE, dtype=torch.float64)
        for (op, training), dtype in itertools.product(self.each(CHAINS), (torch.float32, torch.bfloat16)):
            arguments = draw(op, x=(lattice.numel(), 1), w=(N, 1), training=training, dtype=dtype, device="cuda")
            arguments["input"] = lattice[:, None].to("cuda", dtype)
            self.compare(op, arguments, f"lattice in x, {dtype}, training {training}")

    def test_autocast(self):
        for (op, training), to in itertools.product(self.each(), (torch.bfloat16, torch.float16)):
            for dtype in cases.FLOATS:
                with torch.autocast("cuda", to):
                    self.compare(op, draw(op, dtype=dtype, training=training, device="cuda"), f"autocast {to} of {dtype}", (6e-2, 6e-2))

    def test_gradients(self):
        """Against float64: where a gradient vanishes, such as a bias's before batch statistics, all that is left is error."""
        def gradients(call, arguments):
            leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
            return torch.autograd.grad(call(arguments).square().sum(), leaves)

        for (op, training), dtype in itertools.product(self.each(), (torch.float64, torch.float32, torch.bfloat16)):
            arguments = wide(op, dtype=dtype, training=training)
            truth = gradients(op.eager, cases.in_double(copied(arguments)))
            mine, theirs = gradients(op, copied(arguments)), gradients(op.eager, copied(arguments))
            for name, exact, fused, eager in zip(op.tensors(arguments), truth, mine, theirs):
                self.assertEqual((fused.dtype, fused.shape), (eager.dtype, eager.shape), f"{op} {dtype}: gradient of {name}")
                error, eagers = ((g - exact).abs().max().item() for g in (fused, eager))
                rounding = 16 * torch.finfo(dtype).eps * max(g.abs().max().item() for g in truth)
                self.assertLessEqual(error, 4 * eagers + rounding, f"{op} {dtype}: gradient of {name}")

    def test_gradcheck(self):
        for op, training in self.each():
            arguments = draw(op, dtype=torch.float64, device="cuda", training=training)
            names = op.tensors(arguments)

            def function(*tensors):
                values = {n: v.clone() if n.startswith("running") else v for n, v in arguments.items()}
                return op({**values, **dict(zip(names, tensors))})
            leaves = [arguments[n].requires_grad_() for n in names]
            self.assertTrue(torch.autograd.gradcheck(function, leaves, fast_mode=True, nondet_tol=1e-12), str(op))
            self.assertTrue(torch.autograd.gradgradcheck(function, leaves, fast_mode=True, nondet_tol=1e-12), str(op))

    def test_bit_for_bit_from_run_to_run(self):
        for (op, training), dtype in itertools.product(self.each(), (torch.float32, torch.bfloat16)):
            arguments = wide(op, dtype=dtype, training=training)
            first = op(copied(arguments))
            for _ in range(100):
                self.assert_bitwise(op(copied(arguments)), first, f"{op} {dtype}")

    def test_float32_means_float32(self):
        for op, training in self.each():
            arguments = wide(op, training=training)
            exact = op.eager(cases.in_double(copied(arguments)))
            off = (op(copied(arguments)).double() - exact).abs().max().item()
            self.assertLess(off, 2e-4 * (1 + exact.abs().max().item()), f"{op}: more than float32's error")

    def test_capture_and_replay(self):
        for op, training in self.each():
            arguments, side = wide(op, training=training), torch.cuda.Stream()
            fresh = copied(arguments)
            with torch.no_grad(), torch.cuda.stream(side):
                for _ in range(3):
                    op(copied(arguments))
                side.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=side):
                    out = op(arguments)
            torch.cuda.synchronize()
            for seed in range(50):
                arguments["input"].copy_(wide(op, seed, training=training)["input"])
                fresh["input"].copy_(arguments["input"])
                graph.replay()
                torch.cuda.synchronize()
                with torch.no_grad():
                    self.assert_same(out, op.eager(fresh), f"{op}: replay {seed}", (1e-3, 1e-3))
            for name in ("running_mean", "running_var"):
                if training and name in arguments:
                    self.assert_same(arguments[name], fresh[name], f"{op}: {name} after the replays", (1e-3, 1e-3))

    def test_other_streams_and_threads(self):
        for op in CHAINS:
            arguments = wide(op, training=False)
            with torch.no_grad():
                expected, wrong = op(arguments), []
            torch.cuda.synchronize()

            def work():
                torch.set_grad_enabled(False)
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for _ in range(50):
                        out = op(arguments)
                        stream.synchronize()
                        if not torch.equal(out, expected):
                            wrong.append(1)
            threads = [threading.Thread(target=work) for _ in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            self.assertFalse(wrong, f"{op}: {len(wrong)} of 400 calls differ")

    def test_a_thousand_replays_with_new_data_and_changed_weights(self):
        """Forward and backward in one graph, in sizes that are no Hopper kernel's. Everything that the graph reads is written anew before
        each replay. gpu_replays_test and its like have the other kernels."""
        for (op, training), dtype in itertools.product(self.each(CHAINS), (torch.float32, torch.bfloat16)):
            self.replayed(op, dtype, training, True, {f"{op.stem}/cuda", f"{op.stem}/cuda_backward"},
                          lambda op, seed, dtype, training: wide(op, seed, dtype, x=(257, 20), w=(136, 20), training=training))

    def test_gradients_on_side_streams(self):
        """Each stream with data of its own, all at work at once; nothing waits for another."""
        for op, training in self.each(CHAINS):
            streams, runs = [torch.cuda.Stream() for _ in range(4)], []
            inputs = [wide(op, seed, training=training) for seed in range(len(streams))]
            wanted = [self.by_backward(op.eager, op, copied(arguments)) for arguments in inputs]
            torch.cuda.synchronize()
            before = calls_of(op.stem, "cuda_backward")
            for stream, arguments in zip(streams, inputs):
                with torch.cuda.stream(stream):
                    runs.append([self.by_backward(op, op, copied(arguments)) for _ in range(10)])
            torch.cuda.synchronize()
            self.assertEqual(calls_of(op.stem, "cuda_backward"), before + 10 * len(streams), f"{op} training {training}")
            for mine, theirs in zip(runs, wanted):
                for run in mine:
                    self.assert_same(run, theirs, f"{op} training {training}, on a side stream", (2e-3, 2e-3), strides=False)

    def by_backward(self, call, op, arguments):
        leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
        out = call(arguments)
        return [out.detach(), *torch.autograd.grad(out.square().mean(), leaves)]

    @unittest.skipUnless(torch.cuda.device_count() > 1, "this needs two GPUs")
    def test_a_device_that_is_not_the_current_one(self):
        for op, training in self.each():
            arguments = {n: v.to("cuda:1") if isinstance(v, torch.Tensor) else v for n, v in wide(op, training=training).items()}
            self.compare(op, arguments, "on cuda:1 while cuda:0 is current", (1e-3, 1e-3))
            self.compare(op, {**arguments, "weight": arguments["weight"].to("cuda:0")}, "on two devices")
            self.assertEqual(torch.cuda.current_device(), 0)

    @unittest.skipUnless(torch.cuda.device_count() > 1, "this needs two GPUs")
    def test_gradients_on_two_devices_at_once(self):
        for op, training in self.each(CHAINS):
            runs = []
            for device in ("cuda:1", "cuda:0"):
                arguments = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in wide(op, training=training).items()}
                with torch.cuda.stream(torch.cuda.Stream(device)):
                    runs.append([[t.cpu() for t in self.by_backward(call, op, copied(arguments))] for call in (op, op.eager)])
            for mine, theirs in runs:
                self.assert_same(mine, theirs, f"{op} training {training}, one device beside the other", (2e-3, 2e-3), strides=False)
            self.assert_same(runs[0][0], runs[1][0], f"{op} training {training}, on two devices", (2e-3, 2e-3), strides=False)


@needs_gpu
class GpuModelTest(Following):
    def test_six_chains_through_door_1(self):
        for row in SIX:
            fused, eager = scripted(row.body).cuda(), models.build(row.body).cuda()
            self.assertTrue(is_fused(fused, row.rule))
            self.follow(fused, eager, f"{row.body} on CUDA", inputs=lambda s: random_inputs(s, device="cuda"), loose=10)

    def test_moving_to_the_gpu_and_back(self):
        for row in SIX:
            fused, eager = scripted(row.body), models.build(row.body)
            for device in ("cpu", "cuda", "cpu"):
                fused.to(device), eager.to(device)
                self.follow(fused, eager, f"{row.body} on {device}", modes=(True, False), calls=2, inputs=lambda s: random_inputs(s, device=device), loose=10)

    def test_wrong_devices(self):
        for row in SIX:
            fused, plain = scripted(row.body).cuda(), scripted(row.body, on=False).cuda()
            for training in (True, False):
                fused.train(training), plain.train(training)
                self.same_refusal(fused, plain, random_inputs(1), f"{row.body}: x on the CPU, training {training}")
                fused.bn.cpu(), plain.bn.cpu(), fused.gn.cpu(), plain.gn.cpu()
                self.same_refusal(fused, plain, random_inputs(1, device="cuda"), f"{row.body}: norms on the CPU, training {training}")
                fused.cuda(), plain.cuda()


@needs_gpu
class LoadTest(unittest.TestCase):
    def test_loading_leaves_the_gpu_to_children(self):
        """Whoever has asked the driver for GPUs must not fork and use one: so loading the library asks nothing."""
        code = ("import os, sys, torch; torch.ops.load_library(sys.argv[1]); child = os.fork()\n"
                "if child == 0:\n    os._exit(0 if torch.zeros(1, device='cuda').item() == 0 else 1)\n"
                "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, library()], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])


if __name__ == "__main__":
    if not GPU:
        print("gpu_test: no GPU here, everything is skipped", flush=True)
    elif torch.cuda.device_count() < 2:
        print("gpu_test: one GPU here, what needs two is skipped", flush=True)
    main()
