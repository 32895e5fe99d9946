"""Installs Tailor, moves the installed tree, and builds and runs somebody else's program against it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ["TAILOR_LIBRARY"]).parent
ROOT = HERE.parents[1]
FEATURES = "320"  # of the model in fuse.py, and of the README's


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tailor-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("cmake", "--install", BUILD, "--prefix", cls.folder / "first")
        cls.tailor = (cls.folder / "first").rename(cls.folder / "moved")
        (cls.library,) = cls.tailor.glob("lib*/**/libtailor.so")
        run(sys.executable, HERE / "fuse.py", cls.library, cwd=cls.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools")})
        cls.build(HERE, "consumer")

    @classmethod
    def build(cls, source, name):
        run("cmake", "-G", "Ninja", "-S", source, "-B", cls.folder / name, "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_PREFIX_PATH={cls.tailor}")
        run("cmake", "--build", cls.folder / name, "-j2")

    def consumer(self, program, model):
        return run(self.folder / "consumer" / program, self.folder / model, FEATURES)

    def assert_near(self, one, other):
        # Sums of 2,560 float32 results, of which the last digits may differ: as texts they differ where a digit rounds over.
        self.assertAlmostEqual(float(one), float(other), delta=1e-3)

    def test_program_that_only_loads_runs_a_fused_file(self):
        self.assert_near(self.consumer("run_fused", "fused.pt"), self.consumer("run_fused", "model.pt"))

    def test_program_that_fuses_computes_what_the_model_did(self):
        self.assert_near(self.consumer("fuse_and_run", "model.pt"), self.consumer("run_fused", "model.pt"))

    def test_the_readme_s_program_and_its_cmake(self):
        readme = (ROOT / "README.md").read_text()
        blocks = {language: re.search(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)[1] for language in ("cpp", "cmake")}
        source = self.folder / "readme"
        source.mkdir()
        (source / "program.cpp").write_text(blocks["cpp"])
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(Program LANGUAGES CXX)\n" + blocks["cmake"])
        self.build(source, "program")
        said = run(self.folder / "program" / "program", cwd=self.folder)  # it reads model.pt
        self.assertIn('"rule": "linear_mul_batch_norm"', said)
        self.assertEqual(said.splitlines()[-1], "[16, 160]")

    def test_no_components(self):
        source = self.folder / "components"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(Program LANGUAGES CXX)\nfind_package(Tailor REQUIRED COMPONENTS gpu)\n")
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.tailor}"],
                              capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Tailor has no component gpu", " ".join(done.stderr.split()))

    def test_examples_are_short(self):
        self.assertLess(len((HERE / "fuse.py").read_text().splitlines()), 10)
        for program in HERE.glob("*.cpp"):
            self.assertLess(len(program.read_text().splitlines()), 40, program)

    def test_fused_file_needs_tailor(self):
        script = f"import torch; torch.jit.load('{self.folder}/fused.pt')"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertIn("Unknown builtin op: tailor::", done.stderr)

    def test_installed_command_runs(self):
        self.assertIn("linear_mul_batch_norm", run(self.tailor / "bin" / "tailor", "inspect", self.folder / "fused.pt"))

    def test_nothing_installed_names_the_build_tree_or_the_first_place(self):
        for file in self.tailor.rglob("*.cmake"):
            # A torch that was fetched into the build tree is the one thing that stays there.
            text = file.read_text().replace(f"{BUILD}/torch-venv", "")
            self.assertNotIn(f"{BUILD}/", text, file)
            self.assertNotIn(f"{self.folder}/first", text, file)


if __name__ == "__main__":
    unittest.main()
