"""A service among clients that do nothing good: its memory is bounded, good requests are answered.

Connections are opened and left, bodies stall half-way, answers are asked for and not read. None
of these clients goes away by itself. Meanwhile others send images and wait for their labels.
"""

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from service.loadtest.answers import (
    AnswerCounts,
    LabelledImages,
    add_counts,
    count_answers,
    default_bundle,
)
from service.loadtest.errors import LoadTestError
from service.loadtest.generator import Generator
from service.loadtest.processes import ServiceProcess
from service.loadtest.request import Target

__all__ = ["FloodResult", "FloodSettings", "flood"]

# Files beside the connections: those of the good clients, of this process, of the system.
_OTHER_FILES = 200
# What a connection costs the service, its timers and its parser included: 7 KB were measured.
_CONNECTION_BYTES = 16_384
# For the good requests, and for memory that was used and not given back to the system.
_SPARE_BYTES = 64_000_000
# A connection that is not made by then was dropped, because too many came at once.
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class FloodSettings:
    """How many clients do what, and what the service allows."""

    connections: int = 10_000
    """Connections that are opened and left."""
    stalled: int = 500
    """Bodies of which only the first half comes."""
    unread: int = 100
    """Clients that ask for the codes of an image, a large answer, and never read."""
    requests: int = 1_000
    """Good requests while the others come, and as many again when all are there."""
    clients: int = 4
    body_bytes: int = 2_000_000
    max_connections: int = 4_096
    transfer_bytes: int = 256_000_000

    @property
    def allowance(self) -> int:
        """Bytes by which the service may grow; beside that, the system has its own buffers."""
        return self.transfer_bytes + self.max_connections * _CONNECTION_BYTES + _SPARE_BYTES


@dataclass(frozen=True)
class FloodResult:
    """How good requests were answered, and what the service took meanwhile."""

    answers: AnswerCounts
    slowest_ms: float
    resident_before: int
    resident_peak: int
    allowance: int
    seconds: float

    def faults(self) -> list[str]:
        """Why the service did not pass, one sentence each; empty if it did."""
        grown = self.resident_peak - self.resident_before
        faults = self.answers.faults()
        if grown > self.allowance:
            faults.append(f"memory grew by {grown} bytes, expected at most {self.allowance}")
        return faults

    def text(self) -> str:
        """The result for people."""
        megabytes = {
            "memory before": self.resident_before,
            "memory at most": self.resident_peak,
            "memory allowed": self.resident_before + self.allowance,
        }
        return "\n".join(
            [
                *self.answers.lines(),
                f"{'slowest answer':<19} {self.slowest_ms:.0f} ms, {self.seconds:.0f} s in all",
                *(f"{name:<19} {size / 1e6:.0f} MB" for name, size in megabytes.items()),
            ]
        )


def flood(models: Path, settings: FloodSettings) -> FloodResult:
    """Serve the repository `models` to good clients among bad ones."""
    _allow_files(settings.connections + settings.stalled + settings.unread + _OTHER_FILES)
    images = LabelledImages.of(default_bundle(models))
    limits = (
        f"--max-connections={settings.max_connections}",
        f"--transfer-bytes={settings.transfer_bytes}",
        # Room for one body is always there.
        f"--max-body-bytes={settings.body_bytes}",
    )
    with ServiceProcess(models, *limits) as service:
        generator = Generator(service.target.address, keep_bodies=True)
        requests = images.requests(settings.requests, service.target)
        send = partial(generator.closed_loop, requests, settings.clients)
        send()  # so that all that every service needs is there before
        before, start = _resident(service, "VmRSS"), time.monotonic()
        with _bad_clients(service.target, settings, images.images[0]) as wait_for_all:
            loads = [send()]
            wait_for_all()
            loads.append(send())
            peak, seconds = _resident(service, "VmHWM"), time.monotonic() - start
    return FloodResult(
        add_counts(count_answers(load, images.labels) for load in loads),
        max(exchange.seconds for load in loads for exchange in load.exchanges) * 1e3,
        before,
        peak,
        settings.allowance,
        seconds,
    )


@contextmanager
def _bad_clients(
    target: Target, settings: FloodSettings, image: bytes
) -> Iterator[Callable[[], None]]:
    """Open all bad connections in a thread; yields a function that waits until they are there."""
    codes = _request(target, "codes", len(image)) + image
    half = _request(target, "classify", settings.body_bytes) + bytes(settings.body_bytes // 2)
    failed: list[OSError] = []
    with ExitStack() as opened:

        def open_all() -> None:
            try:
                for count, data in (
                    (settings.connections, b""),
                    (settings.stalled, half),
                    (settings.unread, codes),
                ):
                    for _ in range(count):
                        _open(target, data, opened)
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=open_all, name="flood")
        thread.start()

        def wait_for_all() -> None:
            thread.join()
            if failed:
                raise LoadTestError(f"a connection could not be opened: {failed[0]}")

        try:
            yield wait_for_all
        finally:
            thread.join()


def _open(target: Target, data: bytes, opened: ExitStack) -> None:
    """A connection that sends some bytes and then does nothing; the service may have closed it."""
    connection = opened.enter_context(socket.create_connection(target.address, _CONNECT_SECONDS))
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def _request(target: Target, call: str, length: int) -> bytes:
    head = f"POST {target.prefix}/v1/{call} HTTP/1.1\r\nHost: {target.host_header}\r\n"
    return f"{head}Content-Type: image/png\r\nContent-Length: {length}\r\n\r\n".encode()


def _resident(service: ServiceProcess, field: str) -> int:
    """Resident bytes of the front ends, now (VmRSS) or at most (VmHWM)."""
    return sum(_resident_of(pid, field) for pid in service.front_ends)


def _resident_of(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise LoadTestError(
                f"the system allows {hard} open files (ulimit -Hn), expected {wanted}; "
                "use fewer --connections"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
