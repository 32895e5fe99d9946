"""hopper_test.py and hopper_grid_test.py in tiles of 128 × 128."""
import os

os.environ["TAILOR_HOPPER"] = "always_128"

from checks import main
from hopper_grid_test import HopperGridTest  # noqa: F401
from hopper_test import HopperContractTest, HopperTest  # noqa: F401

if __name__ == "__main__":
    main()
