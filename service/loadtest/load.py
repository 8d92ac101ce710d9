"""What became of each request of a load, before anybody judges it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["UNANSWERED", "Exchange", "Load", "LoadInterrupted"]

UNANSWERED = 0
"""The status of a request that got no answer."""


class Exchange(NamedTuple):
    """One request: when it was due, when its answer was complete, and the answer.

    A tuple, because a dataclass that cannot be changed takes three times as long to make, and
    one is made for each request.
    """

    number: int
    due: float
    ended: float
    status: int
    """`UNANSWERED` if no answer came."""
    body: bytes = b""
    """Empty unless the generator keeps bodies."""
    late: float = 0.0
    """Seconds between the time the request was due and the generator's getting round to it."""
    sent: int = 0
    """Bytes of the request, its headers included."""
    received: int = 0
    """Bytes of the answer, its headers included."""
    server_timing: bytes = b""
    """The header of that name, if the generator keeps it."""
    reason: str = ""
    """Why no answer came."""

    @property
    def seconds(self) -> float:
        """The time since the request was due, so that waiting for a connection counts."""
        return self.ended - self.due


@dataclass(frozen=True)
class Load:
    """All exchanges in the order of their requests, and the CPU that making them took.

    `unfinished` requests had neither an answer nor a timeout when the run was interrupted.
    """

    exchanges: tuple[Exchange, ...]
    cpu_seconds: float
    unfinished: int = 0

    def __len__(self) -> int:
        return len(self.exchanges)

    @property
    def seconds(self) -> float:
        """The time from the first request to the last answer."""
        if not self.exchanges:
            return 0.0
        return max(item.ended for item in self.exchanges) - self.exchanges[0].due

    @property
    def statuses(self) -> list[int]:
        """The statuses that occur, in ascending order; 0 stands for requests without answer."""
        return sorted({item.status for item in self.exchanges})

    def count(self, status: int) -> int:
        """How many requests were answered with this status."""
        return sum(item.status == status for item in self.exchanges)

    def rate(self, status: int = 200) -> float:
        """How many such answers came in a second."""
        return self.count(status) / self.seconds

    def quantile(self, share: float, status: int = 200) -> float:
        """The smallest time within which this share of such answers came; NaN without any."""
        times = [item.seconds for item in self.exchanges if item.status == status]
        return float(np.quantile(times, share, method="inverted_cdf")) if times else float("nan")


class LoadInterrupted(KeyboardInterrupt):
    """Somebody pressed Ctrl-C; `load` has what was answered until then."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.load = load
