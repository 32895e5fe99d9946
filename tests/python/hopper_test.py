"""Hopper's kernel, linear and tail in one: at the edges of its tiles, in every dtype that it takes. Each call must run it;
float64 is the referee, eager's own error the measure, and where numbers are small integers, bits are."""
import itertools
import os
import re
import unittest

os.environ.setdefault("TAILOR_HOPPER", "always")  # also where it is slower

import torch

import cases
import contract_test
from cases import CHAINS, draw
from checks import calls_of, copied, main
from comparing import Gradients
from cuda_test import Referee

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WITH_GRADIENTS = "cuda" if os.environ["TAILOR_HOPPER"] == "strips" else "hopper"  # strips keep nothing for a backward
ROWS = [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513, 1500]
COLUMNS = [64, 128, 192, 256, 320, 512, 832, 1088]
INNER = [8, 16, 56, 64, 72, 128, 200, 256, 264, 1000, 2048]


def sized(op, rows, columns, inner, width=32, dtype=torch.bfloat16, seed=0, **changes):
    column = (1,) if op.stem == "linear_batch_norm_add_div_swish" else (columns,)
    return draw(op, seed, dtype, "cuda", **{**dict(x=(rows, inner), w=(columns, inner), b=(columns,), vector=column, norm=(columns,),
                                                   stats=(columns,), groups=columns // width, training=False), **changes})


class OnHopper(Referee):
    path = "hopper"
    roundings = {torch.float32: 64}  # the tensor cores truncate as they add up

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.backends.cuda.matmul.allow_tf32 = True

    @classmethod
    def tearDownClass(cls):
        torch.backends.cuda.matmul.allow_tf32 = False

    def forward(self, op, arguments, what):
        super().forward(op, held(arguments), what)

    def captured(self, op, arguments):
        """A graph of one call, which has run once before, and the call's result."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())  # which may still be making the arguments, or copying them
        with torch.no_grad(), torch.cuda.stream(side):
            op(arguments)
            side.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                out = op(arguments)
        torch.cuda.synchronize()
        return graph, out


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class HopperTest(OnHopper, Gradients):
    device = "cuda"

    def test_sizes(self):
        """Every number of rows, columns and inner columns, with some of the others."""
        for op, dtype in itertools.product(CHAINS, DTYPES):
            for i in range(3 * len(ROWS)):
                rows, columns, inner = ROWS[i % len(ROWS)], COLUMNS[(i * 5 + i // 8) % len(COLUMNS)], INNER[(i * 7) % len(INNER)]
                self.forward(op, sized(op, rows, columns, inner, dtype=dtype), f"{rows}×{inner}→{columns} {dtype}")

    def test_columns_that_no_tile_divides(self):
        for op, dtype in itertools.product([op for op in CHAINS if not op.group_norm], DTYPES):
            for columns in (8, 24, 40, 248, 264, 520, 1000):
                self.forward(op, sized(op, 130, columns, 96, 8, dtype), f"{columns} columns {dtype}")

    def test_group_widths(self):
        for op, dtype, width, groups in itertools.product([op for op in CHAINS if op.group_norm], DTYPES, (16, 32, 64), (1, 2, 3, 7, 16, 33)):
            self.forward(op, sized(op, 200, width * groups, 128, width, dtype), f"{groups} groups of {width} {dtype}")

    def test_more_tiles_than_processors(self):
        for op, dtype in itertools.product(CHAINS, DTYPES):
            for rows, columns, inner in ((4000, 2112, 64), (9000, 1024, 136), (128, 40000, 64), (4000, 2112, 1096), (9000, 1024, 2312)):
                self.forward(op, sized(op, rows, columns, inner, 64, dtype), f"{rows}×{inner}→{columns} {dtype}")

    def test_optional_parts(self):
        for op, dtype in itertools.product(CHAINS, DTYPES):
            for missing in ({"b": None}, {"norm": None}, {"b": None, "norm": None}, {"vector": ()}, {"vector": (1,)}):
                self.forward(op, sized(op, 150, 320, 64, dtype=dtype, **missing), f"{missing} {dtype}")

    def test_layouts(self):
        """Rows that are part of wider ones; three dimensions where there is no norm."""
        for op, dtype in itertools.product(CHAINS, DTYPES):
            arguments = sized(op, 150, 320, 64, dtype=dtype)
            for name in ("input", "weight"):
                wide = torch.full((arguments[name].size(0), 96), torch.nan, device="cuda", dtype=dtype)
                wide[:, 16:80] = arguments[name]
                self.forward(op, {**arguments, name: wide[:, 16:80]}, f"{name} in wider rows {dtype}")
            if not op.batch_norm and not op.group_norm:
                self.forward(op, {**arguments, "input": arguments["input"].view(3, 50, 64)}, f"3-D {dtype}")

    def test_a_bias_with_strides_goes_the_other_way(self):
        for op, dtype in itertools.product(CHAINS, DTYPES):
            arguments = sized(op, 150, 320, 64, dtype=dtype)
            for what, bias in (("every second", torch.randn(640, device="cuda").to(dtype)[::2]),
                               ("expanded", torch.randn(1, device="cuda").to(dtype).expand(320))):
                given = {**arguments, "bias": bias}
                with torch.no_grad():
                    out = self.assert_calls(op.stem, lambda: op(given), f"{op} {what} {dtype}", "cuda")
                    dense = op({**arguments, "bias": bias.contiguous()})
                # Not element by element: a group norm makes much of one rounding. A wrong bias is off by about 1.
                off = (out.float() - dense.float()).square().mean().sqrt().item()
                self.assertLess(off, 0.1, f"{op} {what} {dtype}: root mean square of the difference")

    def test_integers_bit_for_bit(self):
        """Where the linear is exact, both kernels compute the same tail of the same numbers. A group's sum may be added up in
        another order: there a result may be the next number."""
        for op, dtype, inner in itertools.product(CHAINS, DTYPES, (8, 64, 192, 1000)):
            arguments = sized(op, 300, 576, inner, dtype=dtype)
            for name in ("input", "weight"):
                arguments[name] = torch.randint(-1, 2, arguments[name].shape, device="cuda").to(dtype)
            arguments["bias"] = torch.randint(-4, 5, arguments["bias"].shape, device="cuda").to(dtype)
            with torch.no_grad():
                whole = self.assert_calls(op.stem, lambda: op(copied(arguments)), f"{op} {dtype}", "hopper")
                arguments["bias"] = torch.stack([arguments["bias"]] * 2, 1)[:, 0]  # which the kernel does not read
                tail = self.assert_calls(op.stem, lambda: op(copied(arguments)), f"{op} {dtype}", "cuda")
            if op.group_norm:
                self.assert_same(whole, tail, f"{op} {dtype} {inner}", (1e-2, 8e-3) if dtype != torch.float32 else (1e-5, 1e-5))
            else:
                self.assert_bitwise(whole, tail, f"{op} {dtype} {inner}")

    def test_gradients(self):
        """The kernel then keeps the linear's result for the backward. Its own is the same, bit for bit."""
        for op, dtype in itertools.product(CHAINS, DTYPES):
            for rows, columns, inner, width in ((1, 64, 8, 64), (150, 320, 64, 32), (257, 832, 1000, 16), (4000, 2112, 64, 64)):
                arguments, what = held(sized(op, rows, columns, inner, width, dtype)), f"{rows}×{inner}→{columns} {dtype}"
                with torch.no_grad():
                    out = self.assert_calls(op.stem, lambda: op(copied(arguments)), what, self.path)
                learning = copied(arguments)
                learning["weight"].requires_grad_()
                kept = self.assert_calls(op.stem, lambda: op(learning), what, WITH_GRADIENTS)
                if WITH_GRADIENTS == self.path:
                    self.assert_bitwise(kept.detach(), out, f"{op} {what}")
                self.backward(op, arguments, what)

    def test_gradients_of_three_dimensions(self):
        for op, dtype in itertools.product([op for op in CHAINS if not op.batch_norm and not op.group_norm], DTYPES):
            arguments = held(sized(op, 150, 320, 64, dtype=dtype))
            before = calls_of(op.stem, WITH_GRADIENTS)
            self.backward(op, {**arguments, "input": arguments["input"].view(3, 50, 64)}, f"3-D {dtype}")
            self.assertEqual(calls_of(op.stem, WITH_GRADIENTS), before + 1, f"3-D {dtype}")

    def test_special_values(self):
        """A row of each, by itself: what is infinite or no number in eager is so here. Where float64 is finite and eager is not,
        eager has overflowed on its way; among large numbers it has lost the spread that a norm makes visible."""
        ordinary = torch.tensor([not abs(value) > 104 for value in cases.LATTICE], device="cuda")
        for op, dtype in itertools.product(CHAINS, DTYPES):
            arguments = sized(op, len(cases.LATTICE), 128, 8, dtype=dtype)
            arguments["input"] = torch.zeros_like(arguments["input"])
            arguments["input"][:, 0] = torch.tensor(cases.LATTICE, dtype=torch.float64).to("cuda", dtype)
            arguments["weight"] = torch.ones_like(arguments["weight"])
            with torch.no_grad():
                whole = self.assert_calls(op.stem, lambda: op(copied(arguments)), f"{op} {dtype}", "hopper")
                eager, exact = op.eager(copied(arguments)), op.eager(cases.in_double(copied(arguments)))
            judged = eager.isfinite() | ~exact.isfinite()
            self.assertGreater(judged.float().mean().item(), 0.9)
            for kind in (torch.isnan, torch.isposinf, torch.isneginf):
                self.assertTrue(torch.equal(kind(whole[judged]), kind(eager[judged])), f"{op} {dtype}: {kind.__name__}")
            self.close(whole[ordinary][:-1], eager[ordinary][:-1], exact[ordinary][:-1], f"{op} {dtype}")  # the last is NaN

    def test_equal_values_in_a_group(self):
        for op, width, dtype in itertools.product([op for op in CHAINS if op.group_norm], (16, 32, 64), DTYPES):
            arguments = cases.constant_groups(op, 4, width, "cuda")
            arguments = {name: value.to(dtype) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
            arguments["input"], arguments["weight"] = arguments["input"].repeat(1, 8), arguments["weight"].repeat(1, 8)
            exact = op.eager(cases.in_double(copied(arguments)))
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", "hopper")
            off = (out.double() - exact).abs() - torch.finfo(dtype).eps / 2 * exact.abs()
            self.assertLess(off.max().item(), 1e-5, f"{op}: groups of {width} equal values of {dtype}")

    def test_every_element_is_written_and_no_other(self):
        for op, dtype, (rows, columns) in itertools.product(CHAINS, DTYPES, ((1, 64), (65, 320), (300, 576))):
            arguments = sized(op, rows, columns, 64, dtype=dtype)
            with torch.no_grad():
                before = op(copied(arguments))
                for value in (torch.nan, 7.0):
                    torch.cuda.empty_cache()
                    pool = torch.full((1 << 22,), value, device="cuda", dtype=dtype)
                    del pool  # the result is carved out of this
                    out = op(arguments)
                    self.assert_bitwise(out, before, f"{op} {dtype} over {value}")
                    behind = torch.as_strided(out, (64,), (1,), out.numel()) if out.untyped_storage().nbytes() > out.nbytes + 128 else None
                    self.assertTrue(behind is None or bool((behind == value).all()))

    def test_bit_for_bit_from_run_to_run(self):
        for op, dtype in itertools.product(CHAINS, DTYPES):
            arguments = sized(op, 1000, 1088, 520, 64, dtype)
            with torch.no_grad():
                first = op(arguments)
                for _ in range(100):
                    self.assert_bitwise(op(arguments), first, f"{op} {dtype}")

    def test_replays_with_new_numbers(self):
        for op, dtype in itertools.product(CHAINS, DTYPES):
            arguments = sized(op, 200, 320, 128, dtype=dtype)
            graph, out = self.captured(op, arguments)
            for seed in range(1, 1001):
                for name in ("input", "weight"):
                    arguments[name].copy_(torch.randn_like(arguments[name]))
                graph.replay()
                with torch.no_grad():
                    self.assert_bitwise(out, op(arguments), f"{op} {dtype}, replay {seed}")

    def test_memory_that_comes_back(self):
        """Nothing of a call outlives it: other tensors at the same addresses, and weights written in place."""
        for op in CHAINS:
            with torch.no_grad():
                for seed in range(30):
                    arguments = sized(op, 128 + seed % 3, 320, 64 + 8 * (seed % 5), dtype=torch.bfloat16, seed=seed)
                    self.forward(op, arguments, f"seed {seed}")
                    arguments["weight"].data.mul_(-2)
                    self.forward(op, arguments, f"seed {seed}, weight changed")

    def test_streams(self):
        for op in CHAINS:
            self.same_on_streams(op, sized(op, 1000, 1024, 512))

    def test_tiles_are_as_wide_as_is_wanted(self):
        """As the kernels say that ran; halves have tiles of 256 or 128 columns."""
        wanted = {"always": 256, "always_192": 192, "always_128": 128, "always_narrow": 256}[os.environ["TAILOR_HOPPER"]]
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        for dtype, tf32, width in ((torch.bfloat16, True, wanted), (torch.float16, True, wanted), (torch.float32, True, wanted),
                                   (torch.float32, False, 256 if wanted == 192 else wanted)):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            arguments = sized(op, 300, 512, 512, dtype=dtype)
            try:
                found = [re.search(r"chain_kernel<.*, (\d+)>", name) for name in kernels_of(lambda: op(arguments))]
            finally:
                torch.backends.cuda.matmul.allow_tf32 = True
            self.assertEqual([int(match[1]) for match in found if match], [width], f"{dtype}, TF32 {tf32}")

    def test_what_it_leaves_to_the_others(self):
        op = next(o for o in CHAINS if o.stem == "linear_swish_add_group_norm")
        good = sized(op, 64, 256, 64)
        wide = torch.zeros(64, 65, device="cuda", dtype=torch.bfloat16)
        unaligned = torch.zeros(64 * 64 + 1, device="cuda", dtype=torch.bfloat16)[1:].view(64, 64)
        others = {"float64": sized(op, 64, 256, 64, dtype=torch.float64), "groups of 128": sized(op, 64, 256, 64, 128),
                  "rows apart by an odd number": {**good, "input": wide[:, :64]}, "an unaligned matrix": {**good, "input": unaligned},
                  "one row many times": {**good, "input": good["input"][:1].expand(64, 64)}}
        with torch.no_grad():
            for what, arguments in others.items():
                self.assert_calls(op.stem, lambda: op(arguments), what, "cuda")
            torch.backends.cuda.matmul.allow_tf32 = False
            try:
                self.assert_calls(op.stem, lambda: op(sized(op, 64, 256, 64, dtype=torch.float32)), "float32 without TF32", "fp16x3")
            finally:
                torch.backends.cuda.matmul.allow_tf32 = True


def profile_of(call):
    """What the profiler sees of a call. Its first use may miss some."""
    for _ in range(2):
        with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
    return seen


def kernels_of(call):
    """The names of the kernels that a call runs."""
    return [event.name for event in profile_of(call).events()]


def held(arguments):
    """With matrices that TF32 holds as they are: small products eager does not round to it."""
    if arguments["input"].dtype != torch.float32:
        return arguments
    return {**arguments, **{name: on_the_grid(arguments[name]) for name in ("input", "weight")}}


def on_the_grid(tensor):
    """To 11 bits, as TF32 would: then every way to multiply sees the same numbers."""
    return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32) if tensor.is_contiguous() else tensor.bfloat16().float()


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class HopperContractTest(contract_test.ContractTest):
    device, path, dtypes, training = "cuda", "hopper", (torch.bfloat16, torch.float16), (False,)


if __name__ == "__main__":
    main()
