"""Operands that stand left of the chain's value: torch gives a result the strides of its left operand."""
import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from checks import main, reloaded
from models import ADD, BN, DIV, GN, SIG, SWISH, build
from runtime_test import from_file
from scripted import Following, is_fused, random_inputs, scripted, text_of

ACROSS = "r = self.proj.weight[:, :x.size(0)].t(); "
LEFT = [
    ("y = self.gemm(x); return r * torch.sigmoid(y) + y", SIG),
    ("return F.silu((r + self.bn(self.gemm(x))) / self.divisor)", DIV),
    ("return F.silu((r + self.bn(self.gemm(x))) / self.one)", DIV),
    ("return F.silu(r * F.silu(self.gn(self.gemm(x))))", GN),
    ("y = r * self.silu(self.gn(torch.addmm(self.b, x, self.w.t()))); return y * torch.sigmoid(y)", GN),
]

# Of four or five dimensions, where norms keep channels_last, and make all else contiguous.
DEEP = "r = torch.cat([x, x, x], 1)[:, :12].view(-1, 1, 1, 12).expand(-1, 3, 2, 12){}; y = self.gemm(x.view(-1, 1, 1, 5).expand(-1, 3, 2, 5)); "
DEEPER = "r = torch.cat([x, x, x], 1)[:, :12].view(-1, 1, 1, 1, 12).expand(-1, 3, 2, 2, 12){}; y = self.gemm(x.view(-1, 1, 1, 1, 5).expand(-1, 3, 2, 2, 5)); "
BEFORE_A_NORM = [
    ("return F.batch_norm(r * y, None, None, None, None, True)", BN),
    ("return F.batch_norm(r * y, x.new_zeros(3), x.new_ones(3))", BN),
    ("return F.group_norm(F.silu(r + y), 3)", ADD),
    ("return F.group_norm(r + F.silu(y), 3)", SWISH),
]


