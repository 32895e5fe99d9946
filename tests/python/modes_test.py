"""The ops where something stands between the caller and the kernels: autocast, inference mode, meta and fake tensors,
subclasses, odd layouts, functional transforms, threads."""
import logging
import threading
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

import cases
from cases import B, CHAINS, K, N, OPS, draw
from checks import Checks, Outcome, auto, copied, main
from models import SPELLINGS, Row, build
from scripted import is_fused, random_inputs, scripted

logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # it prints what the tests provoke


GUARDED = [Row("return self.bn((x @ self.w.t() + self.b) * self.scale)", "with an If"),
           Row("y = self.gemm(x); y *= self.scale; return self.bn_stateless(y)", "in place")]


class Wrapper(torch.Tensor):
    """A subclass that sees every op through __torch_dispatch__ and runs it on the tensor inside."""

    only_aten = False

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype,
                                                   device=inner.device, requires_grad=inner.requires_grad)

    def __init__(self, inner):
        self.inner = inner.detach()

    def __repr__(self):
        return f"{type(self).__name__}({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if cls.only_aten and func.namespace not in ("aten", "prim"):
            raise NotImplementedError(f"{cls.__name__} does not know {func}")
        out = func(*tree_map(inside, args), **tree_map(inside, kwargs or {}))
        return tree_map(lambda v: cls(v) if isinstance(v, torch.Tensor) else v, out)


class AtenWrapper(Wrapper):
    """One that knows ATen and nothing else, as those written before Tailor do."""

    only_aten = True


class Tagged(torch.Tensor):
    """A plain subclass: __torch_function__ carries its class to every result."""


def inside(value):
    return value.inner if isinstance(value, Wrapper) else value


