"""What is in the matrices that are measured. A kernel that is fast for normal numbers may be slow for others: here are those that networks
have, and some that they hardly have. Adding one is a row in NUMBERS."""
from typing import Callable, NamedTuple

import torch

USUAL = "normal"


def behind_a_size(name: str) -> str:
    """How a line says what was in its matrices."""
    return "" if name == USUAL else f" {name}"


class Kind(NamedTuple):
    make: Callable  # rows, columns -> matrix
    words: str


def entropy(rows: int, columns: int, sigma: float) -> torch.Tensor:
    """The gradient of a mean cross entropy: of logits, one class of each row is right."""
    made = torch.softmax(sigma * torch.randn(rows, columns), 1)
    made[torch.arange(rows), torch.randint(columns, (rows,))] -= 1
    return made / rows


def logarithmic(rows: int, columns: int, *sizes: int) -> torch.Tensor:
    """Normal numbers, times log-normal ones of this shape, sigma 2: one in twenty is 50 times as large as the median, or a 50th."""
    return torch.randn(rows, columns) * torch.exp(2 * torch.randn(sizes))


NUMBERS = {
    USUAL: Kind(torch.randn, "normal numbers"),
    "relu": Kind(lambda rows, columns: torch.randn(rows, columns).relu(), "half of them zeros, as relu leaves them"),
    "entropy": Kind(lambda rows, columns: entropy(rows, columns, 1), "a cross entropy's gradient, logits' sigma 1"),
    "entropy_sure": Kind(lambda rows, columns: entropy(rows, columns, 3), "the same, of a network that is sure: sigma 3"),
    "rows": Kind(lambda rows, columns: logarithmic(rows, columns, rows, 1), "rows of log-normal size, sigma 2"),
    "columns": Kind(lambda rows, columns: logarithmic(rows, columns, columns), "columns of log-normal size, sigma 2"),
    "each": Kind(lambda rows, columns: logarithmic(rows, columns, rows, columns), "each number of log-normal size, sigma 2"),
    "sparse": Kind(lambda rows, columns: torch.randn(rows, columns) * (torch.rand(rows, columns) < 0.01), "one in a hundred is not zero"),
}
