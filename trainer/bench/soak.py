"""Requests without end while workers are killed: every one answered, none wrong, none lost.

The one excuse is a 503 that says so: a job is tried twice, and both its workers may have
been killed. The images are the probes of the bundle, whose labels the bare engine tells.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.engine import Engine
from trainer.bench.load import Exchange, Generator, Load
from trainer.bench.server_process import Server, leafcode
from trainer.bench.service_bench import classify_request, default_bundle
from trainer.errors import TrainingError

__all__ = ["Questions", "SoakSettings", "Tally", "soak", "soak_text", "tally"]

_VERDICTS = ("right", "wrong", "died_twice", "lost")
# What a client is told whose job cost two workers their lives.
_DIED_TWICE = "urn:leafcode:problem:worker-lost"


@dataclass(frozen=True)
class SoakSettings:
    """Whole numbers, each an option of the command."""

    requests: int = 10_000
    kill_every_ms: int = 100
    clients: int = 8


@dataclass(frozen=True)
class Tally:
    """What became of the requests; `others` counts statuses that there is no excuse for."""

    right: int
    wrong: int
    died_twice: int
    lost: int
    others: dict[int, int] = field(default_factory=dict)
    kills: int = 0
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """All that must not be, in words."""
        return [
            *([f"{self.wrong} answers were wrong"] if self.wrong else []),
            *([f"{self.lost} requests were never answered"] if self.lost else []),
            *(f"{count} answers had status {status}" for status, count in self.others.items()),
            *([] if self.right else ["no request was answered with labels"]),
        ]


@dataclass(frozen=True)
class Questions:
    """Images, and the labels of each that the bare engine finds."""

    images: list[bytes]
    labels: list[list[str]]

    @classmethod
    def of(cls, bundle: Path) -> "Questions":
        """The probes of a bundle."""
        engine = Engine.load(bundle)
        images = [probe.image for probe in engine.manifest.probes]
        if not images:
            raise TrainingError(f"{bundle} has no probes, which are the images to send")
        return cls(images, [[item.label for item in engine.classify(data)] for data in images])

    def requests(self, count: int) -> list[bytes]:
        """So many, about the images in turns."""
        return [classify_request(self.images[i % len(self.images)]) for i in range(count)]


def soak(models: Path, settings: SoakSettings) -> Tally:
    """Serve the repository `models`, and kill a worker at every interval until all is asked."""
    questions = Questions.of(default_bundle(models))
    requests = questions.requests(settings.requests)
    with leafcode(models) as server, _killing(server, settings) as kills:
        load = Generator(server.address).closed_loop(requests, settings.clients)
    return tally(load, questions.labels, len(kills))


@contextmanager
def _killing(server: Server, settings: SoakSettings) -> Iterator[list[int]]:
    """Every so often the end of the oldest worker; the process ids of the dead."""
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        interval = settings.kill_every_ms / 1e3
        due = time.monotonic() + interval
        # By the clock, not by pauses: to find the workers takes time too.
        while not over.wait(max(0.0, due - time.monotonic())):
            due += interval
            for oldest in server.workers[:1]:
                with suppress(ProcessLookupError):
                    os.kill(oldest, signal.SIGKILL)
                    killed.append(oldest)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def tally(load: Load, labels: Sequence[Sequence[str]], kills: int = 0) -> Tally:
    """Judge every exchange; request i was about image i modulo their number."""
    verdicts = Counter(_verdict(item, labels[item.number % len(labels)]) for item in load.exchanges)
    right, wrong, died_twice, lost = (verdicts.pop(name, 0) for name in _VERDICTS)
    others = {int(status): count for status, count in sorted(verdicts.items())}
    return Tally(right, wrong, died_twice, lost, others, kills, load.seconds)


def _verdict(exchange: Exchange, labels: Sequence[str]) -> str:
    if exchange.status == 0:
        return "lost"
    document = _document(exchange.body)
    if exchange.status == 200:
        found = [item.get("label") for item in document.get("predictions", [])]
        return "right" if found == list(labels) else "wrong"
    if exchange.status == 503 and document.get("type") == _DIED_TWICE:
        return "died_twice"
    return str(exchange.status)


def _document(body: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        document = json.loads(body)
        if isinstance(document, dict):
            return document
    return {}


def soak_text(result: Tally) -> str:
    """The tally for people."""
    lines = [
        f"right labels        {result.right}",
        f"wrong labels        {result.wrong}",
        f"503, died twice     {result.died_twice}",
        f"never answered      {result.lost}",
        *(f"status {status}          {count}" for status, count in result.others.items()),
        f"workers killed      {result.kills} in {result.seconds:.0f} s",
    ]
    return "\n".join(lines)
