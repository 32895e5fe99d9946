"""What is measured: points of chain, size, dtype and mode, and the presets that name many of them at once."""
import math
import random
from typing import NamedTuple

import torch

from seed_models import PUBLISHED, Case

from .numbers import NUMBERS, USUAL, behind_a_size

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32,
          "fp64": torch.float64}
MODES = {"eval": "inference", "train": "training forward", "backward": "forward and backward"}

# Each chain's model, and how many columns make a group in its published size.
MODELS = {case.rule: case.model for case in PUBLISHED.values()}
WIDTHS = {case.rule: case.out_features // case.groups for case in PUBLISHED.values() if case.groups}


class Point(NamedTuple):
    case: Case
    dtype: str
    mode: str
    numbers: str = USUAL

    def label(self) -> str:
        return f"{short(self.case.rule)} {size_of(self.case)} {self.dtype} {self.mode}{behind_a_size(self.numbers)}"


def short(rule: str) -> str:
    return rule.removeprefix("linear_")


def size_of(case: Case) -> str:
    return f"{case.batch}x{case.in_features}x{case.out_features}"


def sized(rule: str, batch: int, in_features: int, out_features: int, groups: int = 0) -> Case:
    """The chain at this size. Groups that are not given are as wide as in the published size where that divides."""
    if rule not in WIDTHS:
        groups = 0
    elif not groups:
        width = math.gcd(out_features, WIDTHS[rule])
        groups = out_features // width if width > 1 else 1
    return Case(rule, MODELS[rule], batch, in_features, out_features, groups)


def everywhere(*sizes, rules=tuple(MODELS)) -> list:
    return [sized(rule, *size) for size in sizes for rule in rules]


class Block(NamedTuple):
    """Every case with every dtype in every mode, of all these numbers."""
    cases: list
    dtypes: list
    modes: list
    numbers: tuple = (USUAL,)


def between(count: int) -> list:
    """Sizes anywhere between the published ones, the same each time, and the chains in turn."""
    draw = random.Random(0)

    def drawn(lowest: int, highest: int, step: int) -> int:
        return round(2 ** draw.uniform(math.log2(lowest), math.log2(highest)) / step) * step
    return [sized(list(MODELS)[i % len(MODELS)], drawn(256, 16384, 8), drawn(1024, 8192, 64), drawn(1024, 8192, 64))
            for i in range(count)]


SMALL = [sized("linear_mul_batch_norm", 128, 1024, 512), sized("linear_add_swish_group_norm", 128, 512, 1024, 32)]
WIDE = ("linear_sigmoid_mul_add", "linear_group_norm_swish_mul_swish", "linear_batch_norm_add_div_swish")

PRESETS = {
    "published": [Block(list(PUBLISHED.values()), ["bf16", "tf32", "fp32"], ["eval"]),
                  Block(list(PUBLISHED.values()), ["bf16", "fp32"], ["train", "backward"])],
    "small": [Block(SMALL, ["bf16", "fp32"], ["eval"])],
    "batches": [Block(everywhere(*((batch, 8192, 8192) for batch in (1, 16, 64, 128, 256)), rules=WIDE),
                      ["bf16", "fp32"], ["eval"])],
    "sweep": [Block(between(30), ["bf16", "fp16", "tf32", "fp32"], ["eval"])],
    "cpu": [Block(everywhere((128, 1024, 512), (1024, 1024, 1024)), ["fp32"], list(MODES))],
    "quick": [Block(everywhere((256, 512, 512)), ["fp32"], ["eval"])],
    "numbers": [Block([sized("linear_sigmoid_mul_add", *size) for size in ((32768, 1024, 4096), (1024, 8192, 8192))],
                      ["fp32"], ["eval", "backward"], tuple(NUMBERS))],
    "host": [Block(everywhere((16, 256, 256)), ["bf16", "fp32"], ["eval"])],
}
PRESET_HELP = {
    "published": "the sizes of the published models",
    "small": "two sizes that take a GPU some microseconds",
    "batches": "1 to 256 rows through 8192 -> 8192",
    "sweep": "30 sizes anywhere between: with --arm linear,tailor and --scatter",
    "cpu": "two sizes for a CPU",
    "quick": "one small size of every chain, to see that all is well",
    "numbers": "two sizes in float32, of all kinds of numbers",
    "host": "next to no work: for --host",
}


def points(presets: list, chains: list, sizes: list, dtypes: list, modes: list, device: str, numbers: list = ()) -> list:
    """The presets' points, in order and each once. A list that is not empty stands in for the presets' own."""
    result = []
    for block in (block for name in presets for block in PRESETS[name]):
        cases = [case for case in block.cases if not chains or case.rule in chains]
        if sizes:
            cases = [sized(rule, *size) for size in sizes for rule in chains or MODELS]
        for mode in modes or block.modes:
            for dtype in dtypes or block.dtypes:
                if dtype != "tf32" or device == "cuda":
                    result += [Point(case, dtype, mode, kind) for case in cases for kind in numbers or block.numbers]
    return list(dict.fromkeys(result))
