"""Gradients of the ops: gradcheck and gradgradcheck for every subset of requires_grad, and eager's own gradients."""
import contextlib
import itertools
import math
import warnings

import torch

import cases
from cases import B, C, CHAINS, K, N, OPS, draw
from checks import Checks, Outcome, copied, main

# Small enough that every subset of every variant can be checked twice; the sizes still differ.
SMALL = dict(x=(4, 2), w=(6, 2), groups=3)


def small(op, seed=0, **parts):
    """A small float64 sample; `parts` comes from cases.optional_parts."""
    shapes = {name: (6,) if shape == (N,) else shape for name, shape in parts.items()}
    vector = (1,) if op.stem == "linear_batch_norm_add_div_swish" else (6,)
    return draw(op, seed, torch.float64, **{**SMALL, "b": (6,), "norm": (6,), "stats": (6,), "vector": vector, **shapes})


def for_the_reference(arguments):
    """The same values, with an input that no kernel takes: it is still to be negated."""
    return {**arguments, "input": torch._neg_view(-arguments["input"])}


def subsets(names):
    for size in range(1, len(names) + 1):
        yield from itertools.combinations(names, size)


def ends(names):
    return [tuple(names), *[(name,) for name in names]]


class AutogradTest(Checks):
    def function_of(self, call, arguments, names):
        """A call as a function of the named tensors; buffers are fresh at each call, as gradcheck calls many times."""
        def function(*tensors):
            values = {n: v.clone() if n.startswith("running") and v is not None else v for n, v in arguments.items()}
            values.update(zip(names, tensors))
            return call(values)
        return function, [arguments[name].clone().requires_grad_() for name in names]

    def check_all(self, check, order):
        """Every subset of requires_grad, with each optional part there and absent. Where torch itself fails, it must still
        do so, or the list of that is wrong; the op may be right there, or fail as torch does."""
        def found(call, arguments, names):
            function, leaves = self.function_of(call, arguments, names)
            return Outcome(lambda: check(function, leaves, fast_mode=True))

        failed = 0
        for op in OPS:
            for parts in cases.optional_parts(op, norms="every"):
                arguments = small(op, **parts)
                for names in subsets(op.tensors(arguments)):
                    what, mine = f"{check.__name__} of {op} {parts} in {names}", found(op, arguments, names)
                    says = cases.torch_fails(op, arguments, names, order)
                    if says:
                        self.assertIn(says, found(op.eager, arguments, names).exception or "", f"{what}: torch fails no longer")
                        failed += 1
                    if not says or not mine.value:
                        self.assertTrue(mine.value or says and says in mine.exception, f"{what}: {mine}\n{mine.exception}")
        self.assertGreater(failed, 0, "the known failures were not met")

    def test_gradcheck(self):
        self.check_all(torch.autograd.gradcheck, 1)

    def test_gradgradcheck(self):
        self.check_all(torch.autograd.gradgradcheck, 2)

    def test_slow_gradcheck_of_all_inputs(self):
        """The slow mode looks at every entry, and at undefined and strided gradients."""
        for op in OPS:
            for training in [False] if op.inference or not op.batch_norm else [True, False]:
                arguments = small(op, training=training)
                function, leaves = self.function_of(op, arguments, op.tensors(arguments))
                self.assertTrue(torch.autograd.gradcheck(function, leaves), f"{op} training {training}")

    def gradients(self, call, op, arguments, names, cotangent=None):
        values = copied(arguments)
        for name in names:
            values[name].requires_grad_()
        out = call(values)
        if cotangent is None:
            cotangent = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype)
        found = torch.autograd.grad(out, [values[name] for name in names], cotangent, allow_unused=True)
        return dict(zip(names, found))

    def compare(self, op, arguments, names, what, cotangent=None, loose=1.0):
        """Each gradient against eager's: dtype and shape exactly, values against a float64 run of the chain."""
        if arguments["input"].dtype == torch.float64:
            loose = max(loose, 1e2)  # eager is the referee, and its own error unknown
        expected = Outcome(lambda: self.gradients(op.eager, op, arguments, names, cotangent))
        actual = Outcome(lambda: self.gradients(op, op, arguments, names, cotangent))
        if says := cases.torch_fails(op, arguments, names):
            self.assertIn(says, expected.exception or "", f"{op} {what}: torch fails no longer")
        if expected.error or actual.error:
            self.assert_outcome(actual, expected, f"{op} {what}")
            return
        exact = self.gradients(op.eager, op, cases.in_double(arguments), names, cotangent.double() if cotangent is not None else None)
        size = max([1.0, *[g.abs().max().item() for g in exact.values() if g is not None and g.numel()]])  # some cancel to zero
        for name in names:
            mine, theirs = actual.value[name], expected.value[name]
            label = f"{op} {what}: gradient of {name}"
            self.assertEqual(mine is None, theirs is None, label)
            if theirs is None or not theirs.numel():
                continue
            self.assertEqual((mine.dtype, mine.shape, mine.device), (theirs.dtype, theirs.shape, theirs.device), label)
            referee = exact[name]
            unit = torch.finfo(theirs.dtype).eps * (size if math.isfinite(size) else 1.0)
            mine, theirs = (mine.double() - referee).abs(), (theirs.double() - referee).abs()
            wrong = torch.isnan(mine) & ~torch.isnan(theirs)
            self.assertFalse(wrong.any(), f"{label}: NaN where eager has a number")
            off, allowed = torch.nan_to_num(mine).max().item(), 2 * loose * torch.nan_to_num(theirs).max().item() + 32 * loose * unit
            self.assertLessEqual(off, allowed, f"{label}: error against float64, eager's is {theirs.max().item():g}")

    def each(self, ops=OPS):
        for op in ops:
            for training in [False] if op.inference or not op.batch_norm else [True, False]:
                yield op, training

    def test_every_dtype_against_eager(self):
        for (op, training), dtype in itertools.product(self.each(), cases.FLOATS):
            for seed in range(3):
                arguments = draw(op, seed, dtype, training=training, x=(33, K))
                self.compare(op, arguments, op.tensors(arguments), f"{dtype} seed {seed} training {training}")

    def test_every_subset_in_float32(self):
        for op in OPS:
            for parts in cases.optional_parts(op, norms="apart"):
                arguments = draw(op, x=(17, K), **parts)
                everything = op.overload == "default" and None not in parts.values()
                for names in (subsets if everything else ends)(op.tensors(arguments)):
                    self.compare(op, arguments, names, f"{parts} in {names}", loose=4)  # so small that luck decides

    def test_strange_shapes(self):
        for (op, training), (name, shape) in itertools.product(self.each(), cases.STRANGE.items()):
            arguments = draw(op, **{"training": training, **shape}, dtype=torch.float64)
            self.compare(op, arguments, op.tensors(arguments), f"{name} training {training}", loose=1e4)

    def test_mixed_dtypes(self):
        for (op, training), base, dtype in itertools.product(self.each(), (torch.float32, torch.bfloat16), cases.FLOATS):
            reference = draw(op, dtype=base, training=training, x=(17, K))
            for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                arguments = {**reference, name: reference[name].to(dtype)}
                self.compare(op, arguments, op.tensors(arguments), f"{base} but {name} {dtype} training {training}", loose=4)

    def test_strided_inputs_and_cotangents(self):
        for op, training in self.each():
            reference = draw(op, dtype=torch.float64, training=training)
            cotangent = torch.linspace(-1, 1, B * N, dtype=torch.float64).reshape(B, N)
            for layout, view in cases.views(cotangent):
                self.compare(op, reference, op.tensors(reference), f"cotangent {layout}", cotangent=view, loose=1e3)
            for name in op.tensors(reference):
                for layout, view in cases.views(reference[name]):
                    if op.batch_norm and name == "norm_weight" and not view.is_contiguous():
                        continue  # torch 2.11's batch norm backward on the CPU reads such a weight, and beyond it, as if it were contiguous
                    self.compare(op, {**reference, name: view}, op.tensors(reference), f"{name} {layout}", loose=1e4)

    def test_3d(self):
        for op, training in self.each():
            arguments = draw(op, dtype=torch.float64, training=training, x=(B, C, K), norm=(C,), stats=(C,))
            for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
                whole = arguments["input"]
                view = whole.permute(order).contiguous().permute([order.index(i) for i in range(3)])
                self.compare(op, {**arguments, "input": view}, op.tensors(arguments), f"3-D as {order}", loose=1e3)

    def test_a_number_written_before_backward_is_an_error(self):
        for op in [op for op in cases.OPS if op.scalar and op.overload.endswith("Tensor")]:
            for call in (op, op.eager):
                arguments = draw(op, training=False)
                leaves = [arguments[n].requires_grad_() for n in ("input", "weight")]
                out = call(arguments)
                with torch.no_grad():
                    arguments[op.scalar].add_(1)
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", msg=f"{op}"):
                    torch.autograd.grad(out.sum(), leaves)

    def test_a_saved_tensor_written_before_backward_is_an_error(self):
        for (op, training), take in itertools.product(self.each(), (dict, for_the_reference)):
            reference = draw(op, training=training)
            for name in [n for n, v in reference.items() if isinstance(v, torch.Tensor)]:
                found = []
                for call in (op, op.eager):
                    values = take(copied(reference))
                    leaves = [values[n].requires_grad_() for n in op.tensors(values)]
                    out = call(values)
                    with torch.no_grad():
                        values[name].add_(1)
                    found.append(Outcome(lambda: torch.autograd.grad(out.sum(), leaves)))
                mine, theirs = found
                if theirs.error:
                    self.assertIsNotNone(mine.error, f"{op}: {name} was written between forward and backward, unseen; eager: {theirs}")
                    self.assertIn("modified by an inplace operation", mine.exception, f"{op}: {name}")
                elif mine.error is None:
                    self.assert_same(mine.value, theirs.value, f"{op}: {name} written, which eager does not read again", (1e-3, 1e-3), strides=False)
                elif not name.startswith("running"):
                    self.assertIn("modified by an inplace operation", mine.exception, f"{op}: {name}")
                else:
                    self.fail(f"{op}: {name} may change between forward and backward in eager, training {training}: {mine}")

    def test_two_training_calls_and_then_both_backwards(self):
        """A batch norm used twice: the second call writes the statistics that the first one was given."""
        for op, take in itertools.product((op for op in CHAINS if op.batch_norm), (dict, for_the_reference)):
            grads = []
            for call in (op, op.eager):
                values = take(draw(op, dtype=torch.float64))
                leaves = [values[n].requires_grad_() for n in op.tensors(values)]
                first, second = call(values), call({**values, "input": values["input"] * 2})
                found = Outcome(lambda: torch.autograd.grad((first * second).sum(), leaves))
                self.assertIsNone(found.error, f"{op}: {found}")
                grads.append(found.value)
            self.assert_same(*grads, f"{op}: two calls", strides=False)

    def test_backward_twice_and_freed_buffers(self):
        for op, training in self.each(CHAINS):
            arguments = draw(op, dtype=torch.float64, training=training)
            leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
            out = op(arguments)
            loss = out.square().sum()
            first = torch.autograd.grad(loss, leaves, retain_graph=True)
            second = torch.autograd.grad(loss, leaves)
            self.assert_same(second, first, f"{op}: second backward")
            # The op's node is asked by itself, too: in the graph the square's refuses before it has its turn.
            for again in (Outcome(lambda: torch.autograd.grad(loss, leaves)), Outcome(lambda: out.grad_fn(torch.ones_like(out)))):
                self.assertIn("backward through the graph a second time", again.exception or "", f"{op}: freed: {again}")

    def test_the_result_can_be_written(self):
        for op, training in self.each(CHAINS):
            grads = []
            for call in (op, op.eager):
                arguments = draw(op, dtype=torch.float64, training=training)
                leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
                found = Outcome(lambda: torch.autograd.grad(call(arguments).mul_(2).relu_().sum(), leaves))
                grads.append(found)
            mine, theirs = grads
            if theirs.error is None:
                self.assert_outcome(mine, theirs, f"{op}: result written in place", strides=False)

    def test_saved_tensor_hooks_and_checkpoint(self):
        from torch.utils.checkpoint import checkpoint
        for op in CHAINS:
            arguments = draw(op, dtype=torch.float64, training=False)
            leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
            plain = torch.autograd.grad(op(arguments).square().sum(), leaves)
            with torch.autograd.graph.save_on_cpu():
                hooked = torch.autograd.grad(op(arguments).square().sum(), leaves)
            self.assert_same(hooked, plain, f"{op}: saved-tensor hooks")
            again = checkpoint(lambda x: op({**arguments, "input": x}), arguments["input"], use_reentrant=False)
            self.assert_same(torch.autograd.grad(again.square().sum(), leaves), plain, f"{op}: checkpoint")

    def test_statistics_under_checkpoint(self):
        """It ends the second forward with an exception, from the hook of the last tensor that is saved."""
        from torch.utils.checkpoint import checkpoint
        for op in (op for op in CHAINS if op.batch_norm):
            left = []
            for call in (op, op.eager):
                arguments = draw(op, dtype=torch.float64, training=True)
                for name in op.tensors(arguments):
                    arguments[name].requires_grad_()
                checkpoint(lambda x: call({**arguments, "input": x}), arguments["input"], use_reentrant=False).sum().backward()
                left.append([arguments["running_mean"], arguments["running_var"]])
            self.assert_same(*left, f"{op}: running statistics")

    def test_parameters_that_are_others_before_backward(self):
        """`.data = …`, as Module.half() does it, is seen by no version counter. Where there are too few, eager on the CPU may
        read beyond them: here it is an error."""
        for op, change in itertools.product([op for op in CHAINS if "norm_weight" in op.arguments], (torch.Tensor.half, lambda v: v[:2].clone())):
            def run(call):
                arguments = draw(op)
                names = [n for n in ("norm_weight", "norm_bias", "scale", "addend") if n in arguments]
                leaves = [arguments[n].requires_grad_() for n in ("input", "weight", *names)]
                out = call(arguments)
                for name in names:
                    arguments[name].data = change(arguments[name].data)
                return Outcome(lambda: torch.autograd.grad(out.square().sum(), leaves[:2]))
            mine, theirs = run(op), run(op.eager)
            self.assertEqual(mine.error, theirs.error or RuntimeError, f"{op} {change}: {mine} instead of {theirs}")

    def test_hooks_that_lay_out_what_was_saved(self):
        for op in CHAINS:
            def run(call, hooks):
                arguments = draw(op, dtype=torch.float64, training=False)
                leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
                with hooks:
                    out = call(arguments)
                return torch.autograd.grad(out.square().sum(), leaves)
            other_way = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.t().contiguous().t() if t.dim() == 2 else t)
            self.assert_same(run(op, other_way), run(op.eager, contextlib.nullcontext()), f"{op}", strides=False)

    def test_what_is_added_and_was_written_before_a_gradient_of_the_gradient(self):
        """Eager keeps neither the biases nor an addend: what becomes of them after the call is nobody's matter."""
        for op, training in self.each(CHAINS):
            reference = small(op, training=training) if op.batch_norm else small(op)
            for name in [n for n in ("bias", "norm_bias", "addend") if n in reference]:
                found = []
                for call in (op, op.eager):
                    arguments = copied(reference)
                    leaves = [arguments[n].requires_grad_() for n in op.tensors(arguments)]
                    own = arguments[name] = arguments[name] * 1.0
                    out = call(arguments)
                    with torch.no_grad():
                        own.mul_(3.0)
                    own.mul_(2.0)
                    first = torch.autograd.grad(out.pow(2).sum(), leaves, create_graph=True, allow_unused=True)
                    loss = sum(g.pow(2).sum() for g in first if g is not None and g.requires_grad)
                    second = torch.autograd.grad(loss, leaves, allow_unused=True)
                    found.append([torch.zeros_like(leaf) if g is None else g for g, leaf in zip(second, leaves)])
                self.assert_same(*found, f"{op}: {name} written", (1e-6, 1e-6), strides=False)

    def test_an_infinite_bias_of_a_gradient_of_the_gradient(self):
        """The bias is brought into y's history once more; what that adds to y must be nothing even where the bias is infinite."""
        for op, value in itertools.product(CHAINS, (math.inf, -math.inf)):
            arguments = small(op, training=False) if op.batch_norm else small(op)
            arguments["bias"][1] = value
            found = []
            for call in (op, op.eager):
                leaves = {n: arguments[n].clone().requires_grad_() for n in op.tensors(arguments)}
                out = call({**copied(arguments), **leaves})
                first = torch.autograd.grad(out, list(leaves.values()), torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape),
                                            create_graph=True)
                again = torch.autograd.grad(sum((g * g).sum() for g in first), list(leaves.values()), allow_unused=True)
                found.append(dict(zip([*leaves, *(f"{n}, again" for n in leaves)], [*first, *again])))
            mine, theirs = found
            for name, truth in theirs.items():
                self.assertEqual(mine[name] is None, truth is None, f"{op}: gradient of {name}")
                if truth is not None:
                    there = truth.isfinite()
                    self.assert_same(mine[name][there], truth[there], f"{op}, {value}: gradient of {name}")
            self.assertTrue(theirs["bias"][-1].isfinite(), op)  # or nothing was compared

    def test_a_third_derivative_is_right_or_refused(self):
        for op in CHAINS:
            found = []
            for call in (op, op.eager):
                arguments = small(op, training=False)
                x = arguments["input"].requires_grad_()

                def third(x=x, arguments=arguments, call=call):
                    value = call(arguments).pow(3).sum()
                    for _ in range(3):
                        value, = torch.autograd.grad(value.square().sum(), x, create_graph=True)
                    return value.detach()
                found.append(Outcome(third))
            if found[0].error is None:
                self.assert_same(found[0].value, found[1].value, f"{op}: third derivative", (1e-6, 1e-6), strides=False)

    def test_gradients_of_tangents(self):
        """What comes in behind the linear is a dual number, and its tangent is differentiated while it is one."""
        for op, dtype in itertools.product(CHAINS, (torch.float64, torch.float32)):
            for name in op.tensors(draw(op)):
                found = []
                for call in (op, op.eager):
                    arguments = draw(op, dtype=dtype, training=False)
                    weight = arguments["weight"].requires_grad_()

                    def of_tangent(values=arguments, weight=weight, call=call):
                        with torch.autograd.forward_ad.dual_level():
                            values[name] = torch.autograd.forward_ad.make_dual(values[name], torch.ones_like(values[name]))
                            tangent = torch.autograd.forward_ad.unpack_dual(call(values)).tangent
                            return torch.autograd.grad(tangent.square().sum(), weight)[0].detach()
                    found.append(Outcome(of_tangent))
                self.assert_outcome(*found, f"{op} {dtype}: gradient of the tangent in {name}", (1e-3, 1e-3))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