class ModesTest(Checks):
    def each(self, ops=OPS):
        for op in ops:
            for training in [False] if op.inference or not op.batch_norm else [True, False]:
                yield op, training

    def compare(self, op, arguments, what, tolerance=None):
        mine, theirs = copied(arguments), copied(arguments)
        expected, actual = Outcome(lambda: op.eager(theirs)), Outcome(lambda: op(mine))
        self.assert_outcome(actual, expected, f"{op} {what}", tolerance)
        for name, value in theirs.items():
            if isinstance(value, torch.Tensor):
                self.assert_same(mine[name], value, f"{op} {what}: {name} afterwards", tolerance)
        return expected

    def test_autocast(self):
        for (op, training), to in ((o, t) for o in self.each() for t in (torch.bfloat16, torch.float16)):
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
                for enabled in (True, False):
                    with torch.autocast("cpu", to, enabled=enabled):
                        self.compare(op, draw(op, dtype=dtype, training=training), f"autocast {to} {enabled} of {dtype}", (6e-2, 6e-2))
                with torch.autocast("cpu", to):
                    self.compare(op, draw(op, dtype=dtype, training=training, b=None, norm=None), f"autocast {to} of {dtype}, bare", (6e-2, 6e-2))
                    arguments = draw(op, dtype=dtype, training=training)
                    arguments["input"] = arguments["input"].to(to)
                    self.compare(op, arguments, f"autocast {to} of {dtype}, x {to}", (6e-2, 6e-2))

    def test_autocast_gradients(self):
        for op, training in self.each(CHAINS):
            results = []
            for call in (op, op.eager):
                arguments = copied(draw(op, training=training))
                for name in op.tensors(arguments):
                    arguments[name].requires_grad_()
                with torch.autocast("cpu", torch.bfloat16):
                    out = call(arguments)
                out.float().square().sum().backward()
                results.append({name: arguments[name].grad for name in op.tensors(arguments)})
            for name, expected in results[1].items():
                scale = expected.abs().max().item() + 1e-3
                self.assert_same(results[0][name], expected, f"{op}: gradient of {name} under autocast", (4e-2 * scale, 4e-2))

    def test_no_grad_and_inference_mode(self):
        for op, training in self.each():
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    arguments = draw(op, training=training)
                    self.compare(op, arguments, mode.__name__)
                    self.assertEqual(op(copied(arguments)).is_inference(), op.eager(copied(arguments)).is_inference(), f"{op}: {mode}")
            arguments = draw(op, training=training)
            for name in op.tensors(arguments):
                arguments[name].requires_grad_()
            with torch.no_grad():
                self.assertFalse(op(copied(arguments)).requires_grad, f"{op}: no_grad")
            with torch.inference_mode():
                frozen = copied(arguments)
            self.compare(op, frozen, "inference tensors outside inference mode")
            mixed = {**frozen, "weight": copied(arguments["weight"])}
            mine, theirs = Outcome(lambda: op(mixed)), Outcome(lambda: op.eager(dict(mixed)))
            self.assertEqual(mine.error, theirs.error, f"{op}: inference tensors and one with gradients: {mine} / {theirs}")

    def test_meta(self):
        for op, training in self.each():
            for name, shape in cases.STRANGE.items():
                arguments = draw(op, **{"training": training, **shape})
                arguments = {n: v.to("meta") if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
                expected, actual = Outcome(lambda: op.eager(arguments)), Outcome(lambda: op(arguments))
                self.assert_outcome(actual, expected, f"{op} meta {name}, training {training}")

    def test_one_argument_on_another_device(self):
        for op, training in self.each():
            arguments = draw(op, training=training)
            for name in [n for n, v in arguments.items() if isinstance(v, torch.Tensor)]:
                mixed = {**copied(arguments), name: arguments[name].to("meta")}
                expected, actual = Outcome(lambda: op.eager(mixed)), Outcome(lambda: op(mixed))
                if expected.error is None and actual.error is None:  # eager reads memory that is not there: only the facts count
                    expected.value, actual.value = expected.value.to("meta"), actual.value.to("meta")
                self.assert_outcome(actual, expected, f"{op}: {name} on meta, training {training}")

    def test_fake(self):
        for op, training in self.each():
            for name in ("3-D x", "batch 0", "batch 1", "vector (2, 6, 12)", "x too wide", "1-D x", "bias of one"):
                arguments = draw(op, **{"training": training, **cases.STRANGE[name]})
                real = Outcome(lambda: op.eager(copied(arguments)))
                with FakeTensorMode(allow_non_fake_inputs=False) as mode:
                    fake = {n: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
                    expected, actual = Outcome(lambda: op.eager(fake)), Outcome(lambda: op(fake))
                what = f"{op} fake {name}, training {training}"
                self.assertEqual(actual.error is None, expected.error is None, f"{what}: {actual} / {expected}")
                if real.error is None and actual.error is None:
                    facts = [(v.shape, v.dtype, v.stride(), v.device) for v in (actual.value, real.value)]
                    self.assertEqual(*facts, what)

    def test_subclasses(self):
        for (op, training), subclass in ((o, s) for o in self.each() for s in (Wrapper, AtenWrapper, Tagged)):
            names = [n for n, v in draw(op).items() if isinstance(v, torch.Tensor)]
            for mode, wrapped in ((m, w) for m in (torch.enable_grad, torch.inference_mode, torch.no_grad)
                                  for w in (names, ["input"], ["weight"])):
                with mode():
                    arguments = draw(op, training=training)
                    wrap = subclass if subclass is not Tagged else lambda v: v.as_subclass(Tagged)
                    made = lambda values: {n: wrap(v) if n in wrapped else v for n, v in copied(values).items()}
                    expected, actual = Outcome(lambda: op.eager(made(arguments))), Outcome(lambda: op(made(arguments)))
                    what = f"{op} {subclass.__name__} {wrapped} {mode.__name__} training {training}"
                    if actual.error:
                        self.assertIsNotNone(expected.error, f"{what}: raised {actual}\n{actual.exception}")
                        continue
                    self.assertIs(type(actual.value), type(expected.value), what)
                    plain = [inside(v).as_subclass(torch.Tensor) for v in (actual.value, expected.value)]
                    self.assert_same(*plain, what)

    def test_gradients_through_a_subclass(self):
        for (op, training), subclass in ((o, s) for o in self.each(CHAINS) for s in (Wrapper, AtenWrapper)):
            grads = []
            for call in (op, op.eager):
                arguments = {n: subclass(v) if isinstance(v, torch.Tensor) else v for n, v in draw(op, training=training).items()}
                for name in op.tensors(arguments):
                    arguments[name].requires_grad_()
                leaves = [arguments[name] for name in op.tensors(arguments)]
                found = Outcome(lambda: torch.autograd.grad(call(arguments).square().sum(), leaves))
                self.assertIsNone(found.error, f"{op} {subclass.__name__}: {found}\n{found.exception}")
                grads.append([inside(g) for g in found.value])
            self.assert_same(*grads, f"{op} {subclass.__name__}: gradients")

    def test_a_dispatch_mode_sees_the_op_or_its_parts(self):
        seen = []

        class Log(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        for op, training in self.each():
            arguments = draw(op, training=training)
            expected = op.eager(copied(arguments))
            for mode in (torch.enable_grad, torch.no_grad):
                seen.clear()
                with mode(), Log():
                    actual = op(copied(arguments))
                self.assert_same(actual, expected, f"{op} under a dispatch mode")
                self.assertTrue(seen, f"{op}: the mode saw nothing")

    def test_layouts_that_eager_accepts(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for op, training in self.each(CHAINS):
                for parts in (dict(b=None), dict()):
                    arguments = draw(op, training=training, **parts)
                    for name in ("input", "weight"):
                        for layout, make in (("coo", torch.Tensor.to_sparse), ("csr", torch.Tensor.to_sparse_csr), ("mkldnn", torch.Tensor.to_mkldnn)):
                            mixed = {**arguments, name: make(arguments[name])}
                            expected, actual = Outcome(lambda: op.eager(mixed)), Outcome(lambda: op(mixed))
                            self.assert_outcome(actual, expected, f"{op} {name} {layout} {parts}")
                nested = torch.nested.nested_tensor([torch.randn(2, K), torch.randn(3, K)])
                mixed = {**draw(op, training=training), "input": nested}
                self.assert_outcome(Outcome(lambda: op(mixed)), Outcome(lambda: op.eager(mixed)), f"{op} nested input")

    def test_views_with_pending_conjugation_or_negation(self):
        op = OPS[2]
        complex_ = {n: torch.randn(v.shape, dtype=torch.complex64) if isinstance(v, torch.Tensor) else v for n, v in draw(op).items()}
        for name in ("input", "weight", "bias"):
            for view in (complex_[name].conj(), complex_[name].imag):
                lazy = {**complex_, name: view}
                self.assert_outcome(Outcome(lambda: op(lazy)), Outcome(lambda: op.eager(lazy)), f"{op}: {name} lazily conjugated")

    def test_statistics_that_are_still_to_be_negated(self):
        for op, training in self.each():
            for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                arguments = draw(op, training=training)
                for name in op.tensors(arguments) + [n for n in arguments if n.startswith("running")]:
                    calls = []
                    for call in (op, op.eager):
                        values = copied(arguments)
                        values[name] = torch._neg_view(values[name].neg())
                        with mode():
                            calls.append(Outcome(lambda: (call(values), values)))
                    self.assert_outcome(*calls, f"{op} {mode.__name__}, {name} still to be negated")

    def test_nested_input_of_a_product(self):
        """Eager finds no sizes to save for a backward, before it finds no product."""
        for product in ("torch.mm(x, self.w.t())", "x @ self.w.t()", "torch.addmm(self.b, x, self.w.t())"):
            net = build(f"return self.bn({product} * self.scale)").eval()
            with auto(True):
                model = torch.jit.script(net)
            self.assertTrue(is_fused(model), product)
            x = torch.nested.nested_tensor([torch.randn(2, K), torch.randn(3, K)])
            for mode in (torch.enable_grad, torch.no_grad):
                with mode():
                    expected, actual = Outcome(lambda: net(x)), Outcome(lambda: model(x))
                self.assertEqual((actual.error, bool(actual.error)), (expected.error, True), f"{product} {mode.__name__}: {actual} / {expected}")

    def assert_as_eager(self, what, actual, expected):
        """A functional transform gives what it gives for the chain, or raises what it raises."""
        self.assertEqual(actual.error, expected.error, f"{what}: {actual} where eager gives {expected}")
        if actual.error is None:
            self.assert_same(actual.value, expected.value, what, strides=False)

    def test_functional_transforms(self):
        for op, training in self.each(CHAINS):
            arguments = draw(op, training=training, x=(4, B, K))
            arguments["input"] = arguments["input"].double()
            arguments = cases.in_double(arguments)
            one = arguments["input"][0]
            tangent = torch.ones_like(one) * 0.3
            for transform in (
                lambda call: torch.func.vmap(call)(arguments["input"]),
                lambda call: torch.func.vmap(call, randomness="different")(arguments["input"]),
                lambda call: torch.func.grad(lambda x: call(x).square().sum())(one),
                lambda call: torch.func.vjp(call, one)[1](torch.ones(B, N, dtype=torch.float64)),
                lambda call: torch.func.jvp(call, (one,), (tangent,)),
                lambda call: torch.func.jvp(lambda x: torch.func.jvp(call, (x,), (tangent,))[1], (one,), (tangent,)),
                lambda call: torch.func.jacrev(call)(one),
                lambda call: torch.func.jacfwd(call)(one),
                lambda call: torch.func.hessian(lambda x: call(x).square().sum())(one),
                lambda call: torch.func.functionalize(call)(one),
                lambda call: torch.autograd.functional.jvp(call, one, tangent),
                lambda call: torch.func.vmap(lambda w: call(one, w))(torch.stack([arguments["weight"], arguments["weight"] * 2])),
            ):
                def run(call):
                    def at(x, weight=None):
                        values = copied(arguments)
                        return call({**values, "input": x, "weight": values["weight"] if weight is None else weight})
                    return Outcome(lambda: transform(at))
                source = transform.__code__.co_firstlineno
                self.assert_as_eager(f"{op} training {training}, transform on line {source}", run(op), run(op.eager))

    def test_fused_modules_under_transforms(self):
        """The guards in the graph too: what eager gives, or its own refusal."""
        for row in dict((row.rule, row) for row in (*reversed(SPELLINGS), *GUARDED)).values():
            for training in (False, True):
                fused, eager = scripted(row.body).train(training), build(row.body).train(training)
                self.assertTrue(is_fused(fused), row.body)
                x = torch.stack([random_inputs(seed) for seed in range(3)])
                for gradients in (False, True):
                    for transform in (torch.func.vmap, lambda call: torch.func.vmap(torch.func.jacrev(call)),
                                      lambda call: lambda many: torch.func.functionalize(call)(many[0]),
                                      lambda call: torch.func.vmap(torch.func.grad(lambda v: call(v).square().sum()))):
                        with torch.set_grad_enabled(gradients):
                            wanted, got = Outcome(lambda: transform(eager)(x)), Outcome(lambda: transform(fused)(x))
                        what = f"{row.body}, training {training}, gradients {gradients}"
                        self.assertEqual(got.error, wanted.error, f"{what}: {got} where eager gives {wanted}\n{got.exception}")
                        if got.error is None:
                            self.assert_same(got.value, wanted.value, what, (1e-3, 1e-3))

    def test_fused_modules_traced_with_symbols_for_sizes(self):
        for row in dict((row.rule, row) for row in SPELLINGS).values():
            fused = scripted(row.body).eval()
            self.assertTrue(is_fused(fused), row.body)
            x = random_inputs(1)
            traced = make_fx(fused, tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
            self.assert_same(traced(x), fused(x), row.body)
            if "group_norm" not in row.rule:  # of which torch's own trace takes no other batch
                more = torch.cat([x, x * 0.5])
                self.assert_same(traced(more), fused(more), row.body)

    def test_functional_transforms_keep_the_statistics(self):
        for op in (op for op in CHAINS if op.batch_norm):
            states = []
            for call in (op, op.eager):
                values = draw(op)

                def run(x, mean, var):
                    return call({**values, "input": x, "running_mean": mean, "running_var": var}).clone()

                state = [values["running_mean"], values["running_var"]]
                states.append([torch.func.functionalize(run)(values["input"], *state), *state])
            self.assert_same(*states, f"{op}: value and statistics under functionalize")

    def test_forward_mode(self):
        for op, training in self.each(CHAINS):
            for name in op.tensors(draw(op)):
                results = []
                for call in (op, op.eager):
                    arguments = draw(op, dtype=torch.float64, training=training)

                    def run(values=arguments):
                        with torch.autograd.forward_ad.dual_level():
                            values[name] = torch.autograd.forward_ad.make_dual(values[name], torch.ones_like(values[name]))
                            return tuple(torch.autograd.forward_ad.unpack_dual(call(values)))
                    results.append(Outcome(run))
                self.assert_as_eager(f"{op}: forward mode in {name}, training {training}", *results)

    def test_a_gradient_in_forward_mode(self):
        """The forward was a kernel's; a dual gradient comes back to it."""
        for op in CHAINS:
            results = []
            for call in (op, op.eager):
                arguments = draw(op, training=False)
                arguments["input"].requires_grad_()
                out = call(arguments)

                def run(x=arguments["input"], out=out):
                    with torch.autograd.forward_ad.dual_level():
                        of_out = torch.autograd.forward_ad.make_dual(torch.ones_like(out), torch.full_like(out, 0.3))
                        return tuple(torch.autograd.forward_ad.unpack_dual(torch.autograd.grad(out, x, of_out)[0]))
                results.append(Outcome(run))
            self.assertEqual(results[1].error is None, not op.group_norm, f"{op}: {results[1]}")
            self.assert_as_eager(f"{op}: a dual gradient", *results)

    def test_operations_of_meta_tensors_are_counted_once(self):
        """A check inside a chain knows their shapes without a product."""
        for row in dict((row.rule, row) for row in SPELLINGS).values():
            counts = []
            for model in (build(row.body), scripted(row.body)):
                with FlopCounterMode(display=False) as counter:
                    model.to("meta")(random_inputs(1).to("meta"))
                counts.append(counter.get_total_flops())
            self.assertEqual(*counts, row.body)

    def test_compile_with_fake_tensors(self):
        """torch.compile without a backend: the op goes through Dynamo and AOTAutograd's fake tensors."""
        for op in CHAINS:
            arguments = draw(op, training=False)
            compiled = torch.compile(lambda values: op(values), backend="aot_eager", fullgraph=True)
            self.assert_same(compiled(copied(arguments)), op.eager(arguments), f"{op} compiled")

    def test_threads(self):
        for op in CHAINS:
            wrong = []

            def work(seed):  # with arguments of its own, so that what threads take from each other shows
                torch.set_grad_enabled(False)
                arguments = draw(op, seed, training=False)
                expected = op.eager(arguments)
                for _ in range(300):
                    if not torch.allclose(op(arguments), expected, 1e-4, 1e-4):
                        wrong.append(seed)

            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            self.assertFalse(wrong, f"{op}: {len(wrong)} of 2400 calls from threads are wrong")


if __name__ == "__main__":
    main()
