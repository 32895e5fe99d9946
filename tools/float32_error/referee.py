"""float64 says how far a float32 product is off."""
import math

import torch

BLOCK = 1 << 24  # elements of each matrix that are float64 at a time: 128 MiB


def product(x, weight):
    """x·weightᵀ in float64, so many rows of each at a time."""
    rows = max(1, BLOCK // max(1, x.shape[1]))
    return torch.cat([torch.cat([a.double() @ b.double().t() for b in weight.split(rows)], 1) for a in x.split(rows)])


class Referee:
    """Of one pair of matrices: the product, and Σ|x||w|, by which float32's bounds are stated."""

    def __init__(self, x, weight):
        self.exact, self.size = product(x, weight), product(x.abs(), weight.abs())

    def errors(self, result):
        """Each result's distance over its Σ|x||w|. Where that is 0, so must be the result."""
        off = (result.double() - self.exact).abs()
        share = torch.where(self.size > 0, off / self.size, torch.where(off == 0, 0.0, torch.inf))
        return torch.where(share.isnan(), torch.inf, share)

    def error(self, result) -> dict:
        """The largest, where it is, and the root mean square."""
        share = self.errors(result)
        place = int(share.argmax())
        return {"max": share.reshape(-1)[place].item(), "rms": share.square().mean().sqrt().item(),
                "at": list(divmod(place, share.shape[1]))}


FLOOR = 2.0**-24  # half a unit in the last place of a result as large as its Σ|x||w|


def ratio(mine: float, theirs: float, floor: float = 0.0) -> float:
    """Of two largest errors. One below the floor counts as the floor: of a few results only, it is a matter of luck."""
    theirs = max(theirs, floor)
    if mine == theirs:
        return 1.0 if mine else 0.0
    return mine / theirs if theirs else math.inf
