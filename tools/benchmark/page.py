"""docs/performance.md, from nothing but the results."""
import os
import statistics

from .arms import ARMS
from .measure import WARM_UP
from .numbers import NUMBERS, USUAL
from .plan import DTYPES, MODES, short
from .results import above_linear, arms_of, measured, numbers_of, over_linear
from .tables import error_ratio, figure_words, path_words, ratio_words, size_words, tail_words

MANY = 10  # sizes, of which a mean says more than a list

HEAD = """# Performance

This page is made by `tools/bench` from its own JSON; do not edit it by hand.
"""

HOW = """## How this is measured

Times are microseconds: the median, ± half of the way from the tenth to the ninetieth percentile. The arms of a line take
turns call by call, in another order in each round, because the state of a machine moves all of them together: compare
within a line. On a GPU each call lies between two CUDA events, and the L2 cache is written full before it; on a CPU it is
timed by the wall clock{flush}. Weights, inputs, running statistics and affine parameters are random. Each arm ran {warm_up}
times before it was timed.

A difference smaller than the ± beside it is none. *error* is Tailor's root mean square distance from a
float64 run of the same model, over eager's: of the output, or with backward of all gradients together. *tail/copy* is what
Tailor takes above the linear, over the time to copy as many bytes as the linear writes; 1 is all of the memory's speed. *path* is what
`torch.ops.tailor.calls()` counted while the time was taken; where the reference had a part in it, its time is torch's and not
Tailor's, and the word stands in its place.

{arms}{numbers}

To measure again: `tools/bench --json FILE` on each machine, then
`tools/bench --from FILE… --markdown docs/performance.md --svg docs/performance.svg`.
"""


def facts(run: dict) -> list:
    machine, versions = run["machine"], run["versions"]
    cuda = f", CUDA {versions['cuda']}" if versions["cuda"] and machine["device"] == "cuda" else ""
    triton = f", triton {versions['triton']}" if versions["triton"] else ""
    lines = []
    if "gpu" in machine:
        lines.append(f"{machine['gpu']}, {machine['gpu_memory_bytes'] / 2**30:.0f} GiB, {machine['multiprocessors']} "
                     f"multiprocessors, driver {machine['driver']}")
    lines.append(f"CPU: {machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, "
                 f"{machine['cpu_capability']}")
    lines.append(f"torch {versions['torch']}{cuda}{triton}, Python {versions['python']}")
    lines.append(f"Tailor {versions['tailor'] or 'not loaded'}, commit {versions['commit']}; measured {run['date']}")
    if not run["complete"]:
        lines.append(f"Stopped early: {len(run['points'])} of {run['planned']} points")
    return lines


def table(heads: list, rows: list, words: int) -> str:
    """A Markdown table; the first `words` columns begin at the left."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *rows])


def in_order(rows: list) -> list:
    ranks = list(DTYPES)
    return sorted(rows, key=lambda row: ranks.index(row["dtype"]))  # stable: chains stay as they were planned


def place(row: dict) -> list:
    return [row["dtype"], short(row["chain"]), size_words(row)]


def times(rows: list) -> str:
    arms = arms_of(rows)
    ours = "tailor" in arms
    heads = ["dtype", "chain", "size", *arms] + (["tailor/linear", "tail/copy", "error", "path"] if ours else [])
    cells = []
    for row in in_order(rows):
        line = place(row) + [figure_words(row, arm) for arm in arms]
        if ours:
            line += [ratio_words(over_linear(row, "tailor")), tail_words(row),
                     ratio_words(error_ratio(row)), path_words(row)]
        cells.append(line)
    return table(heads, cells, 3)


def above(row: dict, arm: str) -> str:
    value = above_linear(row, arm)
    return "" if value is None else f"{value:+.1f}"


def host_times(rows: list) -> str:
    arms = arms_of(rows)
    chains = [arm for arm in arms if ARMS[arm].chain]
    heads = ["dtype", "chain", "size", "mode", *arms, *(f"{arm} − linear" for arm in chains)]
    cells = [place(row) + [row["mode"]] + [figure_words(row, arm) for arm in arms] + [above(row, arm) for arm in chains]
             for row in in_order(rows)]
    return table(heads, cells, 4)


def scientific(row: dict, arm: str, name: str) -> str:
    value = measured(row, arm).get(name)
    return "" if value is None else f"{float(value):.1e}"


def errors(rows: list) -> str:
    arms = [arm for arm in ("eager", "tailor") if any("max_error" in measured(row, arm) for row in rows)]
    heads = ["dtype", "chain", "size", "mode", *(f"{arm} max" for arm in arms), *(f"{arm} rms" for arm in arms)]
    cells = [place(row) + [row["mode"]] + [scientific(row, arm, name) for name in ("max_error", "rms_error")
                                           for arm in arms] for row in in_order(rows)]
    return table(heads, cells, 4) if arms else ""


def memory(rows: list) -> str:
    arms = [arm for arm in arms_of(rows) if arm != "copy" and any("peak_bytes" in measured(row, arm) for row in rows)]
    heads = ["dtype", "chain", "size", "mode", *arms]
    cells = [place(row) + [row["mode"]] + [
        f"{measured(row, arm)['peak_bytes'] / 2**20:.1f}" if "peak_bytes" in measured(row, arm) else "" for arm in arms]
        for row in in_order(rows)]
    return table(heads, cells, 4) if arms else ""


def span(rows: list, arm: str) -> str:
    ratios = [ratio for ratio in (over_linear(row, arm) for row in rows) if ratio is not None]
    return f"{min(ratios):.2f} to {max(ratios):.2f} (median {statistics.median(ratios):.2f})" if ratios else ""


def memory_words(rows: list) -> str:
    """Tailor's peak beside eager's: nowhere above it, or where it is furthest above it."""
    both = [(row, measured(row, "tailor").get("peak_bytes"), measured(row, "eager").get("peak_bytes")) for row in rows]
    shares = {index: mine / eager for index, (_, mine, eager) in enumerate(both) if mine and eager}
    if not shares:
        return ""
    worst = max(shares, key=shares.get)
    if shares[worst] <= 1:
        return f" At its peak it holds no more memory than eager, {shares[worst]:.2f} times as much at most."
    more = sum(share > 1 for share in shares.values())
    return (f" At its peak it holds more memory than eager in {more} of {len(shares)} cases, {shares[worst]:.2f} times as much "
            f"at most: {' '.join(place(both[worst][0]))}.")


def spread_words(rows: list) -> str:
    """Of many sizes: the geometric mean of Tailor's time over the linear's, and the worst."""
    lines = []
    for dtype in DTYPES:
        ratios = {place(row)[2] + " " + place(row)[1]: over_linear(row, "tailor") for row in rows if row["dtype"] == dtype}
        ratios = {where: ratio for where, ratio in ratios.items() if ratio is not None}
        if len({where.split()[0] for where in ratios}) >= MANY:
            worst = max(ratios, key=ratios.get)
            lines.append(f"{dtype} {statistics.geometric_mean(ratios.values()):.3f} (largest {ratios[worst]:.2f}: {worst})")
    return f" Geometric means over all sizes: {', '.join(lines)}." if lines else ""


def summary(rows: list) -> str:
    """The machine's result in a sentence for each mode."""
    lines = []
    for mode, words in MODES.items():
        mine = [row for row in rows if row["mode"] == mode and row["measure"] == "time" and "tailor" in row["arms"]]
        if not mine:
            continue
        ran = [row for row in mine if over_linear(row, "tailor") is not None]
        line = f"**{words[0].upper()}{words[1:]}.** "
        if ran:
            others = [f"{arm} {span(ran, arm)}" for arm in ("eager", "jit", "compile") if span(ran, arm)]
            line += f"Tailor takes {span(ran, 'tailor')} times the bare linear" + (
                f"; in the same cases {', '.join(others)}." if others else ".")
            line += spread_words(ran) + memory_words(ran)
        missing = len(mine) - len(ran)
        if missing:
            line += f"{' ' if ran else ''}In {missing} of {len(mine)} cases there is no time of Tailor's."
        lines.append(line)
    return "\n\n".join(lines)


