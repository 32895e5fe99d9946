"""A weight's transpose that stands apart from its product: it raises where it stands, and shows what the weight was there, which the op
cannot know, so that the chain is left alone."""
import json

import torch

from checks import Outcome, auto, main, reloaded
from models import build
from scripted import Following, is_fused, random_inputs, scripted

CHAIN = "return torch.sigmoid(y) * self.factor + y"
APART = [
    f"wt = self.w.t(); self.buf.add_(1.0); y = x @ wt; {CHAIN}",
    f"wt = self.w.T; t = x.sum(); y = torch.addmm(self.b, x, wt); {CHAIN} + t",
    f"wt = self.w.permute(1, 0); assert x.dim() == 2; y = torch.mm(x, wt).add_(self.b); {CHAIN}",
    "wt = self.w.transpose(-2, 1); t = x.relu(); y = self.b + x @ wt; return self.bn(y * self.scale) + t.sum()",
    "wt = self.w.mT; t = x.relu(); y = torch.matmul(x, wt); return self.gn(F.silu(y + self.scale)) + t.sum()",
    f"with torch.no_grad():\n    wt = self.w.t()\ny = x @ wt\n{CHAIN}",
    f"wt = self.w.t()\nwith torch.no_grad():\n    t = x.relu() @ wt\ny = x @ wt + t\n{CHAIN}",
    f"v = self.w.clone(); wt = v.t(); v.t_(); y = x @ wt; {CHAIN}",
    f"v = self.w.clone(); wt = v.t(); v.unsqueeze_(0); y = x @ wt; {CHAIN}",
    f"v = self.w.detach().clone(); wt = v.t(); v.set_(self.gemm.weight.detach()); y = x @ wt; {CHAIN}",
    f"v = self.w * 1.0; wt = v.t(); v.detach_(); y = torch.addmm(self.b, x, wt); {CHAIN}",
    f"v = self.w.clone(); wt = v.t(); v.mul_(0.5); y = x @ wt; {CHAIN}",
    "wt = self.proj.weight.t(); y = self.gemm(x)\nfor i in range(2):\n    z = y @ wt\n    y = torch.sigmoid(z) * self.factor + z\nreturn y",
    f"wt = self.w.t()\nif x.size(0) > 3:\n    y = x @ wt; {CHAIN}\nreturn self.gemm(x)".replace("; return", "\n    return"),
    "def part(self, wt, x):\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y\ndef forward(self, x):\n    return self.part(self.w.t(), x.relu())",
]

# Right before the product, and read by others too.
SHARED = [
    "wt = self.w.t(); y = x @ wt; a = self.bn(y * self.scale); z = x @ wt + self.b; return a + (torch.sigmoid(z) * self.factor + z) + wt.sum()",
    f"wt = self.w.t(); y = torch.add(x @ wt, self.b); k = wt.sum(); {CHAIN} + k",
    f"wt = self.w.t(); y = x @ wt + self.b; a = {CHAIN.replace('return ', '')}; wt.mul_(0.5); return a + (x @ wt)",
    "wt = self.w.t(); y = x @ wt; b = torch.sigmoid(y) * self.factor + y\nwith torch.no_grad():\n    z = x.relu() @ wt\n    a = torch.sigmoid(z) * 0.3 + z\nreturn a + b",
    "h = self.gemm(x)\nfor i in range(2):\n    y = h @ self.proj.weight.t()\n    h = torch.sigmoid(y) * self.factor + y\nreturn h",
]

