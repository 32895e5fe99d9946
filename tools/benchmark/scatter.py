"""The other picture, for many sizes: Tailor's time over the bare linear's, by how long that takes. Lower is faster."""
import math
import statistics

from .picture import HALO, Sheet
from .plan import DTYPES, MODES, short
from .results import measured, over_linear
from .tables import number, size_words

TINTS = ["#0b7a6b", "#c9a227", "#6f5aa8", "#b86b4b", "#4b84b8", "#a84b7d"]
LEFT, TOP, WIDTH, HEIGHT, GAP = 70, 118, 300, 240, 56  # of the first panel, and what lies between two
LOWEST, HIGHEST = 0.9, 1.1  # the axis shows at least these


class Axis:
    """Where a value lies between two ends of the sheet."""

    def __init__(self, values: list, begin: float, end: float):
        self.low, self.high, self.begin, self.end = min(values), max(values), begin, end

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.begin + share * (self.end - self.begin)


def marks(low: float, high: float) -> list:
    """Round values of a ratio, not more than eight."""
    step = next((step for step in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0) if (high - low) / step <= 8), 5.0)
    return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list:
    """1, 2, 5, 10, … microseconds, between two of them."""
    return [digit * 10**power for power in range(-1, 8) for digit in (1, 2, 5) if low <= math.log10(digit * 10**power) <= high]


def panel(sheet: Sheet, left: float, head: str, rows: list, tints: dict):
    ratios, times = [over_linear(row, "tailor") for row in rows], [math.log10(measured(row, "linear")["us"]) for row in rows]
    across = Axis([*times, min(times) - 0.05, max(times) + 0.05], left, left + WIDTH)
    up = Axis([*ratios, LOWEST, HIGHEST], TOP + HEIGHT, TOP)
    sheet.text(left, TOP - 14, head, more=' font-weight="bold"')
    sheet.text(left + WIDTH, TOP - 14, f"geometric mean {statistics.geometric_mean(ratios):.3f}", "end", ' font-size="11"')
    for mark in marks(up.low, up.high):
        sheet.line(left, up.at(mark), left + WIDTH, up.at(mark), 'stroke="#e4e7eb"')
        sheet.text(left - 6, up.at(mark) + 4, f"{mark:.2f}", "end", ' font-size="10" fill="#66727f"')
    for time in decades(across.low, across.high):
        x = across.at(math.log10(time))
        sheet.line(x, TOP, x, TOP + HEIGHT, 'stroke="#e4e7eb"')
        sheet.text(x, TOP + HEIGHT + 14, f"{time:g}", "middle", ' font-size="10" fill="#66727f"')
    sheet.text(left + WIDTH, TOP + HEIGHT + 28, "the bare linear, µs", "end", ' font-size="10" fill="#66727f"')
    sheet.line(left, up.at(1), left + WIDTH, up.at(1), 'stroke="#d64545" stroke-width="1.5" stroke-dasharray="4 3"')
    for row, ratio, time in zip(rows, ratios, times):
        words = f"{short(row['chain'])} {size_words(row)}: {ratio:.2f} of {number(measured(row, 'linear')['us'])} µs"
        sheet.dot(across.at(time), up.at(ratio), tints[row["chain"]], words)
    worst = max(range(len(rows)), key=ratios.__getitem__)
    x, anchor = across.at(times[worst]), "end" if across.at(times[worst]) > left + WIDTH / 2 else "start"
    sheet.text(x + (-8 if anchor == "end" else 8), up.at(ratios[worst]) + 4, f"{ratios[worst]:.2f}  {size_words(rows[worst])}",
               anchor, f' font-size="10"{HALO}')


def scatter(runs: list) -> str:
    """A panel for each machine, mode and dtype; empty where no time of Tailor's is."""
    panels = {}
    for run in runs:
        for row in (row for row in run["points"] if row["measure"] == "time" and over_linear(row, "tailor") is not None):
            panels.setdefault((run["machine"].get("gpu") or run["machine"]["cpu"], row["mode"], row["dtype"]), []).append(row)
    ranks = [list(MODES), list(DTYPES)]
    places = sorted(panels, key=lambda place: (place[0], ranks[0].index(place[1]), ranks[1].index(place[2])))
    chains = list(dict.fromkeys(row["chain"] for place in places for row in panels[place]))
    tints = {chain: TINTS[i % len(TINTS)] for i, chain in enumerate(chains)}
    sheet, x = Sheet(), 24
    sheet.text(24, 32, "How long a whole chain takes, over its linear layer alone, at many sizes", more=' font-size="18" font-weight="bold"')
    sheet.text(24, 52, "Lower is faster. On the red line at 1 the tail is for free.", more=' fill="#66727f"')
    for chain in chains:
        sheet.dot(x + 5, 71, tints[chain], short(chain))
        sheet.text(x + 14, 75, short(chain), more=' font-size="11"')
        x += 34 + 6.4 * len(short(chain))
    for i, (machine, mode, dtype) in enumerate(places):
        panel(sheet, LEFT + i * (WIDTH + GAP), f"{dtype}, {MODES[mode]}", panels[machine, mode, dtype], tints)
        sheet.text(LEFT + i * (WIDTH + GAP), TOP + HEIGHT + 28, machine, more=' font-size="10" fill="#66727f"')
    return sheet.svg(max(LEFT + len(places) * (WIDTH + GAP), x + 24, 640), TOP + HEIGHT + 48)
