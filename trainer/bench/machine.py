"""The machine: which cores to measure on, pinning to them, and what it is made of."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from trainer.errors import TrainingError

__all__ = ["describe_machine", "one_thread_each", "pinned", "separate_cores"]

_CPUS = Path("/sys/devices/system/cpu")


def separate_cores(count: int) -> tuple[int, ...]:
    """The first `count` allowed CPUs that share no physical core."""
    if not hasattr(os, "sched_getaffinity"):
        raise TrainingError("pinning to cores needs Linux, absent here")
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        cores.setdefault(_physical_core(cpu), cpu)
    if len(cores) < count:
        raise TrainingError(f"{len(cores)} core is allowed here, expected at least {count}")
    return tuple(cores.values())[:count]


def _physical_core(cpu: int) -> str:
    """The CPUs that share a core with this one; itself where the system does not say."""
    siblings = _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return siblings.read_text().strip()
    except OSError:
        return str(cpu)


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """This thread, and threads that it starts meanwhile, on these cores only."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """BLAS and OpenMP limited to one thread for every thread of ours."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1):
        yield


def describe_machine() -> dict[str, Any]:
    """What a reader needs to judge absolute times by."""
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    libraries = threadpool_info()
    blas = [entry for entry in libraries if entry["user_api"] == "blas"]
    return {
        "cpu": _cpu_name(),
        "allowed_cpus": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": sorted(
            {f"{entry['internal_api']} {entry['version']} {_kernels(entry)}" for entry in blas}
        ),
    }


def _kernels(library: dict[str, Any]) -> str:
    return str(library.get("architecture") or "")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
