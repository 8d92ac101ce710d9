"""The other front ends of the same service, as far as answers depend on them.

Probes, metrics and the list of models answer for the whole service, whichever front end is asked.
Most services have one front end: `Alone` is what it knows of others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from service.pool.state import PoolState, WorkerState
from service.repository import ModelKey, Rejection, Repository

__all__ = ["Absence", "Alone", "SiblingStatus", "Siblings", "versions_of"]

Absence = Literal["", "starting", "silent"]

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class SiblingStatus:
    """Another front end at one moment: its pool, what it serves, and what it rejected."""

    number: int
    pool: PoolState
    versions: Mapping[ModelKey, str]
    """The digest of every version that it serves."""
    rejected: tuple[Rejection, ...]
    absence: Absence = ""
    """Why it told nothing of this itself."""

    def obstacles(self, *, strict: bool = False) -> list[str]:
        """Why it would answer nobody, in sentences.

        One that is being started takes no connections, so that nobody misses it.
        """
        if self.absence == "silent":
            return [f"front end {self.number} does not answer"]
        if self.absence == "starting" and not strict:
            return []
        return self.pool.obstacles(strict=strict)

    def to_json(self) -> JsonObject:
        """Plain values; the number is known to whoever asks."""
        return {
            "pool": asdict(self.pool),
            "versions": [[key.name, key.version, digest] for key, digest in self.versions.items()],
            "rejected": [asdict(item) for item in self.rejected],
        }

    @classmethod
    def from_json(cls, number: int, fields: JsonObject) -> "SiblingStatus":
        """The status that `to_json` wrote."""
        workers = [{**item, "cores": tuple(item["cores"])} for item in fields["pool"]["workers"]]
        pool = {**fields["pool"], "workers": tuple(WorkerState(**item) for item in workers)}
        rejected = [{**item, "key": ModelKey(**item["key"])} for item in fields["rejected"]]
        return cls(
            number,
            PoolState(**pool),
            {ModelKey(name, version): digest for name, version, digest in fields["versions"]},
            tuple(Rejection(**item) for item in rejected),
        )

    @classmethod
    def absent(
        cls, number: int, absence: Absence, first_worker: int, cores: Sequence[tuple[int, ...]]
    ) -> "SiblingStatus":
        """One that tells nothing of itself; its workers are known by number and cores."""
        state: Literal["starting", "silent"] = "silent" if absence == "silent" else "starting"
        reason = f"front end {number} {'does not answer' if absence == 'silent' else 'is starting'}"
        workers = tuple(
            WorkerState(worker, its_cores, False, None, state, reason, 0)  # noqa: FBT003
            for worker, its_cores in enumerate(cores, first_worker)
        )
        return cls(number, PoolState(True, 0, 0, workers, {}), {}, (), absence)  # noqa: FBT003


class Siblings(Protocol):
    """What a front end asks and tells the others."""

    async def statuses(self) -> list[SiblingStatus]:
        """All others at this moment, by number."""

    async def pages(self, own: Callable[[], list[Any]]) -> list[list[Any]]:
        """The metrics of all others, of front ends that have ended too, as plain values.

        What `own` returns is kept, so that its counts outlive this process.
        """

    async def agree(self, key: ModelKey, digest: str) -> None:
        """Return when all have loaded a version; raises `WorkerLostError` if one cannot."""

    def tell(self, repository: Repository) -> None:
        """Note what is served and rejected from now on."""


class Alone:
    """The siblings of an only front end; implements `Siblings`."""

    async def statuses(self) -> list[SiblingStatus]:
        """None."""
        return []

    async def pages(self, own: Callable[[], list[Any]]) -> list[list[Any]]:  # noqa: ARG002
        """None."""
        return []

    async def agree(self, key: ModelKey, digest: str) -> None:
        """Nobody objects."""

    def tell(self, repository: Repository) -> None:
        """Nobody listens."""


def versions_of(repository: Repository) -> dict[ModelKey, str]:
    """The digest of every version that is served."""
    return {key: model.manifest.digest for key, model in repository.models.items()}
