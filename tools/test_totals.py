"""The last lines of a run of CTest. Of each entry that was to leave a record, what that says: CTest shows what an entry printed
only where it failed. And how many tests passed, failed and were skipped: CTest itself counts its entries, and most of them are
programs that hold many tests. It runs this when it is done (tools/cmake/TailorTotals.cmake), in the build tree, where it left
its log, and before, with `begin`, so that no record of an earlier run is taken for one of this."""
import json
import pathlib
import re

import trust_record
from arguments import Parser

FOLDER = pathlib.Path("Testing/Temporary")
BEGUN = FOLDER / "Begun"


def of_google_test(output):
    """Each test has a line when it ends, with its time. The list of failed ones that comes last is without."""
    ended = re.findall(r"\[( {7}OK | {2}FAILED {2}| {2}SKIPPED )\] \S+\.\S.*\(\d+ ms\)$", output, re.MULTILINE)
    words = [word.strip() for word in ended]
    return words.count("OK"), words.count("FAILED"), words.count("SKIPPED")


def of_unittest(output):
    """`Ran 5 tests in 0.1s`, and below `OK (skipped=1)` or `FAILED (failures=1, errors=2)`. The last one counts, for a test
    may show what another process printed."""
    found = re.findall(r"^Ran (\d+) tests? in .*\n\s*(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", output, re.MULTILINE)
    ran, more = found[-1] if found else (0, "")
    numbers = dict(part.split("=") for part in more.split(", ") if part)
    failed = sum(int(numbers.get(name, 0)) for name in ("failures", "errors", "unexpected successes"))
    skipped = int(numbers.get("skipped", 0))
    return max(int(ran) - failed - skipped, 0), failed, skipped  # one test may fail in several of its parts


def of_program(output, has_failed, was_skipped):
    """Passed, failed and skipped in one entry of CTest. A program that says nothing of tests is one."""
    passed, failed, skipped = (sum(numbers) for numbers in zip(of_google_test(output), of_unittest(output)))
    if has_failed:  # it may also have crashed, or taken too long, after all that it said
        return passed, max(failed, 1), skipped
    if passed + failed + skipped:
        return passed, failed, skipped
    return (0, 0, 1) if was_skipped else (1, 0, 0)


def plural(number, thing):
    return f"{number} {thing}" + ("s" if number != 1 else "")


def totals(log, failed=(), skipped=()):
    """The line. `failed` and `skipped` are names of CTest's entries."""
    entry = re.compile(r"^\d+/\d+ Test: (.*)\n(?:.*\n){3}Output:\n-+\n((?:.*\n)*?.*)<end of output>$", re.MULTILINE)
    counts = [of_program(output, name in failed, name in skipped) for name, output in entry.findall(log)]
    passed, failed, skipped = (sum(count[place] for count in counts) for place in range(3))
    return (f"{plural(passed + failed + skipped, 'test')} in {plural(len(counts), 'program')}: "
            f"{passed} passed, {failed} failed, {skipped} skipped")


def record_in(path):
    """Of this run, or nothing where the entry came to no end."""
    try:
        since = BEGUN.stat().st_mtime_ns if BEGUN.exists() else 0
        return json.loads(path.read_text()) if path.stat().st_mtime_ns >= since else None
    except (FileNotFoundError, ValueError):
        return None


def short_runs(log, skipped=()):
    """A line for each entry that was to leave a record."""
    for name, path in sorted(re.findall(r'^\d+/\d+ Test: (.*)\nCommand: .*"--json" "([^"]+)"', log, re.MULTILINE)):
        record = record_in(pathlib.Path(path))
        yield trust_record.line(name, record) if record else f"{name}: " + ("skipped" if name in skipped else "it left no record")


def last_log():
    """CTest gives its log the final name only after this ran."""
    there = [path for path in (FOLDER / "LastTest.log.tmp", FOLDER / "LastTest.log") if path.exists()]
    return max(there, key=lambda path: path.stat().st_mtime_ns, default=None)


def names(file, log):
    """Of this run: where no entry failed, or none was skipped, the list of an earlier run is left."""
    path = FOLDER / file
    if not path.exists() or path.stat().st_mtime_ns < log.stat().st_mtime_ns:
        return set()
    return {line.partition(":")[2] for line in path.read_text().splitlines()}


def begin():
    FOLDER.mkdir(parents=True, exist_ok=True)
    BEGUN.touch()


def main():
    parser = Parser(description=__doc__, prog="tools/test_totals.py")
    parser.add_argument("begin", nargs="?", choices=["begin"], help=f"before the run: only leave the mark {BEGUN}")
    if parser.parse_args().begin:
        return begin()
    if (log := last_log()) is None:
        parser.error(f"there is no log of CTest in {FOLDER}: run this in a build tree whose tests have run")
    text, failed, skipped = log.read_text(errors="replace"), names("LastTestsFailed.log", log), names("LastTestsDisabled.log", log)
    print(*short_runs(text, skipped), totals(text, failed, skipped), sep="\n")


if __name__ == "__main__":
    main()
