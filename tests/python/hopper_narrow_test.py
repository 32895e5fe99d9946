"""hopper_test.py and hopper_grid_test.py where the tiles of the last round are half as wide, if that leaves processors for all."""
import json
import os
import pathlib
import tempfile

os.environ["TAILOR_HOPPER"] = "always_narrow"

import torch

from cases import CHAINS
from checks import main
from hopper_grid_test import HopperGridTest
from hopper_test import HopperContractTest, HopperTest, profile_of, sized  # noqa: F401


def blocks_of(call):
    """How many blocks each of Hopper's kernels has that a call runs."""
    seen = profile_of(call)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        seen.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    return [event["args"]["grid"][0] for event in events if "chain_kernel" in event.get("name", "") and "grid" in event.get("args", {})]


class NarrowTest(HopperTest):
    def test_the_last_round_has_a_cluster_for_each_half(self):
        at_once = torch.cuda.get_device_properties(0).multi_processor_count // 2
        op = next(o for o in CHAINS if o.stem == "linear_sigmoid_mul_add")
        few = (300, 512)  # four tiles of a cluster
        half = (256 * (at_once // 2), 256)  # as many as there are processors for in halves
        more = (256 * (at_once // 2 + 1), 256)
        for (rows, columns), clusters in ((few, 8), (half, at_once // 2 * 2), (more, at_once // 2 + 1)):
            for dtype in (torch.bfloat16, torch.float16):
                arguments = sized(op, rows, columns, 64, dtype=dtype)
                self.assertEqual(blocks_of(lambda: op(arguments)), [2 * clusters], f"{rows} x {columns}, {dtype}")


HopperTest = None  # noqa: F811 — its tests are NarrowTest's

if __name__ == "__main__":
    main()
