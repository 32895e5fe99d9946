"""Calls of the path `fp16x3` one after another: the same bits each time, from graphs and streams too, nothing stale; and the
switches that choose it."""
import itertools
import os
import subprocess
import sys
import unittest

import torch

import cases
from cases import CHAINS
from checks import ROOT, calls_of, copied, library, main
from float32_cases import HOPPER, LEAST, PATH, RULE, Float32, all_in_doubt, fitting, integers, laid_out, sized


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class BesideTest(Float32):
    """All but the first 128 rows of x become halves beside the products, by whoever is free: with the bits that they have otherwise."""

    def rows(self, op, arguments, first, until):
        return op({**arguments, "input": arguments["input"][first:until]})

    def test_bits_of_rows_made_before(self):
        for op, inner in itertools.product(CHAINS, (LEAST, 521, 2050)):
            arguments = sized(op, 1000, 320, inner)
            arguments["input"] = laid_out(arguments["input"], 4, fitting(inner) + (-inner) % 4 + 8)
            with torch.no_grad():
                whole = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", PATH)
                for first in range(0, 1000, 128):
                    mine = self.rows(op, arguments, first, first + 128)
                    self.assert_bitwise(whole[first : first + 128], mine, f"{op}, sums of {inner}, from row {first} on")

    def test_some_in_doubt(self):
        """What is known of a row comes with its halves."""
        x, weight = torch.randn(700, 512, device="cuda"), integers(320, 512, 1)
        x[:, 256:] *= 2.0**-30  # all that counts: what is large meets zeros
        weight[:, :256] = 0
        self.not_worse(x, weight, "large numbers that do not count")
        x[5::7, 300], x[6::7, 301] = torch.nan, torch.inf
        mine, theirs = self.product(x, weight, "no numbers"), x @ weight.t()
        self.assertTrue(torch.equal(mine.isfinite(), theirs.isfinite()))

    def test_with_processors_that_others_hold(self):
        """Blocks that are not running yet are not waited for."""
        for op in CHAINS:
            arguments, side = sized(op, 4000, 1024, 520), torch.cuda.Stream()
            with torch.no_grad():
                alone = op(arguments)
                torch.cuda.synchronize()
                with torch.cuda.stream(side):
                    torch.cuda._sleep(20_000_000)
                    beside = op(arguments)
                held = op(arguments)
                torch.cuda.synchronize()
            self.assert_bitwise(held, alone, f"{op}, beside another kernel")
            self.assert_bitwise(beside, alone, f"{op}, behind it")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class CallsTest(Float32):
    def test_bit_for_bit_from_run_to_run(self):
        for op, doubtful in itertools.product(CHAINS, (False, True)):
            arguments = sized(op, 1000, 1088, 520)
            if doubtful:  # in every third row
                wide, every_third = all_in_doubt(arguments), torch.arange(1000, device="cuda")[:, None] % 3 == 0
                arguments = {**wide, "input": torch.where(every_third, wide["input"], arguments["input"])}
            with torch.no_grad():
                first = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", PATH)
                for _ in range(100):
                    self.queue_up()
                    self.assert_bitwise(op(arguments), first, f"{op}, doubtful rows: {doubtful}")

    def test_replays_with_new_numbers_and_weights(self):
        for op in CHAINS:
            arguments, side = sized(op, 200, 320, LEAST), torch.cuda.Stream()
            with torch.no_grad(), torch.cuda.stream(side):
                self.assert_calls(op.stem, lambda: op(arguments), f"{op}", PATH)
                side.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=side):
                    out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}, captured", PATH)
            torch.cuda.synchronize()
            pairs = []
            with torch.no_grad():
                for turn in range(1000):
                    arguments["input"].normal_()
                    arguments["weight"].normal_(0, LEAST**-0.5)
                    if turn % 7 == 0:  # now and then all is in doubt
                        for name, value in all_in_doubt(arguments, seed=turn).items():
                            if name in ("input", "weight"):
                                arguments[name].copy_(value)
                    graph.replay()
                    pairs.append((out - op(arguments)).abs().max())  # NaN, should there be any, stays NaN
            self.assertTrue(bool((torch.stack(pairs) == 0).all()), f"{op}: a replay differs: {torch.stack(pairs).max().item()}")

    def test_streams(self):
        for op in CHAINS:
            self.same_on_streams(op, sized(op, 1000, 1024, 512))

    def test_memory_full_of_something(self):
        """Halves, scales and results are carved out of memory that others have left."""
        for op, (rows, columns, inner) in itertools.product(CHAINS, ((1, 64, LEAST), (65, 320, 259), (300, 576, 1000))):
            for doubtful in (False, True):
                arguments = sized(op, rows, columns, inner)
                arguments = all_in_doubt(arguments) if doubtful else arguments
                with torch.no_grad():
                    before = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", PATH).clone()
                    for value in (torch.nan, 7.0, -torch.inf):
                        torch.cuda.empty_cache()
                        pools = [torch.full((count,), value, device="cuda") for count in (1 << 24, *(1 << 17,) * 4)]
                        del pools  # the allocator has large blocks and small ones
                        self.queue_up()
                        out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", PATH)
                        self.assert_bitwise(out, before, f"{op} over {value}, doubtful rows: {doubtful}")

    def test_weights_that_change_between_calls(self):
        """However they are written to: nothing that was derived from them outlives a call."""
        ways = {
            "in place": lambda w: w.mul_(-2), "by .data": lambda w: w.data.mul_(-2), "by a view": lambda w: w.view(-1)[3:].add_(1),
            "by a row": lambda w: w[5].zero_(), "by copy_": lambda w: w.copy_(torch.randn_like(w)),
            "by .data's copy_": lambda w: w.data.copy_(torch.randn_like(w)),
            "by another tensor on its storage": lambda w: torch.empty(0, device="cuda").set_(w.untyped_storage()).mul_(0.5),
            "by DLPack": lambda w: torch.from_dlpack(w.detach()).add_(0.25),
            "by other data": lambda w: setattr(w, "data", torch.randn_like(w)),
        }
        for op in CHAINS:
            arguments = sized(op, 130, 320, LEAST)
            with torch.no_grad():
                for what, way in ways.items():
                    before = self.assert_calls(op.stem, lambda: op(arguments), what, PATH)
                    way(arguments["weight"])
                    out = self.assert_calls(op.stem, lambda: op(arguments), what, PATH)
                    self.assertFalse(torch.equal(out, before), f"{op}: weight changed {what}")
                    self.assert_bitwise(out, op(copied(arguments)), f"{op}: weight changed {what}")
                    exact = op.eager(cases.in_double(copied(arguments)))
                    self.close(out, op.eager(copied(arguments)), exact, f"{op}: weight changed {what}")

    def test_memory_that_comes_back(self):
        for op in CHAINS:
            for seed in range(30):
                arguments = sized(op, 128 + seed % 3, 320, LEAST + seed % 5, seed=seed)
                self.forward(op, arguments, f"seed {seed}, at addresses of others before")


