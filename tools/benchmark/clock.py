"""Timing: the arms of one point take turns, so that a machine that slows down slows all of them alike."""
import collections
import random
import statistics
import time
from typing import Callable, NamedTuple

import torch

FLUSH_BYTES = 512 << 20  # far above any L2; writing it also gives the host time to run ahead of a GPU
HOST_CALLS = 100  # between two looks at the clock in host mode


class Figure(NamedTuple):
    """Microseconds of one call: the median, and the tenth and ninetieth percentile."""
    us: float
    p10: float
    p90: float
    rounds: int


def figure(samples: list) -> Figure:
    if len(samples) == 1:
        return Figure(samples[0], samples[0], samples[0], 1)
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return Figure(statistics.median(samples), tenths[0], tenths[-1], len(samples))


class CpuTimer:
    calls = 1  # in a sample

    def __init__(self, flush: bool = False, now: Callable = time.perf_counter):
        self.buffer = torch.empty(FLUSH_BYTES, dtype=torch.uint8) if flush else None
        self.now = now

    def run(self, call):
        if self.buffer is not None:
            self.buffer.zero_()
        start = self.now()
        call()
        return self.now() - start

    def settle(self):
        """Waits until all that was run has ended."""

    def read(self, token) -> float:
        return 1e6 * token


class CudaTimer:
    """Events around each single call, the L2 written full before it. Nothing waits for the GPU until the round ends."""
    calls = 1

    def __init__(self, flush: bool = True):
        self.buffer = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda") if flush else None

    def run(self, call):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if self.buffer is not None:
            self.buffer.zero_()
        start.record()
        call()
        stop.record()
        return start, stop

    def settle(self):
        torch.cuda.synchronize()

    def read(self, token) -> float:
        start, stop = token
        return 1e3 * start.elapsed_time(stop)


class HostTimer:
    """What issuing a call costs the host: calls back to back, nothing waits for the GPU. On a CPU the work is in it."""
    calls = HOST_CALLS

    def __init__(self, cuda: bool):
        self.cuda = cuda

    def run(self, call):
        self.settle()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        return (time.perf_counter() - start) / HOST_CALLS

    def settle(self):
        if self.cuda:
            torch.cuda.synchronize()

    def read(self, token) -> float:
        return 1e6 * token


def rounds_within(seconds: float, microseconds: float, least: int = 15, most: int = 100) -> int:
    """How many rounds of this length fit."""
    return max(least, min(most, int(1e6 * seconds / max(microseconds, 1e-3))))


def take_turns(arms: list, rounds: int, timer, calls: Callable = dict, seed: int = 0):
    """Adds a sample to each arm in every round, in another order each time: who runs second on a GPU near its power limit
    runs slower. `calls` is Tailor's table of calls; what one call adds to it goes to that arm's `paths`."""
    order, chance = list(arms), random.Random(seed)
    for _ in range(rounds):
        chance.shuffle(order)
        tokens = []
        for arm in order:
            before = collections.Counter(calls())
            tokens.append(timer.run(arm.call))
            arm.paths.update(collections.Counter(calls()) - before)
        timer.settle()
        for arm, token in zip(order, tokens):
            arm.samples.append(timer.read(token))
