"""How many requests are sent, and when; every plan ends by itself.

A plan has either `clients`, each of which waits for its answer, or a `rate`, and a number of
requests or a duration in seconds, or both. Programs write plans as JSON objects.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from service.errors import SettingsError
from service.loadtest.generator import Generator, even_times, poisson_times
from service.loadtest.load import Load

__all__ = ["LoadPlan"]

# A run keeps about 200 bytes a request, and a connection a client.
_LIMITS = {"clients": 1000, "rate": 100_000, "requests": 1_000_000, "duration": 3600}


@dataclass(frozen=True)
class LoadPlan:
    """A bounded number of requests; `images` are the places of those to send, in turns."""

    clients: int | None = None
    rate: float | None = None
    requests: int | None = None
    duration: float | None = None
    poisson: bool = False
    seed: int = 0
    images: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, limit in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not 0 < value <= limit:
                raise SettingsError(f"{name} is {value}, expected more than 0, at most {limit}")
        if (self.clients is None) == (self.rate is None):
            raise SettingsError("expected either a number of clients or a rate")
        if self.requests is None and self.duration is None:
            raise SettingsError("expected a number of requests or a duration")
        if self.poisson and self.rate is None:
            raise SettingsError("Poisson arrivals need a rate")

    @classmethod
    def from_json(cls, line: str) -> "LoadPlan":
        """The plan that a JSON object describes by the names of its fields."""
        try:
            return cls(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise SettingsError(f"not a plan: {error}") from error

    def run(self, generator: Generator, requests: Sequence[bytes]) -> Load:
        """Send the requests, one of each image, as often as the plan says."""
        if self.images is not None:
            requests = [requests[place] for place in self.images]
        if self.rate is not None:
            return generator.open_loop(requests, self._times(self.rate))
        assert self.clients is not None  # noqa: S101
        repeated = islice(cycle(requests), self.requests or _LIMITS["requests"])
        return generator.closed_loop(repeated, self.clients, self.duration or float("inf"))

    def _times(self, rate: float) -> list[float]:
        in_time = float("inf") if self.duration is None else max(1, round(rate * self.duration))
        count = int(min(in_time, self.requests or float("inf")))
        if count > _LIMITS["requests"]:
            raise SettingsError(f"{count} requests, expected at most {_LIMITS['requests']}")
        return poisson_times(rate, count, self.seed) if self.poisson else even_times(rate, count)
