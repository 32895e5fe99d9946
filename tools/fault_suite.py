"""The tests as tools/faults sees them: what there is, and which of them fail, crash or hang."""
import concurrent.futures
import dataclasses
import fnmatch
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from fault_workshop import Wrong, plural

SKIPPED = 77  # the exit status of a test program that cannot run here, tests/CMakeLists.txt
STARTED = {"python/fuzz_arguments_test": ("tests/fuzz_files", "tests/fuzz_pass")}  # programs, by tests in Python


@functools.cache
def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def gpus():
    """As CUDA_VISIBLE_DEVICES names them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return [str(place) for place in range(len(re.findall("^GPU ", listed, re.M)))]


def gpus_from(place):
    """The environment of one of several programs that run side by side: all GPUs, and first another for each."""
    names = gpus()
    first = place % len(names)
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first:] + names[:first])}


def side_by_side():
    """How many programs that use a GPU."""
    return max(1, min(4 + 4 * len(gpus()), (os.cpu_count() or 1) // 2))


# Runs or lists the tests of one Python file, and writes what becomes of each as it happens: a crash must not lose it.
# Tests that one function makes for many parameters are one test here: `Class.test_*`.
PYTHON_RUNNER = r"""
import importlib.util, inspect, json, os, sys, time, unittest
path, out, wanted = sys.argv[1], open(sys.argv[2], "w"), json.loads(sys.argv[3])
sys.argv = [path]
sys.path.insert(0, os.path.dirname(path))
name = os.path.splitext(os.path.basename(path))[0]
spec = importlib.util.spec_from_file_location(name, path)
module = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
def flat(suite):
    for test in suite:
        yield from flat(test) if isinstance(test, unittest.TestSuite) else [test]
def code(test):
    method = getattr(test, test._testMethodName).__func__
    return type(test), inspect.unwrap(method).__code__  # what skips a test is the same code for all
tests = list(flat(unittest.defaultTestLoader.loadTestsFromModule(module)))
together = {}
for test in tests:
    together.setdefault(code(test), []).append(test)
def function(test):
    alone = len(together.get(code(test), [test])) == 1
    return f"{type(test).__name__}.{test._testMethodName if alone else 'test_*'}"
def say(what, test, text=""):
    case = getattr(test, "test_case", test)
    known = hasattr(case, "_testMethodName")
    print(json.dumps([what, function(case) if known else str(case), case._testMethodName if known else "", time.monotonic(), str(text)[-2000:]]), file=out, flush=True)
class Result(unittest.TestResult):
    def startTest(self, test): super().startTest(test); say("start", test)
    def stopTest(self, test): super().stopTest(test); say("stop", test)
    def addFailure(self, test, error): say("fail", test, error[1])
    def addError(self, test, error): say("fail", test, error[1])
    def addSubTest(self, test, sub, error):
        if error: say("fail", test, error[1])
    def addUnexpectedSuccess(self, test): say("fail", test)
    def addSkip(self, test, reason): say("skip", test, reason)
if wanted is None:
    for test in tests: say("list", test)
else:
    unittest.TestSuite(t for t in tests if function(t) in wanted).run(Result())
