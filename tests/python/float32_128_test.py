"""float32_test.py and float32_calls_test.py in tiles of 128 × 128."""
import os

os.environ["TAILOR_HOPPER"] = "always_128"

from checks import main
from float32_calls_test import BesideTest, CallsTest
from float32_test import ErrorTest, Float32ContractTest, LongSumsContractTest, SpecialValuesTest, ValuesTest

__all__ = ["BesideTest", "CallsTest", "ErrorTest", "Float32ContractTest", "LongSumsContractTest", "SpecialValuesTest", "ValuesTest"]

if __name__ == "__main__":
    main()
