"""docs/faults.md: all of it, after a run of all faults, or the rows of some, after a run of those. What it says of tests is counted
each time it is written: those that there are in a build, against those that its rows name."""
import datetime
import fnmatch
import re
import sys
import tomllib

from fault_suite import matches
from fault_workshop import ROOT, plural

EXPLAINED = ROOT / "tools" / "faults.d" / "never.toml"
PAGE = ROOT / "docs" / "faults.md"
OUTCOMES = {"survived": "Survived", "caught": "Caught"}  # and the titles of their tables
EARLIER = "earlier"  # for a commit, in rows from a page that did not keep that of each
NOT_PLANTED = {True: "Not planted here", False: "Not planted yet"}  # of faults that need a GPU, and of others

HEAD = """# Faults

`tools/faults` wrote this page. It plants the faults that are listed in `tools/faults.d/`, one at a time, builds, and runs the
tests that should notice. A test that nobody has seen fail proves little: so this is also the list of which tests were seen to.
Of the tests that noticed a fault its row names a few, and all that no other row names.
"""


def caught_by(result, named, names=3):
    """The first few, and all that no other row names: what is nowhere on the page counts as never seen to fail."""
    by = sorted(result.get("by", {}).items(), key=lambda item: item[1] == "failed")  # what crashed or hung is said
    shown = [(name, how) for i, (name, how) in enumerate(by) if i < names or name not in named]
    named.update(name for name, _ in shown)
    text = ", ".join(f"`{name}`" + ("" if how == "failed" else f" ({how})") for name, how in shown)
    return text + (f" and {len(by) - len(shown)} more" if len(by) > len(shown) else "")


def named_in(row):
    return re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])


def reasons_of(never, tests, faults, rows):
    """Why some of them cannot be seen to fail, or which fault to plant again: it has them run, and perhaps one of those that
    its row does not name is this."""
    reasons = {}
    for test in never:
        named = [f"`{name}`" for name, fault in faults.items() if any(matches(test, pattern) for pattern in fault.tests + fault.gpu_tests)]
        if named:
            named.sort(key=lambda name: not re.search(r" and \d+ more \|$", rows.get(name.strip("`"), "")))
            reasons[test] = f"one of the tests of {', '.join(named[:3])}" + (f" and {len(named) - 3} more faults" if len(named) > 3 else "")
    for pattern, reason in (tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}).items():
        for test in fnmatch.filter(tests, pattern):
            if test not in never:
                print(f"faults: {EXPLAINED.name} explains {test}, which has been seen to fail", file=sys.stderr)
            reasons[test] = reason
    return reasons


def commit_in(row):
    """At which its fault was last planted. Pages were written that did not keep it."""
    found = re.search(r" \| ((?:[0-9a-f]{7,}|unknown)(?: with changes)?) \| [^|]*\|$", row)
    return found[1] if found else EARLIER


def planted_at(rows, done, before=()):
    """When, in one line. The commit is in each row; of pages that did not keep it there, all are in that line or its first and last."""
    text, commits = " ".join(before), {}
    for title in OUTCOMES.values():
        commits.update({name: commit_in(row) for name, row in rows[title].items()})
    days = re.findall(r"\d{4}-\d\d-\d\d", text) + [datetime.date.today().isoformat()] * bool(done)
    said = f"The last fault was planted on {max(days, default='no day')}. Each row says at which commit its fault was planted last"
    if earlier := list(commits.values()).count(EARLIER):
        known = re.findall(r"(?:commit|,|from|to) ([0-9a-f]{7,})\b", text) or ["unknown"]
        said += f"; `{EARLIER}`, in {plural(earlier, 'row')}, is one from {known[0]} to {known[-1]}, when this page did not keep which"
    return f"{said}."


# ---- the faults, in the order of the lists


def rows_of(faults, done, before=None):
    """Titles of tables, and in each the row of every fault: of `done`, or else as it was `before`."""
    rows = {title: {} for title in [*OUTCOMES.values(), *NOT_PLANTED.values()]}
    named = {test for name, row in (before["Caught"] if before else {}).items() if name in faults and name not in done for test in named_in(row)}
    for name, fault in faults.items():
        first = f"| {name} | `{fault.file}` | {fault.breaks} |"
        if name in done and done[name]["outcome"] in OUTCOMES:
            rows[OUTCOMES[done[name]["outcome"]]][name] = f"{first} {done[name]['commit']} | {caught_by(done[name], named)} |"
            continue
        kept = [(title, before[title][name]) for title in OUTCOMES.values() if before and name in before[title]]
        title, row = kept[0] if kept else (NOT_PLANTED[fault.gpu], first)
        rows[title][name] = row
    return rows


def rows_in(page):
    """What rows_of gave, from the lines of a page."""
    rows, title = {name: {} for name in [*OUTCOMES.values(), *NOT_PLANTED.values()]}, None
    for line in page:
        if line.startswith("## "):
            title = line[3:]
        elif title in rows and (found := re.match(r"\| ([\w-]+) \| `", line)):
            first, _, tests = line.rpartition(" | ")
            kept = title not in OUTCOMES.values() or commit_in(line) != EARLIER or first.endswith(f" | {EARLIER}")
            rows[title][found[1]] = line if kept else f"{first} | {EARLIER} | {tests}"
    return rows


def figures(rows):
    survived, caught, need_gpu, yet = (list(rows[title].values()) for title in rows)
    not_by_failing = sum("(crashed)" in row or "(hung)" in row for row in caught)
    return [
        f"| faults planted | {len(survived) + len(caught)} |",
        f"| caught | {len(caught)}, {not_by_failing} of them by a test that crashed or hung, the others by tests that failed |",
        f"| survived | {len(survived)} |",
        f"| not planted: they need a GPU | {len(need_gpu)} |",
        *([f"| not planted yet | {len(yet)} |"] if yet else []),
    ]


def tables(rows):
    for title, lines in rows.items():
        if lines:
            planted = title in OUTCOMES.values()
            yield from [f"## {title}", "", "| fault | in | what it breaks |" + (" last at | caught by |" if planted else ""), "|---|---|---|" + "---|---|" * planted]
            yield from [*lines.values(), ""]


# ---- the page


def write(faults, tests, done, anew=False):
    """The faults that were just planted have new rows, and the others those that they had, unless it is written anew. Returns
    the tests that no row names."""
    before = [] if anew else PAGE.read_text().splitlines()
    rows = rows_of(faults, done, None if anew else rows_in(before))
    seen = {test for row in rows["Caught"].values() for test in named_in(row)}
    never = [test for test in tests if test not in seen]
    reasons = reasons_of(never, tests, faults, rows["Caught"])
    lines = [
        HEAD, planted_at(rows, done, before[:before.index("| | |")] if before else ()), "", "| | |", "|---|---|", *figures(rows),
        f"| tests (one with many parameters counts once) | {len(tests)} |",
        f"| seen to fail | {len(tests) - len(never)} |",
        f"| never seen to fail | {len(never)} |", "", *tables(rows),
    ]
    if never:
        lines += ["## Never seen to fail", "", "| test | why |", "|---|---|"]
        lines += [f"| `{test}` | {reasons.get(test, 'no fault for it yet')} |" for test in never]
        lines.append("")
    PAGE.write_text("\n".join(lines))
    return never
