"""The pool as operators and clients see it: probes, signals and answers of a real server."""

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.pool.cores import usable_cores
from tests.support.clients import problem_of
from tests.support.overload import IMPATIENT, ONE_WORKER, PNG, fill, post
from tests.support.processes import (
    DEADLINE_SECONDS,
    Server,
    children_of,
    environment,
    until,
    workers_of,
)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.fixture
def small_server(models: Path) -> Iterator[Server]:
    """One worker and a queue for one."""
    with Server("--models", str(models), *ONE_WORKER) as running:
        yield running


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores, one is allowed here")
def test_the_front_leaves_the_core_of_a_lone_worker_alone(small_server: Server) -> None:
    (worker,) = workers_of(small_server)
    front = os.sched_getaffinity(small_server.process.pid)
    assert front == os.sched_getaffinity(0) - os.sched_getaffinity(worker)


def test_a_full_queue_is_answered_429_and_who_waits_is_answered(
    small_server: Server, clients: ThreadPoolExecutor
) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    waiting = fill(small_server, clients)
    refused = post(small_server)
    assert "the queue is full" in str(problem_of(refused, 429)["detail"])
    assert int(refused.headers["retry-after"]) >= 1
    os.kill(worker, signal.SIGCONT)
    assert waiting.result().status_code == 200


def test_a_full_queue_is_answered_before_the_body_comes(
    small_server: Server, clients: ThreadPoolExecutor
) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    waiting = fill(small_server, clients)
    host, port = small_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n"
        )
        assert connection.recv(65_536).startswith(b"HTTP/1.1 429 ")
    os.kill(worker, signal.SIGCONT)
    assert waiting.result().status_code == 200


def test_a_client_that_hangs_up_makes_room_in_the_queue(
    small_server: Server, clients: ThreadPoolExecutor
) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    at_work = clients.submit(post, small_server)
    # Not by a probe of the same kind, which could take the worker before `at_work` does.
    until(lambda: "leafcode_workers_busy 1.0" in httpx.get(f"{small_server.url}/metrics").text)
    host, port = small_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as leaving:
        head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(PNG)}\r\n\r\n"
        leaving.sendall(head.encode() + PNG)
        until(lambda: post(small_server, **IMPATIENT).status_code == 429)
    until(lambda: post(small_server, **IMPATIENT).status_code == 504)
    os.kill(worker, signal.SIGCONT)
    assert at_work.result().status_code == 200
    assert any("went away" in line for line in small_server.log)


def test_patience_of_a_client_is_answered_504(small_server: Server) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    problem_of(post(small_server, **{"X-Timeout-Ms": "1"}), 504)
    os.kill(worker, signal.SIGCONT)
    assert post(small_server).status_code == 200


@pytest.mark.parametrize("patience", ["0", "-1", "soon", "1.5"])
def test_patience_that_is_no_number_is_refused(client: httpx.Client, patience: str) -> None:
    response = client.post("/v1/classify", content=PNG, headers={"X-Timeout-Ms": patience})
    assert "X-Timeout-Ms" in str(problem_of(response, 422)["detail"])


def test_readiness_names_the_worker_while_the_others_serve(models: Path) -> None:
    with Server("--models", str(models), "--workers", "2") as server:
        asleep = workers_of(server)[0]
        os.kill(asleep, signal.SIGSTOP)
        until(lambda: httpx.get(f"{server.url}/readyz").status_code == 503)
        detail = str(problem_of(httpx.get(f"{server.url}/readyz"), 503)["detail"])
        assert detail.startswith("worker ")
        assert "is silent" in detail
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert post(server).status_code == 200
        os.kill(asleep, signal.SIGCONT)
        until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_finishes_what_was_accepted(
    small_server: Server, clients: ThreadPoolExecutor, number: signal.Signals
) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    waiting = fill(small_server, clients)
    processes = [*children_of(small_server.process.pid), small_server.process.pid]
    for pid in processes:
        os.kill(pid, number)
    os.kill(worker, signal.SIGCONT)
    assert waiting.result().status_code == 200
    assert small_server.process.wait(DEADLINE_SECONDS) == 0
    assert not any(map(is_alive, processes))
    assert "Traceback" not in "".join(small_server.log)


def test_a_killed_service_leaves_no_process_behind(models: Path) -> None:
    with Server("--models", str(models), "--workers", "2") as server:
        processes = children_of(server.process.pid)
        assert len(processes) == 3
        # A worker that cannot notice by itself.
        os.kill(processes[-1], signal.SIGSTOP)
        server.stop(signal.SIGKILL)
        until(lambda: not any(map(is_alive, processes)))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_start_that_compiles_says_so_and_can_be_interrupted(
    models: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Server(
        "--models", str(models), env=environment(NUMBA_CACHE_DIR=str(tmp_path)), wait=False
    ) as server:
        until(lambda: any("compiling the kernels, once" in line for line in server.log))
        processes = children_of(server.process.pid)
        assert len(processes) == 1
        assert server.stop(number) == code
        assert not any(map(is_alive, processes))
        assert "Traceback" not in "".join(server.log)
