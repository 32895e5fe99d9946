"""Measures, or reads what was measured, and writes it in the forms that were asked for."""
import sys

from .compare import compare
from .options import fail, parse
from .page import page
from .picture import picture
from .results import Record, Unreadable, arms_of, nothing_ran, read_json, write, write_csv
from .run import run
from .scatter import scatter
from .tables import Lines


def show(result: dict):
    """The table of a run that was read from a file."""
    for measure in ("time", "host"):
        rows = [row for row in result["points"] if row["measure"] == measure]
        if rows:
            lines = Lines(arms_of(rows), measure == "host")
            print("\n".join([lines.head(), *map(lines.row, rows), "", lines.notes(rows), ""]))


def write_files(runs: list, options):
    if options.csv:
        write_csv(options.csv, runs)
    if options.svg:
        write(options.svg, picture(runs))
    if options.scatter:
        write(options.scatter, scatter(runs))
    if options.markdown:
        write(options.markdown, page(runs, options.markdown, options.svg, options.scatter))


def status_of(measured: dict, options) -> int:
    if not (options.time_limit or measured["complete"]):
        return 130  # as interrupted programs end
    if nothing_ran(measured):
        print("bench: nothing could be measured: no arm of any point could run", file=sys.stderr)
        return 1
    return 0


def main(words: list) -> int:
    options = parse(words)
    record = Record(options.json, "bench")
    try:
        if options.compare:
            print(compare(*(read_json(path) for path in options.compare)))
            return 0
        runs = [read_json(path) for path in options.sources] if options.sources else [run(options, record)]
    except Unreadable as error:
        fail(str(error))
    if options.sources and not any((options.csv, options.svg, options.scatter, options.markdown)):
        for result in runs:
            show(result)
    try:
        write_files(runs, options)
    except OSError as error:
        print(f"bench: {error.filename or 'a file'} is not written: {error.strerror}", file=sys.stderr)
        return 1
    if record.failed:
        return 1
    return 0 if options.sources else status_of(runs[0], options)