class OrderTest(Following):
    def follow_with_strides(self, model, eager, what, loose=1.0):
        self.follow(model, eager, what, modes=(True, False), calls=2, loose=loose)
        x = random_inputs(9)
        self.assert_same(model(x), eager(x), what, (2e-5, 2e-4))

    def test_strides_are_the_authors(self):
        for body, rule in LEFT:
            body = ACROSS + body
            eager = build(body)
            self.assertNotEqual(eager(random_inputs(1)).stride(), eager.gemm(random_inputs(1)).stride(), f"{body}: proves nothing")
            for door, model in (("when scripted", scripted(body)), ("when asked", scripted(body, on=False)), ("loaded", reloaded(scripted(body)))):
                if door == "when asked":
                    torch.ops.tailor.fuse_(model)
                self.assertTrue(is_fused(model, rule), f"{door}: {body}: {torch.ops.tailor.inspect(model)}")
                self.follow_with_strides(model, build(body), f"{door}: {body}")
            torch.ops.tailor.unfuse_(model)
            self.assertNotIn("tailor::", text_of(model))
            again = build(body)
            again.load_state_dict(model.state_dict())
            self.follow_with_strides(model, again, f"unfused: {body}")

    def test_when_the_executor_fuses(self):
        """The op runs where no order shows."""
        row = "return self.bn(self.scale * self.gemm(x))", BN
        for body, rule, shows in (*((ACROSS + body, rule, True) for body, rule in LEFT), (*row, False)):
            model, eager = from_file(body).eval(), build(body).eval()
            with torch.no_grad():
                for turn in range(5):
                    x = random_inputs(turn)
                    call = (lambda: model(x)) if shows or turn < 3 else lambda: self.assert_calls(rule, lambda: model(x), body)
                    self.assert_same(call(), eager(x), f"{body}, call {turn}", (2e-5, 2e-4))

    def test_a_row_is_handed_on(self):
        """The kernel's own result, not a copy; and where a number stands left, nobody asks."""
        for body, rule, asked in (("return F.silu((self.scale + self.bn(self.gemm(x))) / self.divisor)", DIV, True),
                                  ("return self.bn(self.scale * self.gemm(x))", BN, True),
                                  ("return self.bn(self.gemm(x) * self.scale)", BN, False),
                                  ("y = self.gemm(x); return self.factor * y.sigmoid() + y", SIG, False),
                                  ("y = self.gemm(x); return y + y.sigmoid() * self.factor", SIG, False),
                                  ("y = self.gemm(x); return y + y.sigmoid() * self.one", SIG, True)):
            model = scripted(body)
            self.assertTrue(is_fused(model, rule), body)
            self.assertEqual("tailor::uniform" in text_of(model), asked, body)
            self.follow_with_strides(model, build(body), body)

    def test_operands_of_another_rank_or_dtype(self):
        """Of a higher one a product lies across, whichever stands left; and on the CPU another dtype is made the result's first."""
        of_rank_3 = "r = self.proj.weight[:, :3].t().unsqueeze(1); y = self.gemm(x); return y + torch.sigmoid(y) * r"
        mask = ("r = (self.proj.weight[:, :3] > 0).t().unsqueeze(1).expand(3, x.size(0), self.proj.weight.size(0)); "
                "y = self.gemm(x.unsqueeze(0).expand(3, x.size(0), x.size(1))); return r * torch.sigmoid(y) + y")
        for body, rule in ((of_rank_3, SIG), (mask, SIG)):
            model, eager, x = scripted(body), build(body), random_inputs(1)
            self.assertTrue(is_fused(model, rule), torch.ops.tailor.inspect(model))
            self.assertFalse(eager(x).is_contiguous(), f"{body}: proves nothing")
            self.follow_with_strides(model, build(body), body)

    def test_norms_keep_channels_last(self):
        for before, kept in ((DEEP, "channels_last"), (DEEPER, "channels_last_3d")):
            for body, rule in BEFORE_A_NORM:
                for layout in (f".contiguous(memory_format=torch.{kept})", ".transpose(1, 2).contiguous().transpose(1, 2)"):
                    body_of_all = before.format(layout) + body
                    model, eager, x = scripted(body_of_all), build(body_of_all), random_inputs(1)
                    self.assertTrue(is_fused(model, rule), torch.ops.tailor.inspect(model))
                    is_kept = eager(x).is_contiguous(memory_format=getattr(torch, kept))
                    self.assertEqual(is_kept, kept in layout, f"{body_of_all}: proves nothing")
                    self.follow_with_strides(model, build(body_of_all), body_of_all, 10)  # norms add up as it lies

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU here")
    def test_on_a_gpu_norms_keep_them_too(self):
        for body, rule in BEFORE_A_NORM:
            body = DEEP.format(".contiguous(memory_format=torch.channels_last)") + body
            model, eager, x = scripted(body).cuda(), build(body).cuda(), random_inputs(1).cuda()
            self.assertTrue(is_fused(model, rule), torch.ops.tailor.inspect(model))
            self.assert_same(model(x), eager(x), body, (2e-4, 1e-3))

    def test_in_transforms(self):
        """Where an operand lies across, or the batch does: of a batch the last dimension is next to the others in memory."""
        batches = (torch.stack([random_inputs(i) for i in range(3)]), 0), (torch.stack([random_inputs(i) for i in range(3)], -1), -1)
        for body, rule in LEFT:
            model, eager = scripted(ACROSS + body).eval(), build(ACROSS + body).eval()
            self.assertTrue(is_fused(model, rule), body)
            for many, batch in batches:
                with torch.jit.optimized_execution(False):  # torch's executor refuses vmap once it has profiled
                    mine, theirs = (torch.func.vmap(net, in_dims=batch)(many) for net in (model, eager))
                self.assert_same(mine, theirs, f"{body}, batch {batch}")
            one = random_inputs(1)
            for transform in (lambda net: torch.func.vjp(net, one)[0], lambda net: torch.func.jvp(net, (one,), (one,)),
                              lambda net: torch.func.functionalize(net)(one)):
                self.assert_same(transform(model), transform(eager), body)

    def test_a_value_of_two_steps_with_a_write_between(self):
        """Where the chain runs as it was written, each step reads the value as it was when the author's read it."""
        body = "y = F.linear(x, self.w[:, :5][:5], self.b[:5]); self.buf.add_(1.0); z = x * F.silu(F.group_norm(y, 1)); return F.silu(z)"
        model, eager = scripted(body), build(body)
        self.assertTrue(is_fused(model, GN))
        for across in (False, True):
            with torch.no_grad():
                for net in (model, eager):
                    net.buf = random_inputs(1, 5, 7) if across else random_inputs(1, 7, 5)
                mine, theirs = (net(net.buf.t() if across else net.buf) for net in (model, eager))
            self.assert_same(mine, theirs, f"across {across}")

    def test_fake_tensors(self):
        for body, _ in LEFT:
            model, eager = scripted(ACROSS + body).eval(), build(ACROSS + body).eval()
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                x = mode.from_tensor(random_inputs(1))
                self.assertEqual(model(x).stride(), eager(x).stride(), body)

    def test_views_with_a_pending_negation(self):
        for body, rule in LEFT:
            body = ACROSS + "r = torch._neg_view(r); " + body
            model = scripted(body)
            self.assertTrue(is_fused(model, rule), body)
            self.follow_with_strides(model, build(body), body)

    def test_what_only_the_right_side_takes(self):
        """A sparse tensor may be added to a dense one, and not the other way round."""
        for body, rule in (("return F.group_norm(F.silu(r + self.gemm(x)), 3)", ADD), ("return self.gn(r + F.silu(self.gemm(x)))", SWISH),
                           ("return F.silu((r + self.bn(self.gemm(x))) / self.divisor)", DIV)):
            body = ACROSS + "r = r.to_sparse(); " + body
            model, eager = scripted(body), build(body)
            self.assertTrue(is_fused(model, rule), body)
            for x in (random_inputs(1), random_inputs(1, columns=6)):
                refusal = self.same_refusal(model, eager, x, body)
                self.assertIsNotNone(refusal.error, f"{body}: proves nothing")

    def test_without_values(self):
        body = ACROSS + LEFT[1][0]
        model, eager, x = scripted(body).to("meta"), build(body).to("meta"), random_inputs(1).to("meta")
        self.assertEqual(model(x).stride(), eager(x).stride())

    def test_nothing_is_computed_to_find_strides(self):
        """Nor is anything that others would count, or that would want Python."""
        body = ACROSS + LEFT[1][0]
        model, eager, x = scripted(body), build(body), random_inputs(1)
        counts = []
        for net in (model, eager):
            with FlopCounterMode(display=False) as counter:
                net(x)
            counts.append(counter.get_total_flops())
        self.assertEqual(*counts)

    def test_unfused_in_the_author_s_order(self):
        """Also where no check tells it, since nothing stands inside the chain: what is asked before the op holds it."""
        model = scripted("y = F.batch_norm(self.gemm(x), self.bn.running_mean, self.bn.running_var); y = (self.scale + y) / self.divisor; return y * torch.sigmoid(y)")
        self.assertTrue(is_fused(model, DIV))
        self.assertNotIn("tailor::check", text_of(model))
        torch.ops.tailor.unfuse_(model)
        self.assertRegex(text_of(model), r"aten::add\(%scale")


if __name__ == "__main__":
    main()
