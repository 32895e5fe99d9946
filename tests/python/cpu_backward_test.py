"""The CPU's backward kernels: at every size around a vector, a block, a group and a chunk of rows, for every dtype."""
import itertools
import statistics
import threading

import torch

import cases
from cases import CHAINS, draw
from checks import copied, main
from comparing import Gradients

NARROW = (torch.bfloat16, torch.float16)


def sized(op, rows, columns, groups=1, dtype=torch.float32, seed=0, inner=24, training=True, vector=None):
    if vector is None:
        vector = (1,) if op.stem == "linear_batch_norm_add_div_swish" else (columns,)
    return draw(op, seed, dtype, x=(rows, inner), w=(columns, inner), b=(columns,), vector=vector, norm=(columns,),
                stats=(columns,), groups=groups, training=training)


class CpuBackwardTest(Gradients):
    def each(self):
        for op, training in itertools.product(CHAINS, (True, False)):
            if op.batch_norm or not training:
                yield op, training

    def test_columns(self):
        edges = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513, 1030]
        for (op, training), dtype, columns in itertools.product(self.each(), cases.FLOATS, edges):
            if (op.group_norm or training) and dtype in NARROW and columns < 4:
                continue  # of one value in a group only its rounding over the root of eps is left
            rows = 5 + columns % 9
            self.backward(op, sized(op, rows, columns, dtype=dtype, training=training), f"{rows}×{columns} {dtype} training {training}")

    def test_rows(self):
        for (op, training), rows in itertools.product(self.each(), [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 129, 1023, 4097]):
            if training and rows < 3:
                continue
            for dtype, columns in ((torch.float32, 48), (torch.bfloat16, 264)):
                self.backward(op, sized(op, rows, columns, 8, dtype, training=training), f"{rows}×{columns} {dtype} training {training}")

    def test_rows_that_are_taken_together(self):
        for (op, training), columns, rows in itertools.product(self.each(), (1, 2, 3, 5, 8, 16, 31, 33, 100, 127), (127, 128, 129, 300)):
            cotangent = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
            for dtype in (torch.float64, torch.float32):
                self.backward(op, sized(op, rows, columns, dtype=dtype, training=training), f"{rows}×{columns} {dtype} training {training}", cotangent, loose=4)

    def test_group_widths(self):
        widths = [1, 2, 3, 4, 8, 12, 16, 24, 31, 32, 33, 64, 96, 100, 128, 255, 256, 257, 512, 513, 1000, 1024, 1025, 2049, 4100]
        for op, dtype, width, groups in itertools.product(CHAINS, cases.FLOATS, widths, (1, 3)):
            if op.group_norm and not (width < 4 and dtype in NARROW):
                loose = 8 if width < 4 else 2  # of two nearly equal columns little is left but what torch's linear has rounded
                for rows in (2, 19) if width < 1000 else (9, 35):
                    self.backward(op, sized(op, rows, width * groups, groups, dtype), f"{rows} rows, {groups} groups of {width} {dtype}", loose=loose)

    def test_optional_parts(self):
        for (op, training), dtype in itertools.product(self.each(), (torch.float64, torch.float32)):
            for parts in cases.optional_parts(op, (training,)):
                if not (op.batch_norm and parts.get("stats", True) is None and not training):
                    self.backward(op, draw(op, dtype=dtype, x=(33, 5), **parts), f"{dtype} {parts}")

    def test_one_value_for_all_columns(self):
        for (op, training), shape, columns, dtype in itertools.product(self.each(), [(), (1,), (1, 1)], (40, 600), cases.FLOATS):
            if op.vector:
                arguments = sized(op, 33, columns, 4, dtype, vector=shape, training=training)
                loose = 4 if op.group_norm else 2  # what is added to a whole group has a gradient of 0
                self.backward(op, arguments, f"{op.vector} {shape}, {columns} columns, {dtype}", loose=loose)

    def test_cotangents_of_every_layout(self):
        for (op, training), (rows, columns) in itertools.product(self.each(), ((6, 24), (40, 160))):
            cotangent = torch.linspace(-1, 1, rows * columns).reshape(rows, columns)
            for layout, view in cases.views(cotangent):
                self.backward(op, sized(op, rows, columns, 4, training=training), f"cotangent {layout}", view, loose=4)

    def test_offsets(self):
        for (op, training), dtype in itertools.product(self.each(), (torch.float32, torch.bfloat16)):
            reference = sized(op, 17, 64, 4, dtype, training=training)
            for name, offset in itertools.product([n for n, v in reference.items() if isinstance(v, torch.Tensor)], (1, 3, 8)):
                value = reference[name]
                moved = value.new_zeros(value.numel() + offset)[offset:].view(value.shape).copy_(value)
                self.backward(op, {**reference, name: moved}, f"{name} {offset} elements in, {dtype}")

    def test_only_what_is_asked_for(self):
        """Each gradient alone has the bits that it has among all."""
        for (op, training), (rows, columns, groups) in itertools.product(self.each(), ((33, 48, 3), (200, 300, 4), (20, 3000, 2))):
            arguments = sized(op, rows, columns, groups, training=training)
            every = self.on_the_kernel(op, arguments, "all of them")
            for name in every:
                if name in ("input", "weight", "bias"):
                    alone = self.on_the_kernel(op, arguments, f"{name} alone", names=[name])
                else:  # the linear's have to be wanted too, or the reference runs
                    alone = self.on_the_kernel(op, arguments, f"{name} and bias", names=["bias", name])
                self.assert_bitwise(alone[name], every[name], f"{op}: gradient of {name} alone, training {training}")

    def test_a_bias_that_is_another_by_then(self):
        """Nothing that eager saves has it, so that nothing forbids to change it before the backward."""
        for op, training in self.each():
            gradients = []
            for call in (op, op.eager):
                arguments = sized(op, 40, 24, 8, training=training)
                arguments["weight"].requires_grad_()
                out = call(arguments)
                arguments["bias"].add_(1.0)
                gradients.append(torch.autograd.grad((out * torch.linspace(-1, 1, 24)).sum(), arguments["weight"])[0])
            self.assert_same(*gradients, f"{op} training {training}", (1e-4, 1e-4))

    def test_bit_for_bit_with_any_number_of_threads(self):
        """The input is the identity: the linear is exact, and its weight's gradient is the gradient of y."""
        self.addCleanup(torch.set_num_threads, 1)
        sizes = (300, 257, 1), (900, 96, 12), (3, 20000, 4), (40, 3000, 1), (5, 12000, 400), (700, 30, 5)
        for (op, training), dtype, (rows, columns, groups) in itertools.product(self.each(), cases.FLOATS, sizes):
            arguments = sized(op, rows, columns, groups, dtype, inner=rows, training=training)
            arguments["input"] = torch.eye(rows, dtype=dtype)
            what, runs = f"{op} {dtype} {rows}×{columns}, training {training}", []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                found = self.on_the_kernel(op, arguments, what)
                found.pop("input")  # a sum of torch's own
                runs.append(found)
            for other, (name, first) in itertools.product(runs[1:], runs[0].items()):
                self.assert_bitwise(other[name], first, f"{what}: gradient of {name}")

    def test_threads_go_back_at_the_same_time(self):
        """Who is first releases what the graph keeps: another raises as eager would, or has it still."""
        for op in (op for op in CHAINS if op.batch_norm):
            arguments, cotangent, found, errors = sized(op, 2048, 512, inner=4), torch.randn(2048, 512), [], []
            leaves = [arguments[name].requires_grad_() for name in ("weight", "bias")]

            def back(out, ready):
                ready.wait()
                try:
                    found.append(torch.autograd.grad(out, leaves, cotangent))
                except RuntimeError as error:
                    errors.append(str(error))

            expected = torch.autograd.grad(op(arguments), leaves, cotangent)
            for _ in range(200):
                given = op(arguments), threading.Barrier(3)
                threads = [threading.Thread(target=back, args=given) for _ in range(3)]
                [t.start() for t in threads]
                [t.join() for t in threads]
            self.assertGreaterEqual(len(found), 200, f"{op}: {errors[:3]}")
            for error in errors:
                self.assertIn("a second time", error, f"{op}")
            for mine, theirs in ((pair, expected) for pair in found):
                self.assert_bitwise(mine[0], theirs[0], f"{op}: the weight's gradient")
                self.assert_bitwise(mine[1], theirs[1], f"{op}: the bias's gradient")

    def test_sums_over_many_rows_lose_nothing(self):
        """A sum of the cotangents themselves is right to the last bit but for its own rounding, all others as right as eager's."""
        for (op, training), columns in itertools.product(self.each(), (4, 200)):
            arguments = sized(op, 30011, columns, 2, inner=3, training=training)
            cotangent = 1 + torch.rand(30011, columns, generator=torch.Generator().manual_seed(1))
            mine = self.on_the_kernel(op, arguments, "many rows", cotangent)
            theirs = self.gradients(op.eager, op, copied(arguments), cotangent)
            exact = self.gradients(op.eager, op, cases.in_double(copied(arguments)), cotangent)
            of_cotangents = "norm_bias" if "norm" in op.stem and not op.stem.endswith("swish") else None
            for name in mine:
                if name in ("input", "weight") or op.batch_norm and training and name == "bias":
                    continue  # torch's matrix products, and a sum that is 0
                off, eagers = ((g[name].double() - exact[name]).abs().max().item() for g in (mine, theirs))
                self.assertLessEqual(off, 1.5 * eagers, f"{op}: gradient of {name}, training {training}")
                if name == of_cotangents:
                    self.assertLess(off / exact[name].abs().max().item(), 7e-8, f"{op}: gradient of {name}, training {training}")

    def test_a_mean_far_above_the_spread(self):
        for (op, training), far in itertools.product(self.each(), (1e2, 1e4)):
            arguments = sized(op, 200, 96, 3, training=training)
            arguments["bias"] = torch.full((96,), far)
            if op.batch_norm and "scale" in arguments:
                arguments["scale"] = torch.ones(96)
            self.backward(op, arguments, f"mean {far}, training {training}")

    def test_the_errors_are_not_above_eagers(self):
        """Gradients with respect to input and weight carry the error of two matrix products, on both sides the same."""
        for (op, training), dtype in itertools.product(self.each(), (torch.float32, *NARROW)):
            ratios = {}
            for seed in range(12):
                arguments = sized(op, 257, 384, 12, dtype, seed, 256, training, (384,))
                cotangent = torch.randn(257, 384, generator=torch.Generator().manual_seed(seed))
                mine = self.on_the_kernel(op, arguments, "contract", cotangent)
                theirs = self.gradients(op.eager, op, arguments, cotangent)
                exact = self.gradients(op.eager, op, cases.in_double(arguments), cotangent.to(dtype))
                for name, truth in exact.items():
                    off, eagers = ((g[name].double() - truth).square().mean().sqrt().item() for g in (mine, theirs))
                    ratios.setdefault(name, []).append(off / eagers)
            for name, found in ratios.items():
                self.assertLessEqual(statistics.median(found), 1.05, f"{op} {dtype} training {training}: rms error of {name} over eager's")


if __name__ == "__main__":
    main()
