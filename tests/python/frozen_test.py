"""Frozen modules: constants that are still somebody's parameters, and what torch's own freezing has done wrong before."""
import json

import torch

from cases import CHAINS
from checks import auto, main
from models import DIV, SPELLINGS, build
from scripted import Following, is_fused, random_inputs


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
