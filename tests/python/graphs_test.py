"""Which spellings are fused, which are left alone and why; each compared with the net as written, over many calls."""
import itertools
import re

import torch

import models
from checks import auto, calls_of, main, reloaded, sites
from models import BN, DIV, EITHER, GN, NEAR_MISSES, SIG, SIX, SPELLINGS, build, function_of
from scripted import Following, is_fused, random_inputs, scripted, text_of

NUMBERED = [(f"{i:02d}", row) for i, row in enumerate([*SPELLINGS, *NEAR_MISSES, *EITHER])]


class TableTest(Following):
    """One test for each row of the table in models.py."""

    def row(self, row):
        fused, eager = scripted(row.body), build(row.body)
        report = sites(torch.ops.tailor.inspect(scripted(row.body, on=False)))
        if row.rule is None:
            self.assertFalse(is_fused(fused), f"must not be fused: {row.body}")
            self.assertTrue(report, f"every linear is a site: {row.body}")
            for site in report:
                self.assertFalse(site["fused"], f"{row.body}: {site}")
                self.assertTrue(site["reason"], f"{row.body}: no reason: {site}")
            if row.reason:
                reasons = [site["reason"] for site in report]
                self.assertTrue(any(re.search(row.reason, reason) for reason in reasons), f"{row.body}: {reasons}")
        elif row.rule != "either":
            self.assertTrue(is_fused(fused, row.rule), f"not fused: {row.body}: {report}")
            done = [site for site in report if site["fused"]]
            self.assertEqual([site["rule"] for site in done], [row.rule] * row.sites, f"{row.body}: {report}")
            self.assertFalse([site for site in done if site["reason"]], f"{row.body}: a fused site has no reason")
        before = calls_of(row.rule) if row.rule else 0
        if row.no_gradient:
            for net in (fused, eager):
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", msg=row.body):
                    net(random_inputs(0)).sum().backward()
        self.follow(fused, eager, row.body, gradients=(False,) if row.no_gradient else (True, False))
        if row.rule not in (None, "either"):
            self.assertGreater(calls_of(row.rule), before, f"{row.body}: the op never ran")


def one(row):
    return lambda self: self.row(row)


for number, row in NUMBERED:
    setattr(TableTest, f"test_{number}", one(row))


