"""What the figures were measured on."""
import datetime
import json
import os
import pathlib
import platform
import subprocess

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]


def said_by(*command: str) -> str:
    """The first line that a program prints, or nothing where it cannot."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().split("\n")[0]


def cpu_name() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine()])[0]


def describe_machine(device: str) -> dict:
    machine = {"device": device, "cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)),
               "threads": torch.get_num_threads(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        driver = said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        machine.update(gpu=gpu.name, gpu_memory_bytes=gpu.total_memory, multiprocessors=gpu.multi_processor_count,
                       driver=driver or "unknown")
    return machine


def commit() -> str:
    """The commit of this checkout, where git knows it."""
    name = said_by("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    changed = name and said_by("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{name}, with changes" if changed else name or "unknown"


def tailor_version() -> str:
    """As the library says it; empty where none is loaded."""
    if not hasattr(torch.ops.tailor, "inspect"):
        return ""
    return json.loads(torch.ops.tailor.inspect(torch.jit.script(torch.nn.Linear(1, 1))))["tailor"]


def describe_versions(known_commit: str = "") -> dict:
    try:
        import triton
        triton_version = triton.__version__
    except ImportError:
        triton_version = ""
    return {"tailor": tailor_version(), "commit": known_commit or commit(), "torch": torch.__version__,
            "cuda": torch.version.cuda or "", "triton": triton_version, "python": platform.python_version()}


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
