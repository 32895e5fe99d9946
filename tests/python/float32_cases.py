"""What the tests of the paths `fp16x3` and `bf16x6` share. They are the same tests: few_rows_test and strips_test say which kernel
they mean."""
import os

FEW_ROWS = os.environ.get("TAILOR_HOPPER") == "few_rows"
if os.environ.get("TAILOR_HOPPER") not in ("few_rows", "strips", "always_128", "always_narrow"):
    os.environ["TAILOR_HOPPER"] = "always"  # also where it is slower; read when the library is first asked

import torch
import torch.nn.functional as F

from cases import draw
from cuda_test import Referee

from float32_error.arms import bare  # tools/, put on the path by checks
from float32_error.inputs import Draw
from float32_error.referee import Referee as Product, ratio

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
PATH, RULE = "bf16x6" if FEW_ROWS else "fp16x3", "linear_mul_batch_norm"
LEAST = 256  # shorter sums may go the other way
UNIT = 4 if FEW_ROWS else 1  # a weight's rows begin at a multiple of so many numbers


def fitting(inner):
    return (inner + UNIT - 1) // UNIT * UNIT


def sized(op, rows, columns, inner, width=16, seed=0, **changes):
    column, inner = (1,) if op.stem == "linear_batch_norm_add_div_swish" else (columns,), fitting(inner)
    return draw(op, seed, torch.float32, "cuda", **{**dict(
        x=(rows, inner), w=(columns, inner), b=(columns,), vector=column, norm=(columns,), stats=(columns,),
        groups=columns // width, training=False), **changes})


def integers(rows, columns, most):
    return torch.randint(-most, most + 1, (rows, columns), device="cuda").float()


def laid_out(value, offset, stride):
    """The same numbers, so many elements into their memory, and with rows so far apart; NaN lies between and around them."""
    rows, columns = value.shape
    flat = torch.full((offset + rows * stride + 8,), torch.nan, device="cuda")
    return flat.as_strided((rows, columns), (stride, 1), offset).copy_(value)


def all_in_doubt(arguments, powers=40, seed=0):
    """Columns of x and of the weight with opposite powers of two: each row is wide, and all results are as they were."""
    draw_ = Draw("cuda", seed)
    scale = draw_.powers(1, arguments["input"].shape[-1], powers)
    return {**arguments, "input": arguments["input"] * scale, "weight": arguments["weight"] / scale}


class Float32(Referee):
    path = PATH
    roundings = {torch.float32: 16}

    def setUp(self):
        self.assertFalse(torch.backends.cuda.matmul.allow_tf32)
        torch.manual_seed(0)

    def product(self, x, weight, what, bias=None):
        """x·weightᵀ by the kernel, through a tail that changes nothing."""
        with torch.no_grad():
            return self.assert_calls(RULE, lambda: bare(x, weight, bias), what, PATH)

    def not_worse(self, x, weight, what, times=1.0, floor=0.0):
        """No result's error over Σ|x||w| is above the largest of SGEMM's, or so many times that."""
        out, referee = self.product(x, weight, what), Product(x, weight)
        mine, theirs = referee.error(out), referee.error(F.linear(x, weight))
        self.assertLessEqual(ratio(mine["max"], theirs["max"], floor), times, f"{what}: largest error {mine}, SGEMM's {theirs}")
        return out

    def exact(self, x, weight, what):
        """Where float32 need not round, every bit is right."""
        out, truth = self.product(x, weight, what), x.double() @ weight.double().t()
        self.assertTrue(torch.equal(truth.float().double(), truth), f"{what}: this test wants numbers that float32 can hold")
        self.assertTrue(torch.equal(out.double(), truth), f"{what}: {(out.double() - truth).abs().max().item()} off")