class ErrorsTest(Following):
    """Wrong inputs in training mode: same class, same last line, same counters as the unfused scripted net."""

    BODIES = [row for row in SPELLINGS if row.sites == 1 and "def forward(self, x, s" not in row.body]

    # Those whose parts differ: each chain, each spelling of linear, writes in place, captures that are computed.
    PARTS = [*[next(r for r in SPELLINGS if r.rule == rule) for rule in dict.fromkeys(r.rule for r in SPELLINGS)],
             *[r for r in BODIES if re.search(r"@|matmul|addmm|_\(|[*+/]= |exp|F.batch_norm|_stateless|y\.dim", r.body)]]

    def concerns(self, row, change):
        part = change.split()[0]
        names = {"b": r"self\.b\b", "norm": r"self\.[bg]n\b", "statistics": r"self\.bn\b", "bias": "gemm"}
        return re.search(names.get(part, part), row.body)

    def test_wrong_inputs(self):
        wrong = {
            "too wide": torch.randn(7, 6), "1-D": torch.randn(5), "1-D too wide": torch.randn(6), "0-D": torch.randn(()), "3-D": torch.randn(4, 3, 5),
            "3-D, C = features": torch.randn(4, 12, 5), "3-D too wide": torch.randn(4, 12, 6), "4-D": torch.randn(2, 12, 3, 5), "batch 0": torch.randn(0, 5), "batch 1": torch.randn(1, 5),
            "integers": torch.ones(7, 5, dtype=torch.int64), "float64": torch.randn(7, 5, dtype=torch.float64), "bfloat16": torch.randn(7, 5, dtype=torch.bfloat16),
            "complex": torch.randn(7, 5, dtype=torch.complex64), "meta too wide": torch.randn(7, 6, device="meta"),
        }
        for row in self.BODIES:
            fused, plain = scripted(row.body), scripted(row.body, on=False)
            self.assertTrue(is_fused(fused), row.body)
            for (training, gradients), (name, x) in itertools.product(((True, True), (True, False), (False, False)), wrong.items()):
                what = f"{row.body} with x {name}, training {training}, gradients {gradients}"
                with torch.set_grad_enabled(gradients), self.subTest(what):
                    self.refuse(fused.train(training), plain.train(training), x, what)

    def refuse(self, fused, plain, x, what):
        state = plain.state_dict()
        saved = {name: value.clone() for name, value in state.items()}
        try:
            self.same_refusal(fused, plain, x, what)
        finally:
            for name, value in saved.items():
                for model in (fused, plain):
                    model.state_dict()[name].copy_(value)

    def test_wrong_parameters(self):
        def scale(value):
            return lambda m: setattr(m, "scale", torch.nn.Parameter(value))
        changes = {
            "scale too long": scale(torch.randn(13)), "scale (7, 1)": scale(torch.randn(7, 1)), "scale (12, 1)": scale(torch.randn(12, 1)),
            "scale (2, 7, 12)": scale(torch.randn(2, 7, 12)), "scale (0,)": scale(torch.randn(0)), "scale ()": scale(torch.randn(())),
            "scale float64": scale(torch.randn(12, dtype=torch.float64)), "scale bfloat16": scale(torch.randn(12, dtype=torch.bfloat16)),
            "scale on meta": scale(torch.randn(13, device="meta")),
            "statistics too short": lambda m: m.bn.register_buffer("running_mean", torch.zeros(11)),
            "norm weight too long": lambda m: [setattr(norm, "weight", torch.nn.Parameter(torch.ones(13))) for norm in (m.bn, m.gn)],
            "norm float64": lambda m: (m.bn.double(), m.gn.double()), "gemm float64": lambda m: m.gemm.double(),
            "gemm other width": lambda m: setattr(m.gemm, "weight", torch.nn.Parameter(torch.randn(12, 9))),
            "gemm other features": lambda m: setattr(m.gemm, "weight", torch.nn.Parameter(torch.randn(9, 5))),
            "bias too short": lambda m: setattr(m.gemm, "bias", torch.nn.Parameter(torch.randn(11))),
            "b of rank 2": lambda m: setattr(m, "b", torch.nn.Parameter(torch.randn(7, 12))), "b of rank 3": lambda m: setattr(m, "b", torch.nn.Parameter(torch.randn(2, 1, 12))),
            "b of one": lambda m: setattr(m, "b", torch.nn.Parameter(torch.randn(1))), "b float64": lambda m: setattr(m, "b", torch.nn.Parameter(torch.randn(12, dtype=torch.float64))),
        }
        for row, (name, change) in itertools.product(self.PARTS, changes.items()):
            if self.concerns(row, name):
                pair = []
                for on in (True, False):
                    model = build(row.body)
                    torch.manual_seed(5)
                    change(model)
                    with auto(on):
                        pair.append(torch.jit.script(model))
                for training in (True, False):
                    for x in (random_inputs(1), torch.randn(4, 12, 5), random_inputs(1, columns=6)):
                        pair[0].train(training), pair[1].train(training)
                        what = f"{row.body} with {name}, x {tuple(x.shape)}, training {training}"
                        with self.subTest(what):
                            self.refuse(*pair, x, what)

    def test_the_error_points_to_the_users_line(self):
        fused = scripted("x = x + 1\nx = self.gemm(x)\nx = x * self.scale\nreturn self.bn(x)")
        fused.scale = torch.nn.Parameter(torch.randn(13))
        with self.assertRaises(RuntimeError) as caught:
            fused(random_inputs(1))
        self.assertRegex(str(caught.exception), r"net\d+\.py", "the source file")
        self.assertIn("HERE", str(caught.exception))


    def test_errors_of_others_point_to_the_users_line_too(self):
        """In a file each node has one line; the calls through which it came into the method are forgotten."""
        body = "y = self.bn(self.gemm(x) * self.scale)\ny = y[:, :11]\nreturn self.proj(y)"
        fused = scripted(body)
        self.assertTrue(is_fused(fused))
        unfused = reloaded(fused)
        torch.ops.tailor.unfuse_(unfused)
        for what, model in (("fused", fused), ("fused, loaded", reloaded(fused)), ("fused, loaded, unfused, loaded", reloaded(unfused))):
            with self.assertRaises(RuntimeError) as caught:
                model(random_inputs(1))
            self.assertRegex(str(caught.exception), r'File "net\d+\.py", line 5', what)


