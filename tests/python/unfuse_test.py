"""A module that was fused and is unfused: the graphs and bits that its author wrote, and a file that needs no library."""
import copy
import itertools
import json
import os
import tempfile

import torch
import torch.nn.functional as F

from checks import auto, main, python, reloaded
from models import SIX, build
from scripted import Following, is_fused, random_inputs, scripted, text_of


class UnfuseTest(Following):
    def test_runs_and_is_saved_without_the_library(self):
        code = """
import os, sys, torch
for name in sorted(os.listdir(sys.argv[1])):
    m, x = torch.jit.load(os.path.join(sys.argv[1], name, 'model.pt')), torch.load(os.path.join(sys.argv[1], name, 'input.pt'))
    for _ in range(3):
        got = m(x)
    torch.save([got.detach(), *m.state_dict().values()], os.path.join(sys.argv[1], name, 'output.pt'))
"""
        with tempfile.TemporaryDirectory() as folder:
            for row in SIX:
                for name, model in (("scripted", scripted(row.body)), ("loaded", reloaded(scripted(row.body)))):
                    json.loads(torch.ops.tailor.unfuse_(model))
                    self.assertNotIn("tailor::", text_of(model), row.body)
                    place = os.path.join(folder, f"{row.rule}-{name}")
                    os.mkdir(place)
                    model.save(os.path.join(place, "model.pt"))
                    torch.save(random_inputs(4), os.path.join(place, "input.pt"))
                    self.follow(model, build(row.body), f"unfused {row.body}", modes=(True, False))
                    torch.ops.tailor.fuse_(model)
                    self.assertTrue(is_fused(model, row.rule), f"fused again: {row.body}: {torch.ops.tailor.inspect(model)}")
                    again, other = reloaded(model), build(row.body)
                    again.load_state_dict(other.state_dict())
                    self.follow(again, other, f"fused again: {row.body}", modes=(True, False))
            python(code, folder)
            for row in SIX:
                eager = build(row.body)
                for _ in range(3):
                    y = eager(random_inputs(4))
                for name in ("scripted", "loaded"):
                    got = torch.load(os.path.join(folder, f"{row.rule}-{name}", "output.pt"))
                    self.assert_near([got[0]], [y.detach()], f"without the library: {row.body}")
                    for mine, theirs in zip(got[1:], eager.state_dict().values(), strict=True):
                        self.assert_same(mine, theirs, f"state without the library: {row.body}", (1e-4, 1e-4) if theirs.is_floating_point() else None)

    def test_a_chain_that_nobody_reads(self):
        """torch drops it, and leaves what its norm asks of it: the shape of a value that is no more."""
        bodies = ["y = self.gn(F.silu(self.gemm(x) + self.scale)); m = 1.0", "y = self.gn(self.scale + F.silu(self.gemm(x))); m = 1.0",
                  "y = self.gemm(x); n = y.size(0); z = torch.sigmoid(y) * 2.0; m = z.size(1) + n; y = z + y",
                  "y = self.gn(self.gemm(x)); y = F.silu(y) * self.scale; m = y.dim(); y = F.silu(y)",
                  "y = self.gemm(x) * self.scale; m = y.size(-1); y = self.bn(y)"]
        for body in bodies:
            body = f"def both(self, x):\n    {body}; return x * m, y\ndef forward(self, x):\n    r, unread = self.both(x); return r"
            eager = build(body).eval()
            for how in (reloaded, lambda m: torch.jit.freeze(m.eval()), lambda m: reloaded(reloaded(m))):
                with auto(False):
                    model = torch.jit.script(copy.deepcopy(eager))
                torch.ops.tailor.fuse_(model)
                self.assertTrue(is_fused(model), body)
                model = how(model)
                torch.ops.tailor.unfuse_(model)
                self.assertNotIn("tailor::", text_of(model), body)
                model = reloaded(model)
                for good in (True, False):
                    x = random_inputs(1) if good else random_inputs(1)[:, 1:]
                    with auto(False):
                        self.assertEqual(*(self.outcome(each, x) for each in (model, reloaded(torch.jit.script(eager)))), body)

    def test_a_chain_of_which_only_the_statistics_are_wanted(self):
        """It is given back word for word: what is written in place keeps its dtype, and addmm takes matrices only."""
        linears = ["torch.addmm(self.gemm.bias, x, self.gemm.weight.t())", "x @ self.gemm.weight.mT + self.gemm.bias",
                   "torch.mm(x, self.gemm.weight.transpose(0, 1)).add_(self.gemm.bias)", "self.gemm.bias + torch.matmul(x, self.gemm.weight.permute(1, 0))",
                   "torch.matmul(x, self.gemm.weight.T)", "torch.mm(x, self.gemm.weight.transpose(1, -2))", "self.gemm(x)"]
        direct = "torch.batch_norm({}, self.bn.weight, self.bn.bias, self.bn.running_mean, self.bn.running_var, True, 0.1, 1e-5, False)"
        tails = ["z = " + direct.format("y * self.scale"), "y.mul_(self.scale); z = " + direct.format("y"), "y *= self.scale; z = self.bn(y)", "z = self.bn(self.scale * y)", "z = (self.bn(y) + self.one) / self.divisor; z *= z.sigmoid()"]
        for linear, tail in itertools.product(linears, tails):
            body = f"def both(self, x):\n    y = {linear}; {tail}; return x * 2.0, z\ndef forward(self, x):\n    r, unread = self.both(x); return r"
            eager = build(body)
            eager.scale = torch.nn.Parameter(torch.rand(12, dtype=torch.float64), requires_grad=False)
            with auto(False):
                plain = reloaded(torch.jit.script(copy.deepcopy(eager)))
                model = torch.jit.script(eager)
            torch.ops.tailor.fuse_(model)
            model = reloaded(model)
            self.assertIn("ops.tailor.linear_", model.code, body)
            torch.ops.tailor.unfuse_(model)
            self.assertNotIn("tailor::", text_of(model), body)
            x = random_inputs(4)
            for inputs in (x, x[0], x.unsqueeze(0), x.double(), x[:, 1:]):
                with auto(False):
                    self.assertEqual(self.outcome(model, inputs), self.outcome(plain, inputs), (body, inputs.shape))
                for mine, its in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
                    self.assert_same(mine, its, f"{body}: {inputs.shape}")

    @staticmethod
    def outcome(model, x):
        try:
            return model(x).tolist()
        except (RuntimeError, torch.jit.Error) as error:
            return str(error).strip().splitlines()[-1]

    def test_gives_back_what_was_written(self):
        """silu rounds once, v * sigmoid(v) twice, and silu alone refuses integers: bit for bit, also from a file."""
        bodies = ["return self.gn(F.silu(self.gemm(x) + self.scale))", "return self.gn(self.scale + self.silu(self.gemm(x)))",
                  "return torch.group_norm(F.silu(self.scale + x @ self.w.t()), 3, None, None, 1e-5, True)",
                  "return self.gn(F.silu(x @ self.w.permute(1, 0) + self.scale))",
                  "return F.silu((self.bn(self.gemm(x)) + self.one) / self.divisor)",
                  "return F.silu(self.scale * F.silu(self.gn(self.gemm(x))))",
                  "x = F.silu(self.gn(self.gemm(x))) * self.scale; return torch.sigmoid(x) * x", *[row.body for row in SIX]]
        for body, training in itertools.product(bodies, (True, False)):
            for dtype in (torch.bfloat16, torch.float16):
                x = random_inputs(1, 64, dtype=dtype)
                written = scripted(body, on=False).to(dtype).train(training)
                for through in (lambda m: m, reloaded):
                    model = scripted(body).to(dtype).train(training)
                    self.assertTrue(is_fused(model), body)
                    model = through(model)
                    torch.ops.tailor.unfuse_(model)
                    self.assertNotIn("tailor::", str(model.graph), body)
                    with auto(False), torch.no_grad():
                        got, wanted = model(x), copy.deepcopy(written)(x)
                    self.assertTrue(torch.equal(got, wanted), f"{body}, {dtype}, training {training}: {(got != wanted).float().mean()} differ")
        for whole in ("return self.gn(F.silu(F.linear(x, self.w.long())) + self.scale)",
                      "a = self.scale.long(); y = F.linear(x, self.w.long()); n = len(y); return torch.group_norm(F.silu(y + a), 3, None, None, 1e-5, True) * n"):
            model = scripted(whole)
            self.assertTrue(is_fused(model), whole)
            for _ in ("fused", "unfused"):
                with self.assertRaisesRegex(RuntimeError, "silu_cpu.* not implemented for 'Long'"):
                    model(torch.ones(7, 5, dtype=torch.int64))
                torch.ops.tailor.unfuse_(model)


    def test_gives_back_the_lines(self):
        """A check behind the sigmoid of a swish, whose line is not the linear's."""
        body = "y = self.gemm(x)\nq = torch.sigmoid(y)\nassert x.dim() == 2\ny = y * q\ny = y + self.scale\nreturn self.gn(y)"
        lines = lambda net: [site["source"].rpartition(":")[2] for site in json.loads(torch.ops.tailor.inspect(net))["sites"]]
        for through in (lambda m: m, reloaded):
            model = through(scripted(body))
            self.assertTrue(is_fused(model))
            fused = lines(model)
            torch.ops.tailor.unfuse_(model)
            self.assertEqual((fused, lines(model)), (lines(scripted(body, on=False)),) * 2)


class OneAfterAnother(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.deep, self.bn = torch.nn.Linear(5, 12), torch.nn.Linear(12, 12), torch.nn.BatchNorm1d(12)
        self.addend, self.factor = torch.nn.Parameter(torch.randn(12)), 1.7

    def forward(self, x):
        y = self.gemm(x)
        h = y + torch.sigmoid(y) * self.factor
        v = F.batch_norm(h @ self.deep.weight.t() + self.deep.bias, self.bn.running_mean, self.bn.running_var)
        return F.silu((self.addend + v) / 2.0)


class ChainsTest(Following):
    def test_one_chain_s_order_is_not_the_next_one_s(self):
        """The second's guard reads the first's result, and says how the second was written."""
        eager, x = OneAfterAnother().eval(), torch.randn(4, 5)
        model = torch.jit.script(eager)
        self.assertEqual(str(model.graph).count("tailor::linear"), 2)
        torch.ops.tailor.unfuse_(model)
        self.assertNotIn("tailor::", str(model.graph))
        self.assert_same(model(x), eager(x), "unfused", (1e-5, 1e-5))


if __name__ == "__main__":
    main()
