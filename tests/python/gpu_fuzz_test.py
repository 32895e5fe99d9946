"""What the ops' fuzzer draws for a GPU, and what it makes of the kernels that its calls ran. This needs no GPU; fuzz_ops_cuda does."""
import collections
import pathlib
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fuzz"))

import torch

import ops_fuzz
import ops_kernels
import ops_sizes
from cases import CHAINS
from checks import main
from ops_cases import Case, Tensor

HOPPER = (9, 0)
SEEDS = range(10_000_000, 10_003_000)


def fuzzer(device, failures):
    return ops_fuzz.Fuzzer(types.SimpleNamespace(fail=failures.append), device)


class DrawTest(unittest.TestCase):
    def test_a_seed_is_a_case(self):
        on_a_gpu = fuzzer("cuda", [])
        for seed in SEEDS[:200]:
            self.assertEqual(repr(on_a_gpu.draw(seed)), repr(on_a_gpu.draw(seed)))

    def test_the_cpu_s_are_not_of_these_sizes(self):
        on_the_cpu = fuzzer("cpu", [])
        self.assertFalse(any(on_the_cpu.is_sized(seed) for seed in SEEDS))

    def test_sizes_are_those_of_the_kernels(self):
        """Of each dtype and rule, and of each width of groups, enough for a run of some thousand calls to come to all."""
        on_a_gpu, found = fuzzer("cuda", []), collections.Counter()
        for seed in SEEDS:
            case = on_a_gpu.draw(seed)
            x, weight = case.tensors["input"], case.tensors["weight"]
            if not on_a_gpu.is_sized(seed) or len(x.shape) != 2 or len(weight.shape) != 2 or x.dtype != weight.dtype:
                continue
            packet = 16 // x.dtype.itemsize
            if x.shape[1] % packet or weight.shape[0] % packet:
                continue
            found["TF32" if case.tf32 else x.dtype, case.op.split(".")[0]] += 1
            if case.others.get("num_groups"):
                found["group", weight.shape[0] // case.others["num_groups"]] += 1
        for dtype in (torch.bfloat16, torch.float16, torch.float32, "TF32"):
            for op in CHAINS:
                self.assertGreater(found[dtype, op.stem], 20, f"{op} {dtype}")
        for width in ops_sizes.GROUPS:
            self.assertGreater(found["group", width], 100, f"groups of {width}")
        self.assertGreater(sum(count for (kind, _), count in found.items() if kind != "group"), 0.5 * len(SEEDS))


class KernelsTest(unittest.TestCase):
    def case(self, dtype, tf32=False, **others):
        return Case("linear_mul_batch_norm", 1, {"input": Tensor((4, 8), dtype)}, others, tf32=tf32)

    def test_names(self):
        for case, path, wanted in (
                (self.case(torch.bfloat16), "hopper", ["hopper, bfloat16"]),
                (self.case(torch.float16, training=True), "hopper", ["hopper, agreeing, float16"]),
                (self.case(torch.float32, tf32=True), "cuda+hopper_gather", ["cuda", "hopper_gather, TF32"]),
                (self.case(torch.float32), "fp16x3", ["fp16x3"]),
                (self.case(torch.float32), "cuda+cuda_backward+fp16x3", ["cuda", "cuda_backward", "linear by fp16x3"]),
                (self.case(torch.float32), "cuda_backward+fp16x3", ["cuda_backward", "fp16x3", "linear by fp16x3"]),
                (self.case(torch.float32), "reference", []), (self.case(torch.float32), "refused, as by eager", [])):
            self.assertEqual(list(ops_kernels.kernels_of(case, path)), wanted)

    def failures_of(self, missing=(), done=ops_kernels.ENOUGH):
        failures = []
        judged = fuzzer("cuda", failures)
        judged.capability = HOPPER
        judged.kernels.update(ops_kernels.expected(HOPPER) - set(missing))
        rows = judged.by_kernel(done)["by kernel"]
        for stem, kernel in missing:
            self.assertEqual(rows[kernel][stem], 0)
        return failures

    def test_a_kernel_that_no_call_came_to_is_a_failure(self):
        self.assertEqual(self.failures_of(), [])
        for each in ops_kernels.expected(HOPPER):
            self.assertEqual(self.failures_of([each]), [f"{each[0]}: not one of {ops_kernels.ENOUGH} calls ran {each[1]}"])
        self.assertEqual(self.failures_of([each], done=100), [], "too few for that")

    def test_what_must_be_come_to(self):
        def kernels(wanted, capability=HOPPER):
            return {kernel for _, kernel in ops_kernels.expected(capability, wanted)}
        self.assertEqual(kernels("never"), {"cuda", "cuda_backward"})
        self.assertEqual(kernels("always", (8, 0)), {"cuda", "cuda_backward"})
        for many in ("always", "always_192", "always_128", "always_narrow", "gather"):
            self.assertIn("hopper_gather, TF32", kernels(many))
            self.assertEqual("hopper, agreeing, float16" in kernels(many), many != "gather")
        self.assertTrue({"bf16x6", "linear by bf16x6"} <= kernels("few_rows"))
        for wanted in ("", "always", "strips"):
            self.assertTrue({"fp16x3", "hopper, bfloat16"} <= kernels(wanted))


if __name__ == "__main__":
    main()
