"""Requests while workers are killed: each is answered, and each answer has the right labels.

The one exception is a 503 that says so: a job is tried twice, and both its workers may have
been killed.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.loadtest.answers import AnswerCounts, LabelledImages, count_answers, default_bundle
from service.loadtest.generator import Generator
from service.loadtest.processes import ServiceProcess, send_signal

__all__ = ["WORKER_LOST", "KillResult", "KillSettings", "kill_workers_under_load"]

WORKER_LOST = "503 worker-lost"
"""The answer to a job whose worker was killed, and the one that tried again, too."""


@dataclass(frozen=True)
class KillSettings:
    """How many requests are sent, and how often a worker is killed meanwhile."""

    requests: int = 10_000
    kill_every_ms: int = 100
    clients: int = 8


@dataclass(frozen=True)
class KillResult:
    """The answers of a service whose workers were killed."""

    answers: AnswerCounts
    kills: int
    seconds: float

    def faults(self) -> list[str]:
        """Why the service did not pass, one sentence each; empty if it did."""
        return self.answers.faults({WORKER_LOST})

    def text(self) -> str:
        """The result for people."""
        killed = f"{'workers killed':<19} {self.kills} in {self.seconds:.0f} s"
        return "\n".join([*self.answers.lines(), killed])


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
    """Kill the oldest worker at every interval; yield the ids of killed processes.

    Not while one is being replaced: where that takes longer than an interval, on a busy machine,
    no worker would ever answer.
    """
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        interval = settings.kill_every_ms / 1e3
        due = time.monotonic()
        # By the clock, not by pauses: to find the workers takes time too.
        while not over.wait(max(0.0, due - time.monotonic())):
            due = max(due + interval, time.monotonic())
            if service.has_all_workers():
                oldest = service.workers[:1]
                send_signal(oldest, signal.SIGKILL)
                killed.extend(oldest)

    thread = threading.Thread(target=kill, name="killer")
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
