"""What tools/trust runs, and how: programs of tests/fuzz, the tests under gcc's sanitizers and on a GPU, and planted faults."""
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

import fault_overlay
from fault_suite import has_gpu
from trust_record import ROOT, amount, gpu, stopped

CORES = os.cpu_count() or 1
TESTS = ["ops_test", "passes_test", "tools_test", "kernels_test"]  # the GoogleTest programs
# Memory that there is not is refused as without a sanitizer, since tests ask for it.
SANITIZERS = {"ASAN_OPTIONS": "allocator_may_return_null=1", "TSAN_OPTIONS": "history_size=4", "UBSAN_OPTIONS": "print_stacktrace=1"}


class Wrong(Exception):
    """Something that is not a test's failure."""


@dataclasses.dataclass
class Build:
    folder: pathlib.Path
    jobs: int = 0  # processes of each program that makes some; 0: as many as suit it here
    seed: int = 1  # what is drawn

    def require(self):
        if not (self.folder / "libtailor.so").exists():
            raise Wrong(f"no build in {self.folder}: run cmake --workflow --preset test")

    def python(self):
        cache = (self.folder / "CMakeCache.txt").read_text()
        named = re.search(r"^TAILOR_TORCH_PYTHON:\w+=(.+)$", cache, re.M)
        return named[1] if named else str(self.folder / "torch-venv/bin/python")

    def environment(self, more=None):
        own = {"TAILOR_LIBRARY": str(self.folder / "libtailor.so"), "TAILOR_COMMAND": str(self.folder / "tailor"), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **own, **(more or {})}

    def sanitized(self, sanitizer, targets):
        """A build tree beside this one, in which these targets are instrumented."""
        folder = self.folder / f"sanitize-{sanitizer.split(',')[0]}"
        if not (folder / "build.ninja").exists():
            call(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DTAILOR_SANITIZE={sanitizer}", "-DTAILOR_CUDA=OFF",
                  f"-DTAILOR_TORCH_PYTHON={self.python()}"])
        call(["ninja", "-C", folder, *targets])
        return folder / "tests"


