"""A service under load for a long time: memory, file handles and threads stay what they were.

Round after round images are classified, other calls are made, some of them wrong, connections
are left half-way, a worker is killed and a version is published. After each round, when nothing
is under way, the processes are measured.
"""

import http.client
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from service.engine.bundle import read_bundle
from service.loadtest.answers import (
    AnswerCounts,
    LabelledImages,
    add_counts,
    count_answers,
    default_bundle,
)
from service.loadtest.errors import LoadTestError
from service.loadtest.footprint import Footprint, quiet_footprint
from service.loadtest.generator import Generator
from service.loadtest.processes import ServiceProcess, send_signal
from service.loadtest.reloads import KEPT_VERSIONS, ModelFolder, Publisher
from service.loadtest.request import Target
from service.loadtest.soak import WORKER_LOST
from service.loadtest.uploads import form_of, post

__all__ = ["EnduranceResult", "EnduranceSettings", "endure"]

_MOST_GROWTH = 0.05
# Of the rounds, at both ends; what grows only in the first of them is no leak.
_COMPARED_SHARE = 0.2
_FIRST_ROUNDS = 2
# One version in so many is damaged.
_BAD_EVERY = 3


@dataclass(frozen=True)
class EnduranceSettings:
    """How long, with how many clients, in rounds of how many seconds."""

    duration: float = 600.0
    clients: int = 8
    round_seconds: float = 5.0


@dataclass(frozen=True)
class EnduranceResult:
    """Answers, and what the processes took in the first rounds and in the last."""

    answers: AnswerCounts
    other_faults: tuple[str, ...]
    rounds: int
    seconds: float
    first: Footprint
    last: Footprint

    def faults(self) -> list[str]:
        """Why the service did not pass, one sentence each; empty if it did."""
        return [
            *self.answers.faults({WORKER_LOST}),
            *self.other_faults,
            *self._growth(),
            *(
                f"there were {after} {name} in the end, {before} at first"
                for name, before, after in self._counts()
                if after > before
            ),
        ]

    def _growth(self) -> list[str]:
        return [
            f"the memory of {name} grew by {after / before - 1:.1%}, expected less than 5 %"
            for name, before, after in self._memory()
            if after >= (1 + _MOST_GROWTH) * before
        ]

    def _memory(self) -> list[tuple[str, int, int]]:
        """Who takes memory, how much at first, and how much in the end."""
        return [
            ("the front end", self.first.front_end, self.last.front_end),
            ("the fork server", self.first.fork_server, self.last.fork_server),
            ("the workers", self.first.workers, self.last.workers),
            ("all processes", self.first.memory, self.last.memory),
        ]

    def _counts(self) -> list[tuple[str, int, int]]:
        return [
            ("file handles", self.first.handles, self.last.handles),
            ("threads", self.first.threads, self.last.threads),
            ("processes", self.first.processes, self.last.processes),
        ]

    def text(self) -> str:
        """The result for people."""
        memory = [
            f"{name:<19} {before / 1e6:.1f} MB at first, {after / 1e6:.1f} MB in the end, "
            f"{after / before - 1:+.1%}"
            for name, before, after in self._memory()
        ]
        counts = [f"{name:<19} {before}, {after}" for name, before, after in self._counts()]
        rounds = f"{'rounds':<19} {self.rounds} in {self.seconds:.0f} s"
        return "\n".join([*self.answers.lines(), *memory, *counts, rounds])


def endure(models: Path, settings: EnduranceSettings) -> EnduranceResult:
    """Serve copies of the default bundle in `models` for as long as the settings say."""
    folder_of_bundle = default_bundle(models)
    images, bundle = LabelledImages.of(folder_of_bundle), read_bundle(folder_of_bundle)
    with tempfile.TemporaryDirectory(prefix="leafcode-soak-") as repository:
        folder = ModelFolder(Path(repository) / bundle.manifest.name, bundle)
        for version in range(1, KEPT_VERSIONS + 1):
            folder.publish(version)
        with ServiceProcess(Path(repository)) as service:
            return _Endurance(service, folder, images, settings).run()


class _Endurance:
    """The course of the rounds."""

    def __init__(
        self,
        service: ServiceProcess,
        folder: ModelFolder,
        images: LabelledImages,
        settings: EnduranceSettings,
    ) -> None:
        self._service = service
        self._publisher = Publisher(service, folder)
        self._images = images
        self._settings = settings
        self._requests = images.requests(len(images.images), service.target)
        self._generator = Generator(service.target.address, keep_bodies=True)
        self._counts: list[AnswerCounts] = []
        self._faults: list[str] = []
        self._footprints: list[Footprint] = []

    def run(self) -> EnduranceResult:
        """As many rounds as fit into the time, but at least a few."""
        start = time.monotonic()
        end = start + self._settings.duration
        while time.monotonic() < end or len(self._footprints) <= _FIRST_ROUNDS:
            self._round(len(self._footprints))
        first, last = _ends(self._footprints[_FIRST_ROUNDS:])
        return EnduranceResult(
            add_counts(self._counts),
            tuple(dict.fromkeys(self._faults)),
            len(self._footprints),
            time.monotonic() - start,
            first,
            last,
        )

    def _round(self, number: int) -> None:
        trouble = threading.Thread(target=self._trouble, args=(number,), name="trouble")
        trouble.start()
        load = self._generator.closed_loop(
            cycle(self._requests), self._settings.clients, self._settings.round_seconds
        )
        self._counts.append(count_answers(load, self._images.labels))
        trouble.join()
        self._service.wait_for_workers()
        self._footprints.append(quiet_footprint(self._service))

    def _trouble(self, number: int) -> None:
        """What goes on beside the load: each part must end as it is documented."""
        send_signal(self._service.workers[:1], signal.SIGKILL)
        bad = number % _BAD_EVERY == _BAD_EVERY - 1
        try:
            self._publisher.publish(KEPT_VERSIONS + 1 + number, bad=bad)
            _leave_half_way(self._service.target)
            for name, body, content_type, call, expected in _other_calls(self._images.images[0]):
                status = post(self._service.target, body, content_type, call)
                if status not in expected:
                    self._faults.append(f"{name} was answered with status {status}")
        except (OSError, http.client.HTTPException, LoadTestError) as error:
            self._faults.append(str(error))


def _other_calls(image: bytes) -> list[tuple[str, bytes, str, str, tuple[int, ...]]]:
    """Bodies with their types, calls, and statuses; 503 where the worker is killed twice."""
    form_type, form = form_of([image] * 3)
    png = "image/png"
    return [
        ("a form", form, form_type, "classify", (200,)),
        ("codes of an image", image, png, "codes", (200, 503)),
        ("half an image", image[: len(image) // 2], png, "classify", (422, 503)),
        ("no image", b"text", png, "classify", (415, 503)),
        ("an unknown model", image, png, "classify?model=nobody", (404,)),
    ]


def _leave_half_way(target: Target) -> None:
    """Connect and go: at once, within the headers, and within the body."""
    head = f"POST {target.prefix}/v1/classify HTTP/1.1\r\nHost: {target.host_header}\r\n"
    for data in ("", head, f"{head}Content-Length: 100000\r\n\r\nsome"):
        with socket.create_connection(target.address, 10.0) as connection, suppress(OSError):
            connection.sendall(data.encode())


def _ends(footprints: Sequence[Footprint]) -> tuple[Footprint, Footprint]:
    """What was usual in the first rounds, and in the last ones."""
    count = max(1, round(_COMPARED_SHARE * len(footprints)))
    first, last = footprints[:count], footprints[-count:]
    return Footprint.median(first), Footprint.median(last)
