"""What the tests of the tailor command share: a model's file in a folder of its own, and how the command ends."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch

import models
from checks import ROOT

COMMAND = os.environ.get("TAILOR_COMMAND", str(ROOT / "build" / "tailor"))
NET = "return self.bn(self.gemm(x) * self.scale)"


def saved(body=NET, seed=0):
    """The bytes of the net with this forward, as plain torch saves them: the library is not loaded in this process."""
    with tempfile.NamedTemporaryFile() as file:
        torch.jit.script(models.build(body, seed)).save(file.name, _extra_files={"note.txt": "hello", "sub/b.bin": b"\0\1"})
        return pathlib.Path(file.name).read_bytes()


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
