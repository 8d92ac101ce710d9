"""How many front ends a service has, and what each of them is told when it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from service.errors import SettingsError
from service.pool.cores import Placement
from service.pool.fork_server_process import WORKER
from service.settings import ENVIRONMENT_ONLY, Settings

__all__ = ["WORKERS_PER_FRONT_END", "FrontEndPlan", "front_end_count"]

WORKERS_PER_FRONT_END = 8
"""Workers that one event loop keeps busy with room to spare.

A request takes .72 ms of it beside busy workers, which is 1390 a second; a worker answers 140
images a second (RESULTS.md, "Past one machine: front ends").
"""


def front_end_count(settings: Settings) -> int:
    """How many front ends the settings, or else the workers, ask for."""
    workers = len(placement_of(settings).workers)
    wanted = settings.front_ends
    if wanted is None:
        return -(-workers // WORKERS_PER_FRONT_END)
    if wanted > workers:
        raise SettingsError(
            f"LEAFCODE_FRONT_ENDS (--front-ends) is {wanted}, "
            f"expected at most one for each worker, of which there are {workers}"
        )
    return wanted


def placement_of(settings: Settings) -> Placement:
    """Where all workers of the service run."""
    return Placement.of(settings.workers, settings.threads, settings.pin)


@dataclass(frozen=True)
class FrontEndPlan:
    """All that a front end is told when it starts; numbers are of inherited files."""

    number: int
    count: int
    control: int
    listener: int
    counts: int
    worker: str
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls, settings: Settings, number: int, files: tuple[int, int, int], worker: str = WORKER
    ) -> "FrontEndPlan":
        """The plan of one front end; keys are in its environment."""
        told = settings.model_dump(mode="json", exclude=set(ENVIRONMENT_ONLY))
        return cls(number, front_end_count(settings), *files, worker, told)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the front end's process."""
        return asdict(self)

    @property
    def service_settings(self) -> Settings:
        """The settings of the whole service."""
        return Settings(**self.settings)

    @property
    def own_settings(self) -> Settings:
        """The same with this front end's share of what is limited for all.

        Room for one largest body is the least.
        """
        whole = self.service_settings
        shares = {
            name: -(-getattr(whole, name) // self.count)
            for name in ("queue_size", "queue_bytes", "transfer_bytes", "max_connections")
        }
        for name in ("queue_bytes", "transfer_bytes"):
            shares[name] = max(shares[name], min(getattr(whole, name), whole.max_body_bytes))
        return whole.model_copy(update=shares)

    def placement(self, number: int) -> Placement:
        """The workers of one of the front ends."""
        return placement_of(self.service_settings).share(number, self.count)

    @property
    def files(self) -> tuple[int, int, int]:
        """What the process inherits."""
        return self.control, self.listener, self.counts
