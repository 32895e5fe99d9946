"""What random and hostile models found wrong once."""
import copy
import json

import torch

import models
from checks import Outcome, auto, main
from found_models import Awaits, Calls, Casts, Differentiates
from models import SIG, build
from scripted import Following, flat, is_fused, random_inputs, scripted


class FoundByFuzzingTest(Following):
    def test_python_inside_a_chain(self):
        eager = Calls().eval()
        fused = torch.jit.script(copy.deepcopy(eager))
        self.assertFalse(is_fused(fused))
        with torch.no_grad():
            x = torch.randn(7, 5)
            for _ in range(3):
                self.assert_near([fused(x)], [eager(x)], "a Python call writes the scale")

    def test_code_that_an_op_of_torchs_runs_inside_a_chain(self):
        for kind in (Awaits, Differentiates):
            eager = kind().eval()
            fused = torch.jit.script(copy.deepcopy(eager))
            self.assertFalse(is_fused(fused), kind)
            x = torch.randn(7, 5)
            for _ in range(3):
                self.assert_near([fused(x).detach()], [eager(x).detach()], kind.__doc__)

    def test_silu_of_complex_values(self):
        """Those have no gradients, and eager says so where they are wanted; of `v * sigmoid(v)` they have."""
        for rest, at_silu in (("F.silu((self.bn(self.gemm(x)) + i) / 2)", True), ("F.silu((i + self.bn(self.gemm(x))) / self.divisor)", True),
                              ("F.silu((self.bn(self.gemm(x)) + self.one) / 2j)", True), ("F.silu(F.silu(self.gn(self.gemm(x))) * i)", True),
                              ("swish(F.silu(self.gn(self.gemm(x))) * i)", False), ("F.silu(i * swish(self.gn(self.gemm(x))))", True),
                              ("swish((self.bn(self.gemm(x)) + i) / 2)", False), ("self.gn(F.silu(self.gemm(x) + i))", True),
                              ("self.gn(F.silu(self.gemm(x)) + i)", False)):
            body = (f"def swish(self, v):\n    return v * torch.sigmoid(v)\ndef forward(self, x):\n    i = torch.complex(self.scale.detach(), self.buf)\n"
                    f"    return {rest.replace('swish', 'self.swish')}")
            model, eager = scripted(body), build(body)
            self.assertTrue(is_fused(model), torch.ops.tailor.inspect(model))
            said = Outcome(lambda: build(body)(random_inputs(1))).text or ""
            self.assertEqual("silu does not support automatic differentiation" in said, at_silu, body)
            self.follow(model, eager, body)

    def test_silu_of_complex_values_in_place(self):
        """It has no such refusal, and gradients of its own. A tensor is looked at when it is there, a number never is."""
        i = "i = torch.complex(self.scale.detach(), self.buf); "
        both, torchs_executor_has_none = (True, False), (False,)
        for body, fused, gradients in (("return F.silu((self.bn(self.gemm(x)) + self.one) / 2j, inplace=True)", False, torchs_executor_has_none),
                                       ("return F.silu((self.bn(self.gemm(x)) + self.one) / self.divisor, inplace=True)", True, both),
                                       (i + "return F.silu((self.bn(self.gemm(x)) + i) / 2, inplace=True)", True, torchs_executor_has_none),
                                       (i + "return self.gn(F.silu(self.gemm(x) + i, inplace=True))", True, both)):
            model = scripted(body)
            self.assertEqual(is_fused(model), fused, torch.ops.tailor.inspect(model))
            self.follow(model, build(body), body, gradients=gradients)

    def test_silu_refuses_wherever_it_stands(self):
        body = "return F.silu((self.bn(self.gemm(x)) + self.one) / 2j)"
        model, eager, x = scripted(body).eval(), build(body).eval(), random_inputs(1)
        self.assertTrue(is_fused(model))
        for way in (lambda net: torch.func.vmap(net)(torch.stack([x, x])), lambda net: torch.func.functionalize(net)(x.clone().requires_grad_()),
                    lambda net: torch.func.grad(lambda t: torch.func.vmap(net)(t[None]).abs().sum())(x)):
            expected = Outcome(lambda: way(eager))
            self.assertIn("silu does not support", expected.text)
            self.assertEqual(Outcome(lambda: way(model)).text, expected.text)
        with torch.no_grad():
            self.assertIsNone(Outcome(lambda: torch.ops.tailor.as_silu(torch.randn(3, dtype=torch.complex64).requires_grad_(), "")).text)

    def test_frozen_chains_that_differ_in_how_they_end(self):
        """And in nothing before: each comes back as it was written."""
        swish = "y = torch.group_norm(self.gemm(x), 3, None, None); y = y * torch.sigmoid(y) * self.scale; a = y * torch.sigmoid(y); "
        body = swish + "z = torch.group_norm(self.gemm(x), 3, None, None); b = F.silu(z * torch.sigmoid(z) * self.scale); return a * 1.0, b * 1.0"
        frozen = torch.jit.freeze(scripted(body).eval().to(torch.bfloat16))
        self.assertEqual(str(frozen.graph).count("tailor::linear"), 2)
        torch.ops.tailor.unfuse_(frozen)
        plain, x = scripted(body, on=False).eval().to(torch.bfloat16), random_inputs(1, 64).to(torch.bfloat16)
        with auto(False), torch.no_grad(), torch.jit.optimized_execution(False):
            for mine, theirs in zip(frozen(x), plain(x), strict=True):
                self.assertTrue(torch.equal(mine, theirs))

    def test_one_chain_in_two_spellings(self):
        """Of two equal ops torch would make one, also where one of them is to have no gradients."""
        one, other = "F.linear(x, self.w, self.b)", "x @ self.w.t() + self.b"
        def both(first, second, in_place=False):
            tail = "torch.sigmoid({0}).mul_(1.7).add_({0})" if in_place else "torch.sigmoid({0}) * 1.7 + {0}"
            return f"with torch.no_grad():\n    y = {first}\n    a = {tail.format('y')}\nz = {second}\nb = {tail.format('z')}\nreturn a * 2.0, b.tanh()"
        called = (f"def first(self, x):\n    z = {one}\n    return torch.sigmoid(z) * 1.7 + z\ndef second(self, x):\n    y = {other}\n"
                  "    return torch.sigmoid(y) * 1.7 + y\ndef forward(self, x):\n    with torch.no_grad():\n        a = self.second(x)\n    return a, self.first(x)")
        for body in (both(one, other), both(other, one), both(other, one, in_place=True), both(one, other, in_place=True), called):
            for of in (lambda net: net, lambda net: torch.jit.freeze(net.eval())):
                model, eager, x = of(scripted(body)), build(body), random_inputs(1).requires_grad_()
                self.assertTrue(is_fused(model), body)
                for _ in range(3):
                    results = [Outcome(lambda: torch.autograd.grad(sum(out.sum() for out in net(x)), x)) for net in (model, eager)]
                    self.assertEqual(results[0].error, results[1].error, body)
                    if results[1].error is None:
                        self.assert_near(results[0].value, results[1].value, body)

    def test_a_complex_operand_on_the_left_of_what_silu_reads(self):
        body = "i = torch.complex(self.scale.detach(), self.buf); return torch.group_norm(F.silu(i + self.gemm(x)), 3, None, None)"
        said = [Outcome(lambda: net(random_inputs(1))).text for net in (scripted(body), build(body))]
        self.assertIn("silu does not support", said[1])
        self.assertEqual(*said)

    def test_unfuse_what_freezing_has_moved(self):
        """Out of the author's spelling, in his own or into another's; and a check that two chains have together."""
        norm = "torch.batch_norm(self.gemm(x), self.bn.weight, self.bn.bias, self.bn.running_mean, self.bn.running_var, False, 0.1, 1e-5, False)"
        swish = "F.silu(self.gemm(x) + self.scale)"
        for body in ("z = self.gemm(x); y = self.gemm(x); return torch.group_norm(F.silu(self.scale + y), 3, None, None), z.relu()",
                     "s = torch.sigmoid(self.gemm(x)); y = self.gemm(x); b = torch.sigmoid(y).mul_(1.3).add_(y); return b, s * 2.0",
                     "z = x @ self.w.t(); y = x @ self.w.t(); return torch.sigmoid(y) * 1.3 + y, z.relu()",
                     "z = self.gemm(x); y = self.gemm(x); return self.bn(self.scale * y), z.relu()",
                     "y = F.linear(x, self.w); a = torch.sigmoid(y) * 1.3 + y; z = x @ self.w.t(); b = torch.sigmoid(z) * 1.3 + z; return a * 1.0, b * 1.0",
                     f"return F.silu((self.one + {norm}) / 2.0), x",
                     f"a = self.gn({swish}); b = self.gn_bare({swish}); return a, b",
                     f"a = self.gn({swish})\nc = a\nfor i in range(2):\n    c = self.gn_bare({swish})\nreturn a * 1.0, c * 1.0"):
            frozen = torch.jit.freeze(scripted(body).eval().to(torch.bfloat16))
            self.assertTrue(is_fused(frozen), body)
            sites = json.loads(torch.ops.tailor.unfuse_(frozen))["sites"]
            self.assertGreater(len(sites), 0, body)
            self.assertNotIn("tailor::", str(frozen.graph), body)
            plain, x = torch.jit.freeze(scripted(body, on=False).eval().to(torch.bfloat16)), random_inputs(1, 64).to(torch.bfloat16)
            with auto(False), torch.no_grad(), torch.jit.optimized_execution(False):
                for mine, theirs in zip(frozen(x), plain(x), strict=True):
                    self.assertTrue(torch.equal(mine, theirs), body)

    def test_frames_of_an_unfused_silu(self):
        body = ("def act(self, v):\n    return F.silu(v)\ndef pre(self, x):\n    return self.bn(self.gemm(x)) + self.one\n"
                "def forward(self, x):\n    y = self.pre(x)\n    y = y / 2j\n    return self.act(y)")
        def frames(net):
            with auto(False), torch.jit.optimized_execution(False):
                said = Outcome(lambda: net(random_inputs(1))).exception
            return [line.split(", ", 1)[1] for line in said.splitlines() if line.lstrip().startswith('File "net')]
        plain, unfused = scripted(body, on=False), scripted(body)
        torch.ops.tailor.unfuse_(unfused)
        self.assertEqual(len(frames(plain)), 2)
        self.assertEqual(frames(unfused), frames(plain))

    def test_fused_submodule_under_autocast_of_the_script(self):
        eager = Casts(build("y = self.gemm(x) + self.scale; y = F.silu(y); return self.gn(y)")).eval()
        fused = torch.jit.script(copy.deepcopy(eager))
        self.assertFalse(is_fused(fused))
        with torch.no_grad():
            for seed in range(3):
                self.assert_near([fused(random_inputs(seed)).float()], [eager(random_inputs(seed)).float()], "autocast in the script")

    def test_weight_of_rank_three(self):
        class Cube(Calls):
            def __init__(self):
                super().__init__()
                self.cube = torch.nn.Parameter(torch.linspace(-1, 1, 3 * 12 * 5).reshape(3, 12, 5))

            def forward(self, x):
                return self.bn((x @ self.cube.mT) * self.pick)

        eager = Cube()
        eager.bn, eager.pick = torch.nn.BatchNorm1d(7), torch.nn.Parameter(torch.linspace(1, 2, 12))
        fused = torch.jit.script(copy.deepcopy(eager))
        for seed in range(3):
            x = random_inputs(seed, 7, 5)
            self.assert_near([fused(x), fused.bn.running_mean], [eager(x), eager.bn.running_mean], "a weight of rank 3")

    def test_input_made_in_inference_mode(self):
        """It cannot be saved for backward: the linear raises, before the norm has counted the batch."""
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)
                self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 12))

            def forward(self, x):
                return self.bn(self.gemm(x) * self.scale)

        with torch.inference_mode():
            x = torch.randn(6, 5)
            inputs = x, x.to_sparse()  # of the second a guard cannot see whether it shares the counter's memory, and copies it
        for x in inputs:
            fused = torch.jit.script(Scaled())
            self.assertTrue(is_fused(fused))
            with self.assertRaisesRegex(RuntimeError, "Inference tensors cannot be saved for backward"):
                fused(x)
            self.assertEqual(fused.bn.num_batches_tracked.item(), 0)

    def test_weight_of_another_layout_in_inference_mode(self):
        """The linear cannot transpose it there. Whether it shares memory with the counter a guard cannot see, and copies it."""
        def fused_or_not(body, fuse, layout):
            with auto(fuse):
                model = torch.jit.script(build(body))
            self.assertEqual(is_fused(model), fuse)
            weight = torch.linspace(-1, 1, 12 * 5).reshape(12, 5)
            model.gemm.weight = torch.nn.Parameter(layout(weight), requires_grad=False)
            return model

        def call(model):
            with torch.inference_mode():
                return model(torch.ones(7, 5))

        for body in ("return F.silu((self.bn(self.gemm(x)) + self.one) / self.divisor)", "return self.bn((x @ self.gemm.weight.t()) * self.scale)"):
            for layout in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_mkldnn):
                fused, plain = fused_or_not(body, True, layout), fused_or_not(body, False, layout)
                actual, expected = Outcome(lambda: call(fused)), Outcome(lambda: call(plain))
                self.assertIsNotNone(expected.error, f"{body} with {layout.__name__} shows nothing")
                self.assertEqual((actual.error, actual.text), (expected.error, expected.text), f"{body} with {layout.__name__}")
                self.assertEqual(fused.bn.num_batches_tracked, plain.bn.num_batches_tracked)

    def test_swish_in_place_where_only_the_norm_learns(self):
        """Its backward needs the sigmoid that was overwritten: the fused op must not give what eager refuses."""
        class Gate(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.gn = torch.nn.Linear(5, 12).requires_grad_(False), torch.nn.GroupNorm(3, 12)
                self.register_buffer("scale", torch.linspace(-1, 1, 12))

            def forward(self, x):
                y = self.gn(self.gemm(x))
                gate = y.sigmoid()
                gate *= y
                return torch.nn.functional.silu(gate * self.scale)

        fused = torch.jit.script(Gate())
        self.assertTrue(is_fused(fused))
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            fused(torch.randn(6, 5)).sum().backward()

    def test_a_with_block_that_only_measures(self):
        class Measured(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)
                self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 12))

            def forward(self, x):
                y = self.gemm(x)
                with torch.autograd.profiler.record_function("scaling"):
                    y = y * self.scale
                return self.bn(y)

        model = torch.jit.script(Measured())
        reasons = [site["reason"] for site in json.loads(torch.ops.tailor.inspect(model))["sites"]]
        self.assertRegex(reasons[0], "^the beginning of a `with` block .*may tell the parts inside the block from the others$")

    def test_half_of_a_tuple_that_nobody_takes_out(self):
        """Is there all the same, though torch drops what nobody reads whenever it finds something to fold."""
        class Half(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm = torch.nn.Linear(5, 12)

            def part(self, x, n: int):
                y = self.gemm(x)
                if n > 1:
                    x = x + 1.0
                return x, torch.sigmoid(y) * 2.0 + y

            def forward(self, x):
                first, unread = self.part(x, 2)
                return first

        sites = json.loads(torch.ops.tailor.inspect(torch.jit.script(Half())))["sites"]
        self.assertEqual([(site["method"], site["fused"]) for site in sites], [("forward", True), ("part", True)])

    def test_a_linear_whose_module_returns_a_tuple(self):
        class Pair(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm = torch.nn.Linear(5, 12)

            def forward(self, x):
                return self.gemm(x), (x.sum(), self.gemm.bias)

        class Unpacks(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.pair, self.bn = Pair(), torch.nn.BatchNorm1d(12)
                self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 12))

            def forward(self, x):
                y, (total, bias) = self.pair(x)
                return self.bn(y * self.scale) + total * bias

        eager = Unpacks()
        fused = torch.jit.script(copy.deepcopy(eager))
        self.assertTrue(is_fused(fused), torch.ops.tailor.inspect(fused))
        self.follow(fused, eager, "unpacks")

    def test_added_to_the_residual_in_place(self):
        """What is written to is the chain's own, unless something else reads it, or a number may have made the sum complex."""
        fuses = ["y = self.gemm(x); y += torch.sigmoid(y) * self.scale; return y",
                 "y = self.gemm(x); s = torch.sigmoid(y) * 0.5; y.add_(s); return y",
                 "y = x @ self.gemm.weight.t(); return y.add_(self.scale * y.sigmoid())"]
        stays = ["y = self.gemm(x); z = y * 2.0; y += torch.sigmoid(y) * self.scale; return y + z",
                 "y = self.gemm(x); a = y.detach(); y += torch.sigmoid(y) * self.scale; return y + a",
                 "y = self.gemm(x); v = y.view(-1); y += torch.sigmoid(y) * self.scale; return v"]
        for body in fuses + stays:
            eager = build(body)
            fused = torch.jit.script(copy.deepcopy(eager))
            if body in fuses:
                self.assertTrue(is_fused(fused, "linear_sigmoid_mul_add"), f"{body}: {torch.ops.tailor.inspect(fused)}")
            self.follow(fused, eager, body)

    def test_what_is_not_what_its_name_says(self):
        """An overload that writes to `out`, a comparison of lists that reads tensors, a length that is none, a view that is a copy."""
        stays = ["r = torch.sigmoid(self.gemm(x), out=self.buf); return r * 0.5 + self.scale",
                 "y = self.gemm(x); r = torch.sigmoid(y, out=y); return r * 0.5 + y",
                 "y = self.gemm(x); r = torch.sigmoid(y, out=self.buf); return r * 0.5 + y",
                 "return self.gn(torch.ops.aten.silu(self.gemm(x), out=self.buf) + self.scale)",
                 "y = self.gemm(x) + self.scale; s = torch.sigmoid(y, out=self.buf); return self.gn(y * s)",
                 "m = self.bn.running_mean; assert m is not None; first, then = m[0], m[1]; z = self.bn(self.gemm(x)); same = [first] == [then]; "
                 "k = 1.0 if same else 2.0; z = (z + self.scale) / 2.0; return z * torch.sigmoid(z) + k",
                 "z = self.bn(self.gemm(x)); n = len(x[0]); z = (z + self.scale) / 2.0; return z * torch.sigmoid(z) + n",
                 "r = self.buf.ravel(); d = F.dropout(r, 0.1, False); y = self.gemm(x) * d; self.buf = r; self.buf.add_(1.0); return self.bn(y)",
                 "y = torch.add(F.linear(x, self.w), self.b, alpha=1.0); return self.gn(y * torch.sigmoid(y))"]
        behind = "; z = (z + self.scale) / 2.0; return z * torch.sigmoid(z) + k"
        stays += ["t = (1, 2, 3); z = self.bn(self.gemm(x)); k = t[x.size(0) - 6]" + behind,
                  "z = self.bn(self.gemm(x)); d = torch.get_autocast_dtype('cpu' if x.size(0) > 2 else 'cuda'); k = 1.0" + behind]
        raise_torchs_own = ["q = F.linear(x[0], self.w[0]); z = self.bn(self.gemm(x)); k = len(q)" + behind]
        for body in raise_torchs_own:
            self.assertFalse(is_fused(scripted(body)), body)
        fuses = ["t = (1, 2, 3); z = self.bn(self.gemm(x)); k = t[1]" + behind,
                 "z = self.bn(self.gemm(x)); d = torch.get_autocast_dtype('cpu'); k = 1.0" + behind,
                 "y = self.gemm(x); n = len(x[0]); return torch.sigmoid(y) * 0.5 + y + n",
                 "z = self.bn(self.gemm(x)); n = len(z); z = (z + self.scale) / 2.0; return z * torch.sigmoid(z) + n",
                 "z = self.bn(self.gemm(x)); z = z + self.scale; n = len(z); z = z / 2.0; return z * torch.sigmoid(z) + n"]
        for body in stays + fuses:
            with self.subTest(body):
                eager = build(body)
                if "buf" in body:
                    eager.buf = torch.rand(3, 4).t() if "ravel" in body else torch.zeros(7, 12)
                fused = torch.jit.script(copy.deepcopy(eager))
                self.assertEqual(is_fused(fused), body in fuses, torch.ops.tailor.inspect(fused))
                self.follow(fused, eager, body, gradients=(False,))

    def test_numbers_that_torch_has_no_code_for(self):
        """They raise where the author's own operation does, and leave the state of there."""
        for dtype, other in ((torch.float32, torch.float8_e4m3fn), (torch.bfloat16, torch.float8_e5m2), (torch.float16, torch.complex32)):
            with self.subTest(other):
                eager = build("y = self.gemm(x) + self.buf; y = y * torch.sigmoid(y); self.two = self.two + 1; return self.gn(y)"
                              if other.is_complex else "return self.bn(self.gemm(x) * self.buf)").to(dtype)
                eager.buf = torch.ones(12).to(other)
                fused = torch.jit.script(copy.deepcopy(eager))
                self.assertTrue(is_fused(fused), torch.ops.tailor.inspect(fused))
                x = random_inputs(1, dtype=dtype)
                for _ in range(3):
                    outcomes = [Outcome(lambda each=each: each(x)) for each in (eager, fused)]
                    self.assertTrue(outcomes[0].error, str(outcomes))
                    self.assertEqual(outcomes[0].text, outcomes[1].text)
                    self.assertEqual((eager.two, eager.bn.num_batches_tracked), (fused.two, fused.bn.num_batches_tracked))

    def test_tensors_of_rare_kinds(self):
        """Named, or zeros that have no memory: they raise where the author's own operation does."""
        named = build("return self.bn(self.gemm(x) * self.scale)"), lambda m: (random_inputs(1),)
        zeros = build("def forward(self, x, a):\n    y = self.gemm(x); r = torch.sigmoid(y) * a; r += y; return r"), \
            lambda m: (random_inputs(1), torch._efficientzerotensor((12,)))
        for eager, inputs in (named, zeros):
            fused = torch.jit.script(copy.deepcopy(eager))
            self.assertTrue(is_fused(fused), torch.ops.tailor.inspect(fused))
            if eager is named[0]:
                for each in (eager, fused):
                    each.gemm.weight.names, each.scale.names = ("O", "I"), ("Z",)
            for _ in range(3):
                outcomes = [Outcome(lambda each=each: each(*inputs(each))) for each in (eager, fused)]
                self.assertTrue(outcomes[0].error, str(outcomes))
                self.assertEqual(outcomes[0].text, outcomes[1].text)
                self.assertEqual(eager.bn.num_batches_tracked, fused.bn.num_batches_tracked)

    def test_numbers_that_may_be_complex(self):
        """What is written in place may not become complex, and complex numbers have no order: both raise where they stand."""
        for body, numbers in (("y = self.bn(self.gemm(x)) + self.one; y /= d; return y * torch.sigmoid(y)", (2.0, 2j)),
                              ("y = self.bn(self.gemm(x)) + self.one; small = d < 2.0; y = y / 3.0; y = y * torch.sigmoid(y); return y, small", (2.0, 2j)),
                              ("y = self.gemm(x); small = d < 2.0; return self.bn(y * self.scale), small", (2.0, 2j))):
            body = f"def forward(self, x, d: Union[float, complex]):\n    {body}"
            eager = build(body)
            fused = torch.jit.script(copy.deepcopy(eager))
            for number in numbers * 3:
                for x in (random_inputs(1), random_inputs(2, columns=models.K + 1)):
                    with torch.no_grad():  # or torch's own executor lets the comparison pass
                        outcomes = [Outcome(lambda each=each: each(x, number)) for each in (eager, fused)]
                    self.assertEqual(*(outcome.error is None for outcome in outcomes), f"{body}, {number}: {outcomes}")
                    if outcomes[0].error is None:
                        self.assert_near(flat(outcomes[1].value)[:1], flat(outcomes[0].value)[:1], body)
                    self.assert_state(fused, eager, f"{body}, {number}")

    def test_below_autograd(self):
        """In the body of an op of the user's, to which torch gives gradients from outside."""
        fused = scripted("y = self.gemm(x); return torch.sigmoid(y) * 0.5 + y")
        self.assertTrue(is_fused(fused, SIG))
        op = torch.library.custom_op("tailor_found_test::head", lambda x: fused(x), mutates_args=(), schema="(Tensor x) -> Tensor")
        for _ in range(4):
            out = op(torch.ones(3, 5))
            self.assertFalse(out.requires_grad)
        self.assertTrue(fused(torch.ones(3, 5)).requires_grad)


if __name__ == "__main__":
    main()
