"""One call from the first try to its result, as steps that any kind of client can take.

A generator asks for what needs I/O, to send or to pause, and is told what came of it: the
blocking and the asynchronous client share all decisions. It obeys `Retry-After`, waits
ever longer otherwise, and adds chance to both, so that clients do not come back together.
"""

import random
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx

from service.client.calls import Call
from service.client.errors import (
    ClientError,
    UnavailableError,
    UnreachableError,
    UnreadableAnswerError,
    problem_error,
)

__all__ = ["Conversation", "Pause", "Send", "converse"]

Result = TypeVar("Result")

_FIRST_PAUSE_SECONDS = 0.2
# Whoever is told to wait longer than this gives up at once.
_LONGEST_PAUSE_SECONDS = 60.0
_JITTER = 0.1

_WORTH_ANOTHER_TRY = (429, 503)
# Not a read that took too long: the next one would take as long again.
_BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)


@dataclass(frozen=True)
class Send:
    """Send the request of the call; an `Arrival` is expected back."""


@dataclass(frozen=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float


Arrival = httpx.Response | httpx.RequestError
Conversation = Generator[Send | Pause, Arrival | None, Result]


def converse(call: Call[Result], retries: int) -> Conversation[Result]:
    """The steps of a call; returns its result or raises a `ClientError`."""
    attempt = 0
    while True:
        arrival = yield Send()
        assert arrival is not None  # noqa: S101
        if isinstance(arrival, httpx.Response) and arrival.is_success:
            return _read(call, arrival)
        error = _error(arrival)
        absent = isinstance(error, UnavailableError | UnreachableError)
        if absent and call.if_unavailable is not None:
            return call.if_unavailable
        pause = _pause(arrival, attempt)
        if pause is None or attempt >= retries:
            raise error
        yield Pause(pause)
        attempt += 1


def _read(call: Call[Result], response: httpx.Response) -> Result:
    try:
        return call.read(response)
    except Exception as error:
        # Whatever a stranger's bytes do to json, zipfile or numpy.
        raise UnreadableAnswerError(
            f"{response.url} answered {response.status_code} with something else than expected"
        ) from error


def _error(arrival: Arrival) -> ClientError:
    if isinstance(arrival, httpx.Response):
        return problem_error(arrival)
    error = UnreachableError(f"{arrival.request.url}: {arrival or type(arrival).__name__}")
    error.__cause__ = arrival
    return error


def _pause(arrival: Arrival, attempt: int) -> float | None:
    """Seconds until the next try; None if there should be none."""
    if isinstance(arrival, httpx.RequestError):
        return _back_off(attempt) if isinstance(arrival, _BROKEN) else None
    if arrival.status_code not in _WORTH_ANOTHER_TRY:
        return None
    told = _retry_after(arrival.headers.get("retry-after", ""))
    if told is None:
        return _back_off(attempt)
    return None if told > _LONGEST_PAUSE_SECONDS else told * random.uniform(1, 1 + _JITTER)  # noqa: S311


def _back_off(attempt: int) -> float:
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(attempt, 10))
    return random.uniform(longest / 2, longest)  # noqa: S311


def _retry_after(text: str) -> float | None:
    """Seconds, stated as such or as a date; None if neither."""
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
