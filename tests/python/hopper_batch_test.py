"""Batch statistics in Hopper's kernels. Where nobody wants gradients and elements have 16 bits, the whole chain is one kernel, whose
blocks agree on them; elsewhere it gathers them beside the products (hopper_gather_test.py makes it do so everywhere). Each call must
run it; float64 is the referee, eager's own error the measure, of the result, of the running statistics and of the gradients."""
import itertools
import os
import random
import unittest

os.environ.setdefault("TAILOR_HOPPER", "always")  # also where it is slower

import torch

import contract_test
import hopper_test
from cases import CHAINS
from checks import calls_of, copied, main
from comparing import Gradients
from hopper_test import DTYPES, HOPPER

BATCH = [op for op in CHAINS if op.batch_norm]
# Around what a warp, a block and two of them have; and more tiles than the kernel that normalises merges.
ROWS = [2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300, 383, 384, 385, 511, 512, 513,
        1000, 1025, 2047, 2048, 2049, 2177, 4100, 4224, 5000]
COLUMNS = [8, 16, 56, 64, 72, 136, 248, 256, 264, 504, 512, 520, 1088, 4352]
INNER = [8, 16, 56, 64, 72, 128, 200, 264, 520, 1000, 2048]


GATHERS = os.environ["TAILOR_HOPPER"] == "gather"


def path_of(dtype):
    """Of a call without gradients."""
    return "hopper_gather" if GATHERS or dtype == torch.float32 else "hopper"


