"""When a new version may be published: as soon as every front end has loaded and proved it.

A front end that has loaded a version says so and waits. The last one brings `publish` for all; one
that rejects the version brings `abandon`, and whoever waited tries again later, as after any
failure that says nothing about the version itself.
"""

from collections.abc import Callable, Iterable

__all__ = ["Agreement"]

Send = Callable[..., None]


class Agreement:
    """Which versions each front end in service has; `send` sends a message to one by number."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._serves: dict[int, set[str]] = {}
        self._waits: dict[int, set[str]] = {}
        self._rejects: dict[int, set[str]] = {}

    def join(self, number: int, serves: Iterable[str], rejects: Iterable[str] = ()) -> None:
        """A front end has started, with these versions."""
        self._waits[number] = set()
        self._serves[number], self._rejects[number] = set(serves), set(rejects)
        self._decide_all()

    def leave(self, number: int) -> None:
        """A front end has ended: nobody waits for it."""
        for versions in (self._serves, self._waits, self._rejects):
            versions.pop(number, None)
        self._decide_all()

    def tell(self, number: int, serves: Iterable[str], rejects: Iterable[str]) -> None:
        """A front end serves and rejects other versions than before."""
        if number in self._serves:
            self._serves[number], self._rejects[number] = set(serves), set(rejects)
            self._decide_all()

    def loaded(self, number: int, version: str) -> None:
        """A front end has loaded a version and waits for the others."""
        if number not in self._serves:
            return
        self._waits[number].add(version)
        self._rejects[number].discard(_key(version))
        self._decide(version)
        for other, waits in self._waits.items():
            if version not in waits | self._serves[other] and version in self._waits[number]:
                self._send(other, do="look")

    def _decide_all(self) -> None:
        for version in sorted(set().union(*self._waits.values())):
            self._decide(version)

    def _decide(self, version: str) -> None:
        if any(_key(version) in rejects for rejects in self._rejects.values()):
            self._conclude(version, "abandon")
        elif all(version in self._waits[it] | self._serves[it] for it in self._waits):
            self._conclude(version, "publish")

    def _conclude(self, version: str, verdict: str) -> None:
        for number, waits in self._waits.items():
            if version in waits:
                waits.discard(version)
                if verdict == "publish":
                    self._serves[number].add(version)
                self._send(number, do=verdict, version=version)


def _key(version: str) -> str:
    """Name and number of a version without its digest, as rejected ones are told."""
    return f"{version.rpartition(' ')[0]} "
