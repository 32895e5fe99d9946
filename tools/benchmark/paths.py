"""Which path of an op ran, and whether a figure may be shown for it."""

MEASURED, REFERENCE, NOT_FUSED, UNAVAILABLE = "measured", "reference", "not fused", "unavailable"


def paths_of(rule: str, added: dict) -> dict:
    """How often each path of this op ran, from what was added to torch.ops.tailor.calls()."""
    return {key.split("/", 1)[1]: count for key, count in added.items() if count and key.split("/", 1)[0] == rule}


def verdict(rule: str, added: dict) -> str:
    """A time is Tailor's only if the op ran and the reference, which is torch's own work, had no part in it."""
    paths = paths_of(rule, added)
    if not paths:
        return NOT_FUSED
    return REFERENCE if any(path.startswith("reference") for path in paths) else MEASURED