class Taking(Float32):
    def takes(self, path, arguments, what, op=None):
        op = op or next(o for o in CHAINS if o.stem == "linear_swish_add_group_norm")
        return self.assert_calls(op.stem, lambda: op(arguments), what, path)

    def setUp(self):
        super().setUp()
        self.op = next(o for o in CHAINS if o.stem == "linear_swish_add_group_norm")
        self.good = sized(self.op, 130, 256, 512)


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class SwitchesTest(Taking):
    def test_off_and_on(self):
        with torch.no_grad():
            self.takes(PATH, self.good, "at first")
            self.assertIs(self.tailor.fp16x3(False), True)
            try:
                for op in CHAINS:
                    self.takes("cuda", sized(op, 130, 256, 512), f"{op} switched off", op)
                self.assertIs(self.tailor.fp16x3(False), False)
            finally:
                self.assertIs(self.tailor.fp16x3(True), False)
            for op in CHAINS:
                self.takes(PATH, sized(op, 130, 256, 512), f"{op} on again", op)

    def test_environment(self):
        code = ("import sys, torch; torch.ops.load_library(sys.argv[1]); sys.path.insert(0, sys.argv[2]); torch.set_grad_enabled(False)\n"
                "from float32_error.arms import bare\n"
                "bare(torch.randn(256, 512, device='cuda'), torch.randn(512, 512, device='cuda'))\n"
                "print([path.split('/')[1] for path, count in torch.ops.tailor.calls().items() if count], torch.ops.tailor.fp16x3(True))")
        for value, words in (("0", "['cuda'] False"), ("1", f"['{PATH}'] True")):
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, library(), str(ROOT / "tools")], capture_output=True,
                                  text=True, env={**os.environ, "TAILOR_FP16X3": value}, check=False)
            self.assertEqual(done.stdout.strip(), words, f"TAILOR_FP16X3={value}: {done.stderr[-2000:]}")

    def test_what_it_leaves_to_the_others(self):
        plain = next(o for o in CHAINS if o.stem == RULE)
        turned = self.good["input"].t().contiguous().t()
        others = {"float64": (self.op, cases.in_double(self.good)), "groups of 128": (self.op, sized(self.op, 130, 256, 512, 128)),
                  "columns of x side by side": (self.op, {**self.good, "input": turned}),
                  "a bias with strides": (self.op, {**self.good, "bias": torch.randn(512, device="cuda")[::2]})}
        with torch.no_grad():
            for what, (op, arguments) in others.items():
                self.takes("cuda", arguments, what, op)
            before = calls_of(plain.stem, PATH)
            plain(sized(plain, 130, 256, 512, training=True))
            self.assertEqual(calls_of(plain.stem, PATH), before, "batch statistics")

    def test_rows_that_overlap(self):
        """Whichever way they go."""
        window = torch.randn(2000, device="cuda").as_strided((130, 512), (3, 1))
        for what, x in (("overlapping rows", window), ("one row many times", self.good["input"][:1].expand(130, 512))):
            with torch.no_grad():
                out = self.assert_calls(self.op.stem, lambda: self.op({**self.good, "input": x}), what)
                dense = self.takes(PATH, {**self.good, "input": x.contiguous()}, what)
            self.assert_same(out, dense, what)


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class AllowedTest(Taking):
    """TF32 is of many rows only: few are cuBLAS's where it is allowed."""
    def test_tf32_allowed_is_tf32(self):
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            with torch.no_grad():
                for op in CHAINS:
                    self.takes("hopper", sized(op, 130, 256, 512), f"{op} with TF32 allowed", op)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
        with torch.no_grad():
            self.takes(PATH, self.good, "not allowed any more")


if __name__ == "__main__":
    if not HOPPER:
        print("float32_calls_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
