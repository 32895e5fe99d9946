"""Another torch than the one that Tailor was built with is reported on load, with both versions."""
import os
import subprocess
import sys
import unittest

import torch

LIBRARY = os.environ["TAILOR_LIBRARY"]


def load(**environment):
    """What loading the library prints in a process of its own."""
    script = f"import torch; torch.ops.load_library({LIBRARY!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


class VersionTest(unittest.TestCase):
    def test_same_torch_is_not_mentioned(self):
        self.assertNotIn("torch", load())

    def test_another_torch_is_reported_with_both_versions(self):
        said = load(LD_PRELOAD=os.environ["TAILOR_ANOTHER_TORCH"])
        self.assertIn(f"was built with torch {torch.__version__.split('+')[0]} and is running with torch 1.2.3", said)


if __name__ == "__main__":
    unittest.main()
