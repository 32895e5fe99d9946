"""16-bit elements of few rows on Hopper's tensor cores: all that hopper_test and hopper_grid_test ask of the kernel for tiles, of that for
strips; and its sizes."""
import os
import unittest

os.environ["TAILOR_HOPPER"] = "strips"  # also where it is slower

import torch

import hopper_grid_test
import hopper_test
from cases import CHAINS
from checks import main
from hopper_grid_test import HopperGridTest
from hopper_test import HOPPER, HopperContractTest, HopperTest, OnHopper, kernels_of, sized

__all__ = ["HopperContractTest", "HopperGridTest", "HopperTest"]
hopper_test.DTYPES = (torch.bfloat16, torch.float16)  # float32 has other strips, and TF32 none
HopperTest.test_tiles_are_as_wide_as_is_wanted = HopperGridTest.test_tf32 = HopperGridTest.test_float32 = None
hopper_grid_test.ROWS = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600]  # tiles have 32, 64 or 128
hopper_grid_test.COLUMNS = [8, 16, 24, 56, 64, 120, 128, 136, 192, 248, 256, 264, 520, 1000, 1032, 2056]  # strips have 128
hopper_grid_test.INNER = [8, 16, 56, 64, 72, 120, 128, 136, 192, 200, 504, 512, 520, 1000, 2056, 4096, 8184, 8192]  # steps have 64
FEW = [1, 15, 16, 17, 31, 32, 33, 64, 65, 128, 129, 256, 257, 600]
LONG = [8, 64, 200, 1024, 4104, 8192]


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class StripsTest(OnHopper):
    def test_rows_and_sums(self):
        """Every number of rows with every length of sums, and their numbers as eager has them."""
        for op in CHAINS:
            for i, rows in enumerate(FEW):
                for j, inner in enumerate(LONG):
                    width, dtype = (16, 32, 64)[(i + j) % 3], hopper_test.DTYPES[(i + j // 3) % 2]
                    columns = width * (1, 3, 5, 9, 17)[(i + 2 * j) % 5]
                    self.forward(op, sized(op, rows, columns, inner, width, dtype), f"{rows}×{inner}→{columns} {dtype}")

    def test_every_part_counts(self):
        """One place of K after the other is the whole sum, bit for bit: wherever K is cut."""
        op = next(o for o in CHAINS if o.stem == "linear_mul_batch_norm")
        for dtype, rows in ((dtype, rows) for dtype in hopper_test.DTYPES for rows in (1, 33, 200)):
            arguments = sized(op, rows, 264, 1096, dtype=dtype, b=None, norm=None, eps=0.125)
            for name, value in {"scale": 1, "running_mean": 0, "running_var": 0.875}.items():  # its tail changes nothing
                arguments[name].fill_(value)
            arguments["weight"] = (torch.arange(264, device="cuda")[:, None] % 8 + 1).to(dtype).expand(264, 1096).contiguous()
            for at in range(0, 1096, 8):
                x = torch.zeros(rows, 1096, device="cuda", dtype=dtype)
                x[:, at] = torch.arange(rows, device="cuda").to(dtype) % 16 - 8
                with torch.no_grad():
                    out = self.assert_calls(op.stem, lambda: op({**arguments, "input": x}), f"{rows} rows {dtype}", "hopper")
                self.assert_bitwise(out, x[:, at, None] * arguments["weight"][None, :, 0], f"{rows} rows, at {at}, {dtype}")

    def test_strips_run(self):
        """As the kernels say that ran: of 16 bits, with rows for tiles of each height (which of them ElementsPlan decides, and no name says
        so); not where a batch norm has the batch's statistics."""
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        for dtype in hopper_test.DTYPES:
            for rows, columns, inner in ((16, 512, 512), (64, 8192, 8192), (128, 8192, 8192)):
                arguments = sized(op, rows, columns, inner, dtype=dtype)
                found = [name for name in kernels_of(lambda: op(arguments)) if "few_elements_kernel<" in name]
                self.assertEqual(len(found), 1, f"{rows} rows {dtype}")
        op = next(o for o in CHAINS if o.stem == "linear_mul_batch_norm")
        arguments = sized(op, 128, 512, 512, training=True)
        self.assertFalse([name for name in kernels_of(lambda: op(arguments)) if "few_elements" in name])


if __name__ == "__main__":
    if not HOPPER:
        print("hopper_strips_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
