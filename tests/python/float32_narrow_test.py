"""float32_test.py and float32_calls_test.py where the tiles of the last round are half as wide, if that leaves processors for all."""
import os

os.environ["TAILOR_HOPPER"] = "always_narrow"

from checks import main
from float32_calls_test import BesideTest, CallsTest
from float32_test import ErrorTest, Float32ContractTest, LongSumsContractTest, SpecialValuesTest, ValuesTest

__all__ = ["BesideTest", "CallsTest", "ErrorTest", "Float32ContractTest", "LongSumsContractTest", "SpecialValuesTest", "ValuesTest"]

if __name__ == "__main__":
    main()
