"""Which cores this process may use, and which of them each worker gets.

The scheduler's mask says which cores, the control group's quota how many of them at
a time: a container with `--cpus 2` on 64 cores still sees all 64. Workers beyond the
quota would only be throttled together, in the middle of a request. Workers that do not fill
the mask are left to the kernel: pinned, those of all containers would share the first cores.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from service.pool.control_groups import CGROUPS, MEMBERSHIP, control_groups
from service.settings import Pin

__all__ = ["Placement", "allowed_cores", "cpu_quota", "stay_on", "usable_cores"]


@dataclass(frozen=True)
class Placement:
    """Which cores each worker is pinned to, if any, and which the event loop keeps to."""

    workers: tuple[tuple[int, ...], ...]
    front_end: tuple[int, ...]
    first_worker: int = 0
    """The number of the first of these workers among those of the whole service."""

    @classmethod
    def of(cls, workers: int | None, threads: int, pin: Pin) -> "Placement":
        """`threads` cores for each worker; as many workers as fit unless a number is given."""
        return cls.on(usable_cores(), allowed_cores(), workers, threads, pin)

    @classmethod
    def on(
        cls,
        usable: tuple[int, ...],
        allowed: tuple[int, ...],
        workers: int | None,
        threads: int,
        pin: Pin,
    ) -> "Placement":
        """Workers on usable cores; past the last core it starts over with the first.

        `auto` pins workers that fill the allowed cores. The event loop of pinned workers
        keeps to allowed cores without a worker, or else to the last worker's.
        """
        count = workers or max(1, len(usable) // threads)
        dealt = tuple(
            tuple(sorted({usable[(worker * threads + i) % len(usable)] for i in range(threads)}))
            for worker in range(count)
        )
        taken = [core for cores in dealt for core in cores]
        free = tuple(core for core in allowed if core not in taken)
        if pin == "never" or (pin == "auto" and (free or not hasattr(os, "sched_setaffinity"))):
            return cls(((),) * count, allowed)
        return cls(dealt, free or (taken[-1],))

    def share(self, number: int, count: int) -> "Placement":
        """The part of one of `count` front ends: workers next to each other, and a core.

        Shares differ by one worker at the most. Where all cores have workers, the event loop
        keeps to that of its own last one; it has cores to itself where there are enough.
        """
        first, end = (len(self.workers) * part // count for part in (number, number + 1))
        workers = self.workers[first:end]
        taken = self.all_workers
        if not taken:
            return Placement(workers, self.front_end, first)
        free = tuple(core for core in self.front_end if core not in taken)
        own = free[number::count] if len(free) >= count else free
        # Of its last worker, or where workers share cores, another one for each front end.
        shared = taken[max(0, len(taken) * (number + 1) // count - 1)]
        return Placement(workers, own or (shared,), first)

    @property
    def all_workers(self) -> tuple[int, ...]:
        """Every core that a worker is pinned to."""
        return tuple(sorted({core for cores in self.workers for core in cores}))


def usable_cores() -> tuple[int, ...]:
    """The allowed cores, cut down to the whole part of the quota; at least one."""
    cores, quota = allowed_cores(), cpu_quota()
    # The rest of a quota such as 2.5 is left to the event loop.
    return cores if quota is None else cores[: max(1, int(quota))]


def allowed_cores() -> tuple[int, ...]:
    """All cores that this process may run on."""
    # Only Linux can say.
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def stay_on(cores: Iterable[int]) -> None:
    """Keep this thread, and those that it starts, to some cores, if the system lets us.

    The event loop wakes several times a request. Wherever it wakes it finds cold caches and
    leaves them cold for the worker there: 5.7 ms of CPU a request in the workers and 0.81
    in the front end when it roams, 5.4 and 0.77 when it stays.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, cores)


def cpu_quota(membership: Path = MEMBERSHIP, cgroups: Path = CGROUPS) -> float | None:
    """The tightest CPU quota on the way up from our control group, in cores; None if free."""
    folders = control_groups("cpu", membership, cgroups)
    found = [quota for folder in folders if (quota := _read(folder))]
    return min(found, default=None)


def _read(folder: Path) -> float | None:
    """The quota of one control group; none if it sets none or cannot be read."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        cores = float(quota) / float(period) if quota.strip() != "max" else 0.0
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None
