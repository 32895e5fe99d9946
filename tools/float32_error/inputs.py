"""What is multiplied: the distributions. Adding one is a function below `@distribution`; it gives x, m by k, and the weight,
n by k, such that no result leaves float32's range."""
from typing import Callable, NamedTuple

import torch


class Draw:
    """Random float32 matrices on one device, all from one generator."""

    def __init__(self, device: str, seed: int):
        self.device, self.generator = device, torch.Generator(device).manual_seed(seed)

    def normal(self, rows, columns):
        return torch.randn(rows, columns, device=self.device, generator=self.generator)

    def uniform(self, rows, columns, low=-1.0, high=1.0):
        return low + (high - low) * torch.rand(rows, columns, device=self.device, generator=self.generator)

    def integers(self, rows, columns, most):
        return torch.randint(-most, most + 1, (rows, columns), device=self.device, generator=self.generator).float()

    def powers(self, rows, columns, most):
        """2^-most to 2^most, each exactly one: what exp2 is off in float64 is rounded away."""
        return self.integers(rows, columns, most).double().exp2().float()

    def mask(self, rows, columns, share):
        return torch.rand(rows, columns, device=self.device, generator=self.generator) < share

    def places(self, rows, columns):
        """A column for each row."""
        return torch.randint(0, columns, (rows, 1), device=self.device, generator=self.generator)


class Distribution(NamedTuple):
    words: str
    make: Callable


DISTRIBUTIONS = {}


def distribution(words: str):
    def note(make):
        DISTRIBUTIONS[make.__name__] = Distribution(words, make)
        return make
    return note


def lognormal(d, rows, columns, sigma):
    return torch.exp(sigma * d.normal(rows, columns)) * d.normal(rows, columns).sign()


@distribution("standard normal")
def normal(d, m, n, k):
    return d.normal(m, k), d.normal(n, k)


@distribution("uniform over 0 to 1: nothing cancels")
def positive(d, m, n, k):
    return d.uniform(m, k, 0.0), d.uniform(n, k, 0.0)


@distribution("uniform over -1 to 1")
def uniform(d, m, n, k):
    return d.uniform(m, k), d.uniform(n, k)


@distribution("x normal around 1000, the weight around 0")
def far(d, m, n, k):
    return 1000 + d.normal(m, k), d.normal(n, k)


@distribution("both normal around 1000")
def far_both(d, m, n, k):
    return 1000 + d.normal(m, k), 1000 + d.normal(n, k)


@distribution("x after a relu, as activations are; a weight as layers begin with")
def relu(d, m, n, k):
    return d.normal(m, k).relu(), d.uniform(n, k) * k**-0.5


@distribution("log-normal of sigma 1, random signs")
def lognormal_1(d, m, n, k):
    return lognormal(d, m, k, 1.0), lognormal(d, n, k, 1.0)


@distribution("log-normal of sigma 3, random signs")
def lognormal_3(d, m, n, k):
    return lognormal(d, m, k, 3.0), lognormal(d, n, k, 3.0)


@distribution("log-normal of sigma 6, random signs")
def lognormal_6(d, m, n, k):
    return lognormal(d, m, k, 6.0), lognormal(d, n, k, 6.0)


@distribution("each element of both times a power of its own, 2^-30 to 2^30")
def wide(d, m, n, k):
    return d.uniform(m, k) * d.powers(m, k, 30), d.uniform(n, k) * d.powers(n, k, 30)


@distribution("each row of both times a power of its own, 2^-60 to 2^60")
def row_scales(d, m, n, k):
    return d.normal(m, k) * d.powers(m, 1, 60), d.normal(n, k) * k**-0.5 * d.powers(n, 1, 60)


@distribution("columns of x times 2^-20 to 2^20, those of the weight by what undoes it")
def opposed(d, m, n, k):
    scale = d.powers(1, k, 20)
    return d.normal(m, k) * scale, d.normal(n, k) / scale


