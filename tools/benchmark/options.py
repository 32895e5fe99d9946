"""The command line. Wrong use is one line on stderr and exit status 2."""
import argparse
import os
import pathlib
import re
import sys

from arguments import Parser
from output_files import refusal

from .arms import ARMS, HOSTED, TIMED
from .numbers import NUMBERS, USUAL
from .plan import DTYPES, MODELS, MODES, PRESET_HELP, PRESETS, short

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUTS = {"json": "all figures", "csv": "a line for each point and arm", "svg": "a picture", "scatter": "a picture of many sizes",
           "markdown": "a page with picture and tables"}


def fail(message: str):
    print(f"bench: {message}", file=sys.stderr)
    sys.exit(2)


def listed(what: str, names: dict):
    """A type for argparse: names with commas between, each for itself or for another."""
    def parse(text: str) -> list:
        words = [word for word in text.split(",") if word]
        if not words:
            raise argparse.ArgumentTypeError(f"'{text}' names no {what}")
        for word in words:
            if word not in names:
                raise argparse.ArgumentTypeError(f"there is no {what} '{word}'; there are "
                                                 + ", ".join(dict.fromkeys(short(name) for name in names)))
        return [names[word] for word in words]
    return parse


def sizes(text: str) -> list:
    result = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?:/(\d+))?", word)
        if not match or "0" in match.groups():
            raise argparse.ArgumentTypeError(f"'{word}' is no size; one is ROWSxINxOUT or ROWSxINxOUT/GROUPS, such as "
                                             "1024x8192x8192 or 128x512x1024/32")
        result.append(tuple(int(number) for number in match.groups(default=0)))
    return result


def positive(kind):
    def parse(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not value > 0:
            raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
        return value
    return parse


def itself(names) -> dict:
    return {name: name for name in names}


def described(words: dict) -> str:
    return "\n".join(f"  {name:14} {text}" for name, text in words.items())


def make_parser() -> Parser:
    parser = Parser(
        prog="bench", allow_abbrev=True,
        description="""Times Tailor's chains against the bare linear and against other ways to run them.

  tools/bench                                     what suits this machine; a table
  tools/bench --preset quick                      a minute, to see that all is well
  tools/bench --json new.json                     the same table, and all figures in a file
  tools/bench --compare old.json new.json         what got slower
  tools/bench --from gpu.json cpu.json --markdown docs/performance.md --svg docs/performance.svg

Every option with a list takes names with commas between them.""",
        epilog="arms:\n" + described({name: kind.words for name, kind in ARMS.items()}) + "\n\npresets:\n"
        + described(PRESET_HELP) + "\n\nnumbers:\n" + described({name: kind.words for name, kind in NUMBERS.items()})
        + "\n\nA time of Tailor's is shown only where its kernels ran; else the word reference stands there.\nExit status: 0 done, 1 a fault, or nothing could be measured, 2 wrong use, 130 interrupted.")
    what = parser.add_argument_group("what to measure")
    what.add_argument("--preset", type=listed("preset", itself(PRESETS)), metavar="LIST",
                      help="default: published on a GPU, cpu without one, host with --host")
    chains = {**itself(MODELS), **{short(rule): rule for rule in MODELS}}
    what.add_argument("--chain", type=listed("chain", chains), default=[], metavar="LIST",
                      help="only these: " + ", ".join(short(rule) for rule in MODELS))
    what.add_argument("--size", type=sizes, default=[], metavar="LIST",
                      help="these instead of the preset's: ROWSxINxOUT, such as 1024x8192x8192")
    what.add_argument("--dtype", type=listed("dtype", itself(DTYPES)), default=[], metavar="LIST",
                      help=f"these instead of the preset's: {', '.join(DTYPES)}; tf32 is float32 with TF32 allowed")
    what.add_argument("--mode", type=listed("mode", itself(MODES)), default=[], metavar="LIST",
                      help="these instead of the preset's: " + ", ".join(f"{name} ({words})" for name, words in MODES.items()))
    what.add_argument("--numbers", type=listed("kind of numbers", itself(NUMBERS)), default=[], metavar="LIST",
                      help=f"what is in x, and with backward in the gradient that comes in; default: {USUAL}, or the preset's")
    what.add_argument("--arm", type=listed("arm", itself(ARMS)), metavar="LIST",
                      help=f"default: {','.join(TIMED)}; with --host {','.join(HOSTED)}")
    what.add_argument("--host", action="store_true",
                      help="measure what issuing a call costs the host, on next to no work")
    how = parser.add_argument_group("how")
    how.add_argument("--library", metavar="FILE", help="libtailor.so (default: TAILOR_LIBRARY, else build/libtailor.so)")
    how.add_argument("--device", choices=["cuda", "cpu"], help="default: cuda where there is a GPU")
    how.add_argument("--threads", type=positive(int), metavar="N", help="torch's threads on the CPU")
    how.add_argument("--flush", action="store_true", help="write the caches full before each call on a CPU too")
    how.add_argument("--rounds", type=positive(int), default=0, metavar="N", help="calls of each arm at each point")
    how.add_argument("--seconds", type=positive(float), default=1.0, metavar="S",
                     help="without --rounds: time for the rounds of a point, at least 15 and at most 100 (default: 1)")
    how.add_argument("--seed", type=int, default=0, metavar="N", help="for data and order (default: 0)")
    how.add_argument("--time-limit", type=positive(float), metavar="S",
                     help="stop after so many seconds and write what was measured by then")
    how.add_argument("--commit", default="", metavar="TEXT", help="what to note as commit where git does not know it")
    out = parser.add_argument_group("what to write", "A file that is there is replaced, and where a link leads, there it is written.")
    for name, words in OUTPUTS.items():
        out.add_argument(f"--{name}", metavar="FILE", help=words)
    read = parser.add_argument_group("without measuring")
    read.add_argument("--from", dest="sources", nargs="+", metavar="JSON", help="write these results again, merged")
    read.add_argument("--compare", nargs=2, metavar="JSON", help="two results side by side")
    return parser


def check_targets(options):
    """Before measuring, not after it. Nothing is written twice, and nothing that is read."""
    taken = {os.path.realpath(path): "is read" for path in [*(options.sources or []), options.library]}
    for name in OUTPUTS:
        path = getattr(options, name)
        if path is None:
            continue
        if reason := refusal(path):
            fail(reason)
        target = os.path.realpath(path)
        if target in taken:
            fail(f"--{name} {path}: this file {taken[target]}")
        taken[target] = f"is that of --{name}"


def parse(words: list):
    parser = make_parser()
    options = parser.parse_args(words)
    if options.sources and options.compare:
        fail("--from and --compare exclude each other")
    if (options.sources or options.compare) and any(
            (options.preset, options.chain, options.size, options.dtype, options.mode, options.numbers, options.arm, options.host)):
        fail("--from and --compare measure nothing: leave out what says what to measure")
    if options.sources and options.json:
        fail("--from writes no JSON: it has read it")
    if options.compare and any(getattr(options, name) for name in OUTPUTS):
        fail("--compare writes no files")
    options.arm = options.arm or (HOSTED if options.host else TIMED)
    options.library = options.library or os.environ.get("TAILOR_LIBRARY") or str(ROOT / "build" / "libtailor.so")
    check_targets(options)
    return options
