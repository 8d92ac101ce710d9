"""What a fault is: how a service has to be started for it, and what happens to the service."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from service.loadtest.errors import LoadTestError
from service.loadtest.processes import ServiceProcess

__all__ = ["Fault", "NotPossibleError", "Surroundings"]


class NotPossibleError(LoadTestError):
    """A fault that cannot be injected on this machine, or by this user."""


@dataclass(frozen=True)
class Surroundings:
    """How the service is started."""

    models: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None


class Fault:
    """Something that goes wrong while requests go on.

    A subclass says what in the first line of its docstring, has a `name`, and lists in `allowed`
    the answers without labels that are in order while it lasts. `deadline_seconds` is the longest
    time to an answer that the service is told. `over` is set when the fault is over; one that ends
    the service `is_last`.
    """

    name = ""
    allowed: frozenset[str] = frozenset()
    deadline_seconds = 30
    is_last = False

    def __init__(self) -> None:
        self.over = threading.Event()

    @classmethod
    def sentence(cls) -> str:
        """What goes wrong."""
        return (cls.__doc__ or "").partition("\n")[0]

    @contextmanager
    def prepared(self, models: Path) -> Iterator[Surroundings]:
        """What the fault needs around a service; raises `NotPossibleError` without it."""
        yield Surroundings(models)

    def happen(self, service: ServiceProcess) -> None:
        """Go wrong, and end; runs in a thread while others load the service."""
        raise NotImplementedError

    def faults(self, service: ServiceProcess) -> list[str]:
        """What else is wrong afterwards, one sentence each."""
        return [] if service.process.poll() is None else ["the service has ended"]
