"""A whole run: from the options to the results."""
import gc
import logging
import signal
import sys
import time
import warnings

import torch

from .arms import ARMS
from .clock import CpuTimer, CudaTimer, HostTimer
from .machine import describe_machine, describe_versions, today
from .measure import Conditions, measure, unmeasured
from .numbers import USUAL
from .options import fail
from .plan import points
from .results import FORMAT, Record
from .tables import Lines


class TimeIsUp(BaseException):
    """Not an Exception, so that nobody takes it for an arm's failure."""


class Progress:
    """One line on stderr, for people only."""

    def __init__(self):
        self.on = sys.stderr.isatty()

    def show(self, words: str):
        if self.on:
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def ring(*_):
    raise TimeIsUp


def choose_device(options) -> str:
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        fail("--device cuda: torch finds no GPU here")
    if device == "cpu" and "tf32" in options.dtype:
        fail("--dtype tf32 takes a GPU")
    return device


def load_library(options):
    """Returns what gives Tailor's table of calls. From here on nothing is fused unless an arm asks."""
    if not any(ARMS[name].tailor for name in options.arm):
        return dict
    try:
        torch.ops.load_library(options.library)
    except OSError:
        fail(f"{options.library} is no library of Tailor's that loads here: build it, name another with --library, or "
             "leave its arms out with --arm")
    torch.ops.tailor.auto(False)
    return torch.ops.tailor.calls


def make_timer(device: str, options):
    if options.host:
        return HostTimer(device == "cuda")
    return CudaTimer() if device == "cuda" else CpuTimer(options.flush)


def run(options, record: Record) -> dict:
    """Measures, prints line by line, and keeps the JSON file up to date while it goes on."""
    began = time.monotonic()
    device = choose_device(options)
    if options.threads:
        torch.set_num_threads(options.threads)
    preset = options.preset or ["host" if options.host else "published" if device == "cuda" else "cpu"]
    plan = points(preset, options.chain, options.size, options.dtype, options.mode, device, options.numbers)
    if not plan:
        fail("nothing to measure: no size of this preset has these chains and dtypes")
    warnings.filterwarnings("ignore")  # torch's advice, some of it at every call
    logging.disable(logging.WARNING)
    conditions = Conditions(device, make_timer(device, options), load_library(options), options.host, options.rounds,
                            options.seconds, options.seed)
    result = {"format": FORMAT, "complete": False, "date": today(), "machine": describe_machine(device),
              "versions": describe_versions(options.commit), "planned": len(plan), "seed": options.seed,
              "flush": device == "cuda" or options.flush, "points": []}
    lines, progress = Lines(options.arm, options.host, any(point.numbers != USUAL for point in plan)), Progress()
    print(f"{result['machine'].get('gpu') or result['machine']['cpu']}, {torch.get_num_threads()} CPU threads, torch "
          f"{torch.__version__}, Tailor {result['versions']['tailor'] or 'not loaded'}\n\n{lines.head()}", flush=True)
    if options.time_limit:
        signal.signal(signal.SIGALRM, ring)
        left = options.time_limit - (time.monotonic() - began)
        signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), 1.0)  # again and again, should a callback swallow it
    try:
        for i, point in enumerate(plan, 1):
            where = f"{i}/{len(plan)} {point.label()}: "
            try:
                row = measure(point, options.arm, conditions, lambda words: progress.show(where + words))
            except Exception as reason:  # noqa: BLE001, such as memory that does not suffice for this size
                row = unmeasured(point, options.arm, conditions, reason)
            result["points"].append(row)
            progress.show("")
            print(lines.row(row), flush=True)
            record.write(result)
            gc.collect()
        result["complete"] = True
        signal.setitimer(signal.ITIMER_REAL, 0)
    except (TimeIsUp, KeyboardInterrupt) as stop:
        signal.setitimer(signal.ITIMER_REAL, 0)
        progress.show("")
        why = "the time limit is reached" if isinstance(stop, TimeIsUp) else "interrupted"
        print(f"{why}: {len(result['points'])} of {len(plan)} points measured", flush=True)
    if result["points"]:
        print("\n" + lines.notes(result["points"]))
    record.write(result)
    return result
