"""What the tests of the tailor command share: a model's file in a folder of its own, and how the command ends."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

import models
from checks import ROOT, library

COMMAND = os.environ.get("TAILOR_COMMAND", str(ROOT / "build" / "tailor"))
NET = "return self.bn(self.gemm(x) * self.scale)"
TWO_MORE = "def forward(self, x, d: Dict[str, Tensor], s: float):\n    return self.bn(self.gemm(x + d['k']) * self.scale) * s"
INPUT = f"--input=float32[{models.B},{models.K}]"


def saved(body=NET, seed=0):
    """The bytes of the net with this forward, as plain torch saves them: the library is not loaded in this process."""
    with tempfile.NamedTemporaryFile() as file:
        torch.jit.script(models.build(body, seed)).save(file.name, _extra_files={"note.txt": "hello", "sub/b.bin": b"\0\1"})
        return pathlib.Path(file.name).read_bytes()


def outputs(*paths):
    """What each file computes, in a process of its own that has the library."""
    code = ("import sys, torch; torch.ops.load_library(sys.argv[1]); torch.ops.tailor.auto(False); torch.manual_seed(1)\n"
            f"x = torch.randn({models.B}, {models.K})\n"
            "for path in sys.argv[2:]:\n"
            "    m = torch.jit.load(path); y = m.train()(x); z = m.eval()(x)\n"
            "    print([*y.flatten().tolist(), *z.flatten().tolist(), *[v.sum().item() for v in m.state_dict().values()]])")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, library(), *map(str, paths)], capture_output=True, text=True, check=True)
    return [torch.tensor(json.loads(line.replace("nan", "NaN"))) for line in done.stdout.splitlines()]


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = saved()

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.source, self.target = self.folder / "model.pt", self.folder / "fused.pt"
        self.source.write_bytes(self.model)

    def run_command(self, *words, **options):
        return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=300, **options)

    def done(self, *words, **options):
        result = self.run_command(*words, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return result.stdout

    def refused(self, status, *words, says="", leaves=("model.pt",), **options):
        """The command fails with this status and one line, and the folder holds what it held."""
        result = self.run_command(*words, **options)
        self.assertEqual(result.returncode, status, result)
        self.assertRegex(result.stderr, r"\Atailor: [^\n]+\n\Z")
        self.assertIn(says, result.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(leaves), result)
        return result
