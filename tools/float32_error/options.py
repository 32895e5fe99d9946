"""The command line. Wrong use is one line on stderr and exit status 2."""
import argparse
import os
import pathlib
import sys

from benchmark.options import listed, positive
from output_files import refusal

from .arms import KERNELS
from .inputs import DISTRIBUTIONS
from .measure import COLUMNS, INNER, QUICK, ROWS
from .picture import PICTURES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fail(message: str):
    print(f"float32-error: {message}", file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds")
    return value


def lengths(text: str) -> list:
    return [positive(int)(word) for word in text.split(",") if word]


def make_parser() -> Parser:
    parser = Parser(
        prog="float32-error", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"""Measures how far products of float32 matrices, {ROWS} by {COLUMNS} results each, lie from float64's: Tailor's
on the tensor cores, cuBLAS's SGEMM, and TF32's. An error is |result - exact| / sum of |x||w|.

  tools/float32-error                                  all distributions, all lengths of sums
  tools/float32-error --quick                          three lengths
  tools/float32-error --kernel bf16x6 --rows 64        the kernel for few rows
  tools/float32-error --json error.json                the same table, and all figures in a file
  tools/float32-error --search 600 --seed 1000         look for inputs where Tailor is worse than SGEMM
  tools/float32-error --search 0 --seed 1234           one of them again
  tools/float32-error --from error.json --markdown docs/float32.md --svg docs""",
        epilog="distributions:\n" + "\n".join(f"  {name:16} {kind.words}" for name, kind in DISTRIBUTIONS.items())
        + "\n\nThe kernel must have taken a case, else it is skipped and not counted.\nExit status: 0 Tailor's largest error "
        "is nowhere above SGEMM's, 1 it is, or nothing was measured,\n2 wrong use, 130 interrupted.")
    what = parser.add_argument_group("what to measure")
    what.add_argument("--quick", action="store_true", help=f"only sums of {', '.join(map(str, QUICK))}")
    what.add_argument("--distribution", type=listed("distribution", {name: name for name in DISTRIBUTIONS}), metavar="LIST",
                      help="only these, with commas between them")
    what.add_argument("--k", type=lengths, metavar="LIST", help=f"sums of these lengths (default: {INNER[0]} to {INNER[-1]})")
    what.add_argument("--kernel", choices=list(KERNELS), default="fp16x3", help="which of Tailor's (default: fp16x3)")
    what.add_argument("--rows", type=positive(int), default=ROWS, metavar="N", help=f"of x and of the result (default: {ROWS})")
    what.add_argument("--search", type=seconds, metavar="SECONDS", help="instead: random mixtures, one at least")
    what.add_argument("--seed", type=int, default=0, metavar="N", help="for data; of a search the first (default: 0)")
    how = parser.add_argument_group("how")
    how.add_argument("--library", metavar="FILE", help="libtailor.so (default: TAILOR_LIBRARY, else build/libtailor.so)")
    how.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)  # cpu: only to try this tool
    how.add_argument("--commit", default="", metavar="TEXT", help="what to note as commit where git does not know it")
    out = parser.add_argument_group("what to write")
    out.add_argument("--json", metavar="FILE", help="all figures")
    out.add_argument("--markdown", metavar="FILE", help="a page: what stands between its two markers is written anew")
    out.add_argument("--svg", metavar="FOLDER", help="the pictures float32-by-k.svg and float32-by-distribution.svg")
    out.add_argument("--from", dest="sources", nargs="+", metavar="JSON", help="measure nothing, write these results")
    return parser


def check_targets(options):
    """Before measuring, not after it."""
    if options.svg and not os.path.isdir(options.svg):
        fail(f"{options.svg} is no folder")
    if options.markdown and not os.path.exists(options.markdown):
        fail(f"{options.markdown}: there is no such page, whose measured part could be written")
    pictures = [os.path.join(options.svg, name) for name in PICTURES] if options.svg else []
    for path in (options.json, options.markdown, *pictures):
        if path is not None and (reason := refusal(path)):
            fail(reason)


def parse(words: list):
    options = make_parser().parse_args(words)
    if options.sources and (options.json or options.quick or options.k or options.distribution or options.search is not None):
        fail("--from measures nothing: leave out what says what to measure, and --json")
    if options.quick and options.k:
        fail("--quick and --k exclude each other")
    if options.search is not None and (options.quick or options.k or options.svg):
        fail("--search draws its sizes itself and has no picture")
    check_targets(options)
    options.library = options.library or os.environ.get("TAILOR_LIBRARY") or str(ROOT / "build" / "libtailor.so")
    options.k = options.k or (QUICK if options.quick else INNER)
    options.distribution = options.distribution or list(DISTRIBUTIONS)
    return options
