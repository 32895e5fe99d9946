"""Hopper's kernels over a grid of sizes, 5,000 cases a precision. The numbers are small integers, so that the linear is exact and
only the tail can round. A case that fails says its number; TAILOR_CASE=N runs that one alone."""
import os
import random
import unittest

os.environ.setdefault("TAILOR_HOPPER", "always")  # also where it is slower

import torch

import cases
from cases import CHAINS
from checks import copied, main
from cuda_test import Referee

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
COUNT = 5000
ROWS = [1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 100, 127, 128, 129, 191, 255, 256, 257, 300, 383, 384, 385, 513, 1000, 1025, 2047, 4096, 8191, 8192, 8193]
COLUMNS = [8, 16, 24, 56, 64, 72, 120, 128, 136, 192, 248, 256, 264, 320, 504, 512, 520, 768, 1000, 1024, 1032, 2048]
INNER = [8, 16, 24, 40, 56, 64, 72, 120, 128, 136, 184, 192, 200, 248, 256, 264, 320, 512, 520, 1000, 1024, 2048, 2056, 4096]
MOST = 1 << 22  # elements of a matrix
EPS = 0.125  # beside it a variance is still a few bits
WAVES = [(8448, 256), (4224, 1280), (21120, 512), (128, 16896)]  # tiles for 66, 165, 330 and 66 blocks; an H200 runs 132


class Case:
    """Sizes, layouts and optional parts, drawn from the case's number."""

    def __init__(self, number, dtype):
        chance = random.Random(number)
        self.number, self.dtype, self.op = number, dtype, CHAINS[number % len(CHAINS)]
        self.rows, self.columns, self.inner = chance.choice(ROWS), chance.choice(COLUMNS), chance.choice(INNER)
        while self.rows * max(self.columns, self.inner) > MOST:
            self.rows //= 2
        if number % 25 == 24:
            (self.rows, self.columns), self.inner = chance.choice(WAVES), chance.choice(INNER)
        self.width = chance.choice((16, 32, 64))
        if self.op.group_norm:
            self.columns = max(1, self.columns // self.width) * self.width
        self.missing = {name for name in ("bias", "norm") if chance.random() < 0.15}
        self.vector = chance.choice([(1,), ()]) if chance.random() < 0.15 else (self.columns,)
        if self.op.stem == "linear_batch_norm_add_div_swish":
            self.vector = (1,)
        self.beside = chance.choice([0, 0, 8])  # columns of a matrix that x is a part of

    def __str__(self):
        without = f", without {' and '.join(sorted(self.missing))}" if self.missing else ""
        return (f"case {self.number}: {self.op} {self.rows}×{self.inner}→{self.columns} {self.dtype}, groups of {self.width}{without}, "
                f"vector {self.vector}, {self.beside} columns beside x")

    def integers(self, most, *shape):
        return torch.randint(-most, most + 1, shape, device="cuda").to(self.dtype)

    def arguments(self):
        torch.manual_seed(self.number)
        some = torch.rand(self.columns, self.inner, device="cuda") < 48 / self.inner  # so that 8 bits hold the sums
        norm = self.columns if "norm" not in self.missing else None
        values = {
            "input": self.integers(1, self.rows, self.inner + self.beside)[:, self.beside:],
            "weight": self.integers(1, self.columns, self.inner) * some,
            "bias": self.integers(4, self.columns) if "bias" not in self.missing else None,
            "scale": 2.0 ** self.integers(1, *self.vector), "addend": self.integers(4, *self.vector),
            "num_groups": self.columns // self.width, "norm_weight": norm and 2.0 ** self.integers(1, norm),
            "norm_bias": norm and self.integers(4, norm), "running_mean": self.integers(2, self.columns),
            "running_var": 4.0 ** self.integers(1, self.columns) - EPS, "training": False, "momentum": 0.1,
            "eps": EPS if self.op.batch_norm else 1e-5, "cudnn_enabled": True, "factor": 1.5, "divisor": -0.5,
        }
        return {name: values[name] for name in self.op.arguments}


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class HopperGridTest(Referee):
    path = "hopper"

    def check(self, case, path):
        arguments = case.arguments()
        out = self.assert_calls(case.op.stem, lambda: case.op(copied(arguments)), str(case), path)
        exact = case.op.eager(cases.in_double(arguments))
        if case.op.stem == "linear_mul_batch_norm":  # powers of two and integers: there is nothing to round but the result
            self.assert_bitwise(out, exact.to(case.dtype), str(case))
            return
        # The result is rounded once. In front of that the tail is off by a few roundings of float32, in 16 bits by the activations'
        # 2^-20, and a norm may make more of it; a neighbour's value would be off by about 1.
        size = exact.abs().amax(1, keepdim=True).clamp(min=1)
        before = 512 * 2.0**-23 if case.dtype == torch.float32 else 2.0**-14
        bound = torch.finfo(case.dtype).eps / 2 * exact.abs() + before * size
        worst = ((out.double() - exact).abs() / bound).max().item()
        self.assertLessEqual(worst, 1, f"{case}: the error over what it may be")

    def grid(self, dtype, path, tf32=False):
        only = os.environ.get("TAILOR_CASE")
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            with torch.no_grad():
                for number in [int(only)] if only else range(COUNT):
                    self.check(Case(number, dtype), path)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    def test_bfloat16(self):
        self.grid(torch.bfloat16, "hopper")

    def test_float16(self):
        self.grid(torch.float16, "hopper")

    def test_tf32(self):
        self.grid(torch.float32, "hopper", tf32=True)

    def test_float32(self):
        self.grid(torch.float32, "fp16x3")

    def test_activations_of_every_number(self):
        self.activations([torch.bfloat16, torch.float16])


if __name__ == "__main__":
    main()
