"""The load generator against a server whose answers the tests write."""

import asyncio
from itertools import repeat

import pytest

from service.loadtest.generator import Generator, even_times, poisson_times
from service.loadtest.load import Exchange
from tests.support.scripted_server import OK, REJECTED, listening


def posts(count: int) -> list[bytes]:
    """Requests whose bodies are their numbers, each of two digits."""
    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
    return [head + f"{number:02}".encode() for number in range(count)]


def test_a_closed_loop_sends_every_request_once() -> None:
    seen: list[bytes] = []

    def respond(_: bytes, body: bytes) -> list[bytes]:
        seen.append(body)
        return [OK]

    with listening(respond) as address:
        load = Generator(address, keep_bodies=True).closed_loop(posts(20), 3)
    assert sorted(map(int, seen)) == list(range(20))
    assert [item.number for item in load.exchanges] == list(range(20))
    assert load.count(200) == 20
    assert {item.body for item in load.exchanges} == {b"ok"}


def test_bodies_are_not_kept_unless_asked_for() -> None:
    with listening(lambda *_: [OK]) as address:
        load = Generator(address).closed_loop(posts(2), 1)
    assert [item.body for item in load.exchanges] == [b"", b""]


def test_answers_may_arrive_in_pieces() -> None:
    with listening(lambda *_: [OK[:5], OK[5:-1], OK[-1:]]) as address:
        load = Generator(address, keep_bodies=True).closed_loop(posts(4), 2)
    assert [item.body for item in load.exchanges] == [b"ok"] * 4