say("end", None)
"""


@dataclasses.dataclass
class Run:
    """What became of the tests of one program, by function."""
    failed: dict = dataclasses.field(default_factory=dict)  # how: "failed", "crashed", "hung"
    skipped: set = dataclasses.field(default_factory=set)
    passed: set = dataclasses.field(default_factory=set)
    seconds: dict = dataclasses.field(default_factory=dict)

    def add(self, other):
        self.failed = {**other.failed, **self.failed}
        self.skipped |= other.skipped
        self.passed |= other.passed
        self.seconds.update(other.seconds)


def execute(command, environment, limit, output):
    """Runs a process and all its children for `limit` seconds at most. Its exit status, and 'crashed' or 'hung' if it was."""
    with open(output, "w") as file:
        process = subprocess.Popen([str(c) for c in command], env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                   start_new_session=True, cwd=pathlib.Path(output).parent)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    return status, "hung" if status is None else "crashed" if status < 0 else ""


@dataclasses.dataclass
class Properties:
    """What CTest knows of an entry."""
    labels: list
    environment: dict  # all of it
    seconds: float  # that it may take
    says: list  # where that is not empty, it counts, and the exit status does not


def properties_of(entry):
    given = {p["name"]: p["value"] for p in entry.get("properties", [])}
    return Properties(given.get("LABELS", []), {**os.environ, **dict(e.split("=", 1) for e in given.get("ENVIRONMENT", []))},
                      float(given.get("TIMEOUT", 1500)), given.get("PASS_REGULAR_EXPRESSION", []))


class Program:
    """One entry of CTest: a GoogleTest program, a Python file, or a program that is one test."""

    def __init__(self, entry, folder):
        self.name, self.command, self.folder = entry["name"], entry["command"], folder
        properties = properties_of(entry)
        self.is_fuzzer, self.says, self.environment = "fuzz" in properties.labels, properties.says, properties.environment
        self.output = folder / (self.name.replace("/", "-") + ".out")
        self.events = self.output.with_suffix(".events")
        self.is_python = self.command[-1].endswith(".py")
        self.is_gtest = False
        self.functions = self.list_functions()

    def list_functions(self):
        if self.is_python:
            self.python(None, 300)
            return sorted({event[1] for event in self.read_events() if event[0] == "list"})
        listed = subprocess.run([*self.command, "--gtest_list_tests"], capture_output=True, text=True, env=self.environment, check=False).stdout
        suite, functions = "", set()
        for line in listed.splitlines():
            if re.match(r"\S+\.(\s|$)", line):
                suite, self.is_gtest = line.split()[0], True
            elif suite and line.startswith("  "):
                functions.add(self.function(suite + line.split()[0]))
        return sorted(functions) if self.is_gtest else ["main"]

    @staticmethod
    def function(test):
        """`Suite.Test` of `Prefix/Suite.Test/parameter`."""
        suite, _, name = test.partition(".")
        return f"{suite.split('/')[-1]}.{name.split('/')[0]}"

    def run(self, functions, limit):
        result, left = Run(), set(functions)
        for _ in range(6):  # after a crash the tests that it kept from running
            once = self.run_python(left, limit) if self.is_python else self.run_gtest(left, limit) if self.is_gtest else self.run_plain(limit)
            result.add(once)
            left -= {*result.failed, *result.skipped, *result.passed}
            if not left or not any(how in ("crashed", "hung") for how in once.failed.values()):
                break
        return result

    def run_plain(self, limit):
        begun = time.monotonic()
        status, end = execute(self.command, self.environment, limit, self.output)
        if status == SKIPPED:
            return Run(skipped={"main"})
        if self.says and end != "hung":
            said = self.output.read_text(errors="replace")
            status, end = int(not any(re.search(pattern, said) for pattern in self.says)), ""
        # Of how long it takes without a fault follows when it counts as hung with one.
        return Run(passed={"main"}, seconds={"main": time.monotonic() - begun}) if status == 0 else Run(failed={"main": end or "failed"})

    def run_gtest(self, functions, limit):
        words = [] if set(functions) == set(self.functions) else ["--gtest_filter=" + ":".join(f"{f}:*/{f}/*" for f in sorted(functions))]
        _, end = execute([*self.command, *words, "--gtest_color=no"], self.environment, limit, self.output)
        result, running = Run(), None
        for line in self.output.read_text(errors="replace").splitlines():
            found = re.search(r"\[( RUN      |       OK |  FAILED  |  SKIPPED )\] ([\w/]+\.[\w/]+)(?:,.*)?(?: \((\d+) ms\))?$", line)
            if not found:
                continue
            what, function = found[1].strip(), self.function(found[2])
            running = function if what == "RUN" else None
            if what == "FAILED":
                result.failed[function] = "failed"
            elif what != "RUN":
                (result.skipped if what == "SKIPPED" else result.passed).add(function)
            if found[3]:
                result.seconds[function] = result.seconds.get(function, 0) + int(found[3]) / 1000
        if end:
            result.failed[running or "(program)"] = end
        result.passed -= {*result.failed}
        return result

    def python(self, functions, limit):
        self.events.unlink(missing_ok=True)
        command = [self.command[0], "-c", PYTHON_RUNNER, self.command[-1], self.events, json.dumps(functions and sorted(functions))]
        return execute(command, self.environment, limit, self.output)[1]

    def read_events(self):
        lines = self.events.read_text().splitlines() if self.events.exists() else []
        return [json.loads(line) for line in lines if line.endswith("]")]

    def run_python(self, functions, limit):
        end = self.python(functions, limit)
        result, running, begun, ended = Run(), None, 0, False
        for what, function, _, when, _ in self.read_events():
            if what == "start":
                running, begun = function, when
            elif what == "stop":
                result.seconds[function] = result.seconds.get(function, 0) + when - begun
                result.passed.add(function)
                running = None
            elif what == "fail":
                result.failed[function] = "failed"
            elif what == "skip":
                result.skipped.add(function)
            ended = ended or what == "end"
        if not ended:  # also where it left by itself, such as on an exception while it was loaded
            result.failed[running or "(program)"] = end or "crashed"
        result.skipped -= {*result.failed}
        result.passed -= {*result.failed, *result.skipped}
        return result


def matches(test, pattern):
    return fnmatch.fnmatchcase(test, pattern) or test.startswith(pattern + "/")


def entries_of(build):
    """What CTest would run. It is asked from a folder of its own: it writes a log even if it only lists, and where it runs this
    very program, that log is being written."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "CTestTestfile.cmake").write_text(f'subdirs("{build}")\n')
        listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    return json.loads(listed)["tests"]


