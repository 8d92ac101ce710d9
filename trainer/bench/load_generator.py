"""`python -m service loadtest --batch` as a process that makes load on command.

The trainer imports nothing of the service but its engine, and the generator that operators
use is the one to measure with. It stays alive between the runs, because starting it takes a
second of CPU and reading thousands of images as long again, which would come between two
turns that are compared.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainer.bench.machine import pinned
from trainer.bench.server_process import Address, environment
from trainer.errors import TrainingError

__all__ = ["Load", "LoadGenerator"]


@dataclass(frozen=True)
class Load:
    """What became of the requests of one run; latencies are in seconds."""

    requests: int
    per_second: float
    counts: dict[int, int]
    p50: dict[int, float]
    p99: dict[int, float]
    cpu_seconds: float

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Load":
        """Read what the generator reports about a run."""
        answers = {int(status): item for status, item in document["answers"].items()}
        return cls(
            requests=document["requests"],
            per_second=document["successes_per_second"],
            counts={status: item["count"] for status, item in answers.items()},
            p50={status: item["p50_ms"] / 1e3 for status, item in answers.items()},
            p99={status: item["p99_ms"] / 1e3 for status, item in answers.items()},
            cpu_seconds=document["generator_cpu_seconds"],
        )

    def count(self, status: int) -> int:
        """How many requests were answered with this status."""
        return self.counts.get(status, 0)

    def all_answered(self) -> "Load":
        """Return this load; raise if a request was not answered with labels."""
        failed = self.requests - self.count(200)
        if failed:
            raise TrainingError(f"{failed} of {self.requests} requests failed")
        return self


class LoadGenerator:
    """A generator for one server with a list of images, pinned to one core."""

    def __init__(self, address: Address, images: Sequence[Path], core: int) -> None:
        self._address = address
        self._images = images
        self._core = core

    def __enter__(self) -> Self:
        host, port = self._address
        self._list = tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt")
        self._list.writelines(f"{path.absolute()}\n" for path in self._images)
        self._list.flush()
        command = ["service", "loadtest", f"http://{host}:{port}", "--batch"]
        with pinned([self._core]):  # which the process inherits
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *command, "--image-list", self._list.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()  # the end of its input ends it
        self._list.close()

    def closed_loop(self, clients: int, images: Sequence[int]) -> Load:
        """Send each of these images once, by clients that wait for their answers."""
        return self._run(clients=clients, requests=len(images), images=list(images))

    def open_loop(self, rate: float, seconds: float, *, poisson: bool = False) -> Load:
        """Send all images in turns at a rate, whatever becomes of them."""
        return self._run(rate=rate, duration=seconds, poisson=poisson)

    def _run(self, **plan: object) -> Load:
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        try:
            self._process.stdin.write(json.dumps(plan) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, so there is no answer either
        line = self._process.stdout.readline()
        if not line:
            raise TrainingError("the load generator ended; standard error has its reason")
        return Load.from_json(json.loads(line))
