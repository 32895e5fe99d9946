"""hopper_batch_test.py where Hopper's kernel gathers batch statistics also of calls whose blocks could agree on them."""
import os

os.environ["TAILOR_HOPPER"] = "gather"

from checks import main
from hopper_batch_test import GATHERS, HopperBatchContractTest, HopperBatchTest  # noqa: F401

assert GATHERS and os.environ["TAILOR_HOPPER"] == "gather"

if __name__ == "__main__":
    main()
