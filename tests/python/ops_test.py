"""The ops against the chains that they stand for: values, dtypes, shapes, strides, exceptions and the state left behind."""
import itertools

import torch

import cases
from cases import B, C, CHAINS, K, N, OPS, draw
from checks import Outcome, all_calls, calls_of, copied, main
from comparing import Comparing


class OpsTest(Comparing):
    def test_the_schemas_are_those_promised_to_saved_files(self):
        head = "(Tensor input, Tensor weight, Tensor? bias, "
        bn = ("Tensor? norm_weight, Tensor? norm_bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, bool training, "
              "float momentum, float eps, bool cudnn_enabled")
        frozen = "Tensor? norm_weight, Tensor? norm_bias, Tensor? running_mean, Tensor? running_var, float eps, bool cudnn_enabled"
        gn = "int num_groups, Tensor? norm_weight, Tensor? norm_bias, float eps, bool cudnn_enabled"
        promised = {
            "linear_mul_batch_norm": f"Tensor scale, {bn}", "linear_mul_batch_norm.inference": f"Tensor scale, {frozen}",
            "linear_sigmoid_mul_add": "Scalar factor", "linear_sigmoid_mul_add.Tensor": "Tensor factor",
            "linear_add_swish_group_norm": f"Tensor addend, {gn}", "linear_swish_add_group_norm": f"Tensor addend, {gn}",
            "linear_batch_norm_add_div_swish": f"{bn}, Tensor addend, Scalar divisor",
            "linear_batch_norm_add_div_swish.Tensor": f"{bn}, Tensor addend, Tensor divisor",
            "linear_batch_norm_add_div_swish.inference": f"{frozen}, Tensor addend, Scalar divisor",
            "linear_batch_norm_add_div_swish.inference_Tensor": f"{frozen}, Tensor addend, Tensor divisor",
            "linear_group_norm_swish_mul_swish": f"{gn}, Tensor scale",
        }
        for op in OPS:
            schema = getattr(getattr(torch.ops.tailor, op.stem), op.overload)._schema
            self.assertEqual(str(schema), f"tailor::{op.name}{head}{promised[op.name]}) -> Tensor")

    def test_every_dtype_with_each_optional_part(self):
        for op in OPS:
            for dtype, parts in itertools.product(cases.FLOATS, cases.optional_parts(op)):
                expected = self.compare(op, draw(op, dtype=dtype, **parts), f"{dtype} {parts}")
                self.assertIsNone(expected.error, f"{op} {dtype} {parts}: a sound case")

    def test_one_affine_part_without_the_other(self):
        for op, training in self.each():
            for name in ("norm_weight", "norm_bias", "running_mean", "running_var"):
                if name in op.arguments:
                    arguments = draw(op, training=training)
                    arguments[name] = None
                    self.compare(op, arguments, f"without {name}, training {training}")

    def test_strange_shapes(self):
        for (op, training), (name, shape) in itertools.product(self.each(), cases.STRANGE.items()):
            self.compare(op, draw(op, **{"training": training, **shape}), f"{name}, training {training}")

    def test_strange_shapes_in_pairs(self):
        """Where two things are wrong, the error is the one that eager meets first."""
        wrong = ["x too wide", "bias too long", "3-D weight", "vector (13,)", "norm too long", "statistics too long",
                 "groups do not divide", "batch 1", "batch 0", "1-D x"]
        for (op, training), pair in itertools.product(self.each(CHAINS), itertools.combinations(wrong, 2)):
            shape = {**cases.STRANGE[pair[0]], **cases.STRANGE[pair[1]]}
            self.compare(op, draw(op, **{"training": training, **shape}), f"{pair}, training {training}")

    def test_mixed_dtypes(self):
        for op, training in self.each():
            for base, dtype in itertools.product([torch.float32, torch.bfloat16, torch.float64], cases.MIXED):
                reference = draw(op, dtype=base, training=training)
                for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                    arguments = copied(reference)
                    arguments[name] = (arguments[name] * 2).to(dtype)
                    self.compare(op, arguments, f"{base} but {name} {dtype}, training {training}", tolerance=(6e-2, 6e-2))

    def test_all_of_one_strange_dtype(self):
        for (op, training), dtype in itertools.product(self.each(), cases.MIXED[4:]):
            arguments = draw(op, training=training)
            arguments = {n: (v * 3).to(dtype) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
            self.compare(op, arguments, f"all {dtype}, training {training}")

    def test_integer_linear_with_a_float_norm(self):
        for op, training in self.each():
            arguments = draw(op, training=training)
            for name in ("input", "weight", "bias"):
                arguments[name] = (arguments[name] * 3).to(torch.int64)
            self.compare(op, arguments, f"int64 linear, training {training}")

    def test_scalars_of_every_kind(self):
        kinds = [2, -3, 0, True, False, 0.5, 0.0, float("inf"), float("nan"), 1e300, 2**40, 1 + 2j]
        tensors = [torch.tensor(2), torch.tensor(True), torch.tensor(0.5, dtype=torch.float64), torch.tensor(1j), torch.tensor([2.0])]
        for op in [op for op in OPS if op.scalar]:
            for value in tensors if op.overload.endswith("Tensor") else kinds:
                for dtype in (torch.float32, torch.bfloat16):
                    self.compare(op, {**draw(op, dtype=dtype, training=False), op.scalar: value}, f"{dtype} {op.scalar} {value}")

    def test_views_of_every_argument(self):
        for op, training in self.each(CHAINS):
            reference = draw(op, training=training)
            for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                for layout, view in cases.views(reference[name]):
                    if training and "running" in name and layout == "expanded":
                        continue  # eager itself writes one element from many threads
                    self.compare(op, {**reference, name: view}, f"{name} {layout}, training {training}")

    def test_views_of_a_3d_input(self):
        for op, training in self.each(CHAINS):
            arguments = draw(op, training=training, x=(B, C, K), norm=(C,), stats=(C,))
            whole = arguments["input"]
            for order in itertools.permutations(range(3)):
                inverse = [order.index(i) for i in range(3)]
                view = whole.permute(order).contiguous().permute(inverse)
                self.compare(op, {**arguments, "input": view}, f"3-D input laid out as {order}, training {training}")

    def test_arguments_that_are_one_tensor(self):
        for op, training in self.each(CHAINS):
            arguments = draw(op, training=training, x=(N, N), w=(N, N), vector=(N,))
            self.compare(op, {**arguments, "weight": arguments["input"]}, "weight is the input")
            if op.vector:
                self.compare(op, {**arguments, op.vector: arguments["bias"]}, f"{op.vector} is the bias")
                self.compare(op, {**arguments, op.vector: arguments["input"]}, f"{op.vector} is the input")
            if op.batch_norm:
                mine, theirs = copied(arguments), copied(arguments)
                mine["norm_bias"], theirs["norm_bias"] = mine["running_mean"], theirs["running_mean"]
                self.assert_same(op(mine), op.eager(theirs), f"{op}: norm bias is the running mean, training {training}")
                self.assert_same(mine["running_mean"], theirs["running_mean"], f"{op}: running mean")

    def test_special_values(self):
        lattice = torch.tensor(cases.LATTICE, dtype=torch.float64)
        for (op, training), dtype in itertools.product(self.each(CHAINS), cases.FLOATS):
            arguments = draw(op, x=(lattice.numel(), 1), w=(N, 1), training=training, dtype=dtype)
            arguments["input"] = lattice[:, None].to(dtype)
            self.compare(op, arguments, f"lattice in x, {dtype}, training {training}")
            arguments = draw(op, x=(4, 1), w=(lattice.numel(), 1), b=(lattice.numel(),), vector=(1,), norm=(lattice.numel(),),
                             stats=(lattice.numel(),), groups=1, training=training, dtype=dtype)
            bias = lattice.to(dtype)
            if training and op.batch_norm:  # a mean of 1e38 leaves nothing of the rest but chance
                bias = torch.where(bias.isfinite() & (bias.abs() > 1e30), bias.sign() * 5e3, bias)
            self.compare(op, {**arguments, "bias": bias}, f"lattice in the bias, {dtype}, training {training}")
            for name in op.tensors(arguments)[3:]:
                if arguments[name].shape == lattice.shape and dtype.itemsize > 2:  # else rounding decides what overflows
                    self.compare(op, {**arguments, name: lattice.to(dtype)}, f"lattice in {name}, {dtype}, training {training}")

    def test_a_result_of_one_s_own(self):
        """Not a view, and never written to: eager's can be written in place and detached."""
        for op in (op for op in OPS if op.stem == "linear_sigmoid_mul_add"):
            for x, b in itertools.product([(K,), (B, K), (B, C, K), (2, C, 4, K)], [(N,), None]):
                with torch.no_grad():
                    out = op(draw(op, x=x, b=b))
                    self.assertFalse(out._is_view(), f"{op} {x} {b}")
                    self.assertEqual(out._version, 0, f"{op} {x} {b}")
                    out.detach_()

    def test_numbers_that_are_zero_or_a_statistic(self):
        op = next(op for op in OPS if op.name == "linear_batch_norm_add_div_swish")
        for zero in (0.0, -0.0):
            for dtype in cases.FLOATS:
                self.compare(op, {**draw(op, dtype=dtype, training=False), "divisor": zero}, f"divided by {zero}, {dtype}")
        op = next(op for op in OPS if op.name == "linear_batch_norm_add_div_swish.Tensor")
        mine, theirs = draw(op), draw(op)
        for arguments in (mine, theirs):
            arguments["divisor"] = arguments["running_var"][0]
        with torch.no_grad():
            self.assert_same(op(mine), op.eager(theirs), f"{op} divided by a statistic that it updates")

    def test_memory_shared_through_two_storages(self):
        op = OPS[0]
        mine, theirs = draw(op), draw(op)
        for arguments in (mine, theirs):
            array = arguments["scale"].numpy().copy()
            arguments["scale"], arguments["running_mean"] = torch.from_numpy(array), torch.from_numpy(array)
        with torch.no_grad():
            self.assert_same(op(mine), op.eager(theirs), f"{op}: scale and running_mean in the same numpy memory")

    def test_running_variance_of_a_mean_far_above_the_spread(self):
        """Against float64 statistics of the same float32 values, so that the statistics are all that is rounded."""
        op = OPS[0]
        for rows in (9, 16, 64, 300):
            arguments = draw(op, x=(rows, K), momentum=1.0)
            arguments["bias"], arguments["scale"] = torch.full((N,), 1000.0), torch.ones(N)
            exact = torch.nn.functional.linear(arguments["input"], arguments["weight"], arguments["bias"]).double().var(0)
            with torch.no_grad():
                op(arguments)
            off = ((arguments["running_var"].double() - exact) / exact).abs().max().item()
            self.assertLessEqual(off, 2e-6, f"{rows} rows: relative error of the running variance")

    def test_variance_zero(self):
        for op, training in self.each(CHAINS):
            for eps in (0.0, 1e-5):
                arguments = draw(op, training=training, eps=eps)
                arguments["input"] = torch.ones(B, K)
                if op.batch_norm:
                    arguments["running_var"] = torch.zeros(N)
                self.compare(op, arguments, f"variance 0, eps {eps}, training {training}", tolerance=(1e-3, 1e-3))

    def test_keywords_and_defaults(self):
        for op in OPS:
            arguments = draw(op, training=False)
            packet = getattr(torch.ops.tailor, op.stem)
            by_name = packet(arguments["input"], arguments["weight"], **dict(list(arguments.items())[2:]))
            self.assert_same(by_name, op.eager(arguments), f"{op} by keyword")

    def test_calls_counts_each_path_once(self):
        for op in OPS:
            before, total = calls_of(op.stem), sum(all_calls().values())
            with torch.no_grad():
                op(draw(op))
            self.assertEqual(calls_of(op.stem), before + 1, f"{op}: {all_calls()}")
            self.assertEqual(sum(all_calls().values()), total + 1, f"{op}: only its own counter")
        torch.ops.tailor.reset_calls()
        self.assertFalse(any(all_calls().values()), "reset_calls")

    def test_memory_that_was_released(self):
        """As by those who keep a model in parts: before the call, or between it and its backward. Of a norm: without an operand's eager crashes."""
        def before(call, arguments, name):
            arguments[name].untyped_storage().resize_(0)
            return call(arguments)

        def between(call, arguments, name):
            weight = arguments["weight"].requires_grad_()
            out = call(arguments)
            arguments[name].untyped_storage().resize_(0)
            return torch.autograd.grad(out.sum(), weight)[0]

        for (op, training), when in itertools.product(self.each(CHAINS), (before, between)):
            for name in (name for name in op.tensors(draw(op)) if name.startswith(("norm_", "running_"))):
                mine, theirs = (Outcome(lambda call=call: when(call, draw(op, training=training), name)) for call in (op, op.eager))
                if when is before:
                    self.assertIsNotNone(theirs.error, f"{op}: eager takes {name} without its memory")
                self.assert_outcome(mine, theirs, f"{op} training {training}: memory of {name} released {when.__name__}", (1e-4, 1e-4))

    def test_bit_for_bit_from_run_to_run(self):
        for (op, training), dtype in itertools.product(self.each(), (torch.float32, torch.bfloat16)):
            arguments = draw(op, dtype=dtype, training=training, x=(257, 65), w=(N, 65))
            torch.set_num_threads(2)
            self.addCleanup(torch.set_num_threads, 1)
            first = op(copied(arguments))
            for _ in range(20):
                self.assert_bitwise(op(copied(arguments)), first, f"{op} {dtype}")


if __name__ == "__main__":
    main()
