#!/usr/bin/env python3
"""Random calls of the ops against their chains in eager: ops_fuzz.py [options]

Shapes, ranks, dtypes, strides, offsets, optional arguments, special values, numbers, grad modes, gradients and what they
come in with are drawn; ops_cases.py says what from, on a GPU also ops_sizes.py, and ops_judge.py what must agree. A failure
prints the smallest case that still fails, for --case. The calls are made in children (--jobs N), so that a crash or
a hang names its case too.

A GPU's run counts which kernels its calls ran, and fails where it has not come to all that this GPU has (ops_kernels.py)."""
import collections
import math
import os
import pathlib
import statistics
import sys
import traceback

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # a parent that has asked CUDA itself leaves its children none
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

import torch

import checks
import ops_cases
import ops_kernels
import ops_sizes
from ops_judge import Judge
from ops_smaller import smaller
from program import Program

PRINTED = 5  # of the failures
ENOUGH = 200  # draws, for their median to be no matter of chance
# Of short sums, and of so few that cuBLAS cuts them up, these promise a bound and not SGEMM's error: docs/float32.md.
BOUNDED = ("fp16x3", "bf16x6")


def read_case(text):
    """A case as it was printed."""
    names = {str(d).removeprefix("torch."): d for d in (*ops_cases.FLOATS, *ops_cases.OTHERS)}
    return eval(text, {"__builtins__": {}, "Case": ops_cases.Case, "Tensor": ops_cases.Tensor, "inf": math.inf, "nan": math.nan, **names})


class Fuzzer:
    def __init__(self, program, device):
        self.program, self.device, self.judge = program, device, Judge()
        self.paths, self.modes, self.ratios = collections.Counter(), collections.Counter(), collections.defaultdict(list)
        self.kernels, self.capability = collections.Counter(), None
        self.first = ""  # the traceback of the first call that could not even be judged

    def why(self, case):
        try:
            return self.judge.judge(case)
        except Exception:  # noqa: BLE001, it is our own fault, and no less to be seen
            self.first = self.first or traceback.format_exc()
            return "none", traceback.format_exc(limit=-3), None

    def is_sized(self, seed):
        return self.device == "cuda" and ops_sizes.takes(seed)

    def draw(self, seed):
        return ops_sizes.draw(seed) if self.is_sized(seed) else ops_cases.draw(seed, self.device)

    def one(self, seed):
        case = self.draw(seed)
        path, wrong, ratio = self.why(case)
        stem = case.op.split(".")[0]
        self.paths[stem, path] += 1
        self.modes[case.mode] += 1
        if self.device == "cuda":
            self.capability = torch.cuda.get_device_capability()
            self.kernels.update((stem, kernel) for kernel in ops_kernels.kernels_of(case, path))
        if ratio is not None:
            self.ratios[stem, self.kind(case, path, self.is_sized(seed))].append(ratio)
        if wrong:
            self.program.fail(self.in_short(case) if self.program.failures < PRINTED else "")

    def kind(self, case, path, sized):
        """Of the ratios that are looked at together."""
        dtype = str(case.tensors["input"].dtype).removeprefix("torch.")
        bounded = [name for name in BOUNDED if sized and name in path.split("+")]
        return f"{dtype} by {bounded[0]}" if bounded else dtype

    def describe(self, seed):
        return self.draw(seed)

    def state(self):
        return self.paths, self.modes, dict(self.ratios), self.first, self.kernels, self.capability

    def merge(self, state):
        paths, modes, ratios, first, kernels, capability = state
        self.kernels += kernels
        self.capability = self.capability or capability
        if paths and all(path == "none" for _, path in paths):
            self.program.fail(f"a child could make none of its calls, the first because of\n{first}")
        self.paths += paths
        self.modes += modes
        for kind, found in ratios.items():
            self.ratios[kind] += found

    def in_short(self, case):
        least = smaller(case, lambda other: self.why(other)[1] is not None)
        return f"case {case.seed}: {self.why(least)[1]}\n  {sys.argv[0]} --case \"{least}\""

    def results(self, done):
        medians = collections.defaultdict(dict)
        for (stem, dtype), found in sorted(self.ratios.items()):
            medians[stem][dtype] = round(statistics.median(found), 3)
            if len(found) >= ENOUGH and medians[stem][dtype] > 1.0 and not dtype.endswith(BOUNDED):
                self.program.fail(f"{stem}, {dtype}: the median ratio of rms errors, fused over eager, is {medians[stem][dtype]}")
        paths = collections.defaultdict(dict)
        for (stem, path), count in sorted(self.paths.items()):
            paths[stem][path] = count
        tables = {"by path": paths, "by mode": dict(sorted(self.modes.items())), "median ratio of rms errors, where a kernel ran": medians}
        return {"counts": {"calls": done}, "asked": {"calls": self.program.options.count}, "tables": {**self.by_kernel(done), **tables}}

    def by_kernel(self, done):
        """What the calls on a GPU ran, and a failure for each kernel that none of them came to."""
        if self.device != "cuda":
            return {}
        expected = ops_kernels.expected(self.capability)
        if done >= ops_kernels.ENOUGH:
            for stem, kernel in sorted(expected - self.kernels.keys()):
                self.program.fail(f"{stem}: not one of {done} calls ran {kernel}")
        found = collections.defaultdict(dict)
        for kernel, stem in sorted((kernel, stem) for stem, kernel in expected | self.kernels.keys()):
            found[kernel][stem] = self.kernels[stem, kernel]
        return {"by kernel": found}


def there_is_a_gpu():
    """A child asks: where there is no NVML, torch asks CUDA itself, and whoever has done so must not fork."""
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.cuda.is_available() else 1)
    return os.waitpid(child, 0)[1] == 0


def main():
    program = Program("Ops", "Random calls of the ops against their chains in eager, on {device}.",
                      {"--device": "cpu", "--jobs": 1, "--case": ""})
    device = program.options.device
    program.what = program.what.format(device="the CPU" if device == "cpu" else "a GPU, most of them of sizes that Hopper's kernels are for")
    if device == "cuda":
        program.title = "Ops on a GPU"
    if device == "cuda" and not there_is_a_gpu():
        print("ops_fuzz: there is no GPU here, nothing is run")
        return 77
    checks.load()
    torch.set_num_threads(1)
    fuzzer = Fuzzer(program, device)
    if program.options.case:
        path, wrong, _ = fuzzer.why(read_case(program.options.case))
        print(f"{path}: {wrong or 'as eager'}")
        return 1 if wrong else 0
    return program.run_in_children(program.options.jobs, fuzzer)


if __name__ == "__main__":
    sys.exit(main())
