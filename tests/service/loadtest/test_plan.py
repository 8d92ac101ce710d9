"""How many requests a plan sends, and what is no plan."""

import pytest

from service.errors import SettingsError
from service.loadtest.generator import Generator
from service.loadtest.plan import LoadPlan
from tests.support.scripted_server import OK, listening

REQUESTS = [b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n" + name for name in (b"a", b"b", b"c")]


@pytest.mark.parametrize(
    ("line", "bodies"),
    [
        ('{"clients": 1, "requests": 5}', b"abcab"),
        ('{"clients": 1, "requests": 4, "images": [2, 0]}', b"caca"),
        ('{"rate": 1000, "requests": 4}', b"abca"),
        ('{"rate": 1000, "requests": 4, "duration": 0.002}', b"ab"),
        ('{"clients": 2, "requests": 4, "duration": 3600}', b"abca"),
        ('{"rate": 1000, "duration": 0.005, "poisson": true, "images": [1]}', b"bbbbb"),
    ],
)
def test_images_are_sent_in_turns(line: str, bodies: bytes) -> None:
    seen: list[bytes] = []

    def respond(_: bytes, body: bytes) -> list[bytes]:
        seen.append(body)
        return [OK]

    with listening(respond) as address:
        load = LoadPlan.from_json(line).run(Generator(address), REQUESTS)
    assert sorted(b"".join(seen)) == sorted(bodies)
    assert load.count(200) == len(bodies)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no JSON", "not a plan"),
        ("[1]", "not a plan"),
        ('{"speed": 3}', "not a plan"),
        ('{"clients": "many", "requests": 1}', "not a plan"),
        ('{"requests": 1}', "either a number of clients or a rate"),
        ('{"clients": 1, "rate": 1, "requests": 1}', "either a number of clients or a rate"),
        ('{"clients": 1}', "expected a number of requests or a duration"),
        ('{"clients": 1, "requests": 1, "poisson": true}', "need a rate"),
        ('{"clients": 1001, "requests": 1}', "clients is 1001, expected more than 0, at most 1000"),
        ('{"clients": 1, "duration": 0}', "duration is 0, expected more than 0"),
        ('{"clients": 1, "duration": NaN}', "duration is nan, expected more than 0"),
    ],
)
def test_a_plan_that_cannot_be_run_says_why(line: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        LoadPlan.from_json(line)


def test_an_open_loop_is_bounded_in_count_too() -> None:
    plan = LoadPlan(rate=100_000, duration=3600)
    with pytest.raises(SettingsError, match="expected at most 1000000"):
        plan.run(Generator(("127.0.0.1", 9)), REQUESTS)