def call(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{shlex.join(str(word) for word in command)}\n{done.stdout[-4000:]}")


@dataclasses.dataclass
class Program:
    """One of tests/fuzz: takes --json FILE, and leaves a record there."""
    name: str
    title: str
    long: str  # its arguments, but for those of below
    script: str = ""  # a Python file, or else an executable of that name
    gpu: bool = False
    jobs: int = 0  # processes of it at once, at most; 0: it takes no number of them
    draws: bool = False  # takes a seed
    switches: dict = dataclasses.field(default_factory=dict)  # of the library, in its environment
    page: str = ""  # of its own, in docs/, which also says what became of parts that ran by themselves

    def why_not(self, build):
        if self.gpu and not has_gpu():
            return "it needs a GPU"
        return "" if self.script or (build.folder / "tests" / self.name).exists() else "there is no such program in the build"

    def arguments(self, build):
        jobs = ["--jobs", build.jobs or min(self.jobs, CORES)] if self.jobs else []
        return [*shlex.split(self.long), *jobs, *(["--seed", build.seed] if self.draws and build.seed != 1 else [])]

    def command(self, build):
        first = [build.python(), "-W", "ignore", ROOT / self.script] if self.script else [build.folder / "tests" / self.name]
        return [*first, *self.arguments(build)]

    def recorded(self, command):
        """A command as its record has it."""
        return " ".join([f"{name}={value}" for name, value in self.switches.items()] + [command.replace(f"{ROOT}/", "")])

    def how(self):
        """As tools/trust runs it."""
        return self.recorded(f"{self.program()} {self.long}".strip())

    def made(self, command):
        """Whether tools/trust makes such a record; with how many jobs, and of which seed, is for whoever runs it."""
        return re.sub(r" --(jobs|seed) \d+", "", command) == self.how()

    def program(self):
        return pathlib.Path(self.script).name if self.script else self.name

    def run(self, build, command=None, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "record.json"
            start = time.monotonic()
            done = subprocess.run([str(w) for w in [*(command or self.command(build)), "--json", file]], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, env=build.environment({**self.switches, **(environment or {})}), check=False)
            status = done.returncode
            if status:
                print(done.stdout[-100_000:])  # what failed, and how to have it again
            if not file.exists():
                return {"title": self.title, "what": f"It ended with status {status} and left no record.", "command": self.name,
                        "seconds": round(time.monotonic() - start, 1), "counts": {}, "failures": 1}
            record = json.loads(file.read_text())
            record.update(title=self.title, command=self.recorded(record["command"]), **({"gpu": gpu()} if self.gpu else {}))
            if status and not record["failures"]:  # a sanitizer found something
                record["failures"] = 1
            return record


@dataclasses.dataclass
class Tool(Program):
    """One of tools/, which takes --json FILE too. Where the build is, and torch, does not belong in its record."""
    builds: tuple = ()  # words that say that; {build} and {python} stand for them
    takes: str = ""  # a program that there must be in the PATH
    at_once: bool = False  # works in overlays, so many side by side as there are jobs

    def why_not(self, build):
        if self.gpu and not has_gpu():
            return "it needs a GPU"
        if self.takes and shutil.which(self.takes) is None:
            return f"there is no {self.takes} in the PATH"
        return fault_overlay.why_not(ROOT) if self.at_once else ""

    def program(self):
        return self.script

    def command(self, build):
        at_once = ["--at-once", build.jobs or CORES] if self.at_once else []
        return [build.python(), "-W", "ignore", ROOT / self.script, *shlex.split(self.long), *at_once,
                *(word.format(build=build.folder, python=build.python()) for word in self.builds)]

    def run(self, build, command=None, environment=None):
        return {**super().run(build, command, environment), "command": self.how()}


@dataclasses.dataclass
class ThreadsSanitized(Program):
    """stress_threads in a build of its own; a race that is planted must be seen first."""

    def why_not(self, build):
        return ""

    def program(self):
        return "stress_threads"

    def run(self, build, command=None, environment=None):
        tests = build.sanitized("thread", ["stress_threads"])
        planted = subprocess.run([tests / "stress_threads", *"--count 50 --threads 4 --race 1".split()], capture_output=True, text=True,
                                 env=build.environment(SANITIZERS), check=False)
        if "ThreadSanitizer: data race" not in planted.stderr:
            raise Wrong(f"the thread sanitizer does not see a planted race:\n{planted.stderr[-2000:]}")
        record = super().run(build, [tests / "stress_threads", *shlex.split(self.long)], SANITIZERS)
        return {**record, "what": "The same under gcc's thread sanitizer, which looks into Tailor's code and not into torch's, "
                "with no suppressions. A race that is planted first is seen."}


@dataclasses.dataclass
class TestsSanitized(Program):
    """The GoogleTest programs, and threads, in a build of its own."""

    def why_not(self, build):
        return ""

    def how(self):
        return f"tools/trust --only {self.name}"

    def run(self, build, command=None, environment=None):
        tests = build.sanitized("address,undefined", [*TESTS, "stress_threads"])
        start, counts, failures = time.monotonic(), {"tests": 0}, 0
        for program in TESTS:
            done = subprocess.run([tests / program], capture_output=True, text=True, env=build.environment(SANITIZERS), check=False, cwd=tests)
            passed = re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
            counts["tests"] += int(passed[1]) if passed else 0
            if done.returncode:
                failures += 1
                print((done.stdout + done.stderr)[-4000:])
        threads = super().run(build, [tests / "stress_threads", *shlex.split(self.long)], SANITIZERS)
        counts.update({f"{name}, on 16 threads" if name == "calls" else name: n for name, n in threads["counts"].items() if name != "threads"})
        return {"title": self.title, "what": "All GoogleTest programs, and threads over shared modules, under gcc's address, leak and "
                "undefined-behaviour sanitizers.", "command": self.how(), "seconds": round(time.monotonic() - start, 1),
                "counts": counts, "failures": failures + threads["failures"]}


@dataclasses.dataclass
class FreshClone(Program):
    """What CI does, and how long that takes: the last commit in a folder of its own, with neither torch nor a build."""
    most: int = 3600  # seconds

    def why_not(self, build):
        return ""

    def how(self):
        return self.long

    def run(self, build, command=None, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            clone = pathlib.Path(folder, "clone")
            call(["git", "clone", "--quiet", ROOT, clone])
            start = time.monotonic()
            done = subprocess.run([clone / self.long], cwd=clone, stdout=subprocess.PIPE, text=True, check=False)
            seconds = time.monotonic() - start
            left = {path.stem: json.loads(path.read_text()) for path in sorted((clone / "build/tests/records").glob("*.json"))}
            return self.record(done.stdout, done.returncode, seconds, left)

    def record(self, output, status, seconds, left):
        """Of a run that ended so, and by test_totals.py with a line of totals; and of the records that its short runs left."""
        last = (output.splitlines() or [""])[-1]
        counts = {name: int(number) for number, name in re.findall(r"(\d+) (tests|programs|passed|failed|skipped)\b", last)}
        failures = counts.pop("failed", 0)
        if not counts or (status and not failures):  # it has not come as far as the tests, or not to their end
            failures += 1
        if failures:
            print(output[-8000:])
        return {"title": self.title, "what": f"README.md's command for the tests, in a fresh clone: torch is fetched, all is built, every test "
                f"runs. More than {self.most // 60} minutes count as a failure.", "command": self.long, "seconds": round(seconds, 1),
                "counts": counts, "tables": {"short runs": {name: self.row(record) for name, record in left.items()}} if left else {},
                "failures": failures + (seconds > self.most)}

    @staticmethod
    def row(record):
        return {"how many": amount(record, record.get("asked") or None), "failed": record["failures"], "seconds": record["seconds"],
                "but": stopped(record)}


OPS = "tests/fuzz/ops_fuzz.py"
PLANTING = ("--work", "{build}/faults", "-D", "TAILOR_TORCH_PYTHON={python}")

# In the order of the page.
KNOWN = [
    FreshClone("ci", "CI", ".ci/run"),
    Program("fuzz_pass", "Models through the pass", "--count 1000000", jobs=CORES, draws=True),
    Program("fuzz_ops", "Ops", "--count 1000000", OPS, jobs=CORES, draws=True),
    # Each of these processes has a share of the GPU's memory.
    Program("fuzz_ops_cuda", "Ops on a GPU", "--device cuda --count 100000", OPS, gpu=True, jobs=4, draws=True),
    Program("fuzz_ops_hopper", "Ops on a GPU, Hopper's kernels forced", "--device cuda --count 20000", OPS, gpu=True, jobs=4, draws=True,
            switches={"TAILOR_HOPPER": "always"}),
    Program("fuzz_ops_hopper_192", "Ops on a GPU, tiles of 192 columns forced", "--device cuda --count 20000", OPS, gpu=True, jobs=4,
            draws=True, switches={"TAILOR_HOPPER": "always_192"}),
    Program("fuzz_ops_hopper_128", "Ops on a GPU, tiles of 128 columns forced", "--device cuda --count 20000", OPS, gpu=True, jobs=4,
            draws=True, switches={"TAILOR_HOPPER": "always_128"}),
    Program("fuzz_ops_hopper_narrow", "Ops on a GPU, a narrow last round forced", "--device cuda --count 20000", OPS, gpu=True, jobs=4,
            draws=True, switches={"TAILOR_HOPPER": "always_narrow"}),
    Program("fuzz_ops_gather", "Ops on a GPU, batch statistics gathered", "--device cuda --count 20000", OPS, gpu=True, jobs=4,
            draws=True, switches={"TAILOR_HOPPER": "gather"}),
    Program("fuzz_ops_few_rows", "Ops on a GPU, the kernels for few rows forced", "--device cuda --count 20000", OPS, gpu=True, jobs=4,
            draws=True, switches={"TAILOR_HOPPER": "few_rows"}),
    Program("fuzz_ops_strips", "Ops on a GPU, strips forced", "--device cuda --count 20000", OPS, gpu=True, jobs=4,
            draws=True, switches={"TAILOR_HOPPER": "strips"}),
    Program("fuzz_files", "Mutants of model files", "--count 100000", draws=True),
    Program("fuzz_reader", "The archive reader, guided by coverage", f"--corpus {ROOT}/tests/fuzz/corpus --seconds 3600", draws=True),
    Program("fuzz_writer", "Faults while a file is written", "--count 1000", draws=True),
    Program("stress_threads", "Threads", "--count 100000 --threads 16"),
    ThreadsSanitized("sanitize_thread", "Threads, sanitized", "--count 100000 --threads 16"),
    TestsSanitized("sanitize_address", "Tests, sanitized", "--count 2000 --threads 16"),
    Program("stress_memory", "Memory", "--count 1000000 --rounds 10000"),
    Tool("gpu_check", "Tests on a GPU", "", "tools/gpu-check", gpu=True, builds=("{build}",)),
    Tool("gpu_sanitize", "Kernels, sanitized", "", "tools/gpu-sanitize", gpu=True, takes="compute-sanitizer"),
    Tool("faults", "Planted faults", "--add", "tools/faults", builds=PLANTING, at_once=True, page="faults.md"),
    # Those of the above that a machine without a GPU leaves out, in a copy without overlays.
    Tool("faults_gpu", "Planted faults that need a GPU", "--gpu --add", "tools/faults", gpu=True, builds=PLANTING, page="faults.md"),
]


def programs(build):
    """Those above, and what else of that name there is in a build."""
    names = {program.name for program in KNOWN}
    found = sorted(path.name for pattern in ("fuzz_*", "stress_*") for path in (build.folder / "tests").glob(pattern)
                   if path.is_file() and os.access(path, os.X_OK) and path.name not in names and "_planted_" not in path.name)
    return KNOWN + [Program(name, name, "--seconds 600") for name in found]
