"""Looks for inputs with which Tailor is worse than SGEMM: one mixture after another, each from a seed."""
import itertools
import time

from .arms import bare, linear, path_of
from .measure import wanted_path
from .mixtures import Mixture
from .referee import FLOOR, Referee, ratio


def trial(seed: int, device: str, kernel: str, names: list) -> dict:
    """What came of one seed. Without a ratio where the kernel did not take it."""
    mixture = Mixture(seed, device, names)
    found = {"seed": seed, "m": mixture.m, "n": mixture.n, "k": mixture.k, "words": ", ".join(mixture.words)}
    mine, path = path_of(lambda: bare(mixture.x, mixture.weight))
    if path == wanted_path(device, kernel):
        referee = Referee(mixture.x, mixture.weight)
        errors = {"tailor": referee.error(mine)["max"],
                  "sgemm": referee.error(linear(mixture.x, mixture.weight, tf32=False))["max"]}
        found.update(errors, ratio=ratio(errors["tailor"], errors["sgemm"], FLOOR))
    return found


def search(seconds: float, first_seed: int, device: str, kernel: str, names: list, note) -> dict:
    """One trial at least. `note` gets each of them, and what was found so far."""
    start, found = time.monotonic(), {"trials": 0, "skipped": 0, "worse": 0, "seed": first_seed, "seconds": 0.0, "worst": None}
    try:
        for seed in itertools.count(first_seed):
            one = trial(seed, device, kernel, names)
            found["trials"] += 1
            found["seconds"] = time.monotonic() - start
            if "ratio" not in one:
                found["skipped"] += 1
            else:
                found["worse"] += one["ratio"] > 1
                if found["worst"] is None or one["ratio"] > found["worst"]["ratio"]:
                    found["worst"] = one
            note(one, found)
            if found["seconds"] >= seconds:
                break
    except KeyboardInterrupt:
        pass
    return found
