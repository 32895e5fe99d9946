"""float32 of few rows on Hopper's tensor cores, as three products of halves: all that float32_test, float32_calls_test and settled_test
ask of the kernel for tiles of many rows, of that for strips; and its sizes."""
import itertools
import os
import unittest

os.environ["TAILOR_HOPPER"] = "strips"  # also where it is slower

import torch

import settled_test
from cases import CHAINS
from checks import main
from float32_calls_test import CallsTest
from float32_cases import HOPPER, Float32, integers, sized
from float32_test import ErrorTest, Float32ContractTest, LongSumsContractTest, SpecialValuesTest, ValuesTest

__all__ = ["CallsTest", "ErrorTest", "Float32ContractTest", "LongSumsContractTest", "SpecialValuesTest", "ValuesTest"]
ROWS = [1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600]  # tiles have 32, 64, 128 or 256
COLUMNS = [16, 64, 112, 128, 144, 256, 272, 1040]  # strips have 128
INNER = [1, 7, 31, 63, 64, 65, 127, 128, 129, 192, 511, 512, 513, 1023, 1025, 2047, 4099, 8192]  # steps have 64


class KeptTest(settled_test.KeptTest):
    test_bound = test_it_is_kept_indeed = test_what_cannot_be_kept_is_not_planned_with = None  # whichever kernel reads it


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class StripsTest(Float32):
    def test_rows_and_sums(self):
        for op in CHAINS:
            for i, (rows, inner) in enumerate(itertools.product(ROWS, INNER)):
                self.forward(op, sized(op, rows, COLUMNS[i % len(COLUMNS)], inner, seed=i), f"{rows}×{inner}→{COLUMNS[i % len(COLUMNS)]}")

    def test_integers(self):
        for rows, inner, columns in itertools.product((1, 16, 33, 128, 200, 300), (4, 132, 1024, 8192), (16, 272)):
            what = f"{rows}×{inner}→{columns}"
            self.exact(integers(rows, inner, 8), integers(columns, inner, 8), f"{what}, up to 8")
            self.exact(integers(rows, inner, 2047), integers(columns, inner, 1), f"{what}, 11 bits")

    def test_rows_that_are_no_numbers(self):
        """What is computed again stands in the right place, of each tile and each strip, and beside it all is as it was."""
        x, weight = torch.randn(300, 512, device="cuda"), torch.randn(272, 512, device="cuda")
        before = self.product(x, weight, "none")
        for row, column in itertools.product((0, 63, 255, 256, 299), (0, 127, 128, 271)):
            special = x.clone(), weight.clone()
            special[0][row, 5], special[1][column, 7] = torch.inf, torch.nan
            after = self.product(*special, "one row, one column")
            self.assertFalse(bool(after[row].isfinite().any()) or bool(after[:, column].isfinite().any()))
            same = torch.ones_like(before, dtype=torch.bool)
            same[row], same[:, column] = False, False
            self.assert_bitwise(after[same], before[same], f"beside row {row} and column {column}")

    def test_a_weight_whose_halves_are_made_in_the_call(self):
        """So few rows and columns that there is room for the kernel while its halves, which take long, are being made."""
        for columns in (64, 512):
            x, weight = torch.randn(16, 65536, device="cuda"), torch.randn(columns, 65536, device="cuda") / 256
            wanted = self.product(x, weight, "the first time")
            for _ in range(10):
                torch.cuda.empty_cache()
                noise = torch.full((64 << 20,), torch.nan, device="cuda")  # where the halves will lie
                del noise
                self.assert_bitwise(self.product(x, weight, "over noise"), wanted, f"{columns} columns")


if __name__ == "__main__":
    if not HOPPER:
        print("strips_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
