"""float32 of few rows on Hopper's tensor cores, as six products of bfloat16 thirds: all that float32_test and float32_calls_test ask of
the path `fp16x3`, of `bf16x6`; and what is this kernel's own."""
import itertools
import os
import unittest

os.environ["TAILOR_HOPPER"] = "few_rows"  # also where it is slower

import torch
import torch.nn.functional as F

import float32_test
from cases import CHAINS
from checks import calls_of, copied, main
from float32_calls_test import CallsTest, SwitchesTest
from float32_cases import HOPPER, LEAST, PATH, Float32, integers, sized
from float32_test import Float32ContractTest, LongSumsContractTest, SpecialValuesTest, ValuesTest

from float32_error.inputs import DISTRIBUTIONS, Draw

__all__ = ["CallsTest", "SwitchesTest", "Float32ContractTest", "LongSumsContractTest", "SpecialValuesTest", "ValuesTest"]
ROWS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257]  # tiles have 32, 64 or 128
COLUMNS = [16, 64, 112, 128, 144, 256, 272, 1040]  # strips have 128
INNER = [4, 12, 28, 32, 36, 60, 64, 68, 124, 128, 132, 252, 260, 508, 516, 1020, 1028, 2044, 4100, 8192]  # steps have 32


class ErrorTest(float32_test.ErrorTest):
    test_integers_whose_higher_halves_are_more = None  # thirds add up otherwise


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class FewRowsTest(Float32):
    def test_rows_and_sums(self):
        for op in CHAINS:
            for i, (rows, inner) in enumerate(itertools.product(ROWS, INNER)):
                self.forward(op, sized(op, rows, COLUMNS[i % len(COLUMNS)], inner, seed=i), f"{rows}×{inner}→{COLUMNS[i % len(COLUMNS)]}")

    def test_integers(self):
        """Also of 8 bits by 16 bits, which two thirds of one and one of the other hold: sums float32 has to the last bit."""
        for rows, inner, columns in itertools.product((1, 16, 33, 128, 200), (4, 132, 1024, 8192), (16, 272)):
            what = f"{rows}×{inner}→{columns}"
            self.exact(integers(rows, inner, 8), integers(columns, inner, 8), f"{what}, up to 8")
            self.exact(integers(rows, inner, 2047), integers(columns, inner, 1), f"{what}, 11 bits")
            sparse = torch.where(torch.arange(inner, device="cuda") % 64 == 0, integers(columns, inner, 100), 0.0)
            self.exact(integers(rows, inner, 1000), sparse, f"{what}, few of 7 bits")

    def test_every_distribution_of_few_rows(self):
        """SGEMM cuts sums of few results into shorter ones, and may be nearer than it is with many: docs/float32.md has the bound."""
        for name, rows, inner in itertools.product(DISTRIBUTIONS, (1, 16, 64, 200), (LEAST, 1024, 8192)):
            x, weight = DISTRIBUTIONS[name].make(Draw("cuda", 2), rows, 4096, inner)
            self.not_worse(x, weight, f"{name}, {rows} rows, sums of {inner}", floor=2.0**-19 + inner * 2.0**-29)

    def test_weights_of_every_magnitude(self):
        """Down to where thirds lose digits, and below: then results are computed again."""
        for power in range(-149, 127, 6):
            x, weight = torch.randn(40, LEAST, device="cuda"), torch.randn(144, LEAST, device="cuda")
            weight = (weight.double() * 2.0**power).float().nan_to_num(0, 0, 0)
            for up in (-60, 0, 60):
                scaled = (x.double() * 2.0**up).float()
                if 2.0 ** (power + up) < 2.0**118:
                    self.not_worse(scaled, weight, f"weights of 2^{power}, x of 2^{up}", floor=2.0**-23)

    def test_x_of_every_magnitude_beside_large_numbers(self):
        """These meet zeros: what counts is far below its row's largest number."""
        for power in range(-149, 60, 8):
            x, weight = torch.randn(40, LEAST, device="cuda"), torch.randn(144, LEAST, device="cuda")
            x, weight = (x.double() * 2.0**power).float(), weight.bfloat16().float()
            times = 1.25 if power < -126 else 1.0  # of a few units of the smallest number, whose sum lost fewer is luck
            for large in (60, 100, 126):
                x[:, 3], weight[:, 3] = 2.0**large, 0
                self.not_worse(x, weight, f"x of 2^{power} beside 2^{large}", times, floor=2.0**-23)
                self.not_worse(weight, x, f"a weight of 2^{power} beside 2^{large}", times, floor=2.0**-23)

    def test_small_x_by_large_weights(self):
        """Scaled so that the largest number of a row is 2^60, some are so small that thirds lose digits. Weights multiply what is lost."""
        for power, up in itertools.product(range(-104, -60, 4), (10, 20, 40)):
            x, weight = torch.randn(40, LEAST, device="cuda") * 2.0**power, torch.randn(144, LEAST, device="cuda") * 2.0**up
            x[:, 3], weight[:, 3] = 2.0**100, 0
            self.not_worse(x, weight, f"x of 2^{power} beside 2^100, weights of 2^{up}", floor=2.0**-23)

    def test_next_to_nothing_times_much(self):
        """Of a weight so small that it has few bits, by x that is far below a number that meets zero."""
        for power, large, much in itertools.product(range(-149, -105, 3), (61, 80, 100, 120), (30, 32, 50)):
            x, weight = torch.zeros(33, LEAST, device="cuda"), torch.zeros(16, LEAST, device="cuda")
            x[:, 0], x[:, 1] = 2.0**large, 1.002 * 2.0**much
            weight[:, 1] = 3 * 2.0**power
            self.not_worse(x, weight, f"3 · 2^{power} by 2^{much} beside 2^{large}", floor=2.0**-23)

    def test_rows_of_numbers_that_are_none(self):
        x, weight = torch.randn(70, 512, device="cuda"), torch.randn(272, 512, device="cuda")
        before = self.product(x, weight, "none")
        for row, column, value in itertools.product((0, 31, 64, 69), (0, 127, 128, 271), (torch.inf, -torch.inf, torch.nan)):
            special = x.clone(), weight.clone()
            special[0][row, 5], special[1][column, 7] = value, value
            special[1][3, 5] = 0  # infinity times nothing
            after, eager = self.product(*special, f"{value}"), F.linear(*special)
            for kind in (torch.isnan, torch.isposinf, torch.isneginf):
                self.assertTrue(torch.equal(kind(after), kind(eager)), f"{value} in row {row} and of the weight in row {column}")
            same = torch.ones_like(before, dtype=torch.bool)
            same[row], same[:, column], same[:, 3] = False, False, False
            self.assert_bitwise(after[same], before[same], f"beside row {row} and column {column}")

    def test_results_of_zero(self):
        """Whatever the zeros meet."""
        x, weight = torch.randn(40, 512, device="cuda"), torch.randn(272, 512, device="cuda")
        x[:, 256:], weight[:, :256] = 0, -0.0
        self.assertTrue(bool((self.product(x, weight, "zeros meet") == 0).all()))
        x[3] = 0
        self.assertTrue(bool((self.product(x, weight, "a row of zeros") == 0).all()))

    def test_ordinary_numbers_are_not_computed_again(self):
        """Which takes some times as long."""
        x, weight = torch.randn(128, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda") / 64
        x[:, ::2].relu_()

        def fastest(call):
            times = []
            for _ in range(10):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                call()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            return min(times)
        ordinary = fastest(lambda: self.product(x, weight, "ordinary"))
        weight[:, 7] = torch.nan
        again = fastest(lambda: self.product(x, weight, "each row of the weight has a NaN"))
        self.assertLess(2 * ordinary, again, f"{ordinary} ms, {again} ms where all is computed again")

    def test_with_gradients(self):
        """The tail is apart then, and the linear before it counts by itself."""
        for op in CHAINS:
            mine, theirs = copied(arguments := sized(op, 48, 272, 512)), copied(arguments)
            for values in (mine, theirs):
                for name in ("input", "weight", "bias"):
                    values[name].requires_grad_()
            before = calls_of("linear", PATH)
            out = op(mine)
            self.assertGreater(calls_of("linear", PATH), before, f"{op}")
            eager = op.eager(theirs)
            self.assertTrue(torch.allclose(out, eager, rtol=1e-4, atol=1e-4), f"{op}")
            out.sum().backward()
            eager.sum().backward()
            for name in ("input", "weight", "bias"):
                # Of a norm's whole groups the sum is 0 but for noise.
                scale = max(1.0, theirs[name].grad.abs().max().item())
                self.assertLess((mine[name].grad - theirs[name].grad).abs().max().item(), 1e-3 * scale, f"{op}: {name}")

    def test_weights_that_the_copy_engine_cannot_read(self):
        """They go another way, and are right."""
        for op in CHAINS:
            arguments = sized(op, 16, 272, 512)
            wide = torch.randn(272, 515, device="cuda")
            for what, weight in (("rows apart by odd numbers", wide[:, :512]), ("an odd place", wide.view(-1)[1 : 1 + 272 * 512].view(272, 512))):
                with torch.no_grad():
                    before = calls_of(op.stem, PATH)
                    out = op({**arguments, "weight": weight})
                    self.assertEqual(calls_of(op.stem, PATH), before, f"{op}: {what}")
                    self.close(out, op.eager({**arguments, "weight": weight}),
                               op.eager({k: v.double() if torch.is_tensor(v) else v for k, v in {**arguments, "weight": weight}.items()}), f"{op}: {what}")


if __name__ == "__main__":
    if not HOPPER:
        print("few_rows_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
