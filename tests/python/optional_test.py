"""What may be None, or of another type, until somebody asks."""
import copy
import json
from typing import Optional

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


if __name__ == "__main__":
    main()
