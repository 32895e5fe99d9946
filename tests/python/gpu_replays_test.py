"""Graphs of Hopper's kernels, of tiles of many rows and of batch statistics, replayed with new numbers (gpu_replays.py); also beside each
other, and on two GPUs where there are two. The other files of that name have the other kernels."""
import os
import unittest

os.environ["TAILOR_HOPPER"] = "always"  # also where it is slower

import torch

import gpu_replays
from checks import main
from gpu_replays import HOPPER, TF32, allowed

TWO = HOPPER and torch.cuda.device_count() > 1


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class ReplaysTest(gpu_replays.ReplaysTest):
    dtypes = (torch.bfloat16, torch.float16, torch.float32, TF32)

    @unittest.skipUnless(TWO, "this needs two GPUs")
    def test_a_thousand_replays_on_two_devices_at_once(self):
        for (op, training), dtype in self.kinds():
            with allowed(dtype == TF32):
                self.at_once(op, dtype, training, [torch.cuda.Stream(device) for device in ("cuda:0", "cuda:1")])
                self.assertEqual(torch.cuda.current_device(), 0)


if __name__ == "__main__":
    if not HOPPER:
        print("gpu_replays_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    elif not TWO:
        print("gpu_replays_test: one GPU here, what needs two is skipped", flush=True)
    main()
