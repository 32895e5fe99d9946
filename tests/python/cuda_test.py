"""The CUDA kernels: at every size around a packet, a warp and a block, on unaligned views, forwards and backwards. Each call
must run its kernel; float64 is the referee, and eager's own error the measure."""
import itertools
import os
import unittest

import torch

import cases
import contract_test
from cases import CHAINS, draw
from checks import Checks, calls_of, copied, main
from comparing import Gradients

os.environ.setdefault("TAILOR_HOPPER", "never")  # hopper_test has that one
GPU = torch.cuda.is_available()
EDGES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513, 1000]
GROUP_WIDTHS = [1, 2, 3, 4, 8, 12, 16, 24, 31, 32, 33, 64, 96, 100, 128, 256, 320, 512, 1000, 1024, 2048, 2056, 4096, 5000]


def sized(op, rows, columns, groups=1, dtype=torch.float32, seed=0, inner=24, training=True, vector=None):
    if vector is None:
        vector = (1,) if op.stem == "linear_batch_norm_add_div_swish" else (columns,)
    return draw(op, seed, dtype, "cuda", x=(rows, inner), w=(columns, inner), b=(columns,), vector=vector, norm=(columns,),
                stats=(columns,), groups=groups, training=training)


def swish(v):
    return v * torch.sigmoid(v)


SWISH = next(op for op in CHAINS if op.stem == "linear_batch_norm_add_div_swish")
SIGMOID = next(op for op in CHAINS if op.stem == "linear_sigmoid_mul_add")


def identity(op, numbers, factor):
    """Arguments with which an op computes its activation of each of these and nothing else; of sigmoid, times a factor and plus the
    number itself."""
    x = torch.nn.functional.pad(numbers, (0, -numbers.numel() % 8)).view(-1, 8)
    arguments = draw(op, 0, numbers.dtype, "cuda", x=(1, 8), w=(8, 8), b=None, vector=(1,), norm=None, stats=(8,), training=False, eps=0.125)
    arguments.update(input=x, weight=torch.eye(8, device="cuda", dtype=numbers.dtype))
    if op is SIGMOID:
        arguments["factor"] = factor
    else:
        arguments.update(running_mean=torch.zeros_like(arguments["running_mean"]), running_var=torch.full_like(arguments["running_var"], 0.875),
                         addend=torch.zeros_like(arguments["addend"]), divisor=1.0)
    return arguments


