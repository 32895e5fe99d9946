"""What the search multiplies: sizes, mixtures of distributions, zeros and exponents, all drawn from one seed."""
import random

import torch

from .inputs import DISTRIBUTIONS, Draw
from .referee import product

LARGEST = 2.0**120  # of Σ|x||w|; above it float32 may overflow on its way, in one order of adding up and not in another
INNER = 16, 16384


class Mixture:
    """One trial: `x`, `weight`, and in `words` how they came about."""

    def __init__(self, seed: int, device: str, names: list):
        self.chance, self.draw = random.Random(seed), Draw(device, seed)
        self.m, self.n, self.k = self.size()
        chosen = [self.chance.choice(names) for _ in range(self.chance.choice((1, 1, 2, 3)))]
        self.words = ["+".join(chosen)]
        parts = [DISTRIBUTIONS[name].make(self.draw, self.m, self.n, self.k) for name in chosen]
        self.x, self.weight = self.mixed([x for x, _ in parts], "x"), self.mixed([w for _, w in parts], "weight")
        for change in (self.opposed_columns, self.dodged, self.exponents, self.zeros, self.short):
            if self.chance.random() < 0.3:
                change()
        self.tame()

    def size(self) -> tuple:
        low, high = INNER
        k = int(low * (high / low) ** self.chance.random())
        if self.chance.random() < 0.5:
            k = max(64, k // 64 * 64)
        rows = self.chance.choice((1, 4, 130, 300))
        return self.chance.randint(1, rows), 4 * self.chance.randint(1, self.chance.choice((1, 16, 130))), k

    def mixed(self, parts: list, name: str):
        """Some rows, columns or elements of each."""
        result = parts[0]
        for other in parts[1:]:
            rows, columns = self.chance.choice(((len(result), 1), (1, self.k), (len(result), self.k)))
            share = self.chance.choice((0.02, 0.5, 0.98))
            self.words.append(f"{name} mixed {rows}x{columns} {share}")
            result = torch.where(self.draw.mask(rows, columns, share), other, result)
        return result

    def opposed_columns(self):
        most = self.chance.randint(1, 40)
        self.words.append(f"opposed columns 2^{most}")
        scale = self.draw.powers(1, self.k, most)
        self.x, self.weight = self.x * scale, self.weight / scale

    def dodged(self):
        """What is large in one operand meets zeros in the other."""
        most, share = self.chance.randint(5, 50), self.chance.choice((0.01, 0.5, 0.99))
        large = self.draw.mask(1, self.k, share)
        self.words.append(f"dodged 2^{most} {share}")
        first, other = torch.where(large, self.x * 2.0**most, self.x), self.weight.masked_fill(large, 0.0)
        if self.chance.random() < 0.5:
            first, other = self.x.masked_fill(large, 0.0), torch.where(large, self.weight * 2.0**most, self.weight)
        self.x, self.weight = first, other

    def exponents(self):
        for name in ("x", "weight"):
            rows, columns = self.chance.choice(((len(getattr(self, name)), 1), (1, self.k), (len(getattr(self, name)), self.k)))
            most = self.chance.choice((2, 10, 20, 30))
            self.words.append(f"{name} times 2^{most} {rows}x{columns}")
            setattr(self, name, getattr(self, name) * self.draw.powers(rows, columns, most))

    def zeros(self):
        name, share = self.chance.choice(("x", "weight")), 2.0 ** -self.chance.uniform(0, 12)
        self.words.append(f"{name} {share:.2g} not zero")
        value = getattr(self, name)
        setattr(self, name, value * self.draw.mask(len(value), self.k, share))

    def short(self):
        """Few digits, so that float32 adds up without rounding, or nearly so."""
        drop = self.chance.randint(8, 22)
        self.words.append(f"{24 - drop} bits")
        self.x, self.weight = (((value.view(torch.int32) >> drop) << drop).view(torch.float32)
                               for value in (self.x.contiguous(), self.weight.contiguous()))

    def tame(self):
        """Finite, and by powers of two so small that no sum overflows on its way."""
        self.x, self.weight = (torch.nan_to_num(value, 0.0, 2.0**100, -2.0**100) for value in (self.x, self.weight))
        largest = product(self.x.abs(), self.weight.abs()).amax(1, keepdim=True)
        excess = torch.log2(largest.clamp_min(1e-300) / LARGEST).ceil().clamp_min(0)
        self.x = (self.x.double() * torch.exp2(-excess)).float()
