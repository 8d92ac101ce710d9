"""Where the kernel keeps the limits of the container that this process runs in."""

from collections.abc import Iterator
from pathlib import Path

__all__ = ["CGROUPS", "MEMBERSHIP", "control_groups"]

MEMBERSHIP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")


def control_groups(controller: str, membership: Path, cgroups: Path) -> Iterator[Path]:
    """Our control group and those around it, in version 2 and in version 1's layout."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Version 1 mounts each controller on its own, "cpu" often as a link to "cpu,cpuacct".
        roots = [cgroups / controllers, cgroups / controller] if controllers else [cgroups]
        inner = Path(path.lstrip("/"))
        for root in roots:
            # In a container the path may be the host's; the root is then our own group.
            yield from (root / part for part in (inner, *inner.parents))