class Referee(Checks):
    """Runs an op on its kernel beside eager, with float64 to say who is nearer."""

    path = "cuda"
    roundings = {torch.float64: 1e4}  # eager is its referee, whose error is not known; 16 elsewhere

    def queue_up(self):
        """What is launched next waits on the device and not for the host: kernels then begin as soon as those before let them."""
        torch.cuda._sleep(1 << 20)  # cycles

    def close(self, mine, theirs, exact, what, loose=2.0):
        """`mine` is as near to `exact` as `theirs`, or within a few roundings of the tensor's own size."""
        self.assertEqual((mine.dtype, mine.shape, mine.device), (theirs.dtype, theirs.shape, theirs.device), what)
        size = max(1.0, exact.abs().max().item())
        off, eagers = ((t.double() - exact).abs().max().item() for t in (mine, theirs))
        roundings = self.roundings.get(mine.dtype, 16)
        self.assertLessEqual(off, loose * eagers + roundings * torch.finfo(mine.dtype).eps * size, f"{what}: eager's error is {eagers:g}")

    def activations(self, dtypes):
        for dtype in dtypes:
            integer = torch.int16 if dtype.itemsize == 2 else torch.int32
            all_of_them, at_once = 1 << 8 * dtype.itemsize, 1 << 26
            for first in range(0, all_of_them, at_once):
                numbers = torch.arange(first, min(first + at_once, all_of_them), device="cuda").to(integer).view(dtype)
                for op, function, factor in ((SWISH, swish, 1), (SIGMOID, torch.sigmoid, 2.0**10), (SIGMOID, torch.sigmoid, 2.0**127)):
                    self.activation(op, function, factor, numbers, f"{op}, {dtype}, factor {factor:g}, from {first:#x} on")

    def activation(self, op, function, factor, numbers, what):
        """The largest factor shows the least sigmoids. Where e^-v overflows they are 0, as eager's; just there either will do."""
        numbers = numbers[numbers.isfinite()]
        arguments = identity(op, numbers, factor)
        with torch.no_grad():
            out = self.assert_calls(op.stem, lambda: op(arguments), what, self.path).flatten()[:numbers.numel()].double()
        wide = numbers.double()
        value = function(wide).where(wide > -88.723, 0) * factor
        exact = value + wide if "factor" in arguments else value
        of_function = torch.where((wide + 88.7228).abs() < 2e-4, 1, 2.0**-22 if numbers.dtype == torch.float32 else 2.0**-20)
        finest = torch.finfo(numbers.dtype).smallest_normal * torch.finfo(numbers.dtype).eps
        least = factor * 2.0**-148 if op is SIGMOID else 2.0**-142
        bound = of_function * value.abs() + (torch.finfo(numbers.dtype).eps / 2 * exact.abs()).clamp(min=finest / 2) + least
        overflows = exact.abs() > torch.finfo(numbers.dtype).max
        right = torch.where(overflows, out.abs() >= torch.finfo(numbers.dtype).max, (out - exact).abs() <= bound)
        if not right.all():
            worst = ((out - exact).abs() / bound).where(~right, 0).argmax()
            self.fail(f"{what}: of {numbers[worst].item()!r} {out[worst].item()!r}, not {exact[worst].item()!r}; {(~right).sum().item()} such")

    def same_on_streams(self, op, arguments):
        """The same call on several streams at a time."""
        with torch.no_grad():
            expected = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", self.path)
            streams, found = [torch.cuda.Stream() for _ in range(4)], []
            torch.cuda.synchronize()
            for stream in streams * 5:
                with torch.cuda.stream(stream):
                    found.append(op(arguments))
            torch.cuda.synchronize()
        for out in found:
            self.assert_bitwise(out, expected, f"{op} on side streams")

    def forward(self, op, arguments, what):
        mine, theirs, exact = copied(arguments), copied(arguments), cases.in_double(copied(arguments))
        with torch.no_grad():
            out = self.assert_calls(op.stem, lambda: op(mine), what, self.path)
            self.close(out, op.eager(theirs), op.eager(exact), f"{op} {what}")
        for name in ("running_mean", "running_var"):
            if arguments.get(name) is not None:
                self.close(mine[name], theirs[name], exact[name], f"{op} {what}: {name}")