REFUSED = [
    # body, shape of the weight that is its argument
    ("def forward(self, x, w, go: bool):\n    wt = w.t()\n    if go:\n        y = x @ wt\n        x = torch.sigmoid(y) * self.factor + y\n    return x", (3, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    wt = w.t(); self.buf.add_(1); y = x @ wt\n    return torch.sigmoid(y) * self.factor + y".replace("; ", "\n    "), (3, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    wt = w.mT\n    assert go, 'go'\n    y = torch.matmul(x, wt)\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    ("def forward(self, x, w, go: bool):\n    wt = w.transpose(0, 1)\n    for i in range(int(go)):\n        y = x @ wt\n        x = torch.sigmoid(y) * self.factor + y\n    return x", (5,)),
    ("def forward(self, x, w, go: bool):\n    wt = w.permute(1, 0)\n    if go:\n        y = torch.addmm(self.b, x, wt)\n        x = torch.sigmoid(y) * self.factor + y\n    return x", (2, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    y = x @ w.transpose(-1, -2)\n    assert go, 'go'\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    ("def forward(self, x, w, go: bool):\n    y = x @ w.transpose(1, -2)\n    assert go, 'go'\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    ("def forward(self, x, w, go: bool):\n    y = torch.matmul(x, w.mT)\n    assert go, 'go'\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    # these are no transposes of matrices, and refused by nobody
    ("def forward(self, x, w, go: bool):\n    wt = w.t()\n    self.buf.add_(1)\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y", (5,)),
    ("def forward(self, x, w, go: bool):\n    wt = w.mT\n    self.buf.add_(1)\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y", (3, 12, 5)),
    ("def forward(self, x, w, go: bool):\n    wt = w.transpose(1, -2)\n    self.buf.add_(1)\n    y = x @ wt\n    return torch.sigmoid(y) * self.factor + y", (3, 5, 12)),
]


class TransposesTest(Following):
    def test_are_left_alone(self):
        """With the reason."""
        for body in APART:
            for through in (lambda m: m, reloaded):
                model = through(scripted(body))
                self.follow(model, build(body), body, calls=2, modes=(True, False))
                reasons = [site["reason"] for site in json.loads(torch.ops.tailor.inspect(model))["sites"]]
                self.assertTrue(any("the weight's transpose, stands apart" in reason for reason in reasons), (body, reasons))

    def test_read_by_others_too(self):
        """The chain of the product is fused, the others have the transpose where it stands; what is written in place has no gradients to follow."""
        for body in SHARED:
            model, eager, gradients = scripted(body), build(body), (False,) if "mul_" in body else (True, False)
            self.assertTrue(is_fused(model), body)
            self.follow(model, eager, body, calls=2, gradients=gradients)
            torch.ops.tailor.unfuse_(model)
            self.follow(model, eager, body, calls=2, gradients=gradients)

    def test_frozen(self):
        for body in APART:
            if "buf" in body or "set_" in body:  # torch freezes no module that writes to what it holds
                continue
            eager = build(body).eval()
            for model in (torch.jit.freeze(scripted(body).eval()), torch.jit.freeze(scripted(body, on=False).eval())):
                torch.ops.tailor.fuse_(model)
                x = random_inputs(5)
                self.assert_near([model(x).detach()], [eager(x).detach()], body)

    def test_what_transposes_refuse(self):
        """Where it stands, before whatever else happens, and whether the product runs or not."""
        for body, shape in REFUSED:
            for go in (False, True):
                for through in (lambda m: m, reloaded):
                    model, plain = through(scripted(body)), through(scripted(body, on=False))
                    x, w = random_inputs(1), torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)
                    what = f"{body}, weight {shape}, {go}"
                    with auto(False), torch.jit.optimized_execution(False):
                        mine, theirs = Outcome(lambda: model(x, w, go)), Outcome(lambda: plain(x, w, go))
                    self.assertEqual((mine.error, mine.text), (theirs.error, theirs.text), what)
                    if theirs.error is None:
                        self.assert_near([mine.value.detach()], [theirs.value.detach()], what)
                    self.assert_state(model, plain, what)

    def test_two_products_of_one_in_two_modes(self):
        """torch makes one of two equal nodes, also across no_grad: none may be put between a transpose and its products."""
        body = "wt = self.w.t()\nwith torch.no_grad():\n    y = x @ wt\n    a = torch.sigmoid(y) * self.factor + y\nz = x.relu() @ wt\nreturn a + (torch.sigmoid(z) * 0.3 + z)"
        model = scripted(body)
        self.follow(model, build(body), body)
        torch.ops.tailor.unfuse_(model)
        self.follow(model, build(body), body)


if __name__ == "__main__":
    main()
