"""What a worker is told when it starts, in the process that asks for it and in its own."""

from dataclasses import asdict, dataclass

from service.engine import ImageLimits
from service.pool.frames import Fields

__all__ = ["WorkLimits", "WorkerPlan"]


@dataclass(frozen=True)
class WorkLimits:
    """What one job may hold."""

    image: ImageLimits
    max_images: int
    max_descriptors: int


@dataclass(frozen=True)
class WorkerPlan:
    """All that a worker is told when it starts."""

    number: int
    cores: tuple[int, ...]
    threads: int
    limits: WorkLimits

    def to_json(self) -> Fields:
        """Plain values for the fork server."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Fields) -> "WorkerPlan":
        """The plan that `to_json` wrote."""
        limits = dict(fields["limits"])
        limits["image"] = ImageLimits(**limits["image"])
        return cls(
            fields["number"], tuple(fields["cores"]), fields["threads"], WorkLimits(**limits)
        )
