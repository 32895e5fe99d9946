"""The picture: for each chain and dtype, bars of time over the bare linear. Shorter is faster; 1 is the linear alone."""
import html
from typing import NamedTuple

from .arms import ARMS
from .paths import MEASURED, REFERENCE
from .plan import DTYPES, MODES, short
from .results import arms_of, over_linear
from .tables import size_words

COLOURS = {"tailor": "#0b7a6b", "eager": "#b4bec9", "jit": "#8794a3", "compile": "#c9a227"}
OTHERS = ["#6f5aa8", "#b86b4b", "#4b84b8", "#a84b7d"]
LEFT, RIGHT, COLUMN, GAP = 232, 24, 300, 26  # names, margin, a dtype's bars, between two
BAR, STEP, SPACE, HEAD = 10, 13, 14, 50  # a bar, from bar to bar, between chains, above a panel's bars
LIMIT = 3.0  # longer bars are cut and say how long they are
UNIT = (COLUMN - 52) / LIMIT  # the linear's length; the rest is for the figure behind the longest bar
HALO = ' stroke="#ffffff" stroke-width="3" paint-order="stroke"'


class Sheet:
    """Shapes and words, later one SVG."""

    def __init__(self):
        self.parts = []

    def box(self, x, y, width, height, colour, more=""):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{more}/>')

    def dot(self, x, y, colour, words):
        """With words that a viewer shows where somebody points at it."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.8">'
                          f"<title>{html.escape(words)}</title></circle>")

    def line(self, x, y, x2, y2, style):
        self.parts.append(f'<path d="M{x:.1f} {y:.1f} L{x2:.1f} {y2:.1f}" fill="none" {style}/>')

    def text(self, x, y, words, anchor="start", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>')

    def svg(self, width, height) -> str:
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans, Helvetica, sans-serif" font-size="12" '
            'fill="#1f2933">', '<rect width="100%" height="100%" fill="#ffffff"/>', *self.parts, "</svg>", ""])


class Column(NamedTuple):
    """One of a panel's columns: what stands above it, and its rows by chain and size."""
    head: str
    rows: dict


class Panel(NamedTuple):
    title: str
    columns: list

    def places(self) -> list:
        """Its lines: each chain and size."""
        return list(dict.fromkeys(place for column in self.columns for place in column.rows))

    def rows(self) -> list:
        return [row for column in self.columns for row in column.rows.values()]


def panels(runs: list) -> list:
    """A panel for each machine and mode with a column for each dtype; one for a whole machine with just one dtype."""
    found = {}
    for run in runs:
        machine = run["machine"].get("gpu") or run["machine"]["cpu"]
        for row in (row for row in run["points"] if row["measure"] == "time"):
            column = found.setdefault(machine, {}).setdefault((row["mode"], row["dtype"]), {})
            column[row["chain"], size_words(row)] = row
    result = []
    for machine, columns in found.items():
        if len({dtype for _, dtype in columns}) == 1:
            heads = [Column(f"{dtype}, {MODES[mode]}", columns[mode, dtype])
                     for mode in MODES for dtype in DTYPES if (mode, dtype) in columns]
            result.append(Panel(machine, heads))
            continue
        for mode in MODES:
            heads = [Column(dtype, columns[mode, dtype]) for dtype in DTYPES if (mode, dtype) in columns]
            if heads:
                result.append(Panel(f"{machine}: {MODES[mode]}", heads))
    return result


def bars_of(rows: list) -> list:
    """The arms that get a bar: those that compute the chain, where there is a time. Tailor is the last, where the eye
    ends, and is there without a time too."""
    arms = [arm for arm in arms_of(rows) if ARMS[arm].chain and any(over_linear(row, arm) for row in rows)]
    return [arm for arm in arms if arm != "tailor"] + (["tailor"] if "tailor" in arms_of(rows) else [])


def colours(arms: list) -> dict:
    others = iter(OTHERS * 3)
    return {arm: COLOURS.get(arm) or next(others) for arm in arms}


def bar(sheet: Sheet, x: float, y: float, ratio: float, colour: str):
    length = min(ratio, LIMIT) * UNIT
    sheet.box(x, y, length, BAR, colour)
    if ratio > LIMIT:  # a gap near its end: there is more of it
        sheet.line(x + length - 12, y + BAR + 2, x + length - 6, y - 2, 'stroke="#ffffff" stroke-width="3"')


