"""docs/trust.md, from the records in docs/trust.d."""
import json

from trust_record import ROOT, amount, duration, stopped, write

RECORDS = ROOT / "docs" / "trust.d"
FOUND = RECORDS / "found.md"  # written by hand
PAGE = ROOT / "docs" / "trust.md"

HEAD = """# Trust

`tools/trust` wrote this page, from the records in `docs/trust.d/` that the programs left behind. Most have a short run among the tests,
too, whose figures stand at the end of what a run of the tests prints; `tools/trust --short` makes those alone. What they draw is drawn
from a seed, so that a failure can be had again, and it prints the smallest case that still fails. Where time ended a run before it had
done what it was asked for, it says so. Which planted fault is caught by which tests is in [faults.md](faults.md).
"""


def read_records():
    return {path.stem: json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))}


def write_record(name, record):
    RECORDS.mkdir(exist_ok=True)
    write(RECORDS / f"{name}.json", record)


def value(number):
    return f"{number:,}" if isinstance(number, int) else f"{number:g}" if isinstance(number, float) else str(number)


def table(name, rows):
    """A dictionary of numbers, or of dictionaries of them."""
    nested = [row for row in rows.values() if isinstance(row, dict)]
    columns = list(dict.fromkeys(key for row in nested for key in row)) if len(nested) == len(rows) else []
    lines = [f"| {name} | {' | '.join(columns)} |" if columns else f"| {name} | |", "|---|" + "---:|" * max(1, len(columns))]
    for key, row in rows.items():
        cells = [value(row.get(column, "")) for column in columns] if columns else [value(row)]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    return lines


def section(record, program=None):
    """Of what was not run as tools/trust runs it, and so cannot be had again by that, the page says so."""
    how = stopped(record)
    place = f"{record.get('cores', '?')} cores" + (f", {record['gpu']}" if record.get("gpu") else "")
    lines = [f"## {record['title']}", "", record["what"], "", f"`{record['command']}`: {amount(record)}; {record['failures']:,} failed"
             f"{'; it ' + how if how else ''}. {record.get('date', 'No date')}, commit {record.get('commit', 'unknown')}, "
             f"{place}, {duration(record['seconds'])}.", ""]
    if program and not program.made(record["command"]):
        lines += [f"`tools/trust --only {program.name}` runs `{program.how()}`, and has not yet.", ""]
    for name, rows in record.get("tables", {}).items():
        lines += [*table(name, rows), ""]
    return lines


def page(programs):
    records = read_records()
    known = {program.name: program for program in programs}
    names = [*known, *(name for name in records if name not in known)]
    lines = [HEAD, "| | how many | failed | took |", "|---|---|---:|---:|"]
    for name in names:
        if name in records:
            record = records[name]
            lines.append(f"| {record['title']} | {amount(record)} | {record['failures']:,} | {duration(record['seconds'])} |")
        else:
            own = known[name].page
            lines.append(f"| {known[name].title} | " + (f"not all in one run; when each, and what became of it, is in [{own}]({own})" if own else "not run") + " | | |")
    lines += ["", "## Found on the way", "", FOUND.read_text().strip() if FOUND.exists() else "Nothing yet.", ""]
    for name in names:
        if name in records:
            lines += section(records[name], known.get(name))
    return "\n".join(lines).rstrip() + "\n"
