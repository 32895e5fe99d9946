"""What is left behind: by a call in which autograd refuses a tensor, by what nobody reads, and by modules that are gone."""
import io
import itertools
import os

import torch

from checks import Outcome, all_calls, auto, main
from models import build
from scripted import Following, is_fused, random_inputs, scripted

# A view that was made where gradients were off, and whose base was written to where they were on.
STALE = "t = self.scale * 1.0\nwith torch.no_grad():\n    v = t.view(-1)\nt.mul_(self.one)\n"
# What inference mode has made.
STORED = "v = self.buf\n"

REFUSED = {
    "before the norm": "return self.bn(self.gemm(x) * v)",
    "behind the norm": "y = (self.bn(self.gemm(x)) + v) / self.divisor; return y * torch.sigmoid(y)",
    "in the linear": "return self.bn(F.linear(x, self.w, v) * self.scale)",
    "the norm's weight": "return F.batch_norm(self.gemm(x) * self.scale, self.bn.running_mean, self.bn.running_var, v, self.b, "
                         "self.training, 0.1, 1e-5)",
    "a group norm's bias": "y = self.gemm(x); return F.group_norm(y * torch.sigmoid(y) + self.scale, 3, self.b, v)",
}

WITHOUT_A_TENSOR = (
    "return self.bn(self.gemm(x) * v)", "y = self.gemm(x); return torch.sigmoid(y) * v + y", "return self.gn(F.silu(self.gemm(x) + v))",
    "return self.gn(F.silu(self.gemm(x)) + v)", "return F.silu((self.bn(self.gemm(x)) + v) / self.divisor)",
    "return F.silu((self.bn(self.gemm(x)) + self.one) / v)", "return F.silu(F.silu(self.gn(self.gemm(x))) * v)",
    "return self.bn(F.linear(x, v, self.b) * self.scale)")

DRAWS = "t = F.dropout(x, 0.5, True); return self.bn(self.gemm(x) * self.scale)"
RECURS = ("def recurs(self, x):\n    weights = [self.w, self.proj.weight, self.proj.weight, self.proj.weight]\n"
          "    return torch.rnn_tanh(x.unsqueeze(0), x.new_zeros([2, x.size(0), 12]), weights, False, 2, 0.5, True, False, False)\n"
          "def forward(self, x):\n    self.recurs(x)\n    return self.bn(self.gemm(x) * self.scale)")
NORMS = "h = self.bn(self.gemm(x) * self.scale); z = self.bn_cumulative(h); return h * 2.0"
WRITES = "v = self.buf * 1.3; t = F.dropout(v, 0.5, False); t.add_(0.3); y = self.gemm(x); return torch.sigmoid(y) * self.factor + y + v"
CASTS = ("def cast(self, v):\n    return v.type_as(v)\ndef forward(self, x):\n    v = self.buf * 1.3\n    t = self.cast(v)\n    t.add_(0.3)\n"
         "    y = self.gemm(F.relu(x))\n    return torch.sigmoid(y) * self.factor + y + v")


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(2048, 2048), torch.nn.BatchNorm1d(2048)  # 16 MiB
        self.scale = torch.nn.Parameter(torch.randn(2048))

    def forward(self, x):
        return self.bn(self.gemm(x) * self.scale)


