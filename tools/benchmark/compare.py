"""Two results side by side: what got slower, and by how much."""
from .arms import ARMS
from .plan import short
from .results import key_of, measured, spread, yardstick
from .tables import figure_words, number, size_words

FASTER, SAME, SLOWER = "faster", "", "SLOWER"


def against_linear(old: dict, new: dict, arm: str) -> bool:
    """Whether both runs have the linear to judge this arm by. A machine's state moves all times together, and dividing by
    the linear of the same run takes that out."""
    if arm in ("linear", "script_linear"):
        return False
    return yardstick(old, arm) == yardstick(new, arm) and all(measured(row, yardstick(row, arm)) for row in (old, new))


def change(old: dict, new: dict, arm: str) -> float:
    """New time over old time, or new share of the linear over the old one."""
    ratio = measured(new, arm)["us"] / measured(old, arm)["us"]
    if against_linear(old, new, arm):
        ratio /= measured(new, yardstick(new, arm))["us"] / measured(old, yardstick(old, arm))["us"]
    return ratio


def judge(old: dict, new: dict, arm: str) -> str:
    """A change counts if it is larger than either run's own spread."""
    ratio = change(old, new, arm)
    noise = max(spread(measured(row, arm)) for row in (old, new))
    return SLOWER if ratio > 1 + noise else FASTER if ratio < 1 / (1 + noise) else SAME


def lines_of(old: dict, new: dict) -> list:
    """A line of cells for each arm that both rows have."""
    result = []
    for arm in ARMS:
        if arm not in old["arms"] or arm not in new["arms"]:
            continue
        cells = [short(new["chain"]), size_words(new), new["dtype"], new["mode"], arm, figure_words(old, arm),
                 figure_words(new, arm)]
        if measured(old, arm) and measured(new, arm):
            plain = measured(new, arm)["us"] / measured(old, arm)["us"]
            relative = f"{change(old, new, arm):.3f}" if against_linear(old, new, arm) else ""
            cells += [f"{plain:.3f}", relative, judge(old, new, arm)]
        elif measured(old, arm):
            cells += ["", "", f"SLOWER: had a time, now {figure_words(new, arm)}"]
        else:
            cells += ["", "", f"new: {number(measured(new, arm)['us'])} us" if measured(new, arm) else ""]
        result.append(cells)
    return result


def machine_of(run: dict) -> str:
    machine, versions = run["machine"], run["versions"]
    return (f"{machine.get('gpu') or machine['cpu']}, torch {versions['torch']}, Tailor "
            f"{versions['tailor'] or 'not loaded'} ({versions['commit']}), {run['date']}")


def compare(old: dict, new: dict) -> str:
    before = {key_of(row): row for row in old["points"]}
    both = [(before[key_of(row)], row) for row in new["points"] if key_of(row) in before]
    heads = ["chain", "size", "dtype", "mode", "arm", "A", "B", "B/A", "of linear", ""]
    table = [heads] + [cells for pair in both for cells in lines_of(*pair)]
    widths = [max(len(cells[i]) for cells in table) for i in range(len(heads))]
    words = {0, 1, 2, 3, 4, 9}
    text = ["  ".join(cell.ljust(width) if i in words else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(cells, widths))).rstrip() for cells in table]
    slower = sum(cells[-1].startswith(SLOWER) for cells in table[1:])
    alone = len(old["points"]) + len(new["points"]) - 2 * len(both)
    return "\n".join([
        f"A: {machine_of(old)}", f"B: {machine_of(new)}", "", text[0], "-" * max(map(len, text)), *text[1:], "",
        "B/A: the time, below 1 is faster. of linear: the same after dividing each by the linear of its own run, which is "
        "what is judged where there is one.",
        "SLOWER and faster: by more than the spread of either run.",
        f"{slower} of {len(table) - 1} got slower" + (f"; {alone} points are in one file only" if alone else "") + "."])
