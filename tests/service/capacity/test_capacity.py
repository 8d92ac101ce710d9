"""The command `capacity` against real services whose workers wait."""

import json
import socket
from pathlib import Path

import pytest

from service.capacity.client import ClientPlan, send_all, waiting_body
from service.capacity.measuring import Measured
from service.capacity.waiting_worker import WaitingOperations
from service.cli import main
from service.loadtest.errors import LoadTestError
from service.pool.cores import allowed_cores
from service.pool.frames import Frame, Kind
from tests.support.fake_workers import LIMITS

SHORT = ["--seconds", "0.2", "--rounds", "1", "--wait-ms", "1"]


def test_every_request_is_answered_and_every_part_has_its_cpu_time(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = ["--workers", "2", "--front-ends", "1"]
    assert main(["capacity", "--models", str(models), *counts, *SHORT, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["capacity"]
    assert (row["workers"], row["front_ends"]) == (2, 1)
    assert row["rate"] > 0
    assert row["client_ms"] > 0


def test_more_front_ends_than_cores_cannot_have_one_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = len(allowed_cores()) + 1
    assert main(["capacity", "--core-each", "--front-ends", str(many)]) == 1
    told = f"{many} front ends need a core each, {many - 1} are allowed here"
    assert told in capsys.readouterr().err


def test_a_client_says_who_did_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        host, port = closing.getsockname()
    plan = ClientPlan(host, port, "GET / HTTP/1.1\r\n\r\n", "", 1, 0.1, allowed_cores())
    with pytest.raises(LoadTestError, match=r"client of the capacity test failed: .*refused"):
        send_all([plan])


def test_a_waiting_worker_waits_as_long_as_the_body_says() -> None:
    operations = WaitingOperations(1, LIMITS)
    frame = Frame(Kind.CLASSIFY, 7, {}, waiting_body(0.002, 12_000).encode())
    answer = operations.answer(frame)
    assert len(frame.body) == 12_000
    assert (answer.kind, answer.job) == (Kind.DONE, 7)
    assert answer.times is not None
    assert answer.times.total == pytest.approx(0.002)
    assert len(json.loads(bytes(answer.body))["predictions"]) == 5


def test_a_rate_is_the_median_of_its_rounds() -> None:
    assert Measured(2, 1, (3.0, 1.0, 2.0), 0.3, 0.1, 0.1).rate == 2.0
