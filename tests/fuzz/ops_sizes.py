"""Random calls of the sizes, alignments and group widths that the kernels for Hopper are for: around the edges of their tiles, strips
and steps. On a GPU most of the calls are of these; those of ops_cases.py hardly come to such kernels."""
import random

import torch

import ops_cases
from cases import OPS
from ops_cases import differentiate, disturb, spare_eager, with_arguments

SHARE = 0.75  # of a GPU's draws
# Tiles have 128 or 256 rows, strips 32, 64, 128 or 256; and what a warp has of them.
ROWS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 56, 63, 64, 65, 72, 100, 120, 127, 128, 129, 136, 200, 248, 255, 256, 257, 264, 300, 383,
        384, 385, 511, 512, 513, 600, 768, 1000, 1025, 1200]
COLUMNS = [64, 128, 192, 256, 384, 512, 576, 768]
# Steps have 32 or 64 numbers, and beyond 2048 warpgroups no longer take turns.
INNER = [8, 16, 24, 32, 56, 64, 72, 96, 120, 128, 136, 192, 200, 248, 256, 264, 320, 504, 512, 520, 760, 1000, 1024, 1032, 1096, 2056]
GROUPS = [16, 32, 64]
FITTING = ["wider rows", "8 elements in", "a row of many"]  # the copy engine reads these
MATRICES = [*FITTING * 3, "4 elements in", "padded rows", "1 elements in", "transposed", "every second"]
VECTORS = ["8 elements in", "3 elements in", "1 elements in", "a row of many", "every second", "expanded"]
MOST = 500_000  # elements of the matrices, so that eager costs little
MOST_OF_LARGE = 5_000_000


def takes(seed):
    """Whether this seed's call on a GPU is one of these."""
    return random.Random(f"share {seed}").random() < SHARE


def draw(seed):
    r = random.Random(f"sizes {seed}")
    odd = lambda probability: r.random() < probability  # noqa: E731
    op = r.choice(OPS)
    dtype, tf32 = r.choices([(torch.bfloat16, False), (torch.float16, False), (torch.float32, True), (torch.float32, False)], [28, 28, 18, 26])[0]
    group = r.choice(GROUPS) if odd(0.93) else r.choice([8, 24, 48, 128])
    rows, inner, columns = large(r) if odd(0.03) else sizes(r, dtype, group if op.group_norm else 1)
    if op.group_norm:
        columns = max(1, round(columns / group)) * group
    if tf32:  # longer sums, and batch statistics of fewer rows, make too much of what the tensor cores cut off
        rows, inner = max(rows, 9) if op.batch_norm else rows, min(inner, 520)
    middle = ()
    if not op.batch_norm and not op.group_norm and odd(0.2):
        middle = (r.choice([1, 2, 3]),)
    vector = (columns,) if (op.stem != "linear_batch_norm_add_div_swish") == odd(0.85) else r.choice([(), (1,), (1, 1)])
    case = with_arguments(r, op, seed, dtype, (rows, *middle, inner), (columns, inner), columns, vector, "cuda")
    if "num_groups" in case.others and case.others["num_groups"] > 0:
        case.others["num_groups"] = columns // group
    case.tf32 = tf32
    if odd(0.1):
        disturb(r, case, columns, inner)
    else:
        lay_out(r, case)
        fill(r, case)
        case.mode = r.choices(ops_cases.MODES, [56, 13, 22, 6, 3])[0]
        spare_eager(case)
    if case.mode == "grad":
        differentiate(r, op, case)
        if case.tensors["input"].content == "powers":  # gradients of them come near the largest number, where the order decides, too
            case.tensors["input"].content = case.tensors["weight"].content = "normal"
    for name in ("input", "weight"):
        if case.tensors[name].content == "special":
            case.tensors[name].content = "odd"  # of large products with both signs the order decides what overflows first
    spare_tf32(case)
    return case


def sizes(r, dtype, unit):
    """Rows, inner columns and columns, the latter in whole units and of whole packets, as the copy engine wants them; but for a few."""
    packet = 16 // dtype.itemsize
    while True:
        rows = r.choice(ROWS) if r.random() < 0.75 else int(2 ** (r.random() * 10.2))
        inner = r.choice(INNER) if r.random() < 0.75 else packet * r.randint(1, 1100 // packet)
        columns = r.choice(COLUMNS) + r.choice([0, 0, 0, -16, -8, 8, 16]) if r.random() < 0.75 else packet * r.randint(1, 700 // packet)
        if dtype == torch.float32 and r.random() < 0.15:
            inner += r.choice([1, 2, 3, 4])  # halves are made of any
        if r.random() < 0.04:
            inner, columns = max(1, inner + r.randint(-7, 7)), max(1, columns + r.randint(-7, 7))
        columns = max(1, columns // unit) * unit
        if rows * inner + inner * columns + rows * columns <= MOST:
            return rows, inner, columns


def large(r):
    """More tiles than processors, a weight that takes long to be read, or long sums."""
    while True:
        rows, inner, columns = r.choice([
            (r.choice([1200, 2049, 4000, 4100, 5000, 9000]), 8 * r.randint(1, 16), 64 * r.randint(1, 33)),
            (r.randint(16, 64), 8 * r.randint(64, 72), 64 * r.randint(60, 72)),
            (r.choice(ROWS), r.choice([2056, 3000, 4104]), r.choice(COLUMNS))])
        if rows * inner + inner * columns + rows * columns <= MOST_OF_LARGE:
            return rows, inner, columns


def lay_out(r, case):
    for name, spec in case.tensors.items():
        if spec and name in ("input", "weight"):
            if r.random() < 0.25:
                spec.layout = r.choice(MATRICES)
        elif spec and not name.startswith("running") and r.random() < 0.05:
            spec.layout = r.choice(VECTORS)


def fill(r, case):
    """With other numbers than normal ones: with pairs of matrices that make results doubtful, or with some special ones."""
    tensors = case.tensors
    if r.random() < 0.2:
        pairs = [("whole", "whole")]
        if tensors["input"].dtype == torch.float32 and not case.tf32:  # 16 bits, and TF32, lose what is cancelled
            pairs += [("powers", "powers undone"), ("one above", "zero below it")] * 2
        tensors["input"].content, tensors["weight"].content = r.choice(pairs)
        if tensors["weight"].content == "whole":
            tensors["weight"].spread = 1.0
    while r.random() < 0.1:
        spec = tensors[r.choice([n for n, t in tensors.items() if t is not None])]
        if spec.content not in ops_cases.PAIRED:
            spec.content, spec.share = r.choice(ops_cases.CONTENTS), r.choice([0.1, 3e-3, 1e-5])


def spare_tf32(case):
    """Tensor cores cut off where they add up. What makes much of small differences shows it, and cuBLAS may have multiplied otherwise."""
    if case.tf32:
        case.cotangent = "contiguous"  # of gradients that lie otherwise cuBLAS may not multiply in TF32 what the kernels do
    for name, spec in case.tensors.items() if case.tf32 else ():
        if not spec:
            continue
        if spec.content in ("special", "odd"):
            spec.content = "inf"
        elif spec.content in ("far", "constant", "huge", "large"):
            spec.content = "normal"
        elif name not in ("input", "weight") and spec.content not in ("inf", "nan"):
            spec.content = "normal"
