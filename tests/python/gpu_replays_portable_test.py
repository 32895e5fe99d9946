"""Graphs of the kernels for all GPUs, replayed with new numbers (gpu_replays.py)."""
import os
import unittest

os.environ["TAILOR_HOPPER"] = "never"

import torch

import cases
import gpu_replays
from checks import main
from gpu_replays import GPU


@unittest.skipUnless(GPU, "there is no GPU here")
class ReplaysTest(gpu_replays.ReplaysTest):
    dtypes = cases.FLOATS

    @unittest.skipUnless(torch.cuda.device_count() > 1, "this needs two GPUs")
    def test_a_thousand_replays_on_two_devices_at_once(self):
        for (op, training), dtype in self.kinds():
            self.at_once(op, dtype, training, [torch.cuda.Stream(device) for device in ("cuda:0", "cuda:1")])


if __name__ == "__main__":
    if not GPU:
        print("gpu_replays_portable_test: no GPU here, all of it is skipped", flush=True)
    elif torch.cuda.device_count() < 2:
        print("gpu_replays_portable_test: one GPU here, what needs two is skipped", flush=True)
    main()
