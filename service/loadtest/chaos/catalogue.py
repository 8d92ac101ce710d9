"""All faults, in the order in which they are injected."""

from service.loadtest.chaos.fault import Fault
from service.loadtest.chaos.of_bundles import BundlesDeleted, BundlesSwapped
from service.loadtest.chaos.of_machine import (
    ClockJumps,
    HandlesExhausted,
    LogFull,
    MemoryShort,
    ScratchFull,
    SpoolFull,
)
from service.loadtest.chaos.of_processes import (
    ForkServerKilled,
    ForkServerStopped,
    Terminated,
    WorkersKilled,
    WorkersLooping,
    WorkersStopped,
)

__all__ = ["FAULTS"]

_ALL: tuple[type[Fault], ...] = (
    WorkersKilled,
    WorkersStopped,
    WorkersLooping,
    ForkServerKilled,
    ForkServerStopped,
    MemoryShort,
    SpoolFull,
    ScratchFull,
    LogFull,
    HandlesExhausted,
    BundlesSwapped,
    BundlesDeleted,
    ClockJumps,
    Terminated,
)

FAULTS = {fault.name: fault for fault in _ALL}
"""Faults by their names."""