@unittest.skipUnless(GPU, "this needs a GPU")
class CudaTest(Referee, Gradients):
    device = "cuda"

    def each(self):
        for op, training in itertools.product(CHAINS, (True, False)):
            if op.batch_norm or not training:
                yield op, training

    def test_wide_groups_backward(self):
        """Those of more than 256 columns a block holds in packets only: of 16 bytes, or of four elements."""
        for dtype, held, not_held in ((torch.float32, (255, 256, 260, 264, 512, 516, 1020, 1024), (257, 258, 514, 1022, 1028)),
                                      (torch.bfloat16, (255, 256, 260, 264, 516, 1020, 1024, 1032, 2040, 2048), (257, 514, 1022, 1028, 2044, 2056)),
                                      (torch.float16, (260, 1032), (258, 1028))):
            for op, columns in itertools.product((op for op in CHAINS if op.group_norm), held):
                self.backward(op, sized(op, 9, columns, dtype=dtype), f"a group of {columns}, {dtype}")
            for op, columns in itertools.product((op for op in CHAINS if op.group_norm), not_held):
                arguments, what = sized(op, 9, columns, dtype=dtype), f"a group of {columns}, {dtype}"
                before = calls_of(op.stem, "reference")
                found = self.gradients(op, op, copied(arguments))
                self.assertEqual(calls_of(op.stem, "reference"), before + 1, f"{op}: {what} is wider than the backward holds")
                self.assert_gradients(found, op, arguments, what)

    def test_columns(self):
        for (op, training), dtype, columns in itertools.product(self.each(), cases.FLOATS, EDGES):
            rows = 5 + columns % 9
            arguments = sized(op, rows, columns, dtype=dtype, training=training)
            if op.group_norm and columns == 1 and dtype in (torch.float16, torch.bfloat16):
                continue  # one value in a group: all that is left is its rounding over the root of eps
            self.forward(op, arguments, f"{rows}×{columns} {dtype} training {training}")
            if dtype != torch.float64 and not (op.group_norm and not 4 < columns <= 256):
                self.backward(op, arguments, f"{rows}×{columns} {dtype} training {training}")

    def test_one_value_for_all_columns(self):
        """Of fewer columns than there are threads to add up its gradient, and of more."""
        for (op, training), shape, columns, dtype in itertools.product(self.each(), [(), (1,), (1, 1)], (40, 1032, 3072), cases.FLOATS):
            if op.vector:
                arguments = sized(op, 33, columns, 8, dtype, vector=shape, training=training)
                what = f"{op.vector} {shape}, {columns} columns, {dtype}"
                self.forward(op, arguments, what)
                self.backward(op, arguments, what, loose=4 if op.group_norm else 2)  # what is added to a whole group has a gradient of 0

    def test_rows(self):
        for (op, training), rows in itertools.product(self.each(), [1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 127, 129, 1023, 4097]):
            if training and rows == 1:
                continue
            for dtype, columns in ((torch.float32, 48), (torch.bfloat16, 264), (torch.float32, 1032)):
                arguments = sized(op, rows, columns, groups=8, dtype=dtype, training=training)
                self.forward(op, arguments, f"{rows}×{columns} {dtype} training {training}")
                if rows > 2:
                    self.backward(op, arguments, f"{rows}×{columns} {dtype} training {training}")

    def test_many_rows_of_a_block(self):
        """In packets, so that what is read ahead goes round and round: of each kind of packet that a group norm has, and of the others'."""
        for (op, training), dtype, columns in itertools.product(self.each(), (torch.float32, torch.bfloat16, torch.float16, torch.float64), (320, 2112)):
            arguments = sized(op, 4097, columns, groups=columns // 64, dtype=dtype, training=training)
            self.backward(op, arguments, f"4097×{columns} {dtype} training {training}")
        for op in (op for op in CHAINS if op.group_norm):
            self.backward(op, sized(op, 4097, 1040, groups=20, dtype=torch.bfloat16), "groups of 52")

    def test_a_weight_elsewhere_before_backward(self):
        """Where no packet can be read, a wide group has no backward but the reference's."""
        for op, (dtype, columns, near) in itertools.product(CHAINS, ((torch.float32, 512, 1e-3), (torch.bfloat16, 2048, 5e-2))):
            if not op.group_norm:
                continue
            def run(call):
                arguments = sized(op, 9, columns, dtype=dtype)
                leaves = [arguments[name].requires_grad_() for name in ("input", "norm_weight")]
                out = call(arguments)
                weight = arguments["norm_weight"]
                weight.data = torch.cat([weight.data[:1], weight.data])[1:]
                return torch.autograd.grad(out.square().sum(), leaves)
            for mine, theirs in zip(run(op), run(op.eager), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=near, atol=near * theirs.abs().max().item(), msg=lambda m: f"{op} {dtype}: {m}")

    def test_group_widths(self):
        for op, dtype, width, groups in itertools.product(CHAINS, cases.FLOATS, GROUP_WIDTHS, (1, 3)):
            if not op.group_norm or width * groups > 6000 or width < 4 and dtype in (torch.float16, torch.bfloat16):
                continue
            arguments = sized(op, 9, width * groups, groups, dtype)
            self.forward(op, arguments, f"{groups} groups of {width} {dtype}")
            if 4 <= width <= 256 and dtype != torch.float64:
                self.backward(op, arguments, f"{groups} groups of {width} {dtype}")

    def test_a_group_wider_than_any_block_holds(self):
        for op in (op for op in CHAINS if op.group_norm):
            for dtype, columns in ((torch.float32, 65536), (torch.bfloat16, 50000), (torch.float32, 20001)):
                self.forward(op, sized(op, 3, columns, dtype=dtype), f"a group of {columns} {dtype}")

    def test_infinite_weights_of_a_norm(self):
        """Infinite where eager is, and no number where eager has none: where a value is its mean, among others."""
        dtypes = (torch.float64, torch.float32)  # in others rounding decides whether a value is its mean
        for (op, training), dtype, (rows, columns) in itertools.product(self.each(), dtypes, ((7, 33), (130, 96), (9, 3072))):
            if not (op.batch_norm or op.group_norm):
                continue
            arguments = sized(op, rows, columns, 3, dtype, training=training)
            arguments["norm_weight"][[0, 7, 32]] = torch.tensor([torch.inf, -torch.inf, torch.inf], dtype=dtype, device="cuda")
            arguments["input"][0] = 0
            for cudnn in (True, False):
                what = f"{op} {rows}×{columns} {dtype} training {training}"
                arguments["cudnn_enabled"] = cudnn
                with torch.no_grad():
                    out = self.assert_calls(op.stem, lambda: op(copied(arguments)), what, self.path)
                    expected = op.eager(copied(arguments))
                self.assertTrue(torch.equal(out.isnan(), expected.isnan()), f"{what}: NaN")
                self.assertTrue(torch.equal(out.isinf() * out.sign(), expected.isinf() * expected.sign()), f"{what}: infinite")

    def test_infinite_sums(self):
        """A gradient that is a sum over rows is infinite where one of them is, and no NaN."""
        op = next(op for op in CHAINS if op.stem == "linear_mul_batch_norm")
        for dtype in (torch.float64, torch.float32):
            arguments = sized(op, 40, 16, dtype=dtype, training=False)
            arguments["bias"][3] = torch.inf
            for name in ("bias", "norm_weight"):  # of the tail's operands alone the reference makes it
                arguments[name].requires_grad_()

            def gradient(call):
                given = copied(arguments)
                return torch.autograd.grad(call(given).sum(), [given["bias"], given["norm_weight"]])[1]

            mine = self.assert_calls(op.stem, lambda: gradient(op), f"{dtype}", "cuda_backward")
            self.assertTrue(mine[3].isinf(), f"{dtype}: {mine[3]}")
            self.assert_same(mine, gradient(op.eager), f"{dtype}")

    def test_unaligned_operands(self):
        """Each tensor by itself 1 to 8 elements into its memory, and all of them."""
        for (op, training), dtype in itertools.product(self.each(), (torch.float32, torch.bfloat16)):
            arguments = sized(op, 17, 64, groups=4, dtype=dtype, training=training)
            tensors = [n for n, v in arguments.items() if isinstance(v, torch.Tensor)]
            for names, offset in itertools.product([*([n] for n in tensors), tensors], range(1, 9)):
                moved = dict(arguments)
                for name in names:
                    value = arguments[name]
                    moved[name] = value.new_zeros(value.numel() + offset)[offset:].view(value.shape).copy_(value)
                self.forward(op, moved, f"{names} {offset} elements in, {dtype}")
            cotangent = torch.randn(17 * 64 + 3, device="cuda")[3:].view(17, 64)
            self.backward(op, arguments, f"an unaligned cotangent {dtype}", cotangent)

    def test_equal_values_in_a_group(self):
        for op, width in itertools.product([op for op in CHAINS if op.group_norm], (1, 7, 16, 100, 1000, 5000)):
            arguments = cases.constant_groups(op, 3, width, "cuda")
            exact = op.eager(cases.in_double(copied(arguments)))
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", "cuda")
            self.assertLess((out.double() - exact).abs().max().item(), 1e-5, f"{op}: groups of {width} equal values")

    def test_equal_values_in_a_column(self):
        """The norm's bias is what is left of them, exactly: a product in front of the norm is rounded before the mean is taken off."""
        for op, dtype, rows in itertools.product([op for op in CHAINS if op.batch_norm], cases.FLOATS, (2, 37, 3000)):
            arguments = sized(op, rows, 96, dtype=dtype)
            arguments["input"] = arguments["input"][:1].repeat(rows, 1)
            exact = op.eager(cases.in_double(copied(arguments)))
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", "cuda")
            off = (out.double() - exact).abs() - torch.finfo(dtype).eps * exact.abs()
            self.assertLess(off.max().item(), 1e-6, f"{op}: {rows} equal rows of {dtype}")

    def test_a_mean_far_above_the_spread(self):
        for op, ratio in itertools.product(CHAINS, (0, 10, 1e3, 1e5)):
            arguments = sized(op, 300, 96, groups=3)
            arguments["bias"] = torch.full_like(arguments["bias"], float(ratio))
            if "scale" in arguments:
                arguments["scale"] = arguments["scale"].abs() + 0.5
            for training in {True, not op.batch_norm}:
                self.forward(op, {**arguments, **({"training": training} if "training" in arguments else {})}, f"mean over spread {ratio}")

    def test_gradients_of_a_mean_far_above_the_spread(self):
        """All before the norm is exact here, and the mean has hardly any digits behind the point. Where a gradient is what a group's
        values are, nearly everything cancels."""
        torch.manual_seed(7)
        of_32 = lambda *shape: torch.randint(-32, 33, shape, device="cuda") / 32.0
        for op, width in itertools.product([op for op in CHAINS if op.group_norm and "swish_mul" not in op.stem], (24, 100, 256, 1000)):
            arguments = sized(op, 1, 4 * width, groups=4)
            arguments.update(input=of_32(1, 24), weight=of_32(4 * width, 24), bias=torch.full((4 * width,), 8000.0, device="cuda"),
                             addend=torch.zeros(4 * width, device="cuda"), norm_weight=None, norm_bias=None)
            exact, mine = cases.in_double(copied(arguments)), copied(arguments)
            for each in (exact, mine):
                each["bias"].requires_grad_()
            out = op.eager(exact)
            cotangent = out.detach().float()
            out.backward(cotangent.double())
            self.assert_calls(op.stem, lambda: op(mine).backward(cotangent), f"{op}", "cuda_backward")
            off = (mine["bias"].grad.double() - exact["bias"].grad).abs().max().item()
            self.assertLess(off, 1e-5, f"{op}: groups of {width}")

    def test_cotangents_of_every_layout(self):
        for op, training in self.each():
            arguments = sized(op, 6, 24, groups=3, training=training)
            for layout, view in cases.views(torch.linspace(-1, 1, 6 * 24, device="cuda").reshape(6, 24)):
                self.backward(op, arguments, f"cotangent {layout}", view)

    def test_only_what_is_asked_for(self):
        for op, training in self.each():
            arguments = sized(op, 33, 48, groups=3, training=training)
            for name in op.tensors(arguments):
                found = []
                for call in (op, op.eager):
                    values = copied(arguments)
                    values[name].requires_grad_()
                    found.append(torch.autograd.grad(call(values).square().sum(), values[name])[0])
                self.assert_same(*found, f"{op}: gradient of {name} alone", (2e-3, 2e-3), strides=False)

    def test_activations_of_every_number(self):
        self.activations([torch.bfloat16, torch.float16, torch.float32])

    def test_more_than_2_to_the_31_elements(self):
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        if torch.cuda.mem_get_info()[0] < 24 << 30:
            self.skipTest("this needs 24 GB of GPU memory")
        rows, columns = (1 << 21) + 5, 1024
        arguments = sized(op, rows, columns, dtype=torch.bfloat16, inner=8)
        with torch.no_grad():
            out = self.assert_calls(op.stem, lambda: op(arguments), path="cuda")
            for part in (slice(0, 64), slice(rows - 64, rows)):
                few = {**arguments, "input": arguments["input"][part].contiguous()}
                self.assert_same(out[part], op.eager(few), f"rows {part}", (0.05, 0.05))


@unittest.skipUnless(GPU, "there is no GPU here")
class CudaContractTest(contract_test.ContractTest):
    """Of the tail's kernel, so float32 is cuBLAS's: of its halves float32_test asks the same."""
    device, path, batch, width, features, groups = "cuda", "cuda", 257, 256, 384, 12

    def setUp(self):
        self.addCleanup(self.tailor.fp16x3, self.tailor.fp16x3(False))


if __name__ == "__main__":
    if not GPU:
        print("cuda_test: no GPU here, everything is skipped", flush=True)
    main()