class LeftBehindTest(Following):
    def test_by_a_call_in_which_autograd_refuses_a_tensor(self):
        """The statistics, and the count of batches, are written up to where eager raises."""
        for begin in (STALE, STORED):
            for where, end in REFUSED.items():
                fused, eager = scripted(begin + end), build(begin + end)
                self.assertTrue(is_fused(fused), end)
                for training in (True, False):
                    for model in (fused, eager):
                        model.train(training)
                        with torch.inference_mode():
                            model.buf = torch.linspace(0.5, 1.5, 12)
                    with self.subTest(begin=begin, where=where, training=training):
                        mine, theirs = (Outcome(lambda model=model: model(random_inputs(1))) for model in (fused, eager))
                        self.assertEqual(mine.error, theirs.error, f"{mine}, eager {theirs}")
                        self.assert_state(fused, eager, where)

    def test_by_a_transform_of_what_inference_mode_has_made(self):
        """A transform must not wrap it before the chain's own operations have seen it: eager refuses to save it."""
        x, ones = random_inputs(1), torch.ones(4, 12)
        transforms = (lambda call: torch.func.grad(lambda v: call(v).square().sum())(x), lambda call: torch.func.jvp(call, (x,), (x,)),
                      lambda call: torch.func.vjp(call, x)[1](ones), lambda call: torch.func.vmap(call)(x.unsqueeze(0)),
                      lambda call: torch.func.jacfwd(call)(x))
        refused = 0
        for where, end in REFUSED.items():
            fused, eager = scripted(STORED + end).eval(), build(STORED + end).eval()
            self.assertTrue(is_fused(fused), end)
            for wanted in (True, False):
                for model in (fused, eager):
                    with torch.inference_mode():
                        model.buf = torch.linspace(0.5, 1.5, 12)
                    for parameter in model.parameters():
                        parameter.requires_grad_(wanted)
                for number, transform in enumerate(transforms):
                    with self.subTest(where=where, wanted=wanted, transform=number):
                        mine, theirs = (Outcome(lambda model=model: transform(model)) for model in (fused, eager))
                        self.assertEqual(mine.error, theirs.error, f"{mine}, eager {theirs}")
                        refused += mine.error is not None
                        if mine.error is None:
                            self.assert_near(mine.value, theirs.value, where)
        self.assertGreater(refused, 10)

    def test_autograd_refuses_nothing_where_gradients_are_off(self):
        """There kernels run."""
        for begin in (STALE, STORED):
            for where, end in REFUSED.items():
                fused, eager = scripted(begin + end), build(begin + end)
                for model in (fused, eager):
                    with torch.inference_mode():
                        model.buf = torch.linspace(0.5, 1.5, 12)
                with self.subTest(begin=begin, where=where), torch.no_grad():
                    self.tailor.reset_calls()
                    out = fused(random_inputs(1))
                    self.assertEqual([path.split("/")[1] for path, count in all_calls().items() if count], ["cpu"])
                    self.assert_near([out], [eager(random_inputs(1))], where)
                    self.assert_state(fused, eager, where)

    def test_by_a_call_with_none_for_a_tensor(self):
        """The interpreter lets it pass, and the first operation that reads it does not: a norm behind it has not counted yet."""
        for body in WITHOUT_A_TENSOR:
            fused, plain = (scripted(f"def forward(self, x, v):\n    {body}", on=on) for on in (True, False))
            self.assertTrue(is_fused(fused), body)
            plain.load_state_dict(fused.state_dict())
            for wanted, training in itertools.product((True, False), (True, False)):
                for model in (fused, plain):
                    model.train(training)
                for what, arguments in (("x", (None, torch.ones(12))), ("v", (random_inputs(1), None)), ("both", (None, None))):
                    with self.subTest(body=body, wanted=wanted, training=training, none=what), torch.set_grad_enabled(wanted):
                        self.same_refusal(fused, plain, arguments, body)

    def test_by_what_nobody_reads(self):
        """torch's executor drops it where it optimises; the graph keeps it, and so does that which unfuse gives back."""
        for body in (DRAWS, RECURS, NORMS, WRITES, CASTS):
            fused, eager = scripted(body), build(body)
            self.assertTrue(is_fused(fused), body)
            unfused = scripted(body)
            self.tailor.unfuse_(unfused)
            for model, what in ((fused, "fused"), (unfused, "unfused")):
                states = []
                with self.subTest(body=body, what=what), auto(False), torch.jit.optimized_execution(False), torch.no_grad():
                    for each in (model, build(body)):
                        torch.manual_seed(3)
                        out = each(random_inputs(1))
                        states.append((out, torch.rand(3)))
                    self.assert_near(states[0], states[1], f"{body}, {what}")
                    self.assert_state(model, each, body)

    def test_by_modules_that_are_gone(self):
        """None of their weights: neither is one held that an op was given, nor what another thread might be running, or reading, just now."""
        wide, x = Wide().eval(), torch.ones(2, 2048)
        for model in (torch.jit.script(wide), torch.jit.freeze(torch.jit.script(wide))):
            file = io.BytesIO()
            torch.jit.save(model, file)
            before = resident_mib()
            for _ in range(20):
                model = torch.jit.load(io.BytesIO(file.getvalue()))
                for op in ("unfuse_", "fuse_", "inspect", "settle_", "release_"):
                    getattr(self.tailor, op)(model)
                    model(x)
            self.assertLess(resident_mib() - before, 160)


if __name__ == "__main__":
    main()
