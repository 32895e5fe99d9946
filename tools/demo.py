"""Tailor's main job on the six seed models: fuse what plain torch saved, run it, compare and time it.

    python tools/demo.py LIBRARY COMMAND FOLDER

scripts and saves the models in a process of its own, in which Tailor is not loaded; fuses each with the `tailor`
command; runs them unfused and fused; prints a table; and leaves the files and before/after pictures of their graphs in
FOLDER. Uses the GPU where there is one, at the published sizes, else the CPU at reduced ones. The exit status says
whether all is well.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import torch

from seed_models import SIX, TABLES, Case, example

PICTURE = "gn_swish_mul_swish"  # the one to look at first
ROUNDS = 25


class Row(NamedTuple):
    model: str
    size: str
    sites: int
    fused: int
    path: str
    eager_error: float
    fused_error: float
    unfused_ms: float
    fused_ms: float
    wrong: str  # empty where all is well


def call(command: list) -> subprocess.CompletedProcess:
    """Runs a program; one that fails ends the demonstration with what it said."""
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr.strip() or done.stdout.strip()}")
    return done


def largest_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    return (value.double() - exact).abs().max().item()


def allowed_error(eager_error: float, exact: torch.Tensor) -> float:
    """The numeric contract for a single run: 1.5 times eager's own error, or a unit in the last place of the output."""
    magnitude = exact.abs().max().float()
    unit = torch.nextafter(magnitude, torch.tensor(torch.inf, device=exact.device)) - magnitude
    return max(1.5 * eager_error, unit.item())


def median_times(models: list, x: torch.Tensor) -> list:
    """Milliseconds of each model, one after the other in turns, so that a machine that slows down slows all of them."""
    times = [[] for _ in models]
    for _ in range(ROUNDS):
        for model, taken in zip(models, times):
            if x.is_cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            model(x)
            if x.is_cuda:
                torch.cuda.synchronize()
            taken.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(taken) for taken in times]


def paths_taken(rule: str) -> str:
    """Which of the op's kernels ran since the last reset."""
    calls = torch.ops.tailor.calls()
    taken = [key.split("/", 1)[1] for key in calls if calls[key] and key.startswith(rule + "/")]
    return ", ".join(sorted(taken)) or "none"


@torch.no_grad()
def run(name: str, case: Case, report: dict, files: tuple, device: str) -> Row:
    unfused, fused = (torch.jit.load(file, map_location=device) for file in files)
    x = example(case).to(device)
    exact = torch.jit.load(files[0], map_location=device).double()(x.double())
    torch.ops.tailor.reset_calls()
    ours, theirs = fused(x), unfused(x)
    path = paths_taken(case.rule)
    fused_error, eager_error = largest_error(ours, exact), largest_error(theirs, exact)
    allowed = allowed_error(eager_error, exact)
    for model in (unfused, fused):  # the executor makes its plans in the first calls
        model(x), model(x)
    unfused_ms, fused_ms = median_times([unfused, fused], x)

    sites = report["sites"]
    found = [site for site in sites if site["fused"]]
    wrong = ""
    if [site["rule"] for site in found] != [case.rule]:
        wrong = f"expected one site of {case.rule}, the report says {json.dumps(sites)}"
    elif path == "none":
        wrong = "the fused op was not called"
    elif not fused_error <= allowed:  # also where it is NaN
        wrong = f"the error {fused_error:.2g} is above the {allowed:.2g} that eager's allows"
    return Row(name, case.sizes(), len(sites), len(found), path, eager_error, fused_error, unfused_ms, fused_ms, wrong)


def table(rows: list) -> str:
    heads = ["model", "batch x in -> out", "sites", "fused", "path", "eager error", "fused error", "unfused ms",
             "fused ms"]
    cells = [heads] + [
        [row.model, row.size, str(row.sites), str(row.fused), row.path, f"{row.eager_error:.1e}",
         f"{row.fused_error:.1e}", f"{row.unfused_ms:.2f}", f"{row.fused_ms:.2f}"]
        for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    words = {0, 1, 4}  # columns of words begin at the left, numbers end at the right
    lines = ["  ".join(cell.ljust(width) if i in words else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * sum(widths + [2 * len(widths) - 2]), *lines[1:]])


def main():
    parser = argparse.ArgumentParser(description="Fuse the six seed models, run them, compare and time them.")
    parser.add_argument("library", type=pathlib.Path, help="libtailor.so")
    parser.add_argument("command", type=pathlib.Path, help="the tailor command")
    parser.add_argument("folder", type=pathlib.Path, help="where models and picture go")
    parser.add_argument("--sizes", choices=TABLES, help="default: published on a GPU, reduced without")
    arguments = parser.parse_args()
    library, command, folder = (path.resolve() for path in (arguments.library, arguments.command, arguments.folder))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = arguments.sizes or ("published" if device == "cuda" else "reduced")

    print(f"Saving the six models, {sizes} sizes, without Tailor", flush=True)
    call([sys.executable, pathlib.Path(__file__).with_name("seed_models.py"), folder, "--sizes", sizes])

    torch.ops.load_library(str(library))
    torch.ops.tailor.auto(False)  # what is to run unfused stays so
    rows = []
    for name in SIX:
        case = TABLES[sizes][name]
        ends = (".pt", ".fused.pt", ".json", ".svg")
        before, after, report, picture = (folder / f"{name}{end}" for end in ends)
        print(f"{name}: fuse and verify", end="", flush=True)
        call([command, "fuse", before, "-o", after, "--expect", f"{case.rule}=1", "--report", report,
              "--input", f"float32[24,{case.in_features}]", "--svg", picture])
        print(", run", end="", flush=True)
        rows.append(run(name, case, json.loads(report.read_text()), (str(before), str(after)), device))
        print(f": {rows[-1].wrong}" if rows[-1].wrong else ": right", flush=True)

    print(f"\n{table(rows)}\n")
    print(f"Errors are the largest absolute differences from a float64 run; times are medians of {ROUNDS} calls in eval "
          f"mode on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'}.")
    print(f"Pictures of the graphs, before and after: {folder}/*.svg, such as {folder / PICTURE}.svg")
    wrong = [row for row in rows if row.wrong]
    for row in wrong:
        print(f"wrong: {row.model}: {row.wrong}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
