"""What a program leaves behind for docs/trust.md, and for the end of a run of the tests: a record, as JSON in --json FILE.

  title, what, command    how the page calls it, what it does, how it was called
  seconds, failures       how long it took, what went wrong
  counts                  numbers by name
  asked                   of those that were asked for, how many were; 0 where as many as there are, or as fit the time
  tables                  more numbers, by the name of a table and of its rows
  gpu                     on what it ran, where that was a GPU
  date, commit, cores     tools/trust adds these
"""
import json
import pathlib
import re
import subprocess

import output_files

ROOT = pathlib.Path(__file__).resolve().parents[1]


def write(path, record):
    output_files.write(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def commit(but="docs"):
    """Of this checkout, and whether anything else in it has changed than this."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    changed = git("diff", "--quiet", "HEAD", "--", ".", f":!{but}").returncode
    return (git("rev-parse", "--short", "HEAD").stdout.strip() or "unknown") + (" with changes" if changed else "")


def gpu():
    """Its name, and how many there are if more than one."""
    listed = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n")[:-1]
    return ", ".join(f"{names.count(name)} {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names))


def duration(seconds):
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"


def missing(record):
    """Of what was asked for, the names of which there are fewer."""
    return [name for name, asked in record.get("asked", {}).items() if record["counts"].get(name, 0) < asked]


def amount(record, names=None):
    """How many of each, or of these: `83 of 100 models` where it stopped before it had done them all."""
    counts, short = record["counts"], missing(record)
    names = [*counts, *(name for name in short if name not in counts)] if names is None else names
    return ", ".join(f"{counts.get(name, 0):,} " + (f"of {record['asked'][name]:,} " if name in short else "") + name for name in names)


def stopped(record):
    """How it ended, if that was before it had done what was asked for."""
    if not missing(record):
        return ""
    limit = re.search(r"--seconds (\d+)", record["command"])
    at = f"at its limit of {limit[1]} s, " if limit and 0 < int(limit[1]) <= record["seconds"] + 0.1 else ""
    return f"stopped {at}short of its count"


def line(name, record):
    """All in one: what was asked for, or everything that was counted."""
    how = stopped(record)
    return f"{name}: {amount(record, record.get('asked') or None)}; {record['failures']:,} failed; {duration(record['seconds'])}" + (f"; {how}" if how else "")
