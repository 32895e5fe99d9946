"""Every distribution with every length of sums."""
from .arms import bare, linear, path_of
from .inputs import DISTRIBUTIONS, Draw
from .referee import Referee
from .results import MEASURED, SKIPPED

INNER = [2**power for power in range(4, 17)]
QUICK = [256, 1024, 4096]
ROWS, COLUMNS = 2048, 2048  # as many as cuBLAS does not cut along K, as it cuts few: those sums are short ones


def wanted_path(device: str, kernel: str) -> str:
    return kernel if device == "cuda" else "cpu"  # which stands in for it, so that this tool can be tried anywhere


def seed_of(seed: int, name: str, k: int) -> int:
    """One of its own for each case, so that a case alone is the same as among others."""
    return (seed * 1000 + list(DISTRIBUTIONS).index(name)) * 1_000_000 + k


def measure(name: str, k: int, device: str, kernel: str, seed: int, rows: int = ROWS, columns: int = COLUMNS) -> dict:
    """Its largest and root mean square error, by arm. Tailor's is only there if the kernel took it."""
    x, weight = DISTRIBUTIONS[name].make(Draw(device, seed_of(seed, name, k)), rows, columns, k)
    referee = Referee(x, weight)
    row = {"distribution": name, "k": k, "rows": rows, "columns": columns, "status": MEASURED, "arms": {}}
    mine, path = path_of(lambda: bare(x, weight))
    if path == wanted_path(device, kernel):
        row["arms"]["tailor"] = referee.error(mine)
    else:
        row.update(status=SKIPPED, reason=f"it took `{path}`")
    row["arms"]["sgemm"] = referee.error(linear(x, weight, tf32=False))
    row["arms"]["tf32"] = referee.error(linear(x, weight, tf32=True))
    return row


def measure_all(names: list, inner: list, device: str, kernel: str, seed: int, rows: int, note) -> bool:
    """`note` gets each case. False where the user has had enough."""
    try:
        for k in inner:
            for name in names:
                note(measure(name, k, device, kernel, seed, rows))
    except KeyboardInterrupt:
        return False
    return True

