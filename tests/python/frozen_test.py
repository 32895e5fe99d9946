"""Frozen modules: constants that are still somebody's parameters, and what torch's own freezing has done wrong before."""
import itertools
import json

import torch

from cases import CHAINS
from checks import Outcome, auto, calls_of, main
from models import ADD, BN, DIV, SIG, SPELLINGS, build, randomise
from scripted import Following, is_fused, random_inputs, text_of


def frozen(net, fuse):
    """The frozen module: fused as it was scripted ("before"), fused as it is ("after"), or left alone."""
    with auto(fuse == "before"):
        model = torch.jit.freeze(torch.jit.script(net))
    if fuse == "after":
        torch.ops.tailor.fuse_(model)
    return model


def change(net, turn):
    """What a user may do to the module that was frozen, whose tensors are the frozen one's constants."""
    with torch.no_grad():
        for parameter in (net.gemm.weight, net.gemm.bias, net.scale, net.one, net.bn.weight, net.gn.bias):
            parameter.mul_(1.1).add_(0.1 * turn)
        net.bn.running_mean.add_(0.2)


class Twice(torch.nn.Module):
    """Inside a chain it computes a batch norm that it computes again later."""

    def __init__(self):
        super().__init__()
        self.gemm, self.head = torch.nn.Linear(5, 12), torch.nn.Linear(5, 12)
        self.scale = torch.nn.Parameter(torch.rand(12) + 0.5)
        self.bn, self.norm = torch.nn.BatchNorm1d(12), torch.nn.BatchNorm1d(12)
        for norm in (self.bn, self.norm):
            randomise(norm)

    def forward(self, x):
        h = torch.relu(x)
        y = self.gemm(x) * self.scale
        first = self.norm(self.head(h))
        return self.bn(y) + first + self.norm(self.head(h))


class OwnWeight(Twice):
    """What the norm learns is the chain's operand, too."""

    def forward(self, x):
        h = torch.relu(x)
        first = self.norm(self.head(h))
        y = torch.addmm(self.gemm.bias, x, self.gemm.weight.t()) * self.norm.weight
        return self.bn(y) + first + self.norm(self.head(h))


class BesideAWrite(Twice):
    """What is written may be anything, of which only a run can tell."""

    def forward(self, x, other):
        y = self.gemm(x)
        other.add_(1)
        return self.bn(y * self.scale)


