"""The six seed models: the six chains as published benchmark models write them, with their class and attribute names.

As a program it scripts and saves all of them as plain torch does, without Tailor:

    python tools/seed_models.py FOLDER [--sizes reduced|published] [--seed N]
"""
import argparse
import pathlib
from typing import Callable, NamedTuple

import torch
from torch import nn


class ScaleBN(nn.Module):
    """batch_norm(y * scale)"""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bn = nn.BatchNorm1d(out_features)

    def forward(self, x):
        x = self.gemm(x)
        x = x * self.scale
        x = self.bn(x)
        return x


class SigmoidResidual(nn.Module):
    """sigmoid(y) * f + y"""

    def __init__(self, in_features: int, out_features: int, f: float = 2.0):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.f = f

    def forward(self, x):
        x = self.gemm(x)
        residual = x
        x = torch.sigmoid(x)
        x = x * self.f
        x = x + residual
        return x


class BNAddDivSwish(nn.Module):
    """swish((batch_norm(y) + bias) / d), where bias has one element"""

    def __init__(self, in_features: int, out_features: int, d: float = 1.0):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features)
        self.bias = nn.Parameter(torch.randn(1))
        self.d = d

    def forward(self, x):
        x = self.matmul(x)
        x = self.bn(x)
        x = x + self.bias
        x = x / self.d
        x = x * torch.sigmoid(x)
        return x


class AddSwishGN(nn.Module):
    """group_norm(swish(y + bias))"""

    def __init__(self, in_features: int, out_features: int, groups: int):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(out_features))
        self.group_norm = nn.GroupNorm(groups, out_features)

    def forward(self, x):
        x = self.matmul(x)
        x = x + self.bias
        x = torch.sigmoid(x) * x
        x = self.group_norm(x)
        return x


class SwishAddGN(AddSwishGN):
    """group_norm(swish(y) + bias)"""

    def forward(self, x):
        x = self.matmul(x)
        x = torch.sigmoid(x) * x
        x = x + self.bias
        x = self.group_norm(x)
        return x


class GNSwishMulSwish(nn.Module):
    """swish(swish(group_norm(y)) * multiply_weight)"""

    def __init__(self, in_features: int, out_features: int, groups: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(groups, out_features)
        self.multiply_weight = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        x = self.gemm(x)
        x = self.group_norm(x)
        x = x * torch.sigmoid(x)
        x = x * self.multiply_weight
        x = x * torch.sigmoid(x)
        return x


class Case(NamedTuple):
    rule: str  # the op that the model's site becomes, without `tailor::`
    model: Callable[..., nn.Module]
    batch: int
    in_features: int
    out_features: int
    groups: int = 0  # 0: the model has no group norm

    def sizes(self) -> str:
        return f"{self.batch} x {self.in_features} -> {self.out_features}"


PUBLISHED = {
    "scale_bn": Case("linear_mul_batch_norm", ScaleBN, 16384, 4096, 4096),
    "scale_bn_wide": Case("linear_mul_batch_norm", ScaleBN, 1024, 8192, 8192),
    "sigmoid_residual": Case("linear_sigmoid_mul_add", SigmoidResidual, 1024, 8192, 8192),
    "add_swish_gn": Case("linear_add_swish_group_norm", AddSwishGN, 32768, 1024, 4096, 64),
    "swish_add_gn": Case("linear_swish_add_group_norm", SwishAddGN, 32768, 1024, 4096, 64),
    "bn_add_div_swish": Case("linear_batch_norm_add_div_swish", BNAddDivSwish, 1024, 8192, 8192),
    "gn_swish_mul_swish": Case("linear_group_norm_swish_mul_swish", GNSwishMulSwish, 1024, 8192, 8192, 256),
}

# For a CPU. Batch, inputs and outputs differ from one another so that a mixed-up dimension shows.
REDUCED = {
    "scale_bn": Case("linear_mul_batch_norm", ScaleBN, 256, 320, 384),
    "scale_bn_wide": Case("linear_mul_batch_norm", ScaleBN, 64, 768, 640),
    "sigmoid_residual": Case("linear_sigmoid_mul_add", SigmoidResidual, 64, 768, 640),
    "add_swish_gn": Case("linear_add_swish_group_norm", AddSwishGN, 512, 128, 320, 5),
    "swish_add_gn": Case("linear_swish_add_group_norm", SwishAddGN, 512, 128, 320, 5),
    "bn_add_div_swish": Case("linear_batch_norm_add_div_swish", BNAddDivSwish, 64, 768, 640),
    "gn_swish_mul_swish": Case("linear_group_norm_swish_mul_swish", GNSwishMulSwish, 64, 768, 640, 20),
}

# One size of each model: what a demonstration shows.
SIX = [name for name in PUBLISHED if name != "scale_bn_wide"]

TABLES = {"published": PUBLISHED, "reduced": REDUCED}


def build(case: Case, seed: int = 0, randomise: bool = False) -> nn.Module:
    """The model in training mode with its default initialisation. `randomise` also draws the norms' statistics and
    affine parameters, whose defaults of zero and one would hide a wrong channel."""
    torch.manual_seed(seed)
    extra = (case.groups,) if case.groups else ()
    model = case.model(case.in_features, case.out_features, *extra)
    if randomise:
        with torch.no_grad():
            for norm in model.modules():
                if isinstance(norm, nn.BatchNorm1d):
                    norm.running_mean.normal_()
                    norm.running_var.uniform_(0.5, 2)
                if isinstance(norm, (nn.BatchNorm1d, nn.GroupNorm)):
                    norm.weight.uniform_(0.5, 2)
                    norm.bias.normal_()
    return model


def example(case: Case, seed: int = 1) -> torch.Tensor:
    """An input as the published benchmarks draw it."""
    torch.manual_seed(seed)
    return torch.rand(case.batch, case.in_features)


def main():
    parser = argparse.ArgumentParser(description="Script and save the six seed models.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sizes", choices=TABLES, default="reduced")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in SIX:
        model = build(TABLES[arguments.sizes][name], arguments.seed, randomise=True).eval()
        torch.jit.script(model).save(str(arguments.folder / f"{name}.pt"))


if __name__ == "__main__":
    main()
