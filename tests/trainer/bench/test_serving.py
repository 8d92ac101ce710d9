"""The load generator against a server that tests hold in their hands, the rest on tiny models."""

import asyncio
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests import bundles, pictures
from trainer.bench import server_comparison
from trainer.bench.load import (
    Address,
    Exchange,
    Generator,
    Load,
    even_times,
    poisson_times,
    post,
)
from trainer.bench.reloads import Reloads, reloads_text
from trainer.bench.server_comparison import OURS, RIVALS, compare
from trainer.bench.service_bench import ServiceBench, default_bundle, set_up_service_bench
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.bench.settings import SpeedSettings
from trainer.bench.soak import Tally, soak_text, tally
from trainer.cli import main

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
SETTINGS = replace(SpeedSettings(), requests=6, rounds=1, load_seconds=1)

Answer = Callable[[bytes], list[bytes]]


@contextmanager
def listening(answer: Answer) -> Iterator[Address]:
    """A server that sends the pieces of `answer(body)`; none at all means hanging up."""

    connections: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                pieces = answer(await reader.readexactly(length))
                if not pieces:
                    break
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
        writer.close()

    async def serve() -> None:
        over.append((asyncio.get_running_loop(), asyncio.Event()))
        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            addresses.put(server.sockets[0].getsockname()[:2])
            await over[0][1].wait()
        for writer in connections:
            with suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()

    addresses: queue.Queue[Address] = queue.Queue()
    over: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield addresses.get()
    finally:
        ((loop, event),) = over
        loop.call_soon_threadsafe(event.set)
        thread.join()


def posts(count: int) -> list[bytes]:
    return [post("/", str(number).encode()) for number in range(count)]


def test_a_closed_loop_sends_every_request_once() -> None:
    seen: list[bytes] = []

    def answer(body: bytes) -> list[bytes]:
        seen.append(body)
        return [OK]

    with listening(answer) as address:
        load = Generator(address).closed_loop(posts(20), 3)
    assert sorted(seen, key=int) == [str(number).encode() for number in range(20)]
    assert [item.number for item in load.exchanges] == list(range(20))
    assert load.count(200) == 20
    assert {item.body for item in load.exchanges} == {b"ok"}


def test_answers_may_arrive_in_pieces() -> None:
    with listening(lambda _: [OK[:5], OK[5:-1], OK[-1:]]) as address:
        load = Generator(address).closed_loop(posts(4), 2)
    assert [item.body for item in load.exchanges] == [b"ok"] * 4


def test_latencies_are_those_of_the_clock() -> None:
    now = [0.0]

    def answer(body: bytes) -> list[bytes]:
        now[0] += 1 + int(body)
        return [OK]

    with listening(answer) as address:
        load = Generator(address, clock=lambda: now[0]).closed_loop(posts(4), 1)
    assert [item.seconds for item in load.exchanges] == [1, 2, 3, 4]
    assert load.seconds == 10
    assert load.rate() == 0.4
    assert load.quantile(0.5) == 2
    assert load.quantile(0.99) == 4


def test_refusals_and_answers_are_told_apart() -> None:
    with listening(lambda body: [OK if int(body) % 4 else REFUSED]) as address:
        load = Generator(address).open_loop(posts(8), even_times(1000, 0.016))
    assert len(load) == 16
    assert (load.count(200), load.count(429)) == (12, 4)
    assert load.quantile(0.99, 429) < 60


def test_a_lost_connection_loses_its_request_and_no_other() -> None:
    with listening(lambda body: [OK] if int(body) != 2 else []) as address:
        load = Generator(address).closed_loop(posts(6), 2)
    assert [item.status for item in load.exchanges] == [200, 200, 0, 200, 200, 200]


def test_a_server_that_is_not_there_loses_all_requests() -> None:
    with listening(lambda _: [OK]) as address:
        pass
    assert Generator(address).closed_loop(posts(3), 2).count(0) == 3


def test_waiting_counts_from_the_time_that_a_request_was_due() -> None:
    exchange = Exchange(0, due=1.0, ended=3.5, status=200, body=b"")
    assert exchange.seconds == 2.5


def test_arrivals_by_chance_come_at_the_same_rate() -> None:
    assert even_times(4, 1) == [0, 0.25, 0.5, 0.75]
    times = poisson_times(100, 20, seed=1)
    assert times == sorted(times)
    assert len(times) == 2000
    assert times[-1] == pytest.approx(20, rel=0.1)


