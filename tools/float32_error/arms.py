"""Who multiplies: Tailor, and the two that it is measured against."""
import os

import torch
import torch.nn.functional as F

from benchmark.paths import paths_of

RULE = "linear_mul_batch_norm"
KERNELS = {"fp16x3": "always", "bf16x6": "few_rows"}  # and how each is had also where it is slower: no speed is measured
WORDS = {"tailor": "Tailor", "sgemm": "cuBLAS SGEMM", "tf32": "TF32"}
EPS = 2.0**-20


def bare(x, weight, bias=None):
    """The product through a chain whose tail changes nothing: times 1, less 0, times 1/√(var + eps), plus 0. In float32
    var + eps is 1 exactly, its root's reciprocal too, and a product with 1 and a sum with 0 are not rounded."""
    columns = weight.shape[0]
    return torch.ops.tailor.linear_mul_batch_norm.inference(
        x, weight, bias, x.new_ones(1), None, None, x.new_zeros(columns), x.new_full((columns,), 1 - EPS), EPS, True)


def path_of(call) -> tuple:
    """What the call gives, and the path that it took."""
    before = dict(torch.ops.tailor.calls())
    value = call()
    added = {key: count - before.get(key, 0) for key, count in torch.ops.tailor.calls().items()}
    return value, "+".join(paths_of(RULE, added))


def linear(x, weight, tf32: bool):
    old = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return F.linear(x, weight)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = old


def load(library: str, kernel: str):
    os.environ["TAILOR_HOPPER"] = KERNELS[kernel]
    torch.ops.load_library(library)
    torch.ops.tailor.auto(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)


def tail_is_exact(device: str) -> bool:
    """Small integers, whose sums no order rounds, come through as they are."""
    generator = torch.Generator(device).manual_seed(0)
    x, weight = (torch.randint(-4, 5, (rows, 512), device=device, generator=generator).float() for rows in (64, 128))
    return torch.equal(bare(x, weight), linear(x, weight, tf32=False))
