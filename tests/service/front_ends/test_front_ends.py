"""Two front ends for one service, in real processes: what clients and operators see of them."""

import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support import bundles, pictures, publishing
from tests.support.clients import problem_of, web
from tests.support.front_ends import TWO, connections_of, front_ends_of
from tests.support.metrics_page import metrics, value
from tests.support.persistent_clients import PersistentClient
from tests.support.processes import (
    DEADLINE_SECONDS,
    ROOT,
    Server,
    children_of,
    is_alive,
    run,
    until,
)
from tests.support.sockets import address, connect

PNG = pictures.png()
CLASSIFY = (
    b"POST /v1/classify HTTP/1.1\r\nHost: x\r\n"
    + f"Content-Length: {len(PNG)}\r\n\r\n".encode()
    + PNG
)
CLASSIFIED = {"route": "/v1/classify", "status": "200"}


@pytest.fixture(scope="module")
def repository(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 of a model; tests publish others."""
    folder = tmp_path_factory.mktemp("published")
    publishing.publish(shelf / "tiny" / "1", folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    """Two front ends with a worker each; the last test stops it."""
    with Server("--models", str(repository), *TWO) as running:
        yield running


def ask(connection: socket.socket, request: bytes = CLASSIFY) -> bytes:
    connection.sendall(request)
    return connection.recv(65_536)


def all_ready(server: Server) -> bool:
    return web.get(f"{server.url}/readyz?strict=true").status_code == 200


def restarts(server: Server) -> int:
    return sum("it is started again" in line for line in server.log)


def test_connections_that_stay_open_are_shared_and_every_request_is_counted_once(
    server: Server,
) -> None:
    before = value(metrics(server.url), "requests_total", **CLASSIFIED)
    with ExitStack() as open_connections:
        clients = [open_connections.enter_context(connect(server)) for _ in range(64)]
        assert {ask(client)[9:12] for client in clients} == {b"200"}
        shares = [connections_of(pid, server) for pid in front_ends_of(server)]
        assert sum(shares) == 64
        assert min(shares) >= 24
        # Whoever is asked.
        pages = {ask(client, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n") for client in clients[:8]}
        assert all(b'"number":0' in page and b'"number":1' in page for page in pages)
        counted = [value(metrics(server.url), "requests_total", **CLASSIFIED) for _ in range(6)]
    assert counted == [before + 64] * 6


def test_probes_name_the_workers_of_all_front_ends(server: Server) -> None:
    workers = web.get(f"{server.url}/readyz").json()["workers"]
    assert [(worker["number"], worker["ready"]) for worker in workers] == [(0, True), (1, True)]
    assert web.get(f"{server.url}/v2/health/ready").status_code == 200
    numbers = metrics(server.url)
    assert value(numbers, "workers") == 2
    assert value(numbers, "queue_limit") == 128
    assert value(numbers, "accepting") == 1
    assert ("leafcode_worker_restarts_total", (("worker", "1"),)) in numbers


def test_a_version_is_published_by_all_front_ends_together(
    server: Server, repository: Path, shelf: Path
) -> None:
    publishing.publish(shelf / "tiny" / "2", repository)
    with publishing.Hammer(server) as hammer:
        publishing.hang_up(server)
        until(lambda: publishing.versions_of(server) == [1, 2])
    assert hammer.failures == []
    with ExitStack() as open_connections:
        clients = [open_connections.enter_context(connect(server)) for _ in range(16)]
        assert all(connections_of(pid, server) for pid in front_ends_of(server))
        assert all(b'"version":2' in ask(client) for client in clients)


def test_a_version_that_cannot_be_served_is_rejected_by_all(
    server: Server, repository: Path, shelf: Path
) -> None:
    publishing.publish(shelf / "tiny" / "3", repository, publishing.cut_short)
    publishing.hang_up(server)
    until(lambda: publishing.rejected_by(server) == [3])
    assert publishing.versions_of(server) == [1, 2]
    assert value(metrics(server.url), "rejected_versions") == 1
    publishing.withdraw(repository, 3)
    publishing.hang_up(server)
    until(lambda: publishing.rejected_by(server) == [])


def test_a_front_end_that_does_not_answer_is_named(server: Server) -> None:
    before = value(metrics(server.url), "requests_total", **CLASSIFIED)
    cores = web.get(f"{server.url}/readyz").json()["workers"][1]["cores"]
    hung = front_ends_of(server)[1]
    os.kill(hung, signal.SIGSTOP)
    try:
        probe = httpx.get(f"{server.url}/readyz", timeout=DEADLINE_SECONDS)
        page = metrics(server.url)
    finally:
        os.kill(hung, signal.SIGCONT)
    told = str(problem_of(probe, 503)["detail"])
    assert told.startswith("front end 1 does not answer; worker 0 (")
    assert f"worker 1 ({f'core {cores[0]}' if cores else 'not pinned'}) does not answer" in told
    assert value(page, "requests_total", **CLASSIFIED) == before
    until(lambda: all_ready(server))


def test_a_killed_front_end_is_replaced_and_the_others_go_on(server: Server) -> None:
    until(lambda: all_ready(server))
    before = value(metrics(server.url), "requests_total", **CLASSIFIED)
    survivor, victim = front_ends_of(server)
    below = children_of(victim)
    with ExitStack() as open_connections:
        clients = [open_connections.enter_context(connect(server)) for _ in range(16)]
        assert {ask(client)[9:12] for client in clients} == {b"200"}
        os.kill(victim, signal.SIGKILL)
        until(lambda: not any(map(is_alive, [victim, *below])))
        # Before the other one is there again: nobody else accepts.
        assert web.get(f"{server.url}/readyz").status_code == 200
        answers = Counter(_outcome(client) for client in clients)
    assert set(answers) == {"200", "lost"}
    assert answers["200"] >= 4
    until(lambda: all_ready(server))
    first, second = front_ends_of(server)
    assert first == survivor
    assert second != victim
    assert restarts(server) == 1
    # What the killed one had counted is not forgotten, as far as it was told to anybody.
    assert value(metrics(server.url), "requests_total", **CLASSIFIED) >= before + answers["200"]


def _outcome(connection: socket.socket) -> str:
    try:
        return ask(connection)[9:12].decode() or "lost"
    except OSError:
        return "lost"


def test_no_connection_breaks_when_all_front_ends_stop_under_load(server: Server) -> None:
    processes = children_of(server.process.pid)
    clients = [
        PersistentClient(address(server), CLASSIFY, keep_alive=keep_alive)
        for keep_alive in (True, False)
        for _ in range(4)
    ]
    for client in clients:
        client.start()
    until(lambda: all(client.outcomes["200"] > 5 for client in clients))
    assert server.stop() == 0
    for client in clients:
        client.join(DEADLINE_SECONDS)
    outcomes = sum((client.outcomes for client in clients), Counter())
    assert set(outcomes) <= {"200", "503"}, outcomes
    assert not any(map(is_alive, processes))
    assert "Traceback" not in "".join(server.log)
    assert sum("ready at" in line for line in server.log) == 1
    assert sum("stopping on SIGTERM" in line for line in server.log) == 1


def test_a_start_that_cannot_be_says_so_once(models: Path, tmp_path: Path) -> None:
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    bundles.flip_byte(folder / "manifest.json", 500)
    done = run("serve", "--port", "0", "--models", str(tmp_path), *TWO)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert [str(folder / "manifest.json") in line for line in lines if "cannot serve" in line] == [
        True
    ]
    assert "Traceback" not in done.stderr.decode()


def test_a_taken_port_is_told_before_a_front_end_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port, "--models", str(ROOT / "service/models"), *TWO)
    assert done.returncode == 2
    assert f"cannot serve: port {port} of 127.0.0.1 is in use" in done.stderr.decode()


def test_a_signal_while_it_starts_ends_all(models: Path) -> None:
    with Server("--models", str(models), *TWO, wait=False) as server:
        until(lambda: len(front_ends_of(server)) == 2)
        processes = children_of(server.process.pid)
        assert server.stop() == 0
        until(lambda: not any(map(is_alive, processes)))
    assert "Traceback" not in "".join(server.log)