def words(sheet: Sheet, x: float, y: float, arm: str, row: dict, ratio):
    """The bar's figure behind its end, or the word that stands in its place."""
    if ratio is not None:
        bold = ' font-weight="bold"' if arm == "tailor" else ""
        sheet.text(x + min(ratio, LIMIT) * UNIT + 4, y + BAR - 1, f"{ratio:.2f}", more=f' font-size="10"{bold}{HALO}')
    elif arm in row["arms"]:
        status = row["arms"][arm]["status"]
        sheet.text(x + 4, y + BAR - 1, f"{arm}: {'no linear' if status == MEASURED else status}",
                   more=f' font-size="10" fill="#66727f"{HALO}')


def draw(sheet: Sheet, top: float, panel: Panel, tints: dict) -> float:
    """Draws a panel and returns where it ends."""
    arms = bars_of(panel.rows())
    height = len(arms) * STEP + SPACE
    first = top + HEAD
    bottom = first + len(panel.places()) * height
    sheet.text(24, top + 14, panel.title, more=' font-size="15" font-weight="bold"')
    for line, (chain, size) in enumerate(panel.places()):
        middle = first + line * height + height / 2
        sheet.text(LEFT - 12, middle - 2, short(chain), "end")
        sheet.text(LEFT - 12, middle + 12, size, "end", ' font-size="11" fill="#66727f"')
    for number, column in enumerate(panel.columns):
        x = LEFT + number * (COLUMN + GAP)
        bars = [(first + line * height + SPACE / 2 + turn * STEP, arm, column.rows[place])
                for line, place in enumerate(panel.places()) if place in column.rows for turn, arm in enumerate(arms)]
        sheet.text(x, top + 36, column.head, more=' font-weight="bold"')
        for mark in range(int(LIMIT) + 1):
            sheet.line(x + mark * UNIT, first - 4, x + mark * UNIT, bottom, 'stroke="#e4e7eb"')
            sheet.text(x + mark * UNIT, bottom + 14, f"{mark}", "middle", ' font-size="10" fill="#66727f"')
        for y, arm, row in bars:
            if (ratio := over_linear(row, arm)) is not None:
                bar(sheet, x, y, ratio, tints[arm])
        # over the bars, so that it is seen which of them pass it, and under the words
        sheet.line(x + UNIT, first - 4, x + UNIT, bottom, 'stroke="#d64545" stroke-width="1.5" stroke-dasharray="4 3"')
        sheet.text(x + UNIT, bottom + 26, "linear", "middle", ' font-size="10" fill="#d64545"')
        for y, arm, row in bars:
            words(sheet, x, y, arm, row, over_linear(row, arm))
    return bottom + 54


def picture(runs: list) -> str:
    sheet, drawn = Sheet(), panels(runs)
    arms = list(dict.fromkeys(arm for panel in drawn for arm in bars_of(panel.rows())))
    arms = [arm for arm in arms if arm != "tailor"] + [arm for arm in arms if arm == "tailor"]
    tints = colours(arms)
    columns = max((len(panel.columns) for panel in drawn), default=1)
    width = max(LEFT + columns * (COLUMN + GAP) - GAP + RIGHT, 860)
    sheet.text(24, 32, "How long a whole chain takes, over its linear layer alone", more=' font-size="18" font-weight="bold"')
    sheet.text(24, 52, "Shorter is faster. The red line at 1 is the bare linear: a bar that ends there has its tail for free.",
               more=' fill="#66727f"')
    x = 24
    for arm in arms:
        sheet.box(x, 66, 12, 12, tints[arm])
        sheet.text(x + 18, 76, arm, more=' font-weight="bold"' if arm == "tailor" else "")
        x += 38 + 8 * len(arm)
    if any(entry["status"] == REFERENCE for panel in drawn for row in panel.rows() for entry in row["arms"].values()):
        sheet.text(x + 10, 76, "reference: no kernel of Tailor's ran, so there is no time of Tailor's", more=' fill="#66727f"')
    bottom = 104.0
    for panel in drawn:
        bottom = draw(sheet, bottom, panel, tints)
    return sheet.svg(width, bottom)
