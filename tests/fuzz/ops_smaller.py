"""Makes a failing case smaller: everything that can be ordinary is made so, as long as the case still fails."""
import copy

import torch

ORDINARY = {"num_groups": 1, "training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": True, "factor": 1.7, "divisor": -0.6}


def changed(case, **changes):
    other = copy.deepcopy(case)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def with_tensor(case, name, **changes):
    other = copy.deepcopy(case)
    if changes:
        for key, value in changes.items():
            setattr(other.tensors[name], key, value)
    else:
        other.tensors[name] = None
        other.leaves = tuple(n for n in other.leaves if n != name)
    return other


def resized(case, size, to):
    """Every dimension of this size, made another: what had to fit still fits."""
    other = copy.deepcopy(case)
    for spec in other.tensors.values():
        if spec:
            spec.shape = tuple(to if s == size else s for s in spec.shape)
    return other


def simpler(case):
    for name, ordinary in (("same", ()), ("twice", False), ("written", ""), ("by_backward", False), ("cotangent", "contiguous"), ("tf32", False)):
        if getattr(case, name) != ordinary:
            yield changed(case, **{name: ordinary})
    if case.mode != "no_grad":
        yield changed(case, mode="no_grad", leaves=(), twice=False, written="", by_backward=False, cotangent="contiguous")
    for name in case.leaves:
        yield changed(case, leaves=tuple(n for n in case.leaves if n != name))
    for name, spec in case.tensors.items():
        if spec is None:
            continue
        if name in ("bias", "norm_weight", "norm_bias"):
            yield with_tensor(case, name)
        for key, ordinary in (("layout", "contiguous"), ("content", "normal"), ("dtype", torch.float32)):
            if getattr(spec, key) != ordinary:
                yield with_tensor(case, name, **{key: ordinary})
        if len(spec.shape) > 2:
            yield with_tensor(case, name, shape=spec.shape[1:])
    dtypes = {spec.dtype for spec in case.tensors.values() if spec}
    for dtype in (torch.float32, torch.float64):
        if dtypes != {dtype} and dtypes != {torch.float32}:
            other = copy.deepcopy(case)
            for spec in other.tensors.values():
                if spec:
                    spec.dtype = dtype
            yield other
    for name, value in case.others.items():
        if value is not ORDINARY[name] and value != ORDINARY[name]:
            yield changed(case, others={**case.others, name: ORDINARY[name]})
    for size in sorted({s for spec in case.tensors.values() if spec for s in spec.shape}, reverse=True):
        for to in (1, 2, size // 2, size - 1):
            if 0 < to < size:
                yield resized(case, size, to)


def smaller(case, fails, trials=400):
    while True:
        for other in simpler(case):
            trials -= 1
            if trials < 0:
                return case
            if fails(other):
                case = other
                break
        else:
            return case
