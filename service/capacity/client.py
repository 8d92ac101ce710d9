"""`python -m service.capacity.client PLAN`: the same request again and again on many connections.

It shares the cores with what it measures. The load test's generator takes 150 microseconds of CPU
a request, because it times and parses; this client only looks how an answer begins.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from service.loadtest.errors import LoadTestError

__all__ = ["Burst", "ClientPlan", "send_all", "waiting_body"]

_MAX_BYTES = 65_536
_SILENCE_SECONDS = 10.0
_OK = b"HTTP/1.1 200 "
# Of the time that counts; before it, until all is warm.
_WARM_UP = 0.25


@dataclass(frozen=True)
class ClientPlan:
    """Where a client sends what, on how many connections, for how long, and on which cores."""

    host: str
    port: int
    head: str
    body: str
    connections: int
    seconds: float
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Burst:
    """What came back in some seconds, and the CPU that it took to ask for it."""

    answers: int
    seconds: float
    cpu_seconds: float


def waiting_body(seconds: float, size: int) -> str:
    """A body of `size` bytes that has a waiting worker wait."""
    return f"{seconds:.6f} ".ljust(size)


def send_all(plans: Sequence[ClientPlan]) -> list[Burst]:
    """Run clients at the same time; raises `LoadTestError` unless every answer is a 200."""
    command = [sys.executable, "-m", "service.capacity.client"]
    clients = [
        subprocess.Popen(  # noqa: S603
            [*command, json.dumps(asdict(plan))], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for plan in plans
    ]
    outputs = [client.communicate() for client in clients]
    for client, (_, told) in zip(clients, outputs, strict=True):
        if client.returncode:
            raise LoadTestError(told.decode().strip())
    return [Burst(**json.loads(output)) for output, _ in outputs]


def _send(plan: ClientPlan) -> Burst:
    """Have one request under way on each connection."""
    os.sched_setaffinity(0, plan.cores)
    request = (plan.head + plan.body).encode()
    poll, sockets = select.epoll(), {}
    for _ in range(plan.connections):
        connection = socket.create_connection((plan.host, plan.port), _SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    for connection in sockets.values():
        connection.sendall(request)
    _count(poll, sockets, request, plan.seconds * _WARM_UP)
    return _count(poll, sockets, request, plan.seconds)


def _count(
    poll: select.epoll, sockets: dict[int, socket.socket], request: bytes, seconds: float
) -> Burst:
    """Follow every answer with the next request; answers come whole, as they are written."""
    answers, start, cpu = 0, time.perf_counter(), time.process_time()
    end = start + seconds
    while (now := time.perf_counter()) < end:
        events = poll.poll(_SILENCE_SECONDS)
        if not events:
            raise LoadTestError(f"no answer came for {_SILENCE_SECONDS:.0f} s")
        for descriptor, _ in events:
            connection = sockets[descriptor]
            answer = connection.recv(_MAX_BYTES)
            if not answer.startswith(_OK):
                raise LoadTestError(f"an answer began with {answer[:80]!r}, expected {_OK!r}")
            connection.sendall(request)
        answers += len(events)
    return Burst(answers, now - start, time.process_time() - cpu)


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(asdict(_send(ClientPlan(**json.loads(sys.argv[1]))))))
    except (LoadTestError, OSError) as error:
        sys.exit(f"the client of the capacity test failed: {error}")