def missing(rows: list) -> str:
    reasons = {(arm, entry["reason"]) for row in rows for arm, entry in row["arms"].items() if "reason" in entry}
    return "\n".join(f"- {arm} unavailable: {reason}" for arm, reason in sorted(reasons))


def folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def of_machine(name: str, runs: list) -> list:
    rows = [row for run in runs for row in run["points"]]
    timed = [row for row in rows if row["measure"] == "time"]
    parts = [f"## {name}", "\n".join(dict.fromkeys(f"- {fact}" for run in runs for fact in facts(run))), summary(rows)]
    for mode, words in MODES.items():
        of_mode = [row for row in timed if row["mode"] == mode]
        if of_mode:
            parts += [f"### {words[0].upper()}{words[1:]}", times(of_mode)]
    hosted = [row for row in rows if row["measure"] == "host"]
    if hosted:
        parts += ["### Host time of one call", "Calls back to back on next to no work, nothing waits for the GPU. The "
                  "linear that is taken off is the scripted one for scripted arms.", host_times(hosted)]
    if errors(timed):
        parts.append(folded("Errors: largest and root mean square distance from float64", errors(timed)))
    if memory(timed):
        parts.append(folded("Memory: MiB that a call holds at its peak, its result included", memory(timed)))
    return [part for part in [*parts, missing(rows)] if part]


def page(runs: list, path: str, picture: str = "", scatter: str = "") -> str:
    parts = [HEAD.rstrip()]
    for drawn, words in ((picture, "Time of each chain over its bare linear"), (scatter, "The same at many sizes")):
        if drawn:
            link = os.path.relpath(os.path.abspath(drawn), os.path.dirname(os.path.abspath(path)))
            parts.append(f"![{words}]({link})")
    machines = {}
    for run in runs:
        machines.setdefault(run["machine"].get("gpu") or run["machine"]["cpu"], []).append(run)
    for name, of_it in machines.items():
        parts += of_machine(name, of_it)
    used = arms_of([row for run in runs for row in run["points"]])
    arms = "Arms: " + "; ".join(f"`{arm}`: {ARMS[arm].words}" for arm in used) + "."
    on_cpu = {run["flush"] for run in runs if run["machine"]["device"] == "cpu"}
    flush = {(): "", (True,): ", with the caches written full too", (False,): ", with warm caches"}.get(tuple(on_cpu), "")
    unusual = [name for name in NUMBERS if name != USUAL and any(numbers_of(row) == name for run in runs for row in run["points"])]
    numbers = "" if not unusual else ("\n\nNumbers, where a size names them: of x, or with backward of the gradient that comes in. "
                                      + "; ".join(f"`{name}`: {NUMBERS[name].words}" for name in unusual) + ".")
    parts.append(HOW.format(flush=flush, warm_up=WARM_UP, arms=arms, numbers=numbers).rstrip())
    return "\n\n".join(parts) + "\n"