class StateTest(Following):
    def test_instances_of_one_class_with_other_shapes(self):
        for row in [SPELLINGS[0], *[r for r in SPELLINGS if r.rule == SIG][:1], *[r for r in SPELLINGS if r.rule == GN][:1]]:
            name = type(build(row.body))
            small, large = name(), name(6, 24, 4)
            column = name()
            column.scale = torch.nn.Parameter(torch.randn(models.B, 1))
            eager = [models.twin(m) for m in (small, large, column)]
            fused = [torch.jit.script(m) for m in (small, large, column)]
            shapes = [(7, 5), (9, 6), (7, 5)]
            for turn in range(4):
                for mine, theirs, shape in zip(fused, eager, shapes):
                    x = random_inputs(turn, *shape)
                    self.assert_near([mine(x)], [theirs(x)], f"{row.body}, {shape}")
                    self.assert_state(mine, theirs, row.body)

    def test_one_batch_norm_called_twice(self):
        body = "a = self.bn(self.gemm(x) * self.scale); b = self.bn(self.gemm(x) * self.scale); return a * b"
        self.follow(scripted(body), build(body), body)

    def test_shared_weights(self):
        body = "return self.bn(self.gemm2(x) * self.scale) + self.bn(self.gemm(x) * self.scale)"
        fused, eager = build(body), build(body)
        for m in (fused, eager):
            m.gemm2.weight = m.gemm.weight
            m.gemm.bias = m.scale
        fused = torch.jit.script(fused)
        self.assertTrue(is_fused(fused))
        self.follow(fused, eager, body)

    def test_buffers_that_share_memory(self):
        """The graph does not show these aliases; the values must be eager's, fused or not."""
        body = "return self.bn(self.gemm(x) * self.buf)"
        tying = {
            "scale is the running mean": lambda m: m.register_buffer("buf", m.bn.running_mean),
            "scale is a view of the running variance": lambda m: m.register_buffer("buf", m.bn.running_var.view(1, -1)),
            "scale is num_batches_tracked": lambda m: m.register_buffer("buf", m.bn.num_batches_tracked),
            "norm weight is the running mean": lambda m: setattr(m.bn, "running_mean", m.bn.weight.detach()),
            "num_batches_tracked lies in the scale": lambda m: setattr(m.bn, "num_batches_tracked", m.buf.view(torch.int64)[0]),
            "both statistics are one": lambda m: setattr(m.bn, "running_mean", m.bn.running_var),
        }
        for name, tie in tying.items():
            pair = [build(body), build(body)]
            for m in pair:
                tie(m)
            fused = torch.jit.script(pair[0])
            for training in (True, False, True):
                for model in (fused, pair[1]):
                    model.train(training)
                for turn in range(3):
                    x = random_inputs(turn)
                    with torch.no_grad():
                        self.assert_near([fused(x)], [pair[1](x)], f"{name}, training {training}, call {turn}")
                    self.assert_state(fused, pair[1], name)

    def test_x_is_a_parameter_or_buffer(self):
        body = "return self.bn(F.linear(self.proj.weight, self.proj.weight, self.b) * self.scale) + x.sum()"
        self.follow(scripted(body), build(body), body)
        body = "return self.bn(F.linear(self.bn.running_mean.expand(7, 12), self.proj.weight) * self.scale) + x.sum()"
        self.follow(scripted(body), build(body), body)

    def test_weights_written_behind_torchs_back(self):
        for scale, path in (("self.scale", "cpu"), ("self.scale.expand(x.size(0), -1)", "reference")):
            body = f"return self.bn(self.gemm(x) * {scale})"
            fused, eager = scripted(body).eval(), build(body).eval()
            for turn in range(6):
                for m in (fused, eager):
                    torch.manual_seed(turn)
                    for p in (m.gemm.weight, m.gemm.bias, m.scale, m.bn.running_var, m.bn.weight):
                        p.data.view(-1).copy_(torch.rand(p.numel()) + 0.1)
                with torch.no_grad():
                    x = random_inputs(turn)
                    mine = self.assert_calls(BN, lambda: fused(x), body, path)
                    self.assert_near([mine], [eager(x)], f"after .data writes, call {turn} of {path}")

    def test_fusing_twice_changes_nothing(self):
        for row in SPELLINGS:
            model = scripted(row.body)
            before = text_of(model)
            torch.ops.tailor.fuse_(model)
            self.assertEqual(text_of(model), before, row.body)

    def test_a_method_with_nothing_to_fuse_keeps_its_graph(self):
        body = "return self.gemm(x).relu()"
        shape = [re.sub(r"net\d+|___torch_mangle_\d+\.", "", str(scripted(body, on=on).graph)) for on in (True, False)]
        self.assertEqual(*shape)


