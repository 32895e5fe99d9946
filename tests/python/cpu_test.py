"""The CPU's kernels: that they run, and that they are right at every edge."""
import itertools

import torch

import cases
from cases import CHAINS, OPS, draw
from checks import copied, main
from comparing import Comparing


class CpuTest(Comparing):
    """Every call here has to run the CPU's kernel, and the edges are those of its vectors, blocks, groups and threads."""

    columns = [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 255, 256, 257]

    def on_the_kernel(self, op, arguments, what, **options):
        expected = self.assert_calls(op.stem, lambda: self.compare(op, arguments, what, **options), what, path="cpu")
        self.assertIsNone(expected.error, f"{op} {what}")

    def sized(self, op, rows, columns, **options):
        return draw(op, x=(rows, 3), w=(columns, 3), b=(columns,), norm=(columns,), stats=(columns,),
                    vector=None if op.stem.endswith("div_swish") else (columns,), **options)

    def test_ordinary_calls_run_it(self):
        for (op, training), dtype in itertools.product(self.each(), cases.FLOATS):
            for parts in cases.optional_parts(op, (training,)):
                if op.batch_norm and parts.get("stats", True) is None and not training:
                    continue
                self.on_the_kernel(op, draw(op, dtype=dtype, **{"training": training, **parts}), f"{dtype} {parts}")

    def test_with_gradients_too(self):
        """And the same bits come of it: only what is kept differs. What the kernel then does is in cpu_backward_test."""
        for op, training in self.each(CHAINS):
            arguments = draw(op, training=training)
            with torch.no_grad():
                expected = op(copied(arguments))
            arguments["weight"].requires_grad_()
            out = self.assert_calls(op.stem, lambda: op(arguments), "with gradients", path="cpu")
            self.assert_bitwise(out, expected, f"{op} with gradients")

    def test_sizes(self):
        for (op, training), dtype in itertools.product(self.each(CHAINS), cases.FLOATS):
            for place, columns in enumerate(self.columns):
                for groups in [g for g in range(1, columns + 1) if columns % g == 0] if op.group_norm else [1]:
                    rows = 2 + place % 8 if training else 1 + place % 9
                    arguments = self.sized(op, rows, columns, dtype=dtype, training=training, groups=groups)
                    self.on_the_kernel(op, arguments, f"{dtype} {rows} x {columns}, {groups} groups, training {training}")

    def test_rows(self):
        for (op, training), dtype in itertools.product(self.each(CHAINS), (torch.float32, torch.bfloat16)):
            for rows in [*range(2 if training else 1, 20), 63, 64, 65, 127, 128, 129, 300]:
                self.on_the_kernel(op, self.sized(op, rows, 24, dtype=dtype, training=training), f"{dtype} {rows} rows")

    def test_many_columns(self):
        """More than a block holds, and groups that are wider than one."""
        for (op, training), dtype in itertools.product(self.each(CHAINS), cases.FLOATS):
            for columns in (1023, 1024, 1025, 2049, 4100):
                for groups in [g for g in (1, 2, 3, 5, 41, 100) if columns % g == 0] if op.group_norm else [1]:
                    for rows in (2, 9):
                        arguments = self.sized(op, rows, columns, dtype=dtype, training=training, groups=groups)
                        self.on_the_kernel(op, arguments, f"{dtype} {rows} x {columns}, {groups} groups, training {training}")

    def test_one_value_for_all_columns(self):
        for op, shape in itertools.product([op for op in OPS if op.vector], [(), (1,), (1, 1)]):
            self.on_the_kernel(op, draw(op, vector=shape, training=False), f"{op.vector} {shape}")

    def test_the_bias_of_the_linear(self):
        """The tail adds it, but for what has a stride, and what the norm writes to."""
        for op, training in self.each(CHAINS):
            arguments = self.sized(op, 40, 12, training=training)
            for bias in (arguments["bias"][:1].expand(12), torch.rand(24)[::2], torch.rand(13)[1:]):
                self.on_the_kernel(op, {**arguments, "bias": bias}, f"bias of strides {bias.stride()}")
            empty = {**arguments, "input": torch.empty(40, 0), "weight": torch.empty(12, 0)}
            self.on_the_kernel(op, empty, "the bias is all there is")
        for op in (op for op in CHAINS if op.batch_norm):
            for name in ("running_mean", "running_var"):
                states = []
                for call in (op, op.eager):
                    arguments = self.sized(op, 40, 12, training=True)
                    arguments["bias"] = arguments[name]
                    states.append((call(arguments), arguments["running_mean"], arguments["running_var"]))
                self.assert_same(*states, f"{op}: the bias is {name}", (1e-4, 1e-4))

    def test_a_bias_beside_a_single_product(self):
        """Eager may round their sum alone, and not the product before it: where they cancel, what is left has all its digits."""
        op = next(op for op in CHAINS if "sigmoid_mul_add" in op.stem)
        x, weight = torch.rand(64, 1) + 1, torch.rand(8, 1) + 1
        bias = -(x[0] @ weight.t())
        arguments = {**draw(op), "input": x, "weight": weight, "bias": bias, "factor": 0.0}
        out = self.assert_calls(op.stem, lambda: op(arguments), "one product", path="cpu")
        self.assert_bitwise(out, torch.nn.functional.linear(x, weight, bias), "what a product leaves of its bias")

    def test_a_bias_in_16_bits(self):
        """Eager rounds the sum: 257 - 1 is 256 in bfloat16, where 257 alone is 256 as well."""
        sigmoid = next(op for op in CHAINS if "sigmoid_mul_add" in op.stem)
        arguments = {**draw(sigmoid), "input": torch.ones(4, 257), "weight": torch.ones(8, 257), "bias": torch.full((8,), -1.0), "factor": 0.0}
        arguments = {name: value.bfloat16() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
        out = self.assert_calls(sigmoid.stem, lambda: sigmoid(arguments), "in bfloat16", path="cpu")
        self.assertEqual(out.unique().tolist(), [256.0])

    def test_offsets(self):
        for (op, training), dtype in itertools.product(self.each(CHAINS), cases.FLOATS):
            reference = self.sized(op, 5, 33, dtype=dtype, training=training)
            for name, offset in itertools.product([n for n, v in reference.items() if isinstance(v, torch.Tensor)], range(1, 9)):
                value = reference[name]
                flat = value.new_zeros(value.numel() + offset)
                flat[offset:] = value.reshape(-1)
                self.on_the_kernel(op, {**reference, name: flat[offset:].view(value.shape)}, f"{dtype} {name} {offset} elements in")

    def test_bit_for_bit_with_any_number_of_threads(self):
        self.addCleanup(torch.set_num_threads, 1)
        for (op, training), dtype in itertools.product(self.each(), cases.FLOATS):
            for rows, columns, groups in ((300, 257, 1), (130, 300, 1), (1000, 96, 12), (3, 20000, 4), (5, 12000, 400)):
                arguments = self.sized(op, rows, columns, dtype=dtype, training=training, groups=groups)
                for name in ("input", "weight", "bias"):  # torch's linear differs with the threads unless it is exact
                    arguments[name] = (arguments[name] * 4).round()
                what = f"{op} {dtype} {rows} x {columns}, training {training}"
                runs = []
                for threads in (1, 2, 3):
                    torch.set_num_threads(threads)
                    mine = copied(arguments)
                    out = self.assert_calls(op.stem, lambda: op(mine), what, path="cpu")
                    runs.append([out, *(mine[n] for n in ("running_mean", "running_var") if op.batch_norm)])
                for other in runs[1:]:
                    for first, second in zip(runs[0], other):
                        self.assert_bitwise(second, first, what)

    def test_strips_of_columns(self):
        """A batch of few rows is finished strip by strip where it has many columns: the same bits come of some of them alone."""
        for op, dtype, rows in itertools.product([op for op in CHAINS if op.batch_norm], cases.FLOATS, (2, 63, 130, 256, 257)):
            arguments = self.sized(op, rows, 300, dtype=dtype, training=True)
            for name in ("input", "weight", "bias"):
                arguments[name] = (arguments[name] * 4).round()
            whole = copied(arguments)
            out = self.assert_calls(op.stem, lambda: op(whole), f"{op}", path="cpu")
            for first in range(0, 300, 100):
                of_columns = [n for n, v in arguments.items() if isinstance(v, torch.Tensor) and n != "input" and v.dim() > 0 and v.shape[0] == 300]
                part = copied({**arguments, **{n: arguments[n][first:first + 100].clone() for n in of_columns}})
                what = f"{op} {dtype} {rows} rows, columns from {first} on"
                self.assert_bitwise(self.assert_calls(op.stem, lambda: op(part), what, path="cpu"), out[:, first:first + 100], what)
                for name in ("running_mean", "running_var"):
                    self.assert_bitwise(part[name], whole[name][first:first + 100], f"{what}: {name}")

    def test_equal_values_in_a_group(self):
        for op, width in itertools.product([op for op in CHAINS if op.group_norm], (1, 7, 16, 100, 1000, 5000)):
            arguments = cases.constant_groups(op, 3, width)
            exact = op.eager(cases.in_double(copied(arguments)))
            out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", path="cpu")
            self.assertLess((out.double() - exact).abs().max().item(), 1e-5, f"{op}: groups of {width} equal values")

    def test_a_group_of_one(self):
        """It is its own mean: the norm gives its bias, whatever its weight. Eager multiplies before it subtracts, and with a large
        weight gives what that has lost; with none of it, what is right."""
        for op, dtype in itertools.product([op for op in CHAINS if op.group_norm], cases.FLOATS):
            arguments = self.sized(op, 9, 33, dtype=dtype, groups=33)
            right = {**copied(arguments), "norm_weight": torch.zeros(33, dtype=dtype)}
            arguments["norm_weight"] *= 1e4 if dtype == torch.float16 else 1e30
            for some in (arguments, right):
                for name in ("weight", "bias", "norm_bias", op.vector):
                    some[name].requires_grad_()
            out = self.assert_calls(op.stem, lambda: op(arguments), f"{op} {dtype}", path="cpu")
            expected = op.eager(right)
            self.assert_same(out, expected, f"{op} {dtype}")
            leaves = [[some[name] for name in ("weight", "bias", "norm_bias", op.vector)] for some in (arguments, right)]
            mine, theirs = (torch.autograd.grad(v.sum(), some) for v, some in zip((out, expected), leaves))
            self.assert_same(mine, theirs, f"{op} {dtype}: gradients")

    def test_infinite_where_eager_is(self):
        """Eager multiplies before it subtracts: with an infinite weight, and where x - mean overflows, that shows."""
        for (op, training), dtype in itertools.product(self.each(CHAINS), cases.FLOATS):
            if not (op.batch_norm or op.group_norm):
                continue
            weights = self.sized(op, 7, 33, dtype=dtype, training=training, groups=3)
            weights["norm_weight"][[0, 7, 32]] = torch.tensor([torch.inf, -torch.inf, torch.inf], dtype=dtype)
            weights["input"][0] = 0
            given = [weights]
            if op.batch_norm and not training:
                far = self.sized(op, 7, 33, dtype=dtype, training=False)
                most = torch.finfo(dtype).max
                far["bias"] = (torch.tensor([most / 2, -most / 2], dtype=torch.float64)[torch.arange(33) % 2]).to(dtype)
                far["running_mean"] = (-1.9 * far["bias"].double()).to(dtype)
                far["running_var"][:] = most
                if "scale" in far:
                    far["scale"][:] = 1.5
                given.append(far)
            for arguments in given:
                what = f"{op} {dtype}, training {training}"
                expected = op.eager(copied(arguments))
                out = self.assert_calls(op.stem, lambda: op(copied(arguments)), what, path="cpu")
                self.assertTrue(torch.equal(out.isnan(), expected.isnan()), f"{what}: NaN")
                self.assertTrue(torch.equal(out.isinf() * out.sign(), expected.isinf() * expected.sign()), f"{what}: infinite")
                self.assert_same(out.nan_to_num(0, 0, 0), expected.nan_to_num(0, 0, 0), what)

    def test_momentum_beyond_the_dtype(self):
        """Eager rounds it to float32 where that is what it computes in: it is infinite then, or zero."""
        for op in (op for op in CHAINS if op.batch_norm):
            for dtype, momentum in itertools.product((torch.float32, torch.float64), (1e39, -1e39, 1e-46, 1e-30)):
                given = self.sized(op, 7, 33, dtype=dtype, training=True, momentum=momentum)
                given["running_mean"][0] = torch.inf
                mine, eagers = copied(given), copied(given)
                self.assert_same(op(mine), op.eager(eagers), f"{op} {dtype} {momentum}")
                for name in ("running_mean", "running_var"):
                    self.assertTrue(torch.equal(mine[name].isnan(), eagers[name].isnan()), f"{op} {dtype} {momentum}: {name}")
                    self.assertTrue(torch.equal(mine[name].isinf(), eagers[name].isinf()), f"{op} {dtype} {momentum}: {name}")

    def test_a_mean_far_above_the_spread(self):
        """Nothing of the spread is lost but what the linear's own rounding took."""
        for (op, training), far in itertools.product(self.each(CHAINS), (1e2, 1e4)):
            if not op.group_norm and not training or op.stem == "linear_add_swish_group_norm":
                continue  # its swish rounds far out
            arguments = self.sized(op, 200, 96, training=training, groups=3)
            arguments["bias"] = torch.full((96,), far)
            if "scale" in arguments and op.batch_norm:
                arguments["scale"] = torch.ones(96)
            truth = op.eager(cases.in_double(copied(arguments)))
            mine, theirs = op(copied(arguments)).double(), op.eager(copied(arguments)).double()
            mine, theirs = ((v - truth).square().mean().sqrt().item() for v in (mine, theirs))
            self.assertLessEqual(mine, theirs * 1.01, f"{op}: mean {far}, training {training}")


if __name__ == "__main__":
    main()
