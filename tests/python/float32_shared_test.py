"""The two products of a backward read the same gradient, one of them transposed. Halves of it are made once for both; with each row of it
goes a power of two, by which the other operand's row is multiplied."""
import unittest

import torch
import torch.nn.functional as F

import cases
from checks import calls_of, main
from cuda_test import Referee
from float32_cases import HOPPER, integers

from float32_error.inputs import Draw  # tools/, put on the path by checks
from float32_error.referee import Referee as Product, ratio

OP = next(op for op in cases.CHAINS if op.stem == "linear_sigmoid_mul_add")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class SharedTest(Referee):
    def setUp(self):
        torch.manual_seed(0)

    def gradients(self, x, weight, of_out, wanted=("input", "weight"), shared=1, what=""):
        """Those of a linear: a factor of 0 leaves its tail nothing to do."""
        arguments = {"input": x.clone(), "weight": weight.clone(), "bias": None, "factor": 0.0}
        for name in wanted:
            arguments[name].requires_grad_()
        out = OP(arguments)
        before = calls_of("linear", "fp16x3"), calls_of("linear", "fp16x3_shared")
        made = torch.autograd.grad(out, [arguments[name] for name in wanted], of_out)
        ran = calls_of("linear", "fp16x3") - before[0], calls_of("linear", "fp16x3_shared") - before[1]
        self.assertEqual(ran, (len(wanted), shared), f"{what}: products, and pairs of them that share")
        return made

    def check(self, of_out, x, what, times=1.0):
        """The gradient of the input as it is by itself, bit for bit, and that of the weight no worse than SGEMM's."""
        weight = torch.randn(of_out.shape[1], x.shape[1], device="cuda")
        of_input, of_weight = self.gradients(x, weight, of_out, what=what)
        alone, = self.gradients(x, weight, of_out, ("input",), 0, what)
        self.assert_bitwise(of_input, alone, f"{what}: the input's gradient")
        self.assertEqual(of_weight.stride(), weight.stride(), what)
        columns, rows = of_out.t().contiguous(), x.t().contiguous()
        referee = Product(columns, rows)
        mine, theirs = referee.error(of_weight), referee.error(F.linear(columns, rows))
        self.assertLessEqual(ratio(mine["max"], theirs["max"], 2.0**-23), times, f"{what}: largest error {mine}, SGEMM's {theirs}")
        return of_weight

    def exact(self, of_out, x, what):
        of_weight = self.check(of_out, x, what)
        truth = of_out.double().t() @ x.double()
        self.assertTrue(torch.equal(truth.float().double(), truth), f"{what}: this test wants numbers that float32 can hold")
        self.assertTrue(torch.equal(of_weight.double(), truth), f"{what}: {(of_weight.double() - truth).abs().max().item()} off")

    def test_sizes(self):
        for rows, columns, inner in ((2, 16, 5), (3, 64, 257), (63, 48, 65), (64, 1024, 9), (65, 1028, 130), (127, 320, 64), (128, 256, 300),
                                     (129, 272, 31), (700, 2052, 40), (1500, 4096, 65), (3000, 1000, 40), (6200, 68, 64)):
            self.check(torch.randn(rows, columns, device="cuda"), torch.randn(rows, inner, device="cuda"), f"{rows}×{columns} by {rows}×{inner}", times=2.0)

    def test_rows_of_all_sizes(self):
        for powers in (3, 12, 40):
            of_out, x = torch.randn(700, 320, device="cuda"), torch.randn(700, 260, device="cuda")
            of_out *= Draw("cuda", powers).powers(700, 1, powers)
            self.check(of_out, x, f"rows of 2^±{powers}", times=2.0)
            self.check(of_out, x / of_out.abs().amax(1, keepdim=True), f"rows of 2^±{powers}, and of one over that", times=2.0)
            self.check(of_out, x * Draw("cuda", powers + 1).powers(1, 260, powers), f"rows and columns of 2^±{powers}", times=2.0)

    def test_many_rows_of_a_block(self):
        """A block tells of its rows sixteen at a time."""
        for rows in (12000, 17000, 36000):
            of_out, x = torch.randn(rows, 320, device="cuda"), torch.randn(rows, 260, device="cuda")
            self.check(of_out * Draw("cuda", 9).powers(rows, 1, 9), x, f"{rows} rows of 2^±9", times=2.0)

    def test_nothing(self):
        of_out, x = torch.randn(700, 320, device="cuda"), torch.randn(700, 260, device="cuda")
        zeros = torch.zeros_like(of_out)
        self.exact(zeros, x, "zero")
        self.check(torch.where(torch.arange(700, device="cuda")[:, None] == 3, of_out, 0), x, "one row")
        for what, rows, columns in (("rows", 3, 1), ("columns", 1, 3), ("rows and columns", 2, 5)):
            some = of_out.clone()
            some[::rows if rows > 1 else 701] = 0
            some[:, ::columns if columns > 1 else 321] = 0
            self.check(some, x, f"{what} of zeros", times=2.0)
        self.check(of_out * (torch.rand_like(of_out) < 0.5), x.relu(), "half of all", times=2.0)
        self.check(of_out * (torch.rand_like(of_out) < 0.02), x, "one in fifty", times=2.0)

    def test_next_to_nothing(self):
        """Rows too small for halves, and what two halves lose, where it decides a result."""
        of_out, x = torch.randn(700, 320, device="cuda"), torch.randn(700, 260, device="cuda")
        for what, scale in (("some tiny rows", 1e-30), ("some of subnormal numbers", 1e-40)):
            some = of_out.clone()
            some[::7] *= scale
            self.check(some, x, what)
            self.check(some * (torch.arange(700, device="cuda") % 7 == 0)[:, None], x, f"nothing but {what}")
        # Multiplied by what its row of the gradient is divided by, a number of x is less than float32 has.
        self.exact(torch.full_like(of_out, 2.0**-70), torch.full_like(x, 2.0**-79), "products of 2^-149")
        # Half of 2^-149 by the row's power of two, and nearly 2^-149 by the number itself.
        self.check(torch.full_like(of_out, (2 - 2.0**-22) * 2.0**-70), torch.full_like(x, 2.0**-80), "products of nearly 2^-149")
        halves = torch.zeros_like(of_out)
        halves[::2, :160], halves[1::2, 160:] = 1, 2.0**-70
        self.exact(halves, torch.where(torch.arange(700, device="cuda")[:, None] % 2 == 0, 1, 2.0**-79).expand(700, 260).contiguous(), "in half of the rows")
        self.check(of_out * 1e-30, x, "tiny rows")
        # Beside the largest of their rows some are lost, and where these count the others meet zeros.
        lower = of_out.clone()
        lower[350:] *= 1e-9
        lower[350:, 0] = 1
        upper = x.clone()
        upper[:350] = 0
        self.check(lower, upper, "small numbers in half of the rows")

    def time_of(self, x, weight, of_out):
        """Milliseconds, the least of some."""
        times = []
        for _ in range(8):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            self.gradients(x, weight, of_out)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return min(times)

    def test_few_large_numbers(self):
        """A row's largest number does not put the others in doubt, which a warp by itself would have to compute again."""
        rows, classes = 8448, 4096
        x, weight = torch.randn(rows, 320, device="cuda"), torch.randn(classes, 320, device="cuda")
        dense = torch.randn(rows, classes, device="cuda")
        of_cross_entropy = (dense.softmax(1) - F.one_hot(torch.randint(classes, (rows,), device="cuda"), classes)) / rows
        spiked = 1e-3 * dense
        spiked[torch.arange(rows), torch.randint(classes, (rows,), device="cuda")] = 1
        usual = self.time_of(x, weight, dense)
        for what, of_out in (("the gradient of a cross entropy", of_cross_entropy), ("one number of each row 1000 times the others", spiked)):
            self.check(of_out, x, what, times=2.0)
            self.assertLess(self.time_of(x, weight, of_out), 1.5 * usual, f"{what}: ms, beside {usual} where all are alike")

    def test_infinite_and_huge(self):
        x = torch.randn(700, 260, device="cuda")
        huge = torch.randn(700, 320, device="cuda")
        huge[3] *= 1e30
        self.check(huge, x, "a huge row")
        for what, row in (("in a row", 1.0), ("in a row of zeros", 0.0)):
            of_out, broken = torch.randn(700, 320, device="cuda"), x.clone()
            of_out[8] *= row
            broken[8, 3] = torch.inf
            broken[9, 4] = torch.nan
            weight = torch.randn(320, 260, device="cuda")
            _, of_weight = self.gradients(broken, weight, of_out)
            eager = {"input": broken, "weight": weight.requires_grad_(), "bias": None, "factor": 0.0}
            exact, = torch.autograd.grad(OP.eager(eager), weight, of_out)
            for kind in (torch.isnan, torch.isposinf, torch.isneginf):
                self.assertTrue(torch.equal(kind(of_weight), kind(exact)), f"an infinity {what}: {kind.__name__}")

    def test_whole_numbers(self):
        few = torch.zeros(700, 320, device="cuda")
        few[:20] = integers(20, 320, 65535)
        self.exact(integers(700, 320, 3), integers(700, 260, 3), "small ones")
        self.exact(few, integers(700, 260, 3), "long ones, in few rows")
        # The product of two lower halves counts: 3001 · 3003, in units of 2^-11, beside 699 of 2048 · 1.
        of_out, x = torch.randn(700, 320, device="cuda").sign(), torch.randn(700, 260, device="cuda").sign()
        of_out[3], x[3] = (integers(1, 320, 400) * 2 + 3001) / 2048, integers(1, 260, 400) * 2 + 3001
        self.exact(of_out, x, "long ones, in one row of each")
        # Of 24 digits, and of one size, so that a sum can have all of them: here all rows but the last cancel.
        pairs = (torch.randint(1 << 22, 1 << 23, (350, 260), device="cuda") * 2 + 1).float().repeat_interleave(2, 0)[:699]
        signs = (-1.0) ** torch.arange(699, device="cuda")[:, None] * torch.randn(320, device="cuda").sign()
        self.exact(signs, pairs, "numbers of 24 digits")

    def test_who_shares(self):
        """Not a gradient whose rows are no neighbours in memory, or lie at odd places, nor one with long rows."""
        x, weight, of_out = torch.randn(130, 260, device="cuda"), torch.randn(320, 260, device="cuda"), torch.randn(130, 320, device="cuda")
        self.gradients(x, weight, of_out)
        self.gradients(x, weight, of_out, ("weight",), 0)
        self.gradients(x, torch.randn(4100, 260, device="cuda"), torch.randn(130, 4100, device="cuda"), shared=0)
        self.gradients(x, torch.randn(321, 260, device="cuda"), torch.randn(130, 321, device="cuda"), shared=0)

    def test_bit_for_bit_from_run_to_run(self):
        x, weight, of_out = torch.randn(3000, 260, device="cuda"), torch.randn(512, 260, device="cuda"), torch.randn(3000, 512, device="cuda")
        of_out *= torch.exp(4 * torch.randn_like(of_out))  # many in doubt
        first = self.gradients(x, weight, of_out)
        for _ in range(30):
            self.queue_up()
            for a, b in zip(self.gradients(x, weight, of_out), first):
                self.assert_bitwise(a, b)

    def test_replays(self):
        x, weight = torch.randn(300, 260, device="cuda"), torch.randn(320, 260, device="cuda")
        of_out = torch.randn(300, 320, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.gradients(x, weight, of_out)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = self.gradients(x, weight, of_out)
        for _ in range(20):
            of_out.normal_()
            graph.replay()
            for a, b in zip(made, self.gradients(x, weight, of_out)):
                self.assert_bitwise(a, b, "replayed")


if __name__ == "__main__":
    if not HOPPER:
        print("float32_shared_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