class FormsTest(Following):
    """Traced, frozen and inlined graphs."""

    CASES = SIX

    def test_traced(self):
        for row in self.CASES:
            for training in (True, False):
                eager = build(row.body).train(training)
                model = build(row.body).train(training)
                traced = torch.jit.trace(model, random_inputs(0), check_trace=False)
                eager(random_inputs(0))
                self.assertTrue(is_fused(traced, row.rule), f"traced {row.body}: {torch.ops.tailor.inspect(traced)}")
                for turn in range(4):
                    x = random_inputs(turn)
                    self.assert_near([traced(x)], [eager(x)], f"traced {row.body}")
                    self.assert_state(traced, eager, f"traced {row.body}")

    def test_frozen_after_and_before(self):
        for row in self.CASES:
            eager = build(row.body).eval()
            for order in ("fused, then frozen", "frozen, then fused"):
                with auto(order.startswith("fused")):
                    model = torch.jit.freeze(torch.jit.script(build(row.body).eval()))
                if order.startswith("frozen"):
                    self.assertFalse(is_fused(model))
                    report = torch.ops.tailor.fuse_(model)
                    if row.rule != DIV:  # torch's freezing has folded linear and batch norm into one linear
                        self.assertTrue(is_fused(model, row.rule), f"{order} {row.body}: {report}")
                else:
                    self.assertTrue(is_fused(model, row.rule), f"{order} {row.body}")
                for turn in range(4):
                    x = random_inputs(turn)
                    self.assert_near([model(x)], [eager(x)], f"{order} {row.body}", 4)
                with torch.no_grad():
                    self.assert_near([model(x)], [eager(x)], f"{order} {row.body}", 4)

    def test_fused_then_frozen_then_fused_again_keeps_no_buffers(self):
        model = torch.jit.freeze(scripted(SPELLINGS[0].body).eval())
        torch.ops.tailor.fuse_(model)
        self.assertTrue(is_fused(model, BN))
        again = torch.jit.freeze(scripted(SPELLINGS[0].body).eval())
        torch.ops.tailor.fuse_(again)
        self.assertIn("linear_mul_batch_norm", text_of(again))
        op = again.forward.graph.findNode("tailor::linear_mul_batch_norm")
        self.assertIn("linear_mul_batch_norm.inference(", op.schema(), "the overload that writes to no buffer")

    def test_freezing_where_torchs_own_folding_is_wrong(self):
        """HAZARDS A11: fuse before freezing, and never fold as torch does."""
        for body, x in (("y = self.gemm(x); return F.silu((self.bn(y) + self.one) / self.divisor)", torch.randn(4, 12, 5)),
                        ("y = self.gemm(x); return self.bn(y * self.scale) + y", random_inputs(1)),
                        ("return self.bn(self.gemm(x) * self.scale)", torch.randn(4, 12, 5))):
            eager = build(body).eval()
            model = torch.jit.freeze(scripted(body).eval())
            for _ in range(3):
                with torch.no_grad():
                    self.assert_near([model(x)], [eager(x)], f"{body} frozen after fusing, x {tuple(x.shape)}", 4)

    def test_default_statistics_merge_with_affine_constants(self):
        body = SPELLINGS[0].body
        pair = [build(body).eval(), build(body).eval()]
        for m in pair:
            m.bn.reset_parameters()
        with auto(False):
            model = torch.jit.freeze(torch.jit.script(pair[0]))
        torch.ops.tailor.fuse_(model)
        self.assertTrue(is_fused(model, BN))
        self.assert_near([model(random_inputs(1))], [pair[1](random_inputs(1))], body)

    def test_optimize_for_inference(self):
        for row in self.CASES:
            eager = build(row.body).eval()
            model = torch.jit.optimize_for_inference(scripted(row.body).eval())
            for turn in range(3):
                with torch.no_grad():
                    self.assert_near([model(random_inputs(turn))], [eager(random_inputs(turn))], row.body, 4)

    def test_free_functions(self):
        source = "def tail(x, w, b, s, mean, var, training: bool):\n    return F.batch_norm(F.linear(x, w, b) * s, mean, var, None, None, training)\n"
        eager = function_of(source)
        fused = torch.jit.script(function_of(source))
        self.assertIn("tailor::linear_mul_batch_norm", str(fused.graph))
        states = []
        for call in (fused, eager):
            torch.manual_seed(3)
            arguments = [torch.randn(s) for s in ((7, 5), (12, 5), (12,), (12,), (12,))] + [torch.rand(12) + 0.5]
            states.append(([call(*arguments, t) for t in (True, False, True, True)], arguments[4:]))
        self.assert_same(*states, "scripted function")
        traced = torch.jit.trace(lambda x, w, b: torch.sigmoid(F_linear(x, w, b)) * 3 + F_linear(x, w, b), (torch.randn(7, 5), torch.randn(12, 5), torch.randn(12)))
        arguments = (torch.randn(7, 5), torch.randn(12, 5), torch.randn(12))
        y = F_linear(*arguments)
        self.assert_same(traced(*arguments), torch.sigmoid(y) * 3 + y, "two linears in a traced function")
        traced = torch.jit.trace(residual, arguments)
        self.assertIn("tailor::linear_sigmoid_mul_add", str(traced.graph))
        self.assert_same(traced(*arguments), residual(*arguments), "traced function")