@distribution("one element of each row of x times 10^8")
def one_huge(d, m, n, k):
    x = d.normal(m, k)
    place = d.places(m, k)
    return x.scatter(1, place, 1e8 * x.gather(1, place)), d.normal(n, k)


@distribution("x's large elements meet zeros; those that count are 2^-10 to 2^-60 of them")
def hidden(d, m, n, k):
    large = d.mask(1, k, 0.5)
    x = torch.where(large, d.normal(m, k), d.normal(m, k) * d.uniform(m, 1, -60, -10).double().exp2().float())
    return x, d.normal(n, k).masked_fill(large, 0.0)


@distribution("31 of 32 elements of both are zero")
def sparse(d, m, n, k):
    return d.normal(m, k) * d.mask(m, k, 1 / 32), d.normal(n, k) * d.mask(n, k, 1 / 32)


@distribution("17 to 48 elements of each row of the weight are not zero")
def few(d, m, n, k):
    share = d.uniform(n, 1, 17 / k, 48 / k)
    return d.normal(m, k), d.normal(n, k) * (d.uniform(n, k, 0.0) < share)


@distribution("the weight 1 and -1")
def signs(d, m, n, k):
    return d.normal(m, k), d.normal(n, k).sign()


@distribution("each row of both one number, again and again")
def constant(d, m, n, k):
    return d.normal(m, 1).expand(m, k).contiguous(), d.normal(n, 1).expand(n, k).contiguous()


def held_worst(d, rows, columns):
    """A little above 1: what the upper half leaves is odd and above 2^11 in units of the last place, so that the lower half
    has to drop that unit, always the same way."""
    upper, lower = d.uniform(rows, columns, 0, 64).floor(), d.uniform(rows, columns, 0, 500).floor()
    return 1 + upper * 2.0**-10 + (2049 + 4 * lower) * 2.0**-23


@distribution("numbers that two halves hold worst, all off to the same side")
def worst_halves(d, m, n, k):
    return held_worst(d, m, k), held_worst(d, n, k)


@distribution("neighbours that cancel to 2^-12 of themselves")
def cancelling(d, m, n, k):
    half = (k + 1) // 2
    x, w = (values.repeat_interleave(2, 1)[:, :k].contiguous() for values in (d.uniform(m, half, 1, 2), d.normal(n, half)))
    w[:, 1::2] *= -1
    return x, w + d.normal(n, k) * 2.0**-12


@distribution("integers up to 4: every sum is exact")
def integers_4(d, m, n, k):
    return d.integers(m, k, 4), d.integers(n, k, 4)


@distribution("integers of 11 bits")
def integers_11(d, m, n, k):
    return d.integers(m, k, 2047), d.integers(n, k, 2047)


@distribution("integers of 13 bits")
def integers_13(d, m, n, k):
    return d.integers(m, k, 8191), d.integers(n, k, 8191)


@distribution("each row of the weight a single 1: results are elements of x")
def one_hot_weight(d, m, n, k):
    return d.normal(m, k), torch.zeros(n, k, device=d.device).scatter(1, d.places(n, k), 1.0)


@distribution("each row of x a single 1: results are elements of the weight")
def one_hot_x(d, m, n, k):
    return torch.zeros(m, k, device=d.device).scatter(1, d.places(m, k), 1.0), d.normal(n, k)


@distribution("x up to 10^38")
def huge(d, m, n, k):
    return 1e38 * d.uniform(m, k), d.uniform(n, k) / k


@distribution("x up to 10^-38; the results are subnormal")
def tiny(d, m, n, k):
    return 1e-38 * d.uniform(m, k), d.uniform(n, k) / k


@distribution("x up to 10^-38, the weight up to 10^38")
def tiny_by_huge(d, m, n, k):
    return 1e-38 * d.uniform(m, k), 1e38 * d.uniform(n, k)


@distribution("x subnormal, the weight around 2^40")
def subnormal(d, m, n, k):
    return 2.0**-133 * d.normal(m, k), 2.0**40 * d.normal(n, k)
