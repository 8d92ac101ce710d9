"""Requests while workers are killed: each is answered, and each answer has the right labels.

The one exception is a 503 that says so: a job is tried twice, and both its workers may have
been killed. The images are the probes of the bundle; the engine in this process says which
labels are right.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.engine.bundle import MANIFEST_FILE, MODEL_NAME
from service.loadtest.errors import LoadTestError
from service.loadtest.generator import Exchange, Generator, Load
from service.loadtest.processes import ServiceProcess
from service.loadtest.request import Target, classify_request

__all__ = [
    "AnswerCounts",
    "KillResult",
    "KillSettings",
    "LabelledImages",
    "add_counts",
    "count_answers",
    "default_bundle",
    "kill_workers_under_load",
]

_WORKER_LOST = "urn:leafcode:problem:worker-lost"


@dataclass(frozen=True)
class KillSettings:
    """How many requests are sent, and how often a worker is killed meanwhile."""

    requests: int = 10_000
    kill_every_ms: int = 100
    clients: int = 8


@dataclass(frozen=True)
class AnswerCounts:
    """How many requests ended in which way; `other` counts answers by any other status."""

    right: int = 0
    wrong: int = 0
    worker_lost: int = 0
    unanswered: int = 0
    other: dict[int, int] = field(default_factory=dict)

    def faults(self) -> list[str]:
        """What no service may do, one sentence each; a lost worker is the caller's to judge."""
        return [
            *([f"{self.wrong} answers had wrong labels"] if self.wrong else []),
            *([f"{self.unanswered} requests got no answer"] if self.unanswered else []),
            *(f"{count} answers had status {status}" for status, count in self.other.items()),
            *([] if self.right else ["no request was answered with labels"]),
        ]

    def lines(self) -> list[str]:
        """One line a count, for people."""
        counts = {
            "right labels": self.right,
            "wrong labels": self.wrong,
            "503, worker lost": self.worker_lost,
            "no answer": self.unanswered,
            **{f"status {status}": count for status, count in self.other.items()},
        }
        return [f"{name:<19} {count}" for name, count in counts.items()]


@dataclass(frozen=True)
class KillResult:
    """The answers of a service whose workers were killed."""

    answers: AnswerCounts
    kills: int
    seconds: float

    def faults(self) -> list[str]:
        """Why the service did not pass, one sentence each; empty if it did."""
        return self.answers.faults()

    def text(self) -> str:
        """The result for people."""
        killed = f"{'workers killed':<19} {self.kills} in {self.seconds:.0f} s"
        return "\n".join([*self.answers.lines(), killed])


@dataclass(frozen=True)
class LabelledImages:
    """Images, and the labels that the engine finds for each."""

    images: list[bytes]
    labels: list[list[str]]

    @classmethod
    def of(cls, bundle: Path) -> "LabelledImages":
        """The probes of a bundle."""
        from service.engine import Engine  # noqa: PLC0415  # numba, which only this needs

        engine = Engine.load(bundle)
        images = [probe.image for probe in engine.manifest.probes]
        if not images:
            raise LoadTestError(f"{bundle} has no probes, which are the images to send")
        return cls(images, [[item.label for item in engine.classify(data)] for data in images])

    def requests(self, count: int, target: Target) -> list[bytes]:
        """So many requests, with the images in turns."""
        each = [classify_request(image, target) for image in self.images]
        return [each[number % len(each)] for number in range(count)]


def default_bundle(models: Path) -> Path:
    """The version folder that a service of this repository answers with by default."""
    found = [manifest.parent for manifest in models.glob(f"*/*/{MANIFEST_FILE}")]
    versions = sorted(
        (folder.parent.name, int(folder.name), folder)
        for folder in found
        if MODEL_NAME.fullmatch(folder.parent.name) and folder.name.isdecimal()
    )
    if not versions:
        raise LoadTestError(f"{models} has no model, expected <name>/<version>/ below it")
    first = versions[0][0]
    return [folder for name, _, folder in versions if name == first][-1]


def kill_workers_under_load(models: Path, settings: KillSettings) -> KillResult:
    """Serve the repository `models`; kill a worker at every interval until all is answered."""
    images = LabelledImages.of(default_bundle(models))
    with ServiceProcess(models) as service, _killing(service, settings) as killed:
        requests = images.requests(settings.requests, service.target)
        generator = Generator(service.target.address, keep_bodies=True)
        load = generator.closed_loop(requests, settings.clients)
    return KillResult(count_answers(load, images.labels), len(killed), load.seconds)


@contextmanager
def _killing(service: ServiceProcess, settings: KillSettings) -> Iterator[list[int]]:
    """Kill the oldest worker now and at every interval; yield the ids of killed processes."""
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        interval = settings.kill_every_ms / 1e3
        due = time.monotonic()
        # By the clock, not by pauses: to find the workers takes time too.
        while not over.wait(max(0.0, due - time.monotonic())):
            due += interval
            for oldest in service.workers[:1]:
                with suppress(ProcessLookupError):
                    os.kill(oldest, signal.SIGKILL)
                    killed.append(oldest)

    thread = threading.Thread(target=kill, name="killer")
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def count_answers(load: Load, labels: Sequence[Sequence[str]]) -> AnswerCounts:
    """Judge every exchange; request i was about image i modulo their number."""
    counts = Counter(_judge(item, labels[item.number % len(labels)]) for item in load.exchanges)
    named = {name: counts.pop(name, 0) for name in ("right", "wrong", "worker_lost", "unanswered")}
    other = {int(status): count for status, count in sorted(counts.items())}
    return AnswerCounts(**named, other=other)


def add_counts(parts: Iterable[AnswerCounts]) -> AnswerCounts:
    """The sum of several counts."""
    right = wrong = worker_lost = unanswered = 0
    other: Counter[int] = Counter()
    for part in parts:
        right, wrong = right + part.right, wrong + part.wrong
        worker_lost, unanswered = worker_lost + part.worker_lost, unanswered + part.unanswered
        other.update(part.other)
    return AnswerCounts(right, wrong, worker_lost, unanswered, dict(other))


def _judge(exchange: Exchange, labels: Sequence[str]) -> str:
    """A name among the fields of `AnswerCounts`, or the status."""
    if exchange.status == 0:
        return "unanswered"
    document = _document(exchange.body)
    if exchange.status == 200:
        found = [item.get("label") for item in document.get("predictions", [])]
        return "right" if found == list(labels) else "wrong"
    if exchange.status == 503 and document.get("type") == _WORKER_LOST:
        return "worker_lost"
    return str(exchange.status)


def _document(body: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        document = json.loads(body)
        if isinstance(document, dict):
            return document
    return {}
