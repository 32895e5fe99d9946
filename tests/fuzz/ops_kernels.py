"""Which kernel a call ran, by the paths that it was counted on, and which kernels a run on this GPU must have come to."""
import os

from cases import CHAINS

ENOUGH = 8000  # calls, for every kernel to have been drawn for every rule
SIXTEEN = ("bfloat16", "float16")


def kernels_of(case, path):
    """A path of torch.ops.tailor.calls() may be several kernels, which the call's dtype and its statistics tell apart."""
    paths = set(path.split("+"))
    dtype = "TF32" if case.tf32 else str(case.tensors["input"].dtype).removeprefix("torch.")
    for name in sorted(paths):
        if name == "hopper":
            yield f"hopper, {'agreeing, ' if case.others.get('training') else ''}{dtype}"
        elif name == "hopper_gather":
            yield f"{name}, {dtype}"
        elif name in ("fp16x3", "bf16x6"):
            # Beside a tail's kernel it is the linear's, beside a backward that of its products as well.
            if "cuda" not in paths:
                yield name
            if paths & {"cuda", "cuda_backward"}:
                yield f"linear by {name}"
        elif name.startswith("cuda") or name == "fp16x3_shared":
            yield name


def expected(capability, wanted=None):
    """(rule, kernel) of all that must have run; `wanted` as TAILOR_HOPPER, which is that of the environment."""
    wanted = os.environ.get("TAILOR_HOPPER", "") if wanted is None else wanted
    every = ["cuda", "cuda_backward"]
    if capability != (9, 0) or wanted == "never":
        return {(op.stem, kernel) for op in CHAINS for kernel in every}
    many = wanted in ("always", "always_192", "always_128", "always_narrow", "gather")
    every += [f"hopper, {dtype}" for dtype in SIXTEEN]
    if many or not wanted:
        every.append("hopper, TF32")
    if wanted == "few_rows":
        every.append("bf16x6")
    if wanted != "few_rows":
        every.append("fp16x3")
    if many:
        every.append("fp16x3_shared")
    if wanted:
        every.append("linear by bf16x6" if wanted == "few_rows" else "linear by fp16x3")
    of_batch_norms = []
    if many:
        of_batch_norms = [f"hopper_gather, {dtype}" for dtype in (*SIXTEEN, "TF32")]
    if many and wanted != "gather":
        of_batch_norms += [f"hopper, agreeing, {dtype}" for dtype in SIXTEEN]
    return {(op.stem, kernel) for op in CHAINS for kernel in [*every, *(of_batch_norms if op.batch_norm else [])]}
