"""hopper_test.py and hopper_grid_test.py in tiles of 128 × 192."""
import os

os.environ["TAILOR_HOPPER"] = "always_192"

from checks import main
from hopper_grid_test import HopperGridTest
from hopper_test import HopperContractTest, HopperTest  # noqa: F401

HopperGridTest.test_float32 = None  # halves have their own tiles

if __name__ == "__main__":
    main()
