"""The whole model, which the command runs as it was and fused: what it may take, hold and give, and how near it has to come."""
from typing import Any, List

import torch

import models
from checks import main
from command import INPUT, TWO_MORE, Command, outputs


@torch.jit.script
class Box:
    def __init__(self, first: torch.Tensor):
        self.first = first
        self.items: List[torch.Tensor] = []

    def add(self, x: torch.Tensor):
        self.first = self.first + x
        self.items.append(x)

    def total(self):
        total = self.first.sum()
        for item in self.items:
            total = total + item.sum()
        return total


class Boxed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = models.build("return self.bn(self.gemm(x) * self.scale)")

    def forward(self, x):
        y = torch.jit.wait(torch.jit.fork(self.part, x))
        box = Box(x)
        box.add(x)
        return y, box.total()


@torch.jit.script
class Link:
    def __init__(self, value: torch.Tensor, one: Any):
        self.value = value
        self.one = one
        self.other = one


class Chained(models.Net):
    def forward(self, x):
        y = self.bn(self.gemm(x) * self.scale)
        link = Link(y, 1)
        for _ in range(40):
            link = Link(y, link)
        return link


class WholeModelTest(Command):
    def test_half_of_a_tuple_that_nobody_reads(self):
        """Once the call is inlined torch drops it, reading the file back: that is no other model."""
        for unread in ("torch.softmax(x, -1)", "self.gn(F.silu(self.gemm(x) + self.scale))"):
            body = f"def both(self, x) -> Tuple[Optional[Tensor], Tensor]:\n    return self.bn(self.gemm(x) * self.scale), {unread}\n"
            body += "def forward(self, x):\n    y, other = self.both(x)\n    return x if y is None else y + 1.0"
            torch.jit.script(models.build(body)).save(self.source)
            self.done("fuse", self.source, "-o", self.target, INPUT)
            plain, fused = outputs(self.source, self.target)
            torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)

    def test_a_list_that_torch_keeps_from_call_to_call(self):
        """Without torch's optimiser, of a class that makes one, where something is forked: so the original itself goes wrong."""
        torch.jit.script(Boxed()).save(self.source)
        self.done("fuse", self.source, "-o", self.target, INPUT)

    def test_complex_values(self):
        """They are compared part by part, and refused where silu refuses them, by the site alone as well."""
        for rest in ("F.silu(y)", "y * torch.sigmoid(y)"):
            torch.jit.script(models.build(f"with torch.no_grad():\n    y = (self.bn(self.gemm(x)) + self.one) / 2j\n    y = {rest}\nreturn y")).save(self.source)
            self.assertIn("fused 1 of 1 sites", self.done("fuse", self.source, "-o", self.target, INPUT))

    def test_digits_that_a_cast_at_the_end_does_not_bring(self):
        """The whole model is as near as its 16 bits let it be, whatever its result is made at the end."""
        for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16"), (torch.float32, "float32")):
            for end in (".float()", ".double()"):
                net = models.build(f"return self.bn(self.gemm(x) * self.scale){end}").to(dtype)
                torch.jit.script(net).save(self.source)
                for seed in range(3):
                    text = self.done("fuse", self.source, "-o", self.target, f"--input={name}[{models.B},{models.K}]", "--seed", seed)
                    self.assertIn("the whole model checked\n", text)

    def test_a_mean_far_above_the_spread(self):
        """Through the norm gradients keep the few digits that the linear's result has left then."""
        net = models.build("return F.silu((self.bn(self.gemm(x)) + self.one) / self.divisor)", k=1, n=8, g=4)
        with torch.no_grad():
            net.gemm.bias += 1e6
        torch.jit.script(net).save(self.source)
        for seed in range(4):
            self.assertIn("1 chain checked by itself", self.done("fuse", self.source, "-o", self.target, "--seed", seed))

    def test_tensors_of_other_layouts(self):
        """As buffers, and as results; and attributes that torch cannot copy."""
        others = {"sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(), "meta": torch.empty(3, device="meta"),
                  "uint4": torch.zeros(4, 2, dtype=torch.uint4), "bits8": torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
                  "float4": torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}
        for name, buffer in others.items():
            net = models.build("return self.bn(self.gemm(x) * self.scale)")
            net.register_buffer("other", buffer)
            torch.jit.script(net).save(self.source)
            self.assertIn("the whole model checked\n", self.done("fuse", self.source, "-o", self.target, INPUT), name)
        for end in ("to_sparse()", "to_sparse_csr()", "to('meta')", "to_mkldnn()"):
            torch.jit.script(models.build(f"return self.bn(self.gemm(x) * self.scale).{end}")).save(self.source)
            self.assertIn("the whole model checked\n", self.done("fuse", self.source, "-o", self.target, INPUT), end)
        whole = "z = self.bn(self.gemm(x) * self.scale)\nreturn "
        for end in (f"torch._nested_tensor_from_mask(z.unsqueeze(0), torch.ones(1, {models.B}, dtype=torch.bool))",
                    "{float(z.sum()): z}", "{z: z * 2}", "torch.jit.fork(torch.relu, z)"):
            torch.jit.script(models.build(whole + end)).save(self.source)
            self.assertIn("the whole model checked\n", self.done("fuse", self.source, "-o", self.target, INPUT), end)
        net = models.build("return self.bn(self.gemm(x) * self.scale)")
        net.number = 1 + 2j
        torch.jit.script(net).save(self.source)
        self.assertIn("the whole model checked\n", self.done("fuse", self.source, "-o", self.target, INPUT), "a complex number")

    def test_a_model_for_those_who_want_no_gradients(self):
        """Silu of complex values has none: with them it does not run, as it was written either."""
        torch.jit.script(models.build("return F.silu((self.bn(self.gemm(x)) + self.one) / 2j)")).eval().save(self.source)
        self.assertIn("1 chain checked by itself, the whole model checked", self.done("fuse", self.source, "-o", self.target, INPUT))

    def test_a_spelling_for_those_who_want_no_gradients(self):
        """It overwrites the sigmoid that its backward needs: with them the author's own nodes run, and raise."""
        torch.jit.script(models.build("y = self.gemm(x); s = torch.sigmoid(y); s *= self.factor; return s + y")).save(self.source)
        for more in ((), (INPUT,)):
            self.assertIn("1 chain checked by itself", self.done("fuse", self.source, "-o", self.target, *more))

    def test_input_file(self):
        torch.save([torch.randn(models.B, models.K)], self.folder / "x.pt")
        self.done("fuse", self.source, "-o", self.target, "--input-file", self.folder / "x.pt", "--seed", 7)

    def test_objects_that_have_each_other(self):
        """Each is compared once, and not in each way in which it is reached."""
        torch.jit.script(Chained()).save(self.source)
        self.assertIn("the whole model checked", self.done("fuse", self.source, "-o", self.target, INPUT))

    def test_arguments_that_are_no_tensors(self):
        torch.jit.script(models.build(TWO_MORE)).save(self.source)
        x = torch.randn(models.B, models.K)
        torch.save((x, {"k": x}, 2), self.folder / "x.pt")  # whose types are lost in the file
        text = self.done("fuse", self.source, "-o", self.target, "--input-file", self.folder / "x.pt")
        self.assertIn("the whole model checked", text)
        torch.jit.script(models.build("def forward(self, p: Pair):\n    return self.bn(self.gemm(p.x) * self.scale) * p.y")).save(self.source)
        torch.save([(torch.randn(models.N), x)], self.folder / "x.pt")
        text = self.done("fuse", self.source, "-o", self.target, "--input-file", self.folder / "x.pt")
        self.assertIn("the whole model checked", text)
        torch.jit.script(models.build("def forward(self, x, n: int, on: bool):\n    return self.bn(self.gemm(x) * self.scale) * n if on else x")).save(self.source)
        text = self.done("fuse", self.source, "-o", self.target, INPUT, "--input=3", "--input=true")
        self.assertIn("the whole model checked", text)


if __name__ == "__main__":
    main()