def sized(op, rows, columns, inner, dtype, **changes):
    return hopper_test.sized(op, rows, columns, inner, dtype=dtype, **{"training": True, "width": columns, **changes})


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class HopperBatchTest(hopper_test.OnHopper, Gradients):
    device = "cuda"
    roundings = {torch.float32: 256}  # a norm of a few rows makes more of what the tensor cores cut off

    def forward(self, op, arguments, what):
        self.path = path_of(arguments["input"].dtype)
        super().forward(op, arguments, what)

    def each(self):
        return itertools.product(BATCH, DTYPES)

    def test_sizes(self):
        for op, dtype in self.each():
            for i, (rows, columns) in enumerate(itertools.product(ROWS, COLUMNS)):
                inner = INNER[(i * 7) % len(INNER)]
                self.forward(op, sized(op, rows, columns, inner, dtype), f"{rows}×{inner}→{columns} {dtype}")

    def test_as_many_rows_as_fit(self):
        """Where a block merges two columns, or one, or none; and one row more than all blocks have at the same time."""
        most = torch.cuda.get_device_properties(0).multi_processor_count // 2 * 256
        for op, dtype in self.each():
            for rows, columns in itertools.product((8192, 8449, 12000, 16128, 16129, most - 1, most), (264, 520)):
                self.forward(op, sized(op, rows, columns, 64, dtype), f"{rows} rows, {columns} columns {dtype}")
            arguments = sized(op, most + 1, 72, 64, dtype)
            with torch.no_grad():
                self.assert_calls(op.stem, lambda: op(arguments), f"{most + 1} rows {dtype}", "hopper_gather")

    def test_statistics_in_memory_that_the_linear_reads(self):
        """They are written when it has read all of it."""
        for (op, dtype), name in itertools.product(self.each(), ("input", "weight", "bias")):
            arguments = sized(op, 1000, 512, 512, dtype)
            mine, theirs = copied(arguments), copied(arguments)
            for values in (mine, theirs):
                whole = values[name] = values[name].clone()
                values["running_mean"] = whole[7] if whole.dim() == 2 else whole
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(mine), f"{op} {name} {dtype}", "hopper_gather")
                expected = op.eager(theirs)
            self.assert_same(out, expected, f"{op} {name} {dtype}", (5e-2, 5e-2))
            self.assert_same(mine["running_mean"], theirs["running_mean"], f"{op} {name} {dtype}: mean", (1e-2, 1e-2))

    def test_gradients(self):
        for op, dtype in self.each():
            for rows, columns in itertools.product((9, 130, 256, 3000), (64, 264, 520)):
                arguments = sized(op, rows, columns, 72, dtype)
                before = calls_of(op.stem, "hopper_gather")
                self.backward(op, arguments, f"{rows}×72→{columns} {dtype}")
                self.assertGreater(calls_of(op.stem, "hopper_gather"), before)

    def test_optional_parts(self):
        for op, dtype in self.each():
            for rows, missing in itertools.product((50, 400, 3000), ({"b": None}, {"norm": None}, {"b": None, "norm": None}, {"stats": None},
                                                                    {"vector": ()}, {"vector": (1,)}, {"momentum": 1.0}, {"momentum": 0.0})):
                self.forward(op, sized(op, rows, 320, 64, dtype, **missing), f"{rows} rows, {missing} {dtype}")

    def test_integers(self):
        """Statistics of integers and the kernel for a tail apart: running statistics to a rounding, results to the next number."""
        for op, dtype, rows in itertools.product(BATCH, DTYPES, (130, 500, 3000)):
            arguments = sized(op, rows, 576, 64, dtype)
            for name in ("input", "weight"):
                arguments[name] = torch.randint(-1, 2, arguments[name].shape, device="cuda").to(dtype)
            whole, apart = copied(arguments), copied(arguments)
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(whole), f"{op} {dtype}", path_of(dtype))
            apart["weight"] = apart["weight"].t().contiguous().t()  # which this kernel does not read
            whole_calls = calls_of(op.stem, path_of(dtype))
            with torch.no_grad():
                tail = self.assert_calls(op.stem, lambda: op(apart), f"{op} {dtype}", "cuda")
            self.assertEqual(calls_of(op.stem, path_of(dtype)), whole_calls)
            of_float = (1e-5, 1e-5)
            self.assert_same(out, tail, f"{op} {dtype} {rows} rows", (1e-2, 8e-3) if dtype != torch.float32 else of_float)
            for name in ("running_mean", "running_var"):
                self.assert_same(whole[name], apart[name], f"{op} {dtype} {rows} rows: {name}",
                                 (1e-2, 8e-3) if dtype != torch.float32 else of_float)

    def test_equal_values_in_a_column(self):
        """No spread at all: what is left is the norm's bias, exactly, and a running variance of nothing new."""
        op = next(op for op in BATCH if op.stem == "linear_mul_batch_norm")
        for dtype, rows in itertools.product(DTYPES, (37, 300, 3000)):
            arguments = sized(op, rows, 320, 64, dtype, momentum=1.0)
            arguments["input"] = arguments["input"][:1].repeat(rows, 1)
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(arguments), f"{dtype}", path_of(dtype))
            self.assert_bitwise(out, arguments["norm_bias"].expand(rows, -1), f"{rows} equal rows of {dtype}")
            self.assertEqual(arguments["running_var"].abs().max().item(), 0)

    def test_a_mean_far_above_the_spread(self):
        for op, ratio, rows in itertools.product(BATCH, (0, 10, 1e3, 1e5), (300, 3000)):
            arguments = sized(op, rows, 96, 24, torch.float32)
            arguments["bias"] = torch.full_like(arguments["bias"], float(ratio))
            if "scale" in arguments:
                arguments["scale"] = arguments["scale"].abs() + 0.5
            self.forward(op, arguments, f"{rows} rows, mean over spread {ratio}")

    def test_a_value_far_from_the_others(self):
        """In any row, also in one that others are measured from."""
        for op, dtype, row in itertools.product(BATCH, DTYPES, (0, 8, 15, 16, 127, 128, 599)):
            arguments = sized(op, 600, 64, 64, dtype)
            arguments["input"][row] *= 64
            self.forward(op, arguments, f"row {row} {dtype}")

    def test_infinite_and_no_numbers(self):
        for op, dtype, value in itertools.product(BATCH, DTYPES, (torch.inf, -torch.inf, torch.nan)):
            # Of two rows the mean is infinite, of more no number if an infinite one came first: eager's goes by how it merges them.
            for rows, row, column in ((600, 0, 0), (600, 8, 3), (600, 300, 130), (600, 599, 319), (2, 0, 5)):
                arguments = sized(op, rows, 320, 320, dtype)
                arguments["weight"] = torch.eye(320, device="cuda", dtype=dtype)
                arguments["input"][:, column], arguments["input"][row, column] = 1, value
                mine, theirs = copied(arguments), copied(arguments)
                what = f"{op} {dtype} {value} in row {row} of {rows}"
                with torch.no_grad():
                    out = self.assert_calls(op.stem, lambda: op(mine), what, path_of(dtype))
                    expected = op.eager(theirs)
                for kind in (torch.isnan, torch.isposinf, torch.isneginf):
                    for name, a, b in (("result", out, expected), *((n, mine[n], theirs[n]) for n in ("running_mean", "running_var"))):
                        self.assertTrue(torch.equal(kind(a), kind(b)), f"{what}: {name}, {kind.__name__}")

    def test_every_element_is_written_and_no_other(self):
        for (op, dtype), (rows, columns) in itertools.product(self.each(), ((2, 64), (130, 320), (700, 576))):
            arguments = sized(op, rows, columns, 64, dtype)
            with torch.no_grad():
                before = op(copied(arguments))
                for value in (torch.nan, 7.0):
                    torch.cuda.empty_cache()
                    pool = torch.full((1 << 22,), value, device="cuda", dtype=dtype)
                    del pool  # the result is carved out of this
                    self.assert_bitwise(op(copied(arguments)), before, f"{op} {dtype} over {value}")
                wide = {name: torch.full((columns + 32,), 7.0, device="cuda", dtype=dtype) for name in ("running_mean", "running_var")}
                for name, values in wide.items():
                    values[16:-16] = arguments[name]
                self.assert_calls(op.stem, lambda: op({**arguments, **{name: values[16:-16] for name, values in wide.items()}}), path=path_of(dtype))
                for values in wide.values():
                    self.assertTrue(bool((values[:16] == 7).all() and (values[-16:] == 7).all()))

    def test_bit_for_bit_from_run_to_run(self):
        for (op, dtype), rows in itertools.product(self.each(), (200, 1000, 3000)):
            arguments = sized(op, rows, 5120, 520, dtype)
            with torch.no_grad():
                first = copied(arguments)
                out = op(first)
                for _ in range(100):
                    again = copied(arguments)
                    self.assert_bitwise(op(again), out, f"{op} {dtype}")
                    for name in ("running_mean", "running_var"):
                        self.assert_bitwise(again[name], first[name], f"{op} {dtype}: {name}")

    def test_replays_with_new_numbers(self):
        for (op, dtype), (rows, columns) in itertools.product(self.each(), ((200, 320), (3000, 1600))):
            arguments = sized(op, rows, columns, 128, dtype)
            beside = copied(arguments)
            graph, out = self.captured(op, arguments)
            with torch.no_grad():
                op(beside)
                for seed in range(1000):
                    for name in ("input", "weight"):
                        beside[name].copy_(torch.randn_like(arguments[name]))
                        arguments[name].copy_(beside[name])
                    graph.replay()
                    self.assert_bitwise(out, op(beside), f"{op} {dtype}, replay {seed}")
                    for name in ("running_mean", "running_var"):
                        self.assert_bitwise(arguments[name], beside[name], f"{op} {dtype}, replay {seed}: {name}")

    def test_streams(self):
        self.path = path_of(torch.bfloat16)
        for op in BATCH:
            self.same_on_streams(op, sized(op, 1000, 1024, 512, torch.bfloat16, momentum=0.0))

    def test_a_grid(self):
        """1,000 sizes a precision, drawn at random."""
        for dtype in DTYPES:
            for number in range(1000):
                chance = random.Random(number)
                rows, columns, inner = chance.randint(2, chance.choice((300, 5000))), 8 * chance.randint(1, 96), 8 * chance.randint(1, 96)
                op = BATCH[number % len(BATCH)]
                with self.subTest(number=number):
                    self.forward(op, sized(op, rows, columns, inner, dtype, seed=number), f"{rows}×{inner}→{columns} {dtype}")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class HopperBatchContractTest(contract_test.ContractTest):
    device, path, dtypes, training = "cuda", path_of(torch.bfloat16), (torch.bfloat16, torch.float16), (True,)

    def contract(self, op, dtype, training):
        if training:
            super().contract(op, dtype, training)


if __name__ == "__main__":
    main()
