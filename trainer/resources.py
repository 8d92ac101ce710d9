"""How much memory and disk a run may take here."""

import shutil
from pathlib import Path

__all__ = ["available_memory", "free_disk"]

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that can be had without swapping, within the limit of a container; None if unknown."""
    known = [size for size in (_of_machine(), _of_container()) if size is not None]
    return min(known, default=None)


def free_disk(folder: Path) -> int:
    """Bytes that can still be written to a folder."""
    return shutil.disk_usage(folder).free


def _of_machine() -> int | None:
    return _entry(_MEMORY, "MemAvailable:", unit=1024)


def _of_container() -> int | None:
    """What its limit leaves; pages of files do not count, they make room for others."""
    try:
        limit = int((_GROUP / "memory.max").read_text("ascii"))
    except (OSError, ValueError):  # there is none
        return None
    return max(0, limit - (_entry(_GROUP / "memory.stat", "anon", unit=1) or 0))


def _entry(file: Path, name: str, unit: int) -> int | None:
    try:
        lines = file.read_text("ascii").splitlines()
    except OSError:
        return None
    values = (line.split() for line in lines)
    return next((int(words[1]) * unit for words in values if words and words[0] == name), None)
