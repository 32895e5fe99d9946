"""docs/faults.md: all of it, after a run of all faults, or the rows of some, after a run of those."""
import datetime
import re
import sys
import tomllib

from fault_workshop import ROOT, plural

EXPLAINED = ROOT / "tools" / "faults.d" / "never.toml"
PAGE = ROOT / "docs" / "faults.md"
OUTCOMES = {"survived": "Survived", "caught": "Caught"}  # and the titles of their tables
NOT_PLANTED = {True: "Not planted here", False: "Not planted yet"}  # of faults that need a GPU, and of others

HEAD = """# Faults

`tools/faults` wrote this page. It plants the faults that are listed in `tools/faults.d/`, one at a time, builds, and runs the
tests that should notice. A test that nobody has seen fail proves little: so this is also the list of which tests were seen to.
"""


def caught_by(result, names=3):
    by = sorted(result.get("by", {}).items(), key=lambda item: item[1] == "failed")  # what crashed or hung is said
    shown = [f"`{name}`" + ("" if how == "failed" else f" ({how})") for name, how in by[:names]]
    return ", ".join(shown) + (f" and {len(by) - names} more" if len(by) > names else "")


def never_failed(suite, done):
    seen = {name for result in done.values() for name, how in result.get("by", {}).items()}
    return [t for t in suite.tests if t not in seen and t not in suite.skipped]


def explanations(suite, never):
    explained = tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}
    reasons = {}
    for pattern, reason in explained.items():
        for test in suite.matching([pattern], EXPLAINED.name):
            if test not in never and test not in suite.skipped:
                print(f"faults: {EXPLAINED.name} explains {test}, which has been seen to fail", file=sys.stderr)
            reasons[test] = reason
    return reasons


def seen_with(faults, done):
    commits = {}
    for name in faults:
        if name in done:
            commits.setdefault(done[name]["commit"], []).append(name)
    return ", ".join(f"{commit} ({plural(len(names), 'fault')})" for commit, names in commits.items())


# ---- the faults, in the order of the lists


def rows_of(faults, done, before=None):
    """Titles of tables, and in each the row of every fault: of `done`, or else as it was `before`."""
    rows = {title: {} for title in [*OUTCOMES.values(), *NOT_PLANTED.values()]}
    for name, fault in faults.items():
        first = f"| {name} | `{fault.file}` | {fault.breaks} |"
        if name in done and done[name]["outcome"] in OUTCOMES:
            rows[OUTCOMES[done[name]["outcome"]]][name] = f"{first} {caught_by(done[name])} |"
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
            rows[title][found[1]] = line
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
            yield from [f"## {title}", "", "| fault | in | what it breaks |" + (" caught by |" if planted else ""), "|---|---|---|" + "---|" * planted]
            yield from [*lines.values(), ""]


# ---- the page


def report(faults, suite, done):
    """After a run of all faults."""
    never = never_failed(suite, done)
    reasons = explanations(suite, never)
    rows = rows_of(faults, done)
    lines = [
        HEAD, f"{datetime.date.today().isoformat()}, commit {seen_with(faults, done)}.", "",
        "| | |", "|---|---|", *figures(rows),
        f"| tests (one with many parameters counts once) | {len(suite.tests)} |",
        f"| skipped here, for want of a GPU or the like | {len(suite.skipped)} |",
        f"| seen to fail | {len(suite.tests) - len(suite.skipped) - len(never)} |",
        f"| never seen to fail | {len(never)} |", "", *tables(rows),
    ]
    if never:
        lines += ["## Never seen to fail", "", "| test | why |", "|---|---|"]
        lines += [f"| `{test}` | {reasons.get(test, 'no fault for it yet')} |" for test in never]
        lines.append("")
    if suite.skipped:
        lines += ["## Skipped here", ""] + [f"- `{test}`" for test in sorted(suite.skipped)] + [""]
    PAGE.write_text("\n".join(lines))


def add(faults, planted):
    """After a run of some faults: their rows, and a line that says so. What the page says of tests stays that of the last run of all."""
    page = PAGE.read_text().splitlines()
    table = page.index("| | |")
    end = page.index("", table)
    of_tests = [row for row in page[table + 2:end] if row.startswith(("| tests ", "| skipped ", "| seen ", "| never "))]
    rest = next((i for i, line in enumerate(page) if line in ("## Never seen to fail", "## Skipped here")), len(page))
    rows = rows_of(faults, planted, rows_in(page))
    line = f"Some by themselves, {datetime.date.today().isoformat()}, commit {seen_with(faults, planted)}."
    lines = [*page[:table], line, "", *page[table:table + 2], *figures(rows), *of_tests, "", *tables(rows), *page[rest:], ""]
    PAGE.write_text("\n".join(lines))