class Suite:
    def __init__(self, build, folder, patterns=None):
        """Of the programs that these patterns name, or all; what they print goes to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # most of them import torch
            programs = pool.map(lambda entry: Program(entry, folder),
                                [entry for entry in entries_of(build)
                                 if patterns is None or any((pattern + "/").startswith(entry["name"] + "/") for pattern in patterns)])
        self.programs = {program.name: program for program in programs}
        self.tests = [f"{name}/{function}" for name, program in self.programs.items() for function in program.functions]
        self.seconds, self.skipped = {}, set()

    def matching(self, patterns, who):
        chosen = set()
        for pattern in patterns:
            found = [t for t in self.tests if matches(t, pattern)]
            if not found:
                raise Wrong(f"{who}: there is no test {pattern}")
            chosen.update(found)
        return sorted(chosen)

    def of(self, fault):
        return self.matching(fault.tests + (fault.gpu_tests if has_gpu() else []), fault.name)

    def targets(self, tests, workshop):
        """What has to be built before these tests can run: what all Python tests load or start, what some of them do, and programs."""
        names = {t.rpartition("/")[0] for t in tests}
        commands = {pathlib.Path(self.programs[name].command[0]) for name in names}
        return ["libtailor.so", "tailor", "hopper_plan", *(target for name in sorted(names) for target in STARTED.get(name, ())),
                *(str(path.relative_to(workshop.build)) for path in commands if path.is_relative_to(workshop.build / "tests"))]

    def run(self, tests, limit=None):
        """How each of these tests failed that did."""
        failed = {}
        for name, program in self.programs.items():
            functions = [t.removeprefix(name + "/") for t in tests if t.startswith(name + "/")]
            if not functions:
                continue
            patience = limit or 60 + 6 * sum(self.seconds.get(f"{name}/{f}", 0) for f in functions)
            done = program.run(functions, patience)
            failed.update({f"{name}/{function}": how for function, how in done.failed.items()})
            if limit:
                self.seconds.update({f"{name}/{function}": seconds for function, seconds in done.seconds.items()})
                self.skipped.update(f"{name}/{function}" for function in done.skipped - done.passed)
        return failed

    def but_fuzzers(self):
        return [t for t in self.tests if not self.programs[t.rpartition("/")[0]].is_fuzzer]

    def run_without_faults(self, tests, workshop, at_once=1):
        """A test that fails by itself proves nothing. What has run on these sources need not run again."""
        path = workshop.folder / "clean.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        left = {}
        for name, program in self.programs.items():
            if known.get(name, {}).get("state") != (state := workshop.state(program)):
                known[name] = {"state": state, "passed": {}, "skipped": []}
            before = known[name]
            self.seconds.update(before["passed"])
            self.skipped.update(before["skipped"])
            left[name] = [t for t in tests if t.startswith(name + "/") and t not in before["passed"] and t not in before["skipped"]]

        def run(name):
            print(f"faults: {name}: running {plural(len(left[name]), 'test')} without a fault", flush=True)
            if failed := self.run(left[name], limit=1800):
                return failed
            known[name]["passed"].update({t: self.seconds.get(t, 0) for t in left[name] if t not in self.skipped})
            known[name]["skipped"] += [t for t in left[name] if t in self.skipped]
            path.write_text(json.dumps(known, indent=1))
            return {}

        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            failed = {test: how for some in pool.map(run, [name for name in left if left[name]]) for test, how in some.items()}
        if failed:
            raise Wrong("without any fault these fail: " + ", ".join(f"{test} ({how})" for test, how in failed.items()))


def tests_of(build):
    """All there are in a build, which stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        return Suite(build, pathlib.Path(folder)).tests
