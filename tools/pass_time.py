"""Writes docs/pass-time.md and docs/pass-time.svg from what the program `pass_time` measures.

    python tools/pass_time.py build/pass_time docs

Both files are replaced. Where valgrind is installed it also counts the instructions at three sizes, which takes some minutes.
"""
import json
import math
import pathlib
import shutil
import subprocess
import tempfile

from arguments import Parser, output_file
from output_files import write

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 400, 72, 24, 24, 56


def figure(points: list) -> str:
    """Seconds over nodes, both logarithmic, of the pass and of a copy, with the line of the same time per node."""
    decades_x = range(1, 6)
    lowest = math.floor(math.log10(min(point["copy_seconds"] for point in points)))
    highest = math.ceil(math.log10(max(point["seconds"] for point in points)))

    def at(nodes, seconds):
        across = (math.log10(nodes) - 1) / (math.log10(2e5) - 1)
        up = (math.log10(seconds) - lowest) / (highest - lowest)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="DejaVu Sans, Helvetica, sans-serif" font-size="12" fill="#1f2933">',
             '<rect width="100%" height="100%" fill="#ffffff"/>']

    def line(start, end, style):
        parts.append(f'<path d="M{start[0]:.1f} {start[1]:.1f} L{end[0]:.1f} {end[1]:.1f}" fill="none" {style}/>')

    def text(x, y, words, anchor="middle", more=""):
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>')

    bottom, top = 10.0**lowest, 10.0**highest
    for decade in decades_x:
        line(at(10**decade, bottom), at(10**decade, top), 'stroke="#e4e7eb"')
        text(at(10**decade, bottom)[0], HEIGHT - BOTTOM + 18, f"{10**decade:,}")
    for decade in range(lowest, highest + 1):
        line(at(10, 10.0**decade), at(2e5, 10.0**decade), 'stroke="#e4e7eb"')
        seconds = 10.0**decade
        words = f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"
        text(LEFT - 8, at(10, seconds)[1] + 4, words, "end")
    each = sorted(point["seconds"] / point["nodes"] for point in points)[len(points) // 2]
    ends = [max(10, bottom / each), min(2e5, top / each)]
    line(at(ends[0], ends[0] * each), at(ends[1], ends[1] * each), 'stroke="#9aa5b1" stroke-dasharray="5 4"')
    x, y = at(ends[0], ends[0] * each)
    text(x + 6, y - 22, f"{each * 1e6:.0f} µs a node", "start", ' fill="#66727f"')
    for key, color, words, shift in (("copy_seconds", "#66727f", "torch copies the graph", (84, 24)),
                                     ("seconds", "#0b7a6b", "the pass", (-40, -16))):
        places = [at(point["nodes"], point[key]) for point in points]
        route = " L".join("%.1f %.1f" % place for place in places)
        parts.append(f'<path d="M{route}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in places)
        x, y = places[len(places) // 2]
        text(x + shift[0], y + shift[1], words, "middle", f' fill="{color}"')
    text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 14, "nodes of the graph before the pass")
    return "\n".join(parts + ["</svg>", ""])


def count_instructions(program: str, points: list):
    """Adds to the points of 30, 300 and 3000 blocks how many instructions tailor::fuse executes."""
    if not shutil.which("valgrind"):
        return
    for blocks in 30, 300, 3000:
        with tempfile.NamedTemporaryFile() as counts:
            done = subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
                                   "--toggle-collect=tailor::fuse(torch::jit::Module&, tailor::Options const&)",
                                   f"--callgrind-out-file={counts.name}", program, str(blocks)],
                                  check=True, capture_output=True, text=True)
            nodes = json.loads(done.stdout)["nodes"]
            total = next(line for line in pathlib.Path(counts.name).read_text().splitlines() if line.startswith("totals:"))
            next(point for point in points if point["nodes"] == nodes)["instructions"] = int(total.split()[1])


def page(points: list) -> str:
    def instructions(point):
        return f"{point['instructions'] / point['nodes']:,.0f}" if "instructions" in point else ""

    rows = "\n".join(f"| {p['nodes']:,} | {p['sites']:,} | {p['fused']:,} | {p['seconds'] * 1e3:,.1f} | "
                     f"{p['seconds'] / p['nodes'] * 1e6:.1f} | {p['copy_seconds'] / p['nodes'] * 1e6:.1f} | "
                     f"{p['seconds'] / p['copy_seconds']:.1f} | {instructions(p)} |" for p in points)
    return f"""# How long the pass takes

![The pass's time over the size of the graph](pass-time.svg)

| nodes | linears | fused | ms | µs a node | torch's copy, µs a node | pass / copy | instructions a node |
|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}

CPU time of `tailor::fuse`, which has one thread: the best of five runs, each on a fresh module. The modules are
generated (`tools/pass_time.cpp`): blocks of two chains that fuse, a linear that does not, a branch, a write to a counter
and ops between, one after the other in one method. Nodes are those of the scripted graph, with its constants and
attribute reads. The dashed line is the median time per node.

The work per node is the same at every size, as the last column shows, where the instructions were counted. The time per
node is not, because a graph of 100,000 nodes no longer fits the processor's caches. Beside it stands work that is linear
beyond doubt and slows down as much: torch's own `Graph::copy()` of the same graph and the copy's destruction. The pass makes
one such copy, and gives the original up for it.

To measure again: `cmake --build build --target pass_time`, then `python tools/pass_time.py build/pass_time docs`.
"""


def pages_in(folder: str) -> list:
    """A type for argparse: the files that are written there."""
    return [output_file(str(pathlib.Path(folder, name))) for name in ("pass-time.svg", "pass-time.md")]


def main():
    parser = Parser(description=__doc__, prog="tools/pass_time.py")
    parser.add_argument("program", metavar="PROGRAM", help="the finished program `pass_time`")
    parser.add_argument("pages", type=pages_in, metavar="FOLDER", help="pass-time.md and pass-time.svg in it are replaced")
    chosen = parser.parse_args()
    try:
        done = subprocess.run([chosen.program], check=True, stdout=subprocess.PIPE, text=True)
        points = [json.loads(line) for line in done.stdout.splitlines()]
        count_instructions(chosen.program, points)
        texts = figure(points), page(points)
    except OSError as error:
        parser.error(f"{chosen.program} cannot be run: {error.strerror}")
    except subprocess.CalledProcessError as error:
        parser.error(f"{error.cmd[0]} ended with status {error.returncode}")
    except (KeyError, TypeError, ValueError):
        parser.error(f"{chosen.program} printed something else than `pass_time` does")
    for path, text in zip(chosen.pages, texts):
        write(path, text)
    print(texts[-1])


if __name__ == "__main__":
    main()
