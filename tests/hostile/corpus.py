"""Hostile inputs: what they are made of, how they are sent, and all kinds of them.

A kind makes any number of different inputs from a seeded generator, each with the answers that
are documented for it. `requests` are bytes for one connection; bundles and kernel caches are
files to damage (`bundles.py`, `caches.py`).
"""

import json
import re
import socket
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from tests.hostile.threats import Threat

__all__ = [
    "OK",
    "Answer",
    "Input",
    "Kind",
    "Limits",
    "Outcome",
    "collect",
    "get",
    "kind",
    "pick",
    "post",
    "rejected",
    "send",
]

Address = tuple[str, int]
Outcome = tuple[int, str]
"""A status and the last word of the problem's type, empty where there is none."""
Make = TypeVar("Make", bound=Callable[..., object])
Choice = TypeVar("Choice")

OK: Outcome = (200, "")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 [0-9]{3} ")
_TIMEOUT_SECONDS = 120
_TOLERANCE = 2e-3


@dataclass(frozen=True)
class Limits:
    """What the service that is attacked allows."""

    max_body_bytes: int = 25_000_000
    max_images: int = 64
    max_descriptors: int = 20_000
    max_header_bytes: int = 32_768


@dataclass(frozen=True)
class Input:
    """Bytes for one connection, and the answers that are documented for them."""

    sent: bytes
    expected: frozenset[Outcome]
    twin: bytes = b""
    """A request that must be answered alike; empty if there is none."""
    leaves: bool = False
    """Whether the client is gone before it could be answered."""

    def like(self, twin: bytes) -> Self:
        """The same with a request that must be answered alike."""
        return replace(self, twin=twin)


@dataclass(frozen=True)
class Kind(Generic[Make]):
    """One kind of inputs; `make` draws one of them."""

    name: str
    threat: Threat
    make: Make

    def rng(self, number: int) -> np.random.Generator:
        """The generator of an input; another one for each kind and number."""
        return np.random.default_rng([number, zlib.crc32(self.name.encode())])


def kind(threat: Threat) -> Callable[[Make], Kind[Make]]:
    """Make a function a kind, whose name is the function's."""
    return lambda make: Kind(make.__name__.replace("_", " "), threat, make)


def collect(*modules: ModuleType) -> list[Kind[Any]]:
    """All kinds that are defined in some modules."""
    return [item for module in modules for item in vars(module).values() if isinstance(item, Kind)]


def pick(rng: np.random.Generator, items: Iterable[Choice]) -> Choice:
    """One of some items, whatever their type."""
    choices = list(items)
    return choices[int(rng.integers(len(choices)))]


def rejected(sent: bytes, status: int, *problems: str) -> Input:
    """A request that is answered with one of these problems; with none, an untyped one."""
    return Input(sent, frozenset((status, problem) for problem in problems or ("",)))


# -- Requests ---------------------------------------------------------------------------


def post(path: str, body: bytes, *headers: str | bytes) -> bytes:
    """A whole request, behind whose answer the connection is closed."""
    return _head("POST", path, f"Content-Length: {len(body)}", *headers) + body


def get(path: str, *headers: str | bytes, method: str = "GET") -> bytes:
    """A request without a body."""
    return _head(method, path, *headers)


def _head(method: str, path: str, *headers: str | bytes) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", "")
    return b"\r\n".join(
        line if isinstance(line, bytes) else line.encode("latin-1") for line in lines
    )


# -- Answers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The last answer on a connection; status 0 if there was none."""

    outcome: Outcome
    body: bytes = b""

    @classmethod
    def of(cls, received: bytes) -> Self:
        """Read all that came on a connection."""
        starts = [match.start() for match in _STATUS_LINE.finditer(received)]
        if not starts:
            return cls((0, ""))
        head, _, body = received[starts[-1] :].partition(b"\r\n\r\n")
        slug = ""
        if b"application/problem+json" in head:
            document = json.loads(body)
            assert document["status"] == int(head.split()[1])
            assert document["error"] == document["detail"]
            slug = document["type"].rpartition(":")[2] if ":problem:" in document["type"] else ""
        return cls((int(head.split()[1]), slug), body)

    def says_the_same_as(self, other: "Answer") -> bool:
        """Whether two answers have the same labels, with nearly the same probabilities."""
        ours, theirs = (_probabilities(item.body) for item in (self, other))
        return set(ours) == set(theirs) and all(
            abs(ours[label] - theirs[label]) < _TOLERANCE for label in ours
        )


def _probabilities(body: bytes) -> dict[str, float]:
    return {item["label"]: item["probability"] for item in json.loads(body)["predictions"]}


def send(address: Address, item: Input) -> Answer:
    """Send an input over a connection of its own, and read until the service closes it."""
    with closing(socket.create_connection(address, _TIMEOUT_SECONDS)) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(item.sent)
        if item.leaves:
            return Answer((0, ""))
        return Answer.of(_until_closed(connection))


def _until_closed(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)
