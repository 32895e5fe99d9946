"""What may be None, or of another type, until somebody asks."""
import copy
import json
from typing import Any, Optional

import torch

from checks import main
from scripted import Following, is_fused


class OptionalTest(Following):
    def test_asserting_that_a_tensor_is_one(self):
        class Asserts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)
                self.scale = torch.nn.Parameter(torch.linspace(-1, 1, 12))

            def forward(self, x):
                y = self.gemm(x)
                assert isinstance(y, torch.Tensor)
                return self.bn(y * self.scale)

        eager = Asserts()
        fused = torch.jit.script(copy.deepcopy(eager))
        self.assertTrue(is_fused(fused))
        self.follow(fused, eager, "asserts")

    def test_a_scale_that_may_be_none(self):
        class Scales(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm, self.bn = torch.nn.Linear(5, 12), torch.nn.BatchNorm1d(12)

            def forward(self, x, scale: Optional[torch.Tensor] = None):
                y = self.gemm(x)
                if scale is not None:
                    y = y * scale
                return self.bn(y)

        class Gives(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.part, self.scale = Scales(), torch.nn.Parameter(torch.linspace(-1, 1, 12))

            def forward(self, x):
                return self.part(x, self.scale) + self.part(x)

        eager = Gives()
        fused = torch.jit.script(copy.deepcopy(eager))
        sites = json.loads(torch.ops.tailor.inspect(fused))["sites"]
        self.assertEqual([site["fused"] for site in sites if site["method"] == "forward"], [True, False])
        self.follow(fused, eager, "given and not given")

    def test_what_may_be_anything_and_none(self):
        class Asks(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gemm = torch.nn.Linear(5, 12)

            def part(self, x, factor: Optional[float]):
                if factor is not None:
                    return x * factor
                y = self.gemm(x)
                return torch.sigmoid(y) * 2.0 + y

            def forward(self, x, what: Any):
                y = self.gemm(x)
                z = torch.sigmoid(y) * 2.0 + y
                if torch.jit.isinstance(what, Optional[float]):
                    x = self.part(x, what)
                return x, z

        eager = Asks()
        fused = torch.jit.script(copy.deepcopy(eager))
        self.assertTrue(is_fused(fused))
        for what in (None, 3.0, "3"):
            for turn in range(3):
                x = torch.randn(7, 5)
                for mine, its in zip(fused(x, what), eager(x, what), strict=True):
                    self.assert_same(mine, its, f"{what}, {turn}")


if __name__ == "__main__":
    main()
