"""The pictures: error by the length of the sums, and by distribution. Lower, or further left, is better."""
import math

from benchmark.picture import COLOURS, HALO, Sheet

from .arms import WORDS
from .referee import FLOOR
from .results import MEASURED, error_of, inner_of, names_of, nearest, ratio_of, row_at
from .words import ratio_words

TINTS = {"tailor": COLOURS["tailor"], "sgemm": COLOURS["jit"], "tf32": COLOURS["compile"]}
ORDER = {"tf32": 5.0, "sgemm": 4.2, "tailor": 3.3}  # ours is drawn last, over the others, and smaller: where all are 0, all show
GREY, GRID, RED = ' fill="#66727f"', 'stroke="#e4e7eb"', "#d64545"
SMALL = f' font-size="10"{GREY}'
SHOWN = ["positive", "normal", "relu", "lognormal_3", "wide", "hidden"]  # in panels, if they were measured
AT = 4096  # the length of sums in the picture by distribution
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Plot(Sheet):
    def dot(self, x, y, colour, size):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>')

    def ring(self, x, y, colour, size):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="#ffffff" stroke="{colour}" stroke-width="1.5"/>')

    def path(self, points, style):
        steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="M{steps}" fill="none" {style}/>')


def power(base: int, exponent: int) -> str:
    return f"{base}{str(exponent).translate(SUPERSCRIPTS)}"


class Scale:
    """Errors along an axis: decades, with a place of its own for 0 before them and one for infinity behind."""

    def __init__(self, values: list, start: float, end: float):
        finite = [value for value in values if 0 < value < math.inf] + [FLOOR]
        self.zero, self.infinite = any(value == 0 for value in values), math.inf in values
        self.low, self.high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
        self.start, self.end = start, end
        side = (end - start) / (self.high - self.low + 2)
        self.first, self.last = start + side * self.zero, end - side * self.infinite

    def at(self, value: float) -> float:
        if value == 0:
            return self.start
        if value == math.inf:
            return self.end
        return self.first + (math.log10(value) - self.low) / (self.high - self.low) * (self.last - self.first)

    def marks(self) -> list:
        """Places and words."""
        step = 1 if self.high - self.low < 8 else 2
        found = [(self.at(10.0**exponent), power(10, exponent)) for exponent in range(self.low, self.high + 1, step)]
        return [(self.start, "0")] * self.zero + found + [(self.end, "∞")] * self.infinite


def errors(rows: list) -> list:
    return [error_of(row, arm, of) for row in rows for arm in row["arms"] for of in ("max", "rms")]


def title(sheet: Plot, words: str, more: str):
    sheet.text(24, 32, words, more=' font-size="18" font-weight="bold"')
    sheet.text(24, 52, more, more=GREY)


def legend(sheet: Plot, more: list):
    x = 24
    for arm, words in WORDS.items():
        sheet.dot(x + 6, 72, TINTS[arm], 5)
        sheet.text(x + 18, 76, words, more=' font-weight="bold"' if arm == "tailor" else "")
        x += 44 + 7.5 * len(words)
    for words in more:
        sheet.text(x, 76, words, more=GREY)
        x += 24 + 6.5 * len(words)


WIDTH, HEIGHT, LEFT, TOP, GAP, ACROSS = 270, 210, 66, 128, 46, 3  # a panel, margins, between panels, in a row


