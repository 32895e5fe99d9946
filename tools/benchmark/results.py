"""Results as they lie in the JSON file: reading, writing, and the figures that follow from others."""
import csv
import io
import json
import math
import pathlib
import sys

from output_files import write

from .arms import ARMS
from .numbers import USUAL
from .paths import MEASURED, UNAVAILABLE

FORMAT = 1


class Unreadable(Exception):
    pass


def finite(value):
    """JSON has no NaN; a word stands for it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: str, run: dict):
    write(path, json.dumps(finite(run), indent=1, ensure_ascii=False) + "\n")


class Record:
    """A run's JSON file, written anew with every figure. Where that fails, as on a full disk, it is said, the run goes on, and the next figure
    tries again."""

    def __init__(self, path: str, tool: str):
        self.path, self.tool, self.failed = path, tool, False

    def write(self, run: dict):
        if not self.path:
            return
        try:
            write_json(self.path, run)
            self.failed = False
        except OSError as error:
            if not self.failed:
                print(f"{self.tool}: {self.path} is not written: {error.strerror}", file=sys.stderr)
            self.failed = True


def read_json(path: str, tool: str = "bench", format_key: str = "format", version: int = FORMAT, rows: str = "points") -> dict:
    """What `tool` wrote, in this version of its format, with a list of rows."""
    try:
        run = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Unreadable(f"{path} is not JSON: {error}") from error
    if not isinstance(run, dict) or run.get(format_key) != version or not isinstance(run.get(rows), list):
        raise Unreadable(f"{path} is not a result of this version of {tool}")
    return run


def key_of(row: dict) -> tuple:
    return (*(row[name] for name in ("chain", "batch", "in", "out", "groups", "dtype", "mode", "measure")), numbers_of(row))


def numbers_of(row: dict) -> str:
    """What was in its matrices; older results do not say it."""
    return row.get("numbers", USUAL)


def nothing_ran(run: dict) -> bool:
    """Whether there are points, and no arm of any of them could run."""
    return bool(run["points"]) and all(entry["status"] == UNAVAILABLE for row in run["points"] for entry in row["arms"].values())


def measured(row: dict, arm: str) -> dict:
    """The arm's entry if it has a figure that may be shown, else nothing."""
    entry = row["arms"].get(arm, {})
    return entry if entry.get("status") == MEASURED else {}


def spread(entry: dict) -> float:
    """Half of the way from the tenth to the ninetieth percentile, as a share of the median."""
    return (entry["p90"] - entry["p10"]) / 2 / entry["us"] if entry["us"] else 0.0


def yardstick(row: dict, arm: str = "tailor") -> str:
    """The linear that an arm is measured against; issuing a scripted module costs more than a function, fused or not."""
    scripted = row["measure"] == "host" and arm in ("jit", "tailor", "tailor_frozen")
    return "script_linear" if scripted and measured(row, "script_linear") else "linear"


def over_linear(row: dict, arm: str):
    """The arm's time over the bare linear's, or None."""
    mine, linear = measured(row, arm), measured(row, yardstick(row, arm))
    return mine["us"] / linear["us"] if mine and linear else None


def above_linear(row: dict, arm: str):
    """Microseconds above the bare linear, or None."""
    mine, linear = measured(row, arm), measured(row, yardstick(row, arm))
    return mine["us"] - linear["us"] if mine and linear else None


def tail(row: dict) -> dict:
    """What Tailor's tail costs above the bare linear, against a copy of as many bytes. Nothing where one is missing."""
    mine, linear, copied = (measured(row, arm) for arm in ("tailor", "linear", "copy"))
    if not (mine and linear and copied):
        return {}
    added = mine["us"] - linear["us"]
    return {"added_us": added, "copy_us": copied["us"], "added_over_copy": added / copied["us"],
            "share_of_copy_bandwidth": copied["us"] / added if added > 0 else None}


def arms_of(rows: list) -> list:
    """The arms that these rows have, in the order of ARMS."""
    return [name for name in ARMS if any(name in row["arms"] for row in rows)]


COLUMNS = ["device", "chain", "batch", "in", "out", "groups", "dtype", "mode", "numbers", "measure", "arm", "status", "us", "p10",
           "p90", "rounds", "over_linear", "above_linear_us", "max_error", "rms_error", "peak_bytes", "paths", "reason"]


def csv_rows(run: dict):
    device = run["machine"].get("gpu") or run["machine"]["cpu"]
    for row in run["points"]:
        for arm, entry in row["arms"].items():
            if entry["status"] != MEASURED:
                entry = {**entry, "us": entry["status"]}
            paths = " ".join(f"{path}={count}" for path, count in sorted(entry.get("paths", {}).items()))
            yield {**row, **entry, "device": device, "numbers": numbers_of(row), "arm": arm, "over_linear": over_linear(row, arm),
                   "above_linear_us": above_linear(row, arm), "paths": paths}


def write_csv(path: str, runs: list):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for run in runs for row in csv_rows(run))
    write(path, text.getvalue())
