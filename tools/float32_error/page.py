"""The measured part of docs/float32.md, from nothing but the results."""
import os
import statistics

from benchmark.page import folded, table

from .arms import WORDS
from .inputs import DISTRIBUTIONS
from .results import MEASURED, error_of, inner_of, measured, names_of, nearest, ratio_of, row_at, worse
from .words import figure, ratio_words, trial_words

FIRST, LAST = "<!-- measured: tools/float32-error writes what follows -->", "<!-- end of what was measured -->"
SHOWN = 4096  # the length of sums whose figures are in the table


class NoMarkers(Exception):
    pass


def facts(run: dict) -> str:
    machine, versions = run["machine"], run["versions"]
    cuda = f", CUDA {versions['cuda']}" if versions["cuda"] and "gpu" in machine else ""
    early = "" if run["complete"] else " Stopped early."
    return (f"**{run.get('kernel', 'fp16x3')}** on {machine.get('gpu') or machine['cpu']}, torch {versions['torch']}{cuda}, Tailor {versions['tailor']}, commit "
            f"{versions['commit']}; measured {run['date']}, seed {run['seed']}.{early}")


def about(name: str) -> str:
    return DISTRIBUTIONS[name].words if name in DISTRIBUTIONS else ""


def summary(run: dict) -> str:
    counted, bad, inner = measured(run["cases"]), worse(run), inner_of(run)
    if not counted:
        return "Nothing was measured of Tailor."
    rows, columns = counted[0]["rows"], counted[0]["columns"]
    ratios = [ratio_of(row) for row in counted]
    words = (f"{len(names_of(run))} distributions, sums of {inner[0]} to {inner[-1]} products, {rows}×{columns} results each: "
             f"{len(counted)} cases. ")
    skipped = len(run["cases"]) - len(counted)
    if skipped:
        words += f"The kernel did not take {skipped} others, which are torch's own and not counted. "
    words += "In none is Tailor's largest error above SGEMM's" if not bad else (
        f"**In {len(bad)} of them Tailor's largest error is above SGEMM's**")
    return words + f"; over SGEMM's it is {ratio_words(statistics.median(ratios))} in the median case, {ratio_words(max(ratios))} at most."


def cells_of(run: dict, name: str, k: int) -> list:
    row = row_at(run, name, k)
    if row is None:
        return [""] * 6
    return [figure(error_of(row, arm, of)) for of in ("max", "rms") for arm in WORDS]


def by_distribution(run: dict) -> str:
    k = nearest(run, SHOWN)
    heads = ["distribution", "", "over SGEMM, median", "at most", *(f"{words}, max" for words in WORDS.values()),
             *(f"{words}, rms" for words in WORDS.values())]
    lines = []
    for name in names_of(run):
        ratios = [ratio_of(row) for row in measured(run["cases"]) if row["distribution"] == name]
        of_all = [ratio_words(statistics.median(ratios)), ratio_words(max(ratios))] if ratios else ["", ""]
        lines.append([f"`{name}`", about(name), *of_all, *cells_of(run, name, k)])
    return (f"*over SGEMM*: Tailor's largest error over SGEMM's, of all lengths of sums. The errors themselves are those of sums "
            f"of {k}.\n\n" + table(heads, lines, 2))


def ratio_cell(row) -> str:
    if row is None or row["status"] != MEASURED:
        return ""
    return ratio_words(ratio_of(row))


def by_length(run: dict) -> str:
    inner = inner_of(run)
    lines = [[f"`{name}`", *(ratio_cell(row_at(run, name, k)) for k in inner)] for name in names_of(run)]
    return folded("Tailor's largest error over SGEMM's, by the length of the sums", table(["", *map(str, inner)], lines, 1))


def searched(found: dict) -> str:
    words = (f"Random mixtures of these distributions by rows, columns and elements, with random zeros, exponents and sizes, "
             f"from {found['seed']} as the first seed: {found['trials']} trials in {found['seconds']:.0f} seconds")
    if found["skipped"]:
        words += f", of which the kernel did not take {found['skipped']}"
    if not found["worst"]:
        return words + "."
    return (f"{words}. Tailor's largest error was above SGEMM's, or above 2^-24 if that is more, in {found['worse']}. "
            f"The worst: {trial_words(found['worst'])}.")


def linked(path: str, pictures: list) -> list:
    folder = os.path.dirname(os.path.abspath(path))
    alts = {"float32-by-k.svg": "Errors by the length of the sums", "float32-by-distribution.svg": "Errors by distribution"}
    return [f"![{alts.get(os.path.basename(name), 'Errors')}]({os.path.relpath(os.path.abspath(name), folder)})"
            for name in pictures]


def measured_part(runs: list, path: str, pictures: list) -> str:
    parts = []
    for run in runs:
        parts.append(facts(run))
        if run["cases"]:
            parts += [summary(run), *linked(path, pictures), by_distribution(run), by_length(run)]
            pictures = []  # they are of the first
        if run["search"]:
            parts.append(searched(run["search"]))
    return "\n\n".join(parts)


def with_measured(text: str, runs: list, path: str, pictures: list) -> str:
    """The page with another measured part."""
    before, first, rest = text.partition(FIRST)
    _, last, after = rest.partition(LAST)
    if not first or not last:
        raise NoMarkers(f"there are no lines '{FIRST}' and '{LAST}' in it")
    return f"{before}{FIRST}\n\n{measured_part(runs, path, pictures)}\n\n{LAST}{after}"