def panel(sheet: Plot, x: float, y: float, run: dict, name: str, scale: Scale):
    """Solid lines: the largest errors; dashed ones: root mean squares."""
    inner = inner_of(run)
    low, high = math.log2(inner[0]), math.log2(inner[-1])
    across = lambda k: x + (math.log2(k) - low) / max(high - low, 1) * WIDTH  # noqa: E731
    down = lambda value: y + HEIGHT - scale.at(value)  # noqa: E731
    sheet.text(x, y - 12, name.replace("_", " "), more=' font-weight="bold"')
    for place, words in scale.marks():
        sheet.line(x, y + HEIGHT - place, x + WIDTH, y + HEIGHT - place, GRID)
        sheet.text(x - 6, y + HEIGHT - place + 4, words, "end", SMALL)
    for k in inner[::2]:
        sheet.line(across(k), y, across(k), y + HEIGHT, GRID)
        sheet.text(across(k), y + HEIGHT + 15, f"{k}" if k < 1024 else f"{k // 1024}k", "middle", SMALL)
    sheet.line(x, down(FLOOR), x + WIDTH, down(FLOOR), f'stroke="{RED}" stroke-dasharray="4 3"')
    sheet.text(x + WIDTH - 2, down(FLOOR) - 3, power(2, -24), "end", f' font-size="10" fill="{RED}"{HALO}')
    for arm in ORDER:
        rows = [row for k in inner if (row := row_at(run, name, k)) and arm in row["arms"]]
        for of, style in (("rms", 'stroke-width="1.2" stroke-dasharray="3 3"'), ("max", 'stroke-width="2"')):
            points = [(across(row["k"]), down(error_of(row, arm, of))) for row in rows]
            if points:
                sheet.path(points, f'stroke="{TINTS[arm]}" {style}')
            for place in points if of == "max" else []:
                sheet.dot(*place, TINTS[arm], 2.5)


def by_k(run: dict) -> str:
    sheet, found = Plot(), names_of(run)
    names = [name for name in SHOWN if name in found] or found[:6]
    scale = Scale(errors([row for row in run["cases"] if row["distribution"] in names]), 0, HEIGHT)
    title(sheet, "How far results lie from float64's, by the length of the sums",
          "Error over Σ|x||w|, by K: lower is better. The red line is half a unit in float32's last place.")
    legend(sheet, ["solid: the largest", "dashed: root mean square"])
    for turn, name in enumerate(names):
        x, y = LEFT + turn % ACROSS * (WIDTH + GAP + 20), TOP + turn // ACROSS * (HEIGHT + GAP + 20)
        panel(sheet, x, y, run, name, scale)
    lines = -(-len(names) // ACROSS)
    return sheet.svg(LEFT + ACROSS * (WIDTH + GAP + 20) - 20, TOP + lines * (HEIGHT + GAP + 20) - 20)


NAMES, LINE, PLOT = 150, 22, 640  # the distributions' names, a line's height, the dots' width


def by_distribution(run: dict) -> str:
    sheet, k, names = Plot(), nearest(run, AT), names_of(run)
    rows = {name: row for name in names if (row := row_at(run, name, k))}
    scale, first = Scale(errors(list(rows.values())), 0, PLOT), 118
    bottom = first + LINE * len(rows)
    title(sheet, f"How far results lie from float64's: sums of {k}",
          "Error over Σ|x||w|: further left is better. The red line is half a unit in float32's last place.")
    legend(sheet, ["full: the largest", "rings: root mean square"])
    sheet.text(NAMES + PLOT + 72, first - 10, "over SGEMM", "end", SMALL)
    for place, words in scale.marks():
        sheet.line(NAMES + place, first - 4, NAMES + place, bottom, GRID)
        sheet.text(NAMES + place, bottom + 15, words, "middle", SMALL)
    sheet.line(NAMES + scale.at(FLOOR), first - 4, NAMES + scale.at(FLOOR), bottom, f'stroke="{RED}" stroke-dasharray="4 3"')
    sheet.text(NAMES + scale.at(FLOOR), first - 10, power(2, -24), "middle", f' font-size="10" fill="{RED}"')
    for turn, (name, row) in enumerate(rows.items()):
        y = first + LINE * turn + LINE / 2
        sheet.text(NAMES - 14, y + 4, name.replace("_", " "), "end")
        sheet.line(NAMES, y, NAMES + PLOT, y, GRID)
        for draw, of in ((sheet.ring, "rms"), (sheet.dot, "max")):
            for arm in (arm for arm in ORDER if arm in row["arms"]):
                draw(NAMES + scale.at(error_of(row, arm, of)), y, TINTS[arm], ORDER[arm])
        words = ratio_words(ratio_of(row)) if row["status"] == MEASURED else "skipped"
        sheet.text(NAMES + PLOT + 72, y + 4, words, "end", ' font-size="11"')
    return sheet.svg(NAMES + PLOT + 96, bottom + 34)


PICTURES = {"float32-by-k.svg": by_k, "float32-by-distribution.svg": by_distribution}
