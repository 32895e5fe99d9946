"""Results as they lie in the JSON file, and the verdicts that follow from them."""
from benchmark import results

from .referee import ratio

FORMAT = 1
MEASURED, SKIPPED = "measured", "skipped"


def read_json(path: str) -> dict:
    return results.read_json(path, "float32-error", "float32_error", FORMAT, "cases")


def error_of(row: dict, arm: str, name: str = "max"):
    """A figure, or None; JSON has a word for what is infinite."""
    entry = row["arms"].get(arm)
    return None if entry is None else float(entry[name])


def measured(rows: list) -> list:
    return [row for row in rows if row["status"] == MEASURED]


def ratio_of(row: dict) -> float:
    return ratio(error_of(row, "tailor"), error_of(row, "sgemm"))


def is_worse(row: dict) -> bool:
    return row["status"] == MEASURED and not error_of(row, "tailor") <= error_of(row, "sgemm")


def worse(run: dict) -> list:
    return [row for row in run["cases"] if is_worse(row)]


def names_of(run: dict) -> list:
    """The distributions, in the order in which they were measured."""
    return list(dict.fromkeys(row["distribution"] for row in run["cases"]))


def inner_of(run: dict) -> list:
    return sorted({row["k"] for row in run["cases"]})


def nearest(run: dict, k: int) -> int:
    """The length of sums that was measured and is nearest to this one."""
    return min(inner_of(run), key=lambda found: abs(found - k))


def row_at(run: dict, name: str, k: int):
    return next((row for row in run["cases"] if (row["distribution"], row["k"]) == (name, k)), None)
