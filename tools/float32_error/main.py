"""Measures or searches, or reads what was measured, and writes it in the forms that were asked for."""
import logging
import os
import sys
import warnings

import torch

from benchmark.machine import describe_machine, describe_versions, today
from benchmark.results import Record, Unreadable, write
from benchmark.run import Progress

from . import picture
from .arms import load, tail_is_exact
from .inputs import DISTRIBUTIONS
from .measure import measure_all
from .options import fail, parse
from .page import NoMarkers, with_measured
from .results import FORMAT, measured, read_json, worse
from .search import search
from .words import case_words, head, search_words, trial_words, verdict

INTERRUPTED = 130  # as interrupted programs end


def begin(options) -> dict:
    if options.device == "cuda" and not torch.cuda.is_available():
        fail("torch finds no GPU here, which this measures; --from writes pages and pictures without one")
    try:
        load(options.library, options.kernel)
    except OSError:
        fail(f"{options.library} is no library of Tailor's that loads here: build it, or name another with --library")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if not tail_is_exact(options.device):
        fail("the chain through which products are measured does not give integers as they are: its tail is not exact")
    return {"float32_error": FORMAT, "complete": False, "date": today(), "machine": describe_machine(options.device),
            "versions": describe_versions(options.commit), "kernel": options.kernel, "seed": options.seed, "cases": [], "search": None}


def run_cases(options, result: dict, record: Record):
    progress, count = Progress(), len(options.k) * len(options.distribution)
    print(head(), flush=True)

    def note(row):
        result["cases"].append(row)
        progress.show("")
        print(case_words(row), flush=True)
        progress.show(f"{len(result['cases'])}/{count}")
        record.write(result)
    result["complete"] = measure_all(options.distribution, options.k, options.device, options.kernel, options.seed, options.rows, note)
    progress.show("")
    print(f"\n{verdict(result)}")


def run_search(options, result: dict):
    progress, worst = Progress(), [-1.0]

    def note(one, found):
        if one.get("ratio", -1.0) > worst[0]:
            worst[0] = one["ratio"]
            progress.show("")
            print(trial_words(one), flush=True)
        progress.show(f"{found['trials']} trials, {found['seconds']:.0f} of {options.search:.0f} s, worst {worst[0]:.3f}")
    result["search"] = search(options.search, options.seed, options.device, options.kernel, options.distribution, note)
    result["search"]["kernel"] = options.kernel
    if options.distribution != list(DISTRIBUTIONS):
        result["search"]["only"] = options.distribution
    result["complete"] = True
    progress.show("")
    print(search_words(result["search"]))


def status_of(result: dict) -> int:
    if not result["complete"]:
        return INTERRUPTED
    found = result["search"]
    if found:
        return 1 if found["worse"] or not found["worst"] else 0
    return 1 if worse(result) or not measured(result["cases"]) else 0


def write_files(runs: list, options):
    pictures = []
    of_cases = [run for run in runs if run["cases"]]
    if options.svg and of_cases:
        for name, draw in picture.PICTURES.items():
            write(os.path.join(options.svg, name), draw(of_cases[0]))
            pictures.append(os.path.join(options.svg, name))
    if options.markdown:
        with open(options.markdown, encoding="utf-8") as file:
            text = file.read()
        write(options.markdown, with_measured(text, runs, options.markdown, pictures))


def main(words: list) -> int:
    options = parse(words)
    record = Record(options.json, "float32-error")
    try:
        runs = [read_json(path) for path in options.sources or []]
    except Unreadable as error:
        fail(str(error))
    if not options.sources:
        runs = [begin(options)]
        if options.search is None:
            run_cases(options, runs[0], record)
        else:
            run_search(options, runs[0])
        record.write(runs[0])
    else:
        for run in runs:
            print(search_words(run["search"]) if run["search"] else verdict(run))
    try:
        write_files(runs, options)
    except (OSError, NoMarkers) as error:
        print(f"float32-error: {options.markdown or options.svg} is not written: {error}", file=sys.stderr)
        return 1
    if record.failed:
        return 1
    return 0 if options.sources else status_of(runs[0])
