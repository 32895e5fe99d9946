"""Figures as words, and the lines on the terminal."""
import math

from .results import SKIPPED, error_of, is_worse, measured, ratio_of, worse

COLUMNS = [("distribution", 16), ("K", 6), ("Tailor", 9), ("SGEMM", 9), ("TF32", 9), ("Tailor/SGEMM", 13), ("", 0)]


def figure(value) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else "inf"


def ratio_words(value: float) -> str:
    """0 says that Tailor's results are exact, also where SGEMM's are."""
    return "0" if value == 0 else f"{value:.2f}" if value < 100 else f"{value:.3g}"


def line(cells: list) -> str:
    return "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width)
                     for place, (cell, (_, width)) in enumerate(zip(cells, COLUMNS))).rstrip()


def head() -> str:
    first = line([name for name, _ in COLUMNS])
    return f"{first}\n{'-' * len(first)}"


def case_words(row: dict) -> str:
    cells = [row["distribution"], str(row["k"]), *(figure(error_of(row, arm)) for arm in ("tailor", "sgemm", "tf32"))]
    if row["status"] == SKIPPED:
        return line([*cells, "", f"skipped: {row['reason']}"])
    return line([*cells, ratio_words(ratio_of(row)), worse_words(row) if is_worse(row) else ""])


def worse_words(row: dict) -> str:
    at = row["arms"]["tailor"].get("at")
    return f"WORSE, row {at[0]}, column {at[1]}" if at else "WORSE"


def verdict(run: dict) -> str:
    counted, bad = measured(run["cases"]), worse(run)
    words = f"{len(counted)} cases measured, {len(run['cases']) - len(counted)} skipped. "
    if not counted:
        return words + "Nothing was measured of Tailor."
    if not bad:
        return words + "In none is Tailor's largest error above SGEMM's."
    return words + f"In {len(bad)} Tailor's largest error is above SGEMM's:\n" + "\n".join(map(case_words, bad))


def search_words(search: dict) -> str:
    how = f" --kernel {search['kernel']}" if search.get("kernel", "fp16x3") != "fp16x3" else ""
    how += f" --distribution {','.join(search['only'])}" if search.get("only") else ""
    words = f"{search['trials']} trials in {search['seconds']:.0f} s, {search['skipped']} of them skipped"
    worst = search["worst"]
    if not worst:
        return words + ": nothing was measured of Tailor."
    return (f"{words}, {search['worse']} above SGEMM. The worst: {trial_words(worst)}\n"
            f"  again: tools/float32-error --search 0 --seed {worst['seed']}{how}")


def trial_words(trial: dict) -> str:
    return (f"ratio {ratio_words(float(trial['ratio']))}, {figure(float(trial['tailor']))} where SGEMM has "
            f"{figure(float(trial['sgemm']))}; {trial['m']}×{trial['k']}→{trial['n']}, {trial['words']}, seed {trial['seed']}")
