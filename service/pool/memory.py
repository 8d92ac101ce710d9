"""How much memory is in use where it will run out first.

That is the container, or whatever control group around it has a limit, or else the machine.
The kernel kills a worker when its group is full, so an operator wants to know before. Pages of
files that nobody has used lately are given back when memory is short, and do not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.pool.control_groups import CGROUPS, MEMBERSHIP, control_groups

__all__ = ["Memory", "memory"]

_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Memory:
    """Bytes in use by all that share a limit, and that limit."""

    used: int
    limit: int


def memory(
    membership: Path = MEMBERSHIP, cgroups: Path = CGROUPS, meminfo: Path = _MEMINFO
) -> Memory | None:
    """Memory under the tightest limit; None where the system does not tell."""
    machine = _machine(meminfo)
    groups = _limited(membership, cgroups)
    found = [item for item in (machine, *groups) if item is not None]
    return min(found, key=lambda item: item.limit, default=None)


def _machine(meminfo: Path) -> Memory | None:
    try:
        lines = (line.split() for line in meminfo.read_text().splitlines())
        kilobytes = {words[0]: int(words[1]) for words in lines}
        total, available = kilobytes["MemTotal:"], kilobytes["MemAvailable:"]
    except (OSError, ValueError, LookupError):
        return None
    return Memory((total - available) * 1024, total * 1024)


def _limited(membership: Path, cgroups: Path) -> Iterator[Memory | None]:
    for folder in control_groups("memory", membership, cgroups):
        yield _group(folder, "memory.current", "memory.max", "inactive_file")
        yield _group(
            folder, "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"
        )


def _group(folder: Path, used: str, limit: str, unused_pages: str) -> Memory | None:
    """The memory of one control group; None if it has no limit or another version's files."""
    try:
        most = int((folder / limit).read_text())
        lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        unused = next(int(number) for name, number in lines if name == unused_pages)
        return Memory(max(0, int((folder / used).read_text()) - unused), most)
    except (OSError, ValueError, StopIteration):
        return None