@pytest.mark.parametrize("size", [1, 7, 100], ids=str)
def test_answers_may_come_in_chunks_as_proxies_send_them(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = head + b"2\r\nok\r\n" + b"A;name=value\r\n, not over\r\n" + b"0\r\n\r\n"
    pieces = [answer[start : start + size] for start in range(0, len(answer), size)]
    with listening(lambda *_: pieces) as address:
        load = Generator(address, keep_bodies=True).closed_loop(posts(3), 1)
    assert [item.body for item in load.exchanges] == [b"ok, not over"] * 3


def test_latencies_are_those_of_the_clock() -> None:
    now = [0.0]

    def respond(_: bytes, body: bytes) -> list[bytes]:
        now[0] += 1 + int(body)
        return [OK]

    with listening(respond) as address:
        load = Generator(address, clock=lambda: now[0]).closed_loop(posts(4), 1)
    assert [item.seconds for item in load.exchanges] == [1, 2, 3, 4]
    assert load.seconds == 10
    assert load.rate() == 0.4
    assert load.quantile(0.5) == 2
    assert load.quantile(0.99) == 4


def test_a_closed_loop_sends_nothing_after_its_time_is_over() -> None:
    now = [0.0]

    def respond(*_: bytes) -> list[bytes]:
        now[0] += 1
        return [OK]

    with listening(respond) as address:
        generator = Generator(address, clock=lambda: now[0])
        load = generator.closed_loop(repeat(posts(1)[0]), 1, seconds=2.5)
    assert load.count(200) == len(load) == 3


def test_rejections_and_answers_are_told_apart() -> None:
    with listening(lambda _, body: [OK if int(body) % 4 else REJECTED]) as address:
        load = Generator(address).open_loop(posts(8), even_times(1000, 16))
    assert len(load) == 16
    assert (load.count(200), load.count(429)) == (12, 4)
    assert load.statuses == [200, 429]
    assert load.quantile(0.99, 429) < 60


def test_a_lost_connection_loses_its_request_and_no_other() -> None:
    with listening(lambda _, body: [OK] if int(body) != 2 else []) as address:
        load = Generator(address).closed_loop(posts(6), 2)
    assert [item.status for item in load.exchanges] == [200, 200, 0, 200, 200, 200]


def test_a_server_that_does_not_speak_http_gives_no_answer() -> None:
    with listening(lambda *_: [b"220 mail.example ESMTP\r\n\r\n"]) as address:
        load = Generator(address).closed_loop(posts(2), 1)
    assert load.count(0) == 2


def test_a_server_that_is_not_there_gives_no_answer() -> None:
    with listening(lambda *_: [OK]) as address:
        pass
    assert Generator(address).closed_loop(posts(3), 2).count(0) == 3


def test_a_server_that_keeps_silent_is_given_up() -> None:
    with listening(lambda *_: [b"HTTP/1.1 200"]) as address:
        load = Generator(address, timeout=0.1).closed_loop(posts(1), 1)
    assert load.count(0) == 1


def test_waiting_counts_from_the_time_that_a_request_was_due() -> None:
    exchange = Exchange(0, due=1.0, ended=3.5, status=200, body=b"")
    assert exchange.seconds == 2.5


def test_poisson_arrivals_have_the_same_mean_rate() -> None:
    assert even_times(4, 4) == [0, 0.25, 0.5, 0.75]
    times = poisson_times(100, 2000, seed=1)
    assert times == sorted(times)
    assert len(times) == 2000
    assert times[-1] == pytest.approx(20, rel=0.1)


def test_a_server_that_stalls_delays_all_that_were_due_meanwhile() -> None:
    """Coordinated omission: a generator that waits with the server sees one slow answer."""
    now = [0.0]
    due_meanwhile = 10

    def respond(_: bytes, body: bytes) -> list[bytes]:
        if int(body) == 0:
            now[0] = 5.0  # the whole server stands still from the first request on
        return [OK]

    with listening(respond) as address:
        generator = Generator(address, clock=lambda: now[0])
        load = generator.open_loop(posts(12), even_times(100, due_meanwhile))
        assert now[0] == 5.0
        waiting = generator.closed_loop(posts(12)[1:], 1)
    assert [item.seconds for item in load.exchanges] == pytest.approx(
        [5.0 - number / 100 for number in range(due_meanwhile)]
    )
    assert waiting.quantile(1.0) == 0


def test_an_open_loop_does_not_wait_for_answers() -> None:
    arrived: list[bytes] = []
    all_arrived = asyncio.Event()

    async def respond(_: bytes, body: bytes) -> list[bytes]:
        arrived.append(body)
        if len(arrived) == 6:
            all_arrived.set()
        await all_arrived.wait()
        return [OK]

    with listening(respond) as address:
        load = Generator(address).open_loop(posts(6), even_times(1000, 6))
    assert load.count(200) == 6


def test_requests_beyond_the_last_connection_wait_and_their_waiting_counts() -> None:
    now = [0.0]

    def respond(*_: bytes) -> list[bytes]:
        now[0] += 1
        return [OK]

    with listening(respond) as address:
        generator = Generator(address, clock=lambda: now[0], max_connections=1)
        load = generator.open_loop(posts(4), [0.0] * 4)
    assert [item.seconds for item in load.exchanges] == [1, 2, 3, 4]


def test_requests_that_wait_for_a_connection_are_given_up_like_others() -> None:
    with listening(lambda *_: [b"HTTP/1.1 200"]) as address:
        load = Generator(address, timeout=0.1, max_connections=1).open_loop(posts(3), [0.0] * 3)
    assert [item.reason for item in load.exchanges] == ["timed out"] * 3


def test_a_server_that_is_gone_leaves_no_request_waiting() -> None:
    with listening(lambda *_: [OK]) as address:
        pass
    load = Generator(address, max_connections=1).open_loop(posts(5), [0.0] * 5)
    assert {item.reason for item in load.exchanges} == {"connection refused"}
    assert len(load) == 5


def test_lateness_is_that_of_the_generator() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.25
        return now[0]

    with listening(lambda *_: [OK]) as address:
        load = Generator(address, clock=clock).open_loop(posts(1), [0.0])
    # One reading of the clock at the start, one at the send, one at the answer.
    assert [(item.late, item.seconds) for item in load.exchanges] == [(0.25, 0.5)]


def test_bytes_and_timings_of_answers_are_kept() -> None:
    answer = OK.replace(b"\r\n\r\n", b"\r\nServer-Timing: total;dur=1.5\r\n\r\n")
    with listening(lambda *_: [answer]) as address:
        (kept,) = Generator(address, keep_timings=True).closed_loop(posts(1), 1).exchanges
        (dropped,) = Generator(address).closed_loop(posts(1), 1).exchanges
    assert (kept.sent, kept.received) == (len(posts(1)[0]), len(answer))
    assert (kept.server_timing, dropped.server_timing) == (b"total;dur=1.5", b"")
