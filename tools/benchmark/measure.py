"""Measures one point: makes the arms, warms them up, takes errors and memory, lets them take turns."""
from typing import Callable, NamedTuple

import torch

from .arms import ARMS, Arm, Setup, switches, values
from .clock import figure, rounds_within, take_turns
from .paths import MEASURED, UNAVAILABLE, paths_of, verdict
from .plan import Point
from .results import tail

WARM_UP = 5  # TorchScript's executor makes its last plan in the third call


def one_line(error: Exception) -> str:
    """What went wrong, without tracebacks and advice."""
    error = getattr(error, "inner_exception", None) or error  # as torch.compile wraps it
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    line = lines[-1] if "TorchScript interpreter" in lines[0] else lines[0]
    name = type(error).__name__
    return (line if name == "Unavailable" else f"{name}: {line}")[:160]


def error(result, exact: list) -> dict:
    """Over all elements of the output, or with backward of all gradients together."""
    largest, squares, count = 0.0, 0.0, 0
    for mine, truth in zip(values(result), exact, strict=True):
        off = (mine.detach().double() - truth).abs()
        largest = max(largest, off.max().item()) if not off.isnan().any() else float("nan")
        squares, count = squares + off.square().sum().item(), count + off.numel()
    return {"max_error": largest, "rms_error": (squares / count) ** 0.5}


def peak_bytes(call) -> int:
    """The most that a call holds at once beyond what was there before it, its result included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def look(arm: Arm, setup: Setup) -> dict:
    """Error and memory of a call."""
    seen = error(arm.call(), setup.exact) if arm.kind.chain else {}
    if setup.device == "cuda" and arm.name != "graph":  # a graph's memory was taken when it was captured
        seen["peak_bytes"] = peak_bytes(arm.call)
    return seen


def prepare(name: str, setup: Setup, timer) -> tuple:
    """The arm, warm, and the microseconds of a call."""
    arm = Arm(name, ARMS[name].make(setup))
    for _ in range(WARM_UP):
        token = timer.run(arm.call)
    timer.settle()
    return arm, timer.read(token)


def entry(arm: Arm, seen: dict, rule: str) -> dict:
    status = verdict(rule, arm.paths) if arm.kind.tailor else MEASURED
    paths = {"paths": paths_of(rule, arm.paths)} if arm.kind.tailor else {}
    if status != MEASURED:
        return {"status": status, **paths}
    return {"status": status, **figure(arm.samples)._asdict(), **seen, **paths}


class Conditions(NamedTuple):
    """What is the same for all points of a run."""
    device: str
    timer: object
    calls: Callable  # Tailor's table of calls
    hosted: bool = False  # the time of issuing a call, not of its work
    rounds: int = 0  # 0: as many as fit into `seconds`
    seconds: float = 1.0
    seed: int = 0


def row_of(point: Point, names: list, entries: dict, hosted: bool) -> dict:
    """The point's row of the JSON file."""
    case = point.case
    row = {"chain": case.rule, "batch": case.batch, "in": case.in_features, "out": case.out_features,
           "groups": case.groups, "dtype": point.dtype, "mode": point.mode, "numbers": point.numbers,
           "measure": "host" if hosted else "time",
           "arms": {name: entries[name] for name in names if name in entries}}
    return {**row, "tail": tail(row)} if tail(row) else row


def unmeasured(point: Point, names: list, conditions: Conditions, reason: Exception) -> dict:
    entries = {name: {"status": UNAVAILABLE, "reason": one_line(reason)} for name in names}
    return row_of(point, names, entries, conditions.hosted)


def measure(point: Point, names: list, conditions: Conditions, say=lambda words: None) -> dict:
    timer, entries, arms, each = conditions.timer, {}, [], 0.0
    with switches(point):
        setup = Setup(point, conditions.device, conditions.seed)
        for name in (name for name in names if point.mode in ARMS[name].modes):
            say(name)
            try:
                arm, once = prepare(name, setup, timer)
                arms, each = [*arms, arm], each + once * timer.calls
            except Exception as reason:  # noqa: BLE001, one arm's trouble, whatever it is, is not the others'
                entries[name] = {"status": UNAVAILABLE, "reason": one_line(reason)}
        say("errors")
        seen = {arm.name: {} if conditions.hosted else look(arm, setup) for arm in arms}
        say("timing")
        rounds = conditions.rounds or rounds_within(conditions.seconds, each)
        take_turns(arms, rounds, timer, conditions.calls, conditions.seed)
    entries.update({arm.name: entry(arm, seen[arm.name], point.case.rule) for arm in arms})
    return row_of(point, names, entries, conditions.hosted)