class FrozenTest(Following):
    FIRST = list({row.rule: row for row in reversed(SPELLINGS)}.values())  # one for each rule

    def test_constants_follow_the_source(self):
        """HAZARDS C3: nothing derived from a constant outlives a call, for the constant is a live parameter."""
        self.assertEqual(len(self.FIRST), len(CHAINS))
        for row in self.FIRST:
            for fuse in ("before", "after"):
                mine, theirs = build(row.body).eval(), build(row.body).eval()
                # torch folds a batch norm into the linear before it when it freezes, and that is a copy.
                model, plain = frozen(mine, fuse), theirs if fuse == "before" else frozen(theirs, None)
                if fuse == "before" or row.rule != DIV:
                    self.assertTrue(is_fused(model, row.rule), row.body)
                before = None
                for turn in range(4):
                    x = random_inputs(1)
                    for gradients in (True, False, False):
                        with torch.set_grad_enabled(gradients):
                            after = model(x).detach()
                            self.assert_near([after], [plain(x).detach()], f"{row.body}, fused {fuse} freezing, turn {turn}", 4)
                    if before is not None and (fuse == "before" or row.rule != DIV):
                        self.assertFalse(torch.allclose(before, after), f"{row.body}: the source was changed, nothing else was")
                    before = after
                    change(mine, turn)
                    change(theirs, turn)

    def test_a_batch_norm_twice_beside_a_chain(self):
        """torch makes one of the two, and folds that into its linear; of two it folds both into the one linear that is left."""
        for seed, make in itertools.product(range(3), (Twice, OwnWeight)):
            torch.manual_seed(seed)
            net, x = make().eval(), random_inputs(1)
            model = frozen(net, "before")
            self.assertTrue(is_fused(model, BN))
            self.assert_near([model(x).detach()], [net(x).detach()], f"{make.__name__}, seed {seed}")

    def test_operands_beside_a_write_become_constants(self):
        model = frozen(BesideAWrite().eval(), "before")
        self.assertTrue(is_fused(model, BN))
        attributes = {node.s("name") for node in model.graph.nodes() if node.kind() == "prim::GetAttr"}
        self.assertNotIn("scale", attributes)
        self.assertIn("running_mean", attributes)  # which the op may write to

    def test_what_is_held_in_training_is_not_held_in_what_was_frozen(self):
        """Nor is the count of batches there, for the sake of which it was held: a second fuse_ takes the op that writes nothing."""
        part = "def part(self, x):\n    return self.bn(self.gemm(x) * self.scale)\ndef forward(self, x):\n    return "
        for body in ("return self.bn(self.gemm(x) * self.scale)", part + "torch.jit.wait(torch.jit.fork(self.part, x)) + self.part(x + 1)"):
            model, eager, x = frozen(build(body).eval(), "before"), build(body).eval(), random_inputs(1)
            texts = [text_of(model)]
            self.assertTrue(is_fused(model, BN))
            for _ in range(2):
                torch.ops.tailor.fuse_(model)
                texts.append(text_of(model))
            for word in ("tailor::unwritten", "num_batches_tracked"):
                self.assertNotIn(word, texts[0], body)
            self.assertEqual(texts[1], texts[2], body)
            self.assert_near([model(x).detach()], [eager(x).detach()], body)

    def test_unfuse_of_what_was_frozen(self):
        """Freezing makes a constant of a transposed weight too, by which unfuse would know the spelling."""
        for body in ("return self.bn(torch.addmm(self.gemm.bias, x, self.gemm.weight.t()) * self.scale)",
                     "y = x @ self.gemm.weight.t(); y += self.scale; return self.gn(F.silu(y))",
                     "y = torch.mm(x, self.gemm.weight.permute(1, 0)) + self.gemm.bias; n = y.size(0); return self.gn(self.scale + F.silu(y))"):
            model, eager, x = frozen(build(body).eval(), "before"), build(body).eval(), random_inputs(1)
            self.assertTrue(is_fused(model), body)
            torch.ops.tailor.unfuse_(model)
            self.assertNotIn("tailor::", str(model.graph), body)
            self.assert_near([model(x).detach()], [eager(x).detach()], body)

    def test_unfuse_of_a_frozen_weight_of_three_dimensions(self):
        net = build("y = x @ self.cube.mT; return torch.sigmoid(y) * self.factor + y").eval()
        net.cube = torch.nn.Parameter(torch.randn(3, 12, 5))
        model, x = frozen(net, "before"), random_inputs(1)
        self.assertTrue(is_fused(model))
        torch.ops.tailor.unfuse_(model)
        self.assertNotIn("tailor::", str(model.graph))
        self.assert_near([model(x).detach()], [net(x).detach()], "three dimensions")

    PRODUCTS = [(f"y = {product}; return {tail}", rule)
                for product in ("x @ self.gemm.weight.t() + self.gemm.bias", "self.gemm.bias + torch.matmul(x, self.gemm.weight.T)",
                                "torch.mm(x, self.gemm.weight.mT).add_(self.gemm.bias)", "x.matmul(self.gemm.weight.transpose(0, 1))",
                                "torch.addmm(self.gemm.bias, x, self.gemm.weight.permute(1, 0))", "x @ self.matrix")
                for tail, rule in (("torch.sigmoid(y) * self.factor + y", SIG), ("self.gn(F.silu(y + self.scale))", ADD),
                                   ("self.bn(y * self.scale)", BN))]

    def with_matrix(self, body):
        """A net of this body in eval mode, with an attribute `matrix` that is no transpose."""
        net = build(body).eval()
        net.matrix = torch.nn.Parameter(torch.randn(net.gemm.in_features, net.gemm.out_features))
        return net

    def test_products_with_a_constant(self):
        """Freezing makes a constant of `w.t()`: the product's right side is a matrix, of which the weight is the transpose."""
        for body, rule in self.PRODUCTS:
            net = self.with_matrix(body)
            model = frozen(net, "after")
            sites = json.loads(torch.ops.tailor.inspect(model))["sites"]
            self.assertEqual([(site["rule"], site["fused"]) for site in sites], [(rule, True)], body)
            for turn in range(3):  # the constants are the net's own tensors
                for gradients in (True, False):
                    before, x = calls_of(rule), random_inputs(turn)
                    with torch.set_grad_enabled(gradients):
                        self.assert_near([model(x).detach()], [net(x).detach()], f"{body}, turn {turn}", 4)
                    self.assertEqual(calls_of(rule), before + 1, f"{body}: ran as it is written")
                with torch.no_grad():
                    net.gemm.weight.mul_(1.1)
                    net.matrix.sub_(0.1)
            fused = str(model.graph)
            torch.ops.tailor.fuse_(model)
            self.assertEqual(str(model.graph), fused, f"{body}: a second time")

    def test_products_with_a_constant_refuse_what_they_refused(self):
        for body, _ in self.PRODUCTS:
            net = self.with_matrix(body)
            model = frozen(net, "after")
            for x in (random_inputs(1, columns=3), random_inputs(1)[0], random_inputs(1).double(), random_inputs(1).unsqueeze(0),
                      random_inputs(1, rows=0), random_inputs(1).int()):
                expected, actual = Outcome(lambda: [net(x).detach()]), Outcome(lambda: [model(x).detach()])
                what = f"{body}, x {x.dtype} {tuple(x.shape)}"
                self.assertEqual(bool(actual.error), bool(expected.error), f"{what}: {actual}, not {expected}")
                if "addmm" not in body:  # which torch's executor takes apart: another op raises
                    self.assertEqual(actual.text, expected.text, what)
                if not expected.error:
                    self.assert_near(actual.value, expected.value, what, 4)

    def test_products_with_a_constant_unfuse(self):
        for body, _ in self.PRODUCTS:
            model = frozen(self.with_matrix(body), None)
            x, before = random_inputs(1), torch.ops.tailor.inspect(model)
            wanted = model(x).detach()
            torch.ops.tailor.fuse_(model)
            self.assertTrue(is_fused(model), body)
            torch.ops.tailor.unfuse_(model)
            self.assertNotIn("tailor::", str(model.graph), body)
            self.assertNotIn("numpy_T", str(model.graph), body)
            self.assertEqual(torch.ops.tailor.inspect(model), before, body)
            self.assertTrue(torch.equal(model(x).detach(), wanted), body)

    def test_a_constant_that_is_no_matrix(self):
        net = self.with_matrix("return self.gn(F.silu(x @ self.matrix + self.scale))")
        net.matrix.data = net.matrix.detach().expand(3, *net.matrix.shape).contiguous()
        self.assertEqual(json.loads(torch.ops.tailor.inspect(frozen(net, None)))["sites"], [])

    def test_forks_in_what_was_frozen(self):
        """torch has destroyed the functions that a forked call was inlined from, and its nodes still name them."""
        class Whole(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = build("return self.bn(self.gemm(x) * self.scale)")

            def forward(self, x):
                future = torch.jit.fork(self.inner, x)
                return torch.jit.wait(future)

        eager = Whole().eval()
        for fuse in ("before", "after"):
            model, x = frozen(eager, fuse), random_inputs(1)
            sites = json.loads(torch.ops.tailor.inspect(model))["sites"]
            self.assertEqual([(site["rule"], site["fused"]) for site in sites], [("linear_mul_batch_norm", True)])
            self.assertTrue(is_fused(model))
            with torch.no_grad():
                self.assert_near([model(x)], [eager(x)], fuse)

    def test_frozen_first_where_torchs_own_folding_is_wrong(self):
        """HAZARDS A11: what is fused afterwards computes what the frozen module did, no better and no worse."""
        wrong = 0
        for body, x in (("y = self.gemm(x); return F.silu((self.bn(y) + self.one) / self.divisor)", torch.randn(4, 12, 5)),
                        ("y = self.gemm(x); return F.silu((self.bn(y) + self.one) / self.divisor) + y", random_inputs(1)),
                        ("y = self.gemm(x); return self.bn(y * self.scale) + y", random_inputs(1)),
                        ("return self.bn(self.gemm(x) * self.scale)", torch.randn(4, 12, 5))):
            eager, plain = build(body).eval(), frozen(build(body).eval(), None)
            model = frozen(build(body).eval(), "after")
            for _ in range(3):
                with torch.no_grad():
                    self.assert_near([model(x)], [plain(x)], f"{body} fused after freezing, x {tuple(x.shape)}", 4)
                    wrong += not torch.allclose(plain(x), eager(x), rtol=1e-3, atol=1e-3)
        self.assertGreater(wrong, 0, "torch's folding is right here, and shows nothing")


if __name__ == "__main__":
    main()