F_linear = torch.nn.functional.linear


def residual(x, w, b):
    y = F_linear(x, w, b)
    return torch.sigmoid(y) * 3 + y


class ReportTest(Following):
    def test_each_linear_is_a_site_with_its_line(self):
        model = scripted("a = self.gemm(x)\nb = F.linear(x, self.w)\nc = self.bn(a * self.scale)\nreturn c + b", on=False)
        report = sites(torch.ops.tailor.inspect(model))
        self.assertEqual(len(report), 2, report)
        self.assertEqual([site["fused"] for site in report], [True, False], report)
        for site, line in zip(report, (3, 4)):
            self.assertEqual(set(site), {"rule", "method", "source", "fused", "reason"})
            self.assertEqual(site["method"], "forward", site)
            self.assertRegex(site["source"], rf"net\d+\.py:{line}$", f"the user's own line: {site}")

    def test_a_saved_trace_keeps_the_line(self):
        with auto(False):
            model = torch.jit.trace(build("y = self.gemm(x)\nreturn self.bn(y * self.scale)").eval(), random_inputs(0))
        for traced in (model, reloaded(model)):
            self.assertEqual([re.sub(r"net\d+", "net", site["source"]) for site in sites(torch.ops.tailor.inspect(traced))], ["net.py:3"])

    def test_words_of_the_author(self):
        """No number of a value that has no name, and a line also of what torch gives none."""
        for body, reason in (
            ("y = self.gemm(x)\nreturn torch.sigmoid(y) * self.factor + (x.sum() + 1)", "`add` in net.py:4 reads the result of `add` in net.py:4, the rule"),
            ("y = self.gemm(x)\nz = self.bn(y * self.scale)\nreturn z + torch.cat([y, y])[:7]", "`linear` in net.py:3 is also read by a list for `cat` in net.py:5"),
            ("y = self.gemm(x)\nz = self.bn(y * self.scale)\nreturn z.to(y.dtype)", "`linear` in net.py:3 is also read by `dtype` for `to` in net.py:5"),
            ("y = self.gemm(x)\nz = self.bn(y * self.scale)\nif y.requires_grad:\n    z = z + 1\nreturn z", "is also read by `requires_grad` for the `if` in net.py:5"),
            ("s = self.scale * 2\nz = self.gemm(x) * s\ns.add_(1)\nreturn self.bn(z) + s", "`add_` in net.py:5 writes to `s`, which the chain has read"),
        ):
            (site,) = sites(torch.ops.tailor.inspect(scripted(body, on=False)))
            self.assertIn(reason, re.sub(r"net\d+", "net", site["reason"]))

    def test_the_reason_names_file_and_line(self):
        model = scripted("y = self.gemm(x)\nz = torch.sigmoid(self.gemm2(x))\nreturn z * self.factor + y", on=False)
        reasons = [site["reason"] for site in sites(torch.ops.tailor.inspect(model))]
        self.assertTrue(any(re.search(r"net\d+\.py:\d", reason) for reason in reasons), reasons)


if __name__ == "__main__":
    main()
