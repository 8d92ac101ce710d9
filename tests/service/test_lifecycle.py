"""A real server from its start to its end: a full queue, probes, signals, nothing left behind."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.pool.cores import usable_cores
from tests.support import pictures
from tests.support.clients import problem_of, web
from tests.support.overload import IMPATIENT, ONE_WORKER, fill, held, post
from tests.support.processes import (
    DEADLINE_SECONDS,
    Server,
    children_of,
    environment,
    is_alive,
    until,
    workers_of,
)

PNG = pictures.png()


@pytest.fixture(scope="module")
def two_workers(models: Path) -> Iterator[Server]:
    """Two workers; the last test kills it."""
    with Server("--models", str(models), "--workers", "2") as running:
        yield running


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as connection:
        yield connection


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores, one is allowed here")
def test_the_event_loop_leaves_the_core_of_a_lone_pinned_worker_alone(small_server: Server) -> None:
    (worker,) = workers_of(small_server)
    front_end = os.sched_getaffinity(small_server.process.pid)
    assert front_end == os.sched_getaffinity(0) - os.sched_getaffinity(worker)
    (told,) = web.get(f"{small_server.url}/readyz").json()["workers"]
    assert (told["pinned"], set(told["cores"])) == (True, os.sched_getaffinity(worker))


def test_a_full_queue_is_answered_429_and_who_waits_is_answered(
    small_server: Server, clients: ThreadPoolExecutor
) -> None:
    with held(small_server):
        waiting = fill(small_server, clients)
        rejected = post(small_server)
        assert "the queue is full" in str(problem_of(rejected, 429)["detail"])
        assert int(rejected.headers["retry-after"]) >= 1
    assert waiting.result().status_code == 200


def test_a_full_queue_is_answered_before_the_body_comes(
    small_server: Server, clients: ThreadPoolExecutor
) -> None:
    with held(small_server):
        waiting = fill(small_server, clients)
        with connected(small_server) as connection:
            connection.sendall(
                b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n"
            )
            assert connection.recv(65_536).startswith(b"HTTP/1.1 429 ")
    assert waiting.result().status_code == 200


def test_a_client_that_hangs_up_makes_room_in_the_queue(
    small_server: Server, clients: ThreadPoolExecutor
) -> None:
    with held(small_server):
        running = clients.submit(post, small_server)
        # Not by a probe of the same kind, which could take the worker before `running` does.
        until(lambda: "leafcode_workers_busy 1.0" in web.get(f"{small_server.url}/metrics").text)
        with connected(small_server) as leaving:
            head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(PNG)}\r\n\r\n"
            leaving.sendall(head.encode() + PNG)
            until(lambda: post(small_server, **IMPATIENT).status_code == 429)
        until(lambda: post(small_server, **IMPATIENT).status_code == 504)
    assert running.result().status_code == 200
    until(lambda: any("went away" in line for line in small_server.log))


def test_a_timeout_of_the_client_is_answered_504_and_the_next_request_200(
    small_server: Server,
) -> None:
    with held(small_server):
        problem_of(post(small_server, **{"X-Timeout-Ms": "1"}), 504)
    assert post(small_server).status_code == 200


@pytest.mark.parametrize("timeout", ["0", "-1", "soon", "1.5"])
def test_a_timeout_that_is_no_number_is_rejected(client: httpx.Client, timeout: str) -> None:
    response = client.post("/v1/classify", content=PNG, headers={"X-Timeout-Ms": timeout})
    assert "X-Timeout-Ms" in str(problem_of(response, 422)["detail"])


def test_one_worker_that_does_not_answer_is_named_but_takes_nothing_out_of_service(
    two_workers: Server,
) -> None:
    url, asleep = two_workers.url, workers_of(two_workers)[0]
    os.kill(asleep, signal.SIGSTOP)
    strict: list[httpx.Response] = []

    def is_named() -> bool:
        # Replaced after a while: what else there is to ask is asked at the same moment.
        strict.append(web.get(f"{url}/readyz?strict=true"))
        return strict[-1].status_code == 503

    until(is_named)
    ready = web.get(f"{url}/readyz")
    assert web.get(f"{url}/v2/health/ready").status_code == 200
    silent, well = str(problem_of(strict[-1], 503)["detail"]).split("; ")
    assert silent.startswith("worker ")
    assert "does not answer: a ping has been unanswered for" in silent
    assert well.endswith("is idle")
    assert ready.status_code == 200
    assert sorted(worker["ready"] for worker in ready.json()["workers"]) == [False, True]
    assert web.get(f"{url}/healthz").status_code == 200
    assert post(two_workers).status_code == 200
    with contextlib.suppress(ProcessLookupError):
        os.kill(asleep, signal.SIGCONT)
    until(lambda: web.get(f"{url}/readyz?strict=true").status_code == 200)


def test_a_killed_service_leaves_no_process_behind(two_workers: Server) -> None:
    processes = children_of(two_workers.process.pid)
    assert len(processes) == 3
    # A worker that cannot notice by itself.
    os.kill(processes[-1], signal.SIGSTOP)
    two_workers.process.kill()
    until(lambda: not any(map(is_alive, processes)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_finishes_what_was_accepted(
    models: Path, clients: ThreadPoolExecutor, number: signal.Signals
) -> None:
    with Server("--models", str(models), *ONE_WORKER) as server:
        with held(server):
            waiting = fill(server, clients)
            processes = [*children_of(server.process.pid), server.process.pid]
            for pid in processes:
                os.kill(pid, number)
        assert waiting.result().status_code == 200
        assert server.process.wait(DEADLINE_SECONDS) == 0
        assert not any(map(is_alive, processes))
        assert "Traceback" not in "".join(server.log)


def test_a_service_that_is_killed_while_it_starts_leaves_no_process_behind(models: Path) -> None:
    with Server("--models", str(models), wait=False) as server:
        until(lambda: bool(children_of(server.process.pid)))
        processes = children_of(server.process.pid)
        server.stop(signal.SIGKILL)
        until(lambda: not any(map(is_alive, processes)))
    assert "Traceback" not in "".join(server.log)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_start_that_compiles_says_so_and_can_be_interrupted(
    models: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Server(
        "--models", str(models), env=environment(NUMBA_CACHE_DIR=str(tmp_path)), wait=False
    ) as server:
        until(lambda: any("compiling the kernels, once" in line for line in server.log))
        # The fork server, and its helper if there is a core for it.
        count = min(len(usable_cores()), 2)
        until(lambda: len(children_of(server.process.pid)) == count)
        fork_server, *helpers = children_of(server.process.pid)
        assert server.stop(number) == code
        assert not is_alive(fork_server)
        until(lambda: not any(map(is_alive, helpers)))
        assert "Traceback" not in "".join(server.log)
