"""Where a tail has a kernel of its own, the linear and the products of its backward are fp16x3's too: with gradients, and with
batch statistics."""
import itertools
import unittest

import torch

import cases
from cases import CHAINS
from checks import calls_of, copied, main
from cuda_test import Referee
from float32_cases import HOPPER, laid_out, sized


def products(op):
    """How many have run: the chain's own, those of a linear by itself, and of a backward."""
    return calls_of("linear", "fp16x3") + calls_of(op.stem, "fp16x3")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class LinearTest(Referee):
    def learning(self, op, arguments, wanted, of_out=None, run=None):
        """The result and the gradients of what is wanted, and how many products ran here."""
        mine = copied(arguments)
        for name in wanted:
            mine[name].requires_grad_()
        before = products(op)
        out = (run or op)(mine)
        of_out = torch.ones_like(out) if of_out is None else of_out.to(out.dtype)
        out.backward(of_out)
        return out.detach(), [mine[name].grad for name in wanted], products(op) - before

    def compare(self, op, arguments, wanted=("input", "weight", "bias"), what="", of_out=None):
        out, mine, count = self.learning(op, arguments, wanted, of_out)
        eager, theirs, _ = self.learning(op, arguments, wanted, of_out, op.eager)
        exact, right, _ = self.learning(op, cases.in_double(copied(arguments)), wanted, of_out, op.eager)
        self.assertEqual(count, 1 + ("input" in wanted) + ("weight" in wanted), f"{op} {what}: products")
        self.close(out, eager, exact, f"{op} {what}")
        for name, a, b, c in zip(wanted, mine, theirs, right):
            self.close(a, b, c, f"{op} {what}: {name}'s gradient")
            self.assertEqual(a.stride(), b.stride(), f"{op} {what}: {name}'s gradient of shape {tuple(a.shape)}")

    def test_sizes(self):
        for op in CHAINS:
            for rows, columns, inner in ((2, 16, 5), (3, 64, 257), (127, 320, 64), (128, 256, 300), (129, 272, 31), (300, 576, 1000)):
                self.compare(op, sized(op, rows, columns, inner), what=f"{rows}×{inner}→{columns}")

    def test_who_wants_a_gradient(self):
        for op, wanted in itertools.product(CHAINS, (("input",), ("weight",), ("input", "bias"), ("weight", "bias"), ("input", "weight"))):
            self.compare(op, sized(op, 130, 320, 260), wanted, f"{wanted}")

    def test_cotangents(self):
        for op in CHAINS:
            arguments = sized(op, 130, 320, 260)
            wide = torch.randn(130, 640, device="cuda")
            for what, of_out in (("strides", wide[:, ::2]), ("transposed", torch.randn(320, 130, device="cuda").t()),
                                 ("expanded", torch.randn(320, device="cuda").expand(130, 320)), ("zero", torch.zeros(130, 320, device="cuda"))):
                self.compare(op, arguments, what=what, of_out=of_out)

    def test_three_dimensions(self):
        for op in (op for op in CHAINS if not op.group_norm and not op.batch_norm):
            arguments = sized(op, 150, 320, 300)
            self.compare(op, {**arguments, "input": arguments["input"].view(3, 50, 300)}, what="3-D")

    def test_rows_in_wider_ones(self):
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        arguments = sized(op, 130, 320, 260)

        def gradient(run, values, name):
            values[name].requires_grad_()
            return torch.autograd.grad(run(values).sum(), values[name])[0]
        for name in ("input", "weight"):
            mine, theirs, exact = ({**copied(arguments), name: laid_out(arguments[name], 3, 267)} for _ in range(3))
            self.close(gradient(op, mine, name), gradient(op.eager, theirs, name), gradient(op.eager, cases.in_double(exact), name), name)

    def test_layouts_of_gradients(self):
        """As torch's, which lie as the operands do: also where a size of one leaves that open, and of what is differentiated again."""
        def strides(run, values):
            x, w = values["input"], values["weight"]
            first = torch.autograd.grad(run(values).square().sum(), (x, w), create_graph=True)
            return [g.stride() for g in (*first, *torch.autograd.grad(sum(g.square().sum() for g in first), (x, w)))]

        for op in CHAINS:
            for (rows, columns, inner), apart in itertools.product(((130, 320, 260), (1, 320, 260), (2, 16, 1), (1, 16, 1), (3, 1, 5), (1, 1, 5)), (0, 3)):
                arguments = sized(op, rows, columns, inner, width=min(columns, 16))
                for name in ("input", "weight"):
                    arguments[name] = laid_out(arguments[name], 0, inner + apart).requires_grad_()
                self.assertEqual(strides(op, arguments), strides(op.eager, arguments), f"{op} {rows}×{inner}→{columns}, rows {inner + apart} apart")

    def test_differentiated_again(self):
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")

        def twice(run, arguments):
            mine = copied(arguments)
            x, w = (mine[name].requires_grad_() for name in ("input", "weight"))
            first = torch.autograd.grad(run(mine).square().sum(), (x, w), create_graph=True)
            return torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))
        arguments = sized(op, 20, 64, 70)
        exact = twice(op.eager, cases.in_double(copied(arguments)))
        for mine, eager, right in zip(twice(op, arguments), twice(op.eager, arguments), exact):
            self.close(mine, eager, right, "second derivatives", loose=4.0)

    def test_written_to_in_between(self):
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        for name, other in (("weight", "input"), ("input", "weight")):
            arguments = sized(op, 130, 320, 260)
            arguments[other].requires_grad_()
            out = op(arguments)
            arguments[name].mul_(2)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                out.sum().backward()

    def test_backward_once(self):
        """Each node by itself: in the graph the tail's refuses before the linear's has its turn."""
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        arguments = sized(op, 130, 320, 260)
        for name in ("input", "weight"):
            arguments[name].requires_grad_()
        out = op(arguments)
        tail, of_out = out.grad_fn, torch.ones_like(out)
        linear = tail.next_functions[0][0]
        self.assertEqual(linear.name(), "tailor::linear_backward")
        out.backward(of_out)
        for node in (tail, linear):
            with self.assertRaisesRegex(RuntimeError, "second time", msg=node.name()):
                node(of_out)

    def test_halves_of_columns(self):
        """Of what is stored transposed they are made by another kernel: the same product, bit for bit, is also the gradient of another
        linear's input, whose operand is stored by rows. The sums are as long as a batch has rows."""
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")

        def gradient(name, x, weight, of_out):
            arguments = {"input": x.clone(), "weight": weight.clone(), "bias": None, "factor": 0.0}
            before = products(op)
            made, = torch.autograd.grad(op({**arguments, name: arguments[name].requires_grad_()}), arguments[name], of_out)
            self.assertEqual(products(op) - before, 2, "products")
            return made

        for rows, columns, inner in ((3, 16, 8), (127, 33, 65), (129, 64, 31), (770, 96, 40), (1537, 40, 130), (6200, 31, 64), (13001, 70, 96)):
            of_out, x = torch.randn(rows, columns, device="cuda"), torch.randn(rows, inner, device="cuda")
            of_out[rows * 2 // 3, 1] = 3e4  # in one block's part alone
            x[rows // 2, 2], x[-1, 3], x[:, 5] = 1e-30, torch.inf, 0
            for tensor in (of_out, x):  # whole ones at first
                tensor[:, 6:12] *= 900
                tensor[: rows // 16, 6:12].round_()
                tensor[:, 4] = tensor[:, 4].sign() * 4095
            of_out[: rows // 2, 0] = 0  # so x's large numbers do not count, but those of the last parts
            x[rows // 2 :, 0] *= 2.0**-40
            mine = gradient("weight", x, torch.randn(columns, inner, device="cuda"), of_out)
            other = gradient("input", torch.randn(columns, inner, device="cuda"), x, of_out.t().contiguous())
            self.assert_bitwise(mine, other, f"{rows}×{columns} by {rows}×{inner}")
            exact = of_out.double().t() @ x.double()
            finite = exact.isfinite()
            self.close(mine[finite], (of_out.t() @ x)[finite], exact[finite], f"{rows}×{columns} by {rows}×{inner}")

    def test_batch_statistics(self):
        for op in (op for op in CHAINS if op.batch_norm and not op.inference):
            for rows, columns, inner in ((2, 16, 300), (130, 320, 260), (300, 576, 1000)):
                arguments = sized(op, rows, columns, inner, training=True)
                before = products(op)
                self.forward(op, arguments, f"{rows}×{inner}→{columns}")
                self.assertEqual(products(op) - before, 1, f"{op}")
                self.compare(op, arguments, what=f"training, {rows}×{inner}→{columns}")

    def test_bit_for_bit_from_run_to_run(self):
        for op in CHAINS:
            arguments = sized(op, 300, 576, 520)
            first = self.learning(op, arguments, ("input", "weight", "bias"))[:2]
            for _ in range(20):
                self.queue_up()
                out, gradients, _ = self.learning(op, arguments, ("input", "weight", "bias"))
                for a, b in zip((out, *gradients), (first[0], *first[1])):
                    self.assert_bitwise(a, b, f"{op}")


if __name__ == "__main__":
    if not HOPPER:
        print("float32_linear_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
