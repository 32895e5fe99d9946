"""Graphs of the kernels for strips of few rows, of 16-bit elements and of float32's halves, replayed with new numbers (gpu_replays.py)."""
import os
import unittest

os.environ["TAILOR_HOPPER"] = "strips"  # also where it is slower

import torch

import gpu_replays
from checks import main
from gpu_replays import HOPPER


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class ReplaysTest(gpu_replays.ReplaysTest):
    dtypes, gradients, batch_statistics = (torch.bfloat16, torch.float16, torch.float32), (False,), (False,)  # they have no others


if __name__ == "__main__":
    if not HOPPER:
        print("gpu_replays_strips_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