def exchange(number: int, status: int, document: object) -> Exchange:
    return Exchange(number, 0.0, 1.0, status, json.dumps(document).encode())


def labels(*names: str) -> dict[str, object]:
    return {"predictions": [{"label": name, "probability": 0.5} for name in names]}


def test_the_tally_excuses_jobs_that_died_twice_and_nothing_else() -> None:
    lost_worker = {"type": "urn:leafcode:problem:worker-lost"}
    exchanges = (
        exchange(0, 200, labels("apple", "boat")),
        exchange(1, 200, labels("boat", "apple")),
        exchange(2, 503, lost_worker),
    )
    good = tally(Load(exchanges, 0.0), [["apple", "boat"], ["boat", "apple"]], kills=3)
    assert (good.right, good.died_twice, good.kills, good.faults()) == (2, 1, 3, [])
    bad = tally(
        Load(
            (
                exchange(0, 200, labels("boat")),
                exchange(1, 503, {"type": "urn:leafcode:problem:not-ready"}),
                Exchange(2, 0.0, 1.0, 0, b""),
                exchange(3, 504, []),
            ),
            0.0,
        ),
        [["apple"]],
        kills=0,
    )
    assert (bad.right, bad.wrong, bad.lost, bad.others) == (0, 1, 1, {503: 1, 504: 1})
    assert len(bad.faults()) == 5
    assert "status 504          1" in soak_text(bad)


def test_nothing_answered_is_a_fault() -> None:
    assert Tally(right=0, wrong=0, died_twice=7, lost=0).faults() == [
        "no request was answered with labels"
    ]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceBench]:
    """A service of a tiny model, on all cores."""
    models = tmp_path_factory.mktemp("models")
    bundles.write_model(models)
    images = [pictures.jpeg(pictures.disc(96, 80)) for _ in range(6)]
    with set_up_service_bench(models, images, SETTINGS) as ready:
        yield ready


@pytest.mark.parametrize(
    "name", ["service_vs_engine", "service_added_ms", "latency_p99_at_70", "replaced_seconds"]
)
def test_figures_of_the_service_are_measured(stand: ServiceBench, name: str) -> None:
    figure = SERVICE_FIGURES[name].measure(stand)
    assert figure.value > 0
    assert all(value >= 0 for value in figure.facts.values())


def test_the_pool_and_the_bare_engines_share_their_cores(stand: ServiceBench) -> None:
    assert stand.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert len(stand.server.workers) == len(stand.cores)
    usage = stand.server.usage()
    assert min(usage.front_cpu, usage.workers_cpu, usage.bytes) > 0


def test_the_model_that_is_served_is_the_first_by_name_in_its_highest_version(
    tmp_path: Path,
) -> None:
    for folder in ("b/1", "a/2", "a/10", "a/.11-staging", ".c/1"):
        (tmp_path / folder).mkdir(parents=True)
    assert default_bundle(tmp_path) == tmp_path / "a" / "10"


def test_an_executor_serves_like_us_until_a_worker_dies(
    stand: ServiceBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(RIVALS, "LitServe")
    monkeypatch.setattr(server_comparison, "_RECOVERY_SECONDS", 2.0)
    missing: dict[str, str] = {}
    found = compare(stand, missing)
    assert missing == {}
    assert set(found) == {OURS, *RIVALS}
    assert found[OURS].failed == 0
    assert found[OURS].recovery_seconds is not None
    (executor,) = (found[name] for name in RIVALS)
    assert executor.per_second > 0
    assert executor.failed > 0
    assert executor.recovery_seconds is None


def test_reloads_command_fails_no_request(
    stand: ServiceBench, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--served", str(stand.models), "--reloads", "5", "--bad", "2", "--json"]
    assert main(["reproduce", "reloads", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["loaded"], document["refused"]) == (3, 2)
    assert document["answers"].pop("right") >= 200
    assert not any(document["answers"].values())


def test_anything_but_a_right_answer_during_reloads_is_a_fault() -> None:
    result = Reloads(1, 0, {"right": 0, "wrong labels": 0, "status 500": 2})
    assert result.faults() == ["2 requests: status 500", "no request was answered"]
    assert "1 loaded, 0 refused" in reloads_text(result)


def test_soak_command_answers_every_request(
    stand: ServiceBench, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "soak", "--served", str(stand.models), "--requests", "100", "--json"]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["right"] + document["died_twice"] == 100
