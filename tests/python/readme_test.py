"""The README's examples, run as they stand there: its Python and its calls of the command, one after the other."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMAND = os.environ.get("TAILOR_COMMAND", str(ROOT / "build" / "tailor"))


def library():
    return os.environ.get("TAILOR_LIBRARY", str(ROOT / "build" / "libtailor.so"))


def blocks(*languages):
    for language, text in re.findall(r"^ *```(\w+)\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL):
        if language in languages:
            yield language, textwrap.dedent(text)


def as_one_program():
    """Python as it is, shell commands as calls from it. Blocks that set up or build are not for a test."""
    parts = ["import subprocess"]
    for language, text in blocks("python", "sh"):
        if language == "python":
            parts.append(text)
        elif "build/tailor" in text:
            parts.append(f"subprocess.run({text!r}, shell=True, check=True, executable='/bin/bash', stdout=subprocess.DEVNULL)")
    return "\n".join(parts).replace("build/libtailor.so", library()).replace("build/tailor", COMMAND)


class ReadmeTest(unittest.TestCase):
    def test_examples(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "net.py").write_text(as_one_program())
            done = subprocess.run([sys.executable, "-W", "ignore", "net.py"], cwd=folder, capture_output=True, text=True,
                                  timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            said = [text for _, text in blocks("python")]
            said = re.findall(r"^print\(.*\)  # ([^:\n]*)", "".join(said), re.MULTILINE)
            self.assertGreaterEqual(len(said), 3, "each door shows that it was gone through")
            self.assertEqual(done.stdout.splitlines(), said)
            made = {path.name for path in pathlib.Path(folder).iterdir()}
            self.assertLessEqual({"model.pt", "fused.pt", "plain.pt", "graph.svg"}, made)

            def loads(name):
                code = f"import torch; torch.jit.load({name!r})"
                return subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=folder, capture_output=True,
                                      text=True, check=False)

            self.assertIn("Unknown builtin op: tailor::", loads("fused.pt").stderr)
            self.assertEqual(loads("plain.pt").returncode, 0, "a file from which Tailor was taken out")

    def test_each_door_has_an_example_of_few_lines(self):
        text = README.partition("## Three doors")[2].partition("\n## ")[0]
        doors = re.split(r"^### \d\. ", text, flags=re.MULTILINE)[1:]
        self.assertEqual(len(doors), 3)
        for door in doors:
            examples = re.findall(r"^```python\n(.*?)^```$", door, re.MULTILINE | re.DOTALL)
            self.assertEqual([len(example.splitlines()) <= 6 for example in examples], [True], door)

    def test_the_table_of_chains_is_that_of_the_formulas(self):
        chains = "".join(path.read_text() for path in (ROOT / "kernels" / "chains").iterdir())
        formulas = dict(re.findall(r"struct (\w+) \{.*?formula = (.*?);", chains, re.DOTALL))
        plain = {name: re.sub(r'(?:vec|scalar)<"(\w+)">', r"\1", formula) for name, formula in formulas.items()}
        self.assertEqual(dict(re.findall(r"^\| `tailor::(\w+)` \| `([^`]*)` \|", README, re.MULTILINE)), plain)

    def test_every_link_leads_somewhere(self):
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_every_option_of_the_command_is_in_the_table(self):
        for command in ("fuse", "inspect", "unfuse"):
            done = subprocess.run([COMMAND, "help", command], capture_output=True, text=True, check=True)
            for option in re.findall(r"^ +(--[a-z-]+)", done.stdout, re.MULTILINE):
                if option != "--output":  # -o, in every example
                    self.assertIn(f"`{option}", README, f"{command} {option}")


if __name__ == "__main__":
    unittest.main()
