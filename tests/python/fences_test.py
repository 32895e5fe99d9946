"""What writes or draws and does not say so keeps its place beside an op: with gradients torch's executor would move it."""
import torch

from checks import Outcome, auto, main, reloaded
from models import BN, SIG, build
from scripted import Following, is_fused, scripted, text_of

SCALED = "return (torch.sigmoid(y) * {} + y) * torch.tanh(h)"

# What a forward of models.Net says before and after `y`, whose chain is the last line's.
BODIES = {
    "the linear reads statistics": "g = self.gemm2(x); h = self.bn(g); m, v = self.bn.running_mean, self.bn.running_var; "
    "assert m is not None and v is not None; y = self.proj((g - m) / torch.sqrt(v + 0.1)); return torch.sigmoid(y) * 0.5 + y + h",
    "the tail reads them": "h = self.bn(torch.tanh(self.gemm2(x))); v = self.bn.running_var; assert v is not None; y = self.gemm(x); "
    + SCALED.format("v"),
    "before they are written": "v = self.bn.running_var; assert v is not None; y = self.gemm(x); z = torch.sigmoid(y) * v + y; "
    "h = self.bn(torch.tanh(self.gemm2(x))); return z * torch.tanh(h)",
    "it reads what is made of them": "h = self.bn(torch.tanh(self.gemm2(x))); v = self.bn.running_var; assert v is not None; "
    "k = torch.rsqrt(v + 0.1); y = self.gemm(x); " + SCALED.format("k"),
    "under another name": "h = self.bn(torch.tanh(self.gemm2(x))); y = self.gemm(x); " + SCALED.format("self.buf"),
    "out of a list": "v = self.bn.running_var; assert v is not None; all = [v, x]; h = self.bn(torch.tanh(self.gemm2(x))); y = self.gemm(x); "
    + SCALED.format("all[0]"),
    "in a branch": "v = self.bn.running_var; assert v is not None; w = v if x.size(0) > 2 else self.scale; "
    "h = self.bn(torch.tanh(self.gemm2(x))); y = self.gemm(x); " + SCALED.format("w"),
    "behind a question": "v: Optional[Tensor] = None; v = self.bn.running_var if x.size(0) > 2 else None; assert v is not None; "
    "h = F.batch_norm(torch.tanh(self.gemm2(x)), self.bn.running_mean, v, training=True); y = self.gemm(x); " + SCALED.format("v"),
    "two norms have one pair": "h = F.batch_norm(self.gemm2(x), self.bn.running_mean, self.bn.running_var, training=True); "
    "g = F.batch_norm(self.gemm2(x) * 2 + 1, self.bn.running_mean, self.bn.running_var, training=self.training); y = self.proj(g); "
    + SCALED.format("self.scale"),
    "two dropouts": "h = F.dropout(torch.tanh(self.gemm2(x)), 0.5, self.training); y = self.gemm(F.dropout(x, 0.5, self.training)); "
    + SCALED.format("self.scale"),
    "random numbers": "g = torch.tanh(self.gemm2(x)); r = torch.rand_like(g); h = F.dropout(g, 0.5, self.training); y = self.gemm(x); "
    + SCALED.format("self.scale") + " + r",
    "a norm in a branch": "h = torch.tanh(self.gemm2(x)); v = self.bn.running_var; assert v is not None\nif self.training:\n    h = self.bn(h)\n"
    "y = self.gemm(x); " + SCALED.format("v"),
}

# As BODIES, each of which raises where x has a column too many, before or after what is written.
RAISING = {
    "the op, after a norm": ("h = self.bn(x[:, :1].expand(-1, 12) * self.scale); y = self.gemm(x); " + SCALED.format("self.scale"), SIG),
    "a product, before an op that writes": ("h = torch.tanh(x) * self.w[0]; g = self.bn(self.gemm(x[:, :5]) * self.scale); return g + h.sum()", BN),
    "a product, before an attribute": ("h = torch.tanh(x) * self.w[0]; h = h + h; self.two = self.two + 1; self.buf.add_(0.1); y = self.proj(h @ self.w.t()); "
                                       "return torch.sigmoid(y) * 1.7 + y + h.sum()", SIG),
    "a product, before a list": ("all = [1]; h = torch.tanh(x) * self.w[0]; h = h + h; all.append(2); self.two = self.two + len(all); y = self.proj(h @ self.w.t()); "
                                 "return torch.sigmoid(y) * 1.7 + y + h.sum()", SIG),
}


class Gated(torch.nn.Module):
    """Fused by itself: what its caller writes it does not know."""

    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(5, 12)

    def forward(self, x, scale):
        y = self.gemm(x)
        return torch.sigmoid(y) * scale + y


class Caller(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gated, self.pre, self.bn = Gated(), torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)

    def forward(self, x):
        h = self.bn(torch.tanh(self.pre(x)))
        v = self.bn.running_var
        assert v is not None
        return self.gated(x, v) * torch.tanh(h)


class FencesTest(Following):
    def one_call(self, model, x, gradients):
        torch.manual_seed(3)
        return super().one_call(model, x, gradients)

    def built(self, body):
        model = build(body)
        model.buf = model.bn.running_var
        return model

    def test_what_is_silent_keeps_its_place(self):
        for what, body in BODIES.items():
            for door, make in {"scripted": torch.jit.script, "from a file": lambda net: reloaded(torch.jit.script(net))}.items():
                with self.subTest(what, door=door):
                    model = make(self.built(body))
                    self.assertTrue(is_fused(model, SIG), torch.ops.tailor.inspect(model))
                    self.follow(model, self.built(body), what, calls=4)

    def test_the_state_after_what_raises(self):
        for what, (body, rule) in RAISING.items():
            with self.subTest(what):
                model, eager = scripted(body), build(body)
                self.assertTrue(is_fused(model, rule), torch.ops.tailor.inspect(model))
                for turn in range(6):
                    x = torch.randn(7, 6 if turn >= 3 else 5, requires_grad=True)
                    outcomes = [Outcome(lambda each=each: each(x)) for each in (eager, model)]
                    self.assertEqual([bool(each.error) for each in outcomes], [turn >= 3] * 2, str(outcomes))
                    self.assert_state(model, eager, f"{what}, call {turn}")
                    self.assertEqual(model.two, eager.two, f"{what}, call {turn}")

    def test_a_caller_of_what_is_fused_already(self):
        torch.manual_seed(0)
        eager, model = Caller(), Caller()
        model.load_state_dict(eager.state_dict())
        model = torch.jit.script(model)
        self.assertIn("tailor::fence", str(model.graph))
        self.follow(model, eager, "by its caller", calls=4)
        torch.ops.tailor.unfuse_(model)
        self.assertNotIn("tailor::", text_of(model))

    def test_only_beside_an_op(self):
        """Without one torch keeps the order by itself."""
        with auto(True):
            model = torch.jit.script(build("return self.bn(torch.tanh(self.gemm(x)))"))
        self.assertNotIn("tailor::", text_of(model))

    def test_frozen_and_in_a_file(self):
        body = BODIES["it reads what is made of them"]
        eager = self.built(body).eval()
        frozen = reloaded(torch.jit.freeze(torch.jit.script(self.built(body)).eval()))
        x = torch.randn(7, 5)
        for _ in range(3):
            self.assert_near([frozen(x)], [eager(x)], "frozen")


if __name__ == "__main__":
    main()
