"""Graphs of the kernels for float32 of few rows, replayed with new numbers (gpu_replays.py)."""
import os
import unittest

os.environ["TAILOR_HOPPER"] = "few_rows"  # also where it is slower

import torch

import gpu_replays
from checks import main
from gpu_replays import HOPPER


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class ReplaysTest(gpu_replays.ReplaysTest):
    dtypes = (torch.float32,)


if __name__ == "__main__":
    if not HOPPER:
        print("gpu_replays_few_rows_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
