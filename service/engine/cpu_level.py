"""Whether this CPU can run kernels that were compiled for a stated level of CPUs.

An image has its kernels compiled for `NUMBA_CPU_NAME`, the same name at build and at run time.
On an older CPU the first instruction that it lacks would end the process without a word.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from service.engine.errors import UnsuitableCpuError

__all__ = ["require_cpu_level"]

_DESCRIPTION = Path("/proc/cpuinfo")

# The levels of the x86-64 psABI by Linux's names of their features, each beside those below.
_LEVELS: dict[str, frozenset[str]] = {
    "x86-64": frozenset(),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
}


def require_cpu_level(
    environment: Mapping[str, str] = os.environ, description: Path = _DESCRIPTION
) -> None:
    """Raise `UnsuitableCpuError` if this CPU is known to be below the level in the environment."""
    level = environment.get("NUMBA_CPU_NAME", "")
    if level not in _LEVELS:
        return
    features = _features(description)
    if features and (missing := _missing(level, features)):
        older = max(known for known in _LEVELS if not _missing(known, features))
        raise UnsuitableCpuError(
            f"the kernels are compiled for CPUs of level {level} (NUMBA_CPU_NAME), this one lacks "
            f"{', '.join(missing)}; set NUMBA_CPU_NAME={older} and NUMBA_CACHE_DIR to a folder "
            f"that can be written, or build the image with --build-arg AMD64_CPU={older}"
        )


def _missing(level: str, features: frozenset[str]) -> list[str]:
    """What a level needs, with all below it, and a CPU lacks, in the order of names."""
    needed = [feature for known, new in _LEVELS.items() if known <= level for feature in new]
    return sorted(set(needed) - features)


def _features(description: Path) -> frozenset[str]:
    """What Linux says that the first CPU can do; nothing on another system or architecture."""
    try:
        lines = description.read_text("ascii", "replace").splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())
