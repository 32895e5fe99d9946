"""Figures as words, and the table on the terminal: a line for each point, as soon as it is measured."""
from .numbers import behind_a_size
from .paths import MEASURED
from .plan import short
from .results import above_linear, measured, numbers_of, over_linear, spread, tail, yardstick

LEFT, RIGHT = -1, 1


def number(us: float) -> str:
    """Three digits, or all before the point."""
    return f"{us:.0f}" if abs(us) >= 100 else f"{us:.1f}" if abs(us) >= 10 else f"{us:.2f}"


def spread_words(entry: dict) -> str:
    return f"±{100 * spread(entry):.0f}%" if spread(entry) < 1 else "±>99%"


def figure_words(row: dict, arm: str) -> str:
    """The time, or the word that stands in its place."""
    entry = row["arms"].get(arm)
    if entry is None:
        return ""
    if entry["status"] != MEASURED:
        return entry["status"]
    return f"{number(entry['us'])} {spread_words(entry)}"


def ratio_words(value) -> str:
    return "" if value is None else f"{value:.2f}"


def tail_words(row: dict) -> str:
    """The tail's time over a copy's. Where the whole chain is faster than the bare linear, there is no such time."""
    ratio = tail(row).get("added_over_copy")
    return "below 0" if ratio is not None and ratio < 0 else ratio_words(ratio)


def size_words(row: dict) -> str:
    return f"{row['batch']}×{row['in']}→{row['out']}{behind_a_size(numbers_of(row))}"


def path_words(row: dict, arm: str = "tailor") -> str:
    return "+".join(sorted(row["arms"].get(arm, {}).get("paths", {})))


def error_ratio(row: dict, arm: str = "tailor"):
    """Root mean square error over eager's, or None."""
    mine, eager = measured(row, arm), measured(row, "eager")
    if "rms_error" not in mine or not eager.get("rms_error") or "NaN" in (mine["rms_error"], eager["rms_error"]):
        return None
    return mine["rms_error"] / eager["rms_error"]


class Lines:
    """The terminal's table. Its columns are as wide as anything that may come."""

    def __init__(self, arms: list, hosted: bool, unusual: bool = False):
        self.hosted = hosted
        self.arms = arms
        self.columns = [("chain", 26, LEFT), ("size", 29 if unusual else 16, LEFT), ("dtype", 5, LEFT), ("mode", 8, LEFT)]
        self.columns += [(arm, max(11, len(arm)), RIGHT) for arm in arms]
        if hosted:
            self.columns += [(f"{arm}-linear", 13, RIGHT) for arm in ("op", "tailor") if arm in arms]
        elif "tailor" in arms:
            self.columns += [("tailor/linear", 13, RIGHT), ("tail/copy", 9, RIGHT), ("error", 5, RIGHT)]
        if any(arm in arms for arm in ("tailor", "op", "tailor_frozen", "settled")):
            self.columns += [("path", 9, LEFT)]

    def line(self, cells: list) -> str:
        return "  ".join(cell.ljust(width) if side == LEFT else cell.rjust(width)
                         for cell, (_, width, side) in zip(cells, self.columns)).rstrip()

    def head(self) -> str:
        line = self.line([name for name, _, _ in self.columns])
        return f"{line}\n{'-' * len(line)}"

    def row(self, row: dict) -> str:
        cells = [short(row["chain"]), size_words(row), row["dtype"], row["mode"]]
        cells += [figure_words(row, arm) for arm in self.arms]
        if self.hosted:
            above = [above_linear(row, arm) for arm in ("op", "tailor") if arm in self.arms]
            cells += ["" if value is None else f"{value:+.2f}" for value in above]
        elif "tailor" in self.arms:
            cells += [ratio_words(over_linear(row, "tailor")), tail_words(row),
                      ratio_words(error_ratio(row))]
        tailors = [arm for arm in ("tailor", "op", "tailor_frozen", "settled") if arm in self.arms]
        if tailors:
            cells.append(path_words(row, tailors[0]))
        return self.line(cells)

    def notes(self, rows: list) -> str:
        """What the columns mean, and why there are words in place of figures."""
        lines = ["Microseconds: the median, ± half of the way from the tenth to the ninetieth percentile."]
        if self.hosted:
            lines[0] = "Host time to issue one call. " + lines[0]
            lines.append("-linear: microseconds above " + ", ".join(
                f"{yardstick(rows[0], arm)} for {arm}" for arm in ("op", "tailor") if arm in self.arms) + ".")
        elif "tailor" in self.arms:
            lines.append("tail/copy: what Tailor takes above the linear, over a copy of as many bytes. error: Tailor's "
                         "root mean square error over eager's.")
        if any(entry["status"] == "reference" for row in rows for entry in row["arms"].values()):
            lines.append("reference: no kernel of Tailor's ran, only torch's own; that is no time of Tailor's.")
        reasons = {(arm, entry["reason"]) for row in rows for arm, entry in row["arms"].items() if "reason" in entry}
        lines += [f"{arm} unavailable: {reason}" for arm, reason in sorted(reasons)]
        return "\n".join(lines)
