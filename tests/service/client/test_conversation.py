"""When the client tries again, and for how long it waits, without any I/O."""

import itertools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.client import calls, errors
from service.client.conversation import Arrival, Pause, Send, converse

REQUEST = httpx.Request("GET", "http://test/v1/models")
MODELS = httpx.Response(200, json={"models": []}, request=REQUEST)


def answer(status: int, retry_after: str | None = None) -> httpx.Response:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx.Response(status, headers=headers, text="no", request=REQUEST)


def pauses(*arrivals: Arrival, retries: int = 3) -> list[float]:
    """What the client waits for when it meets these, one after the other, and then success."""
    conversation = converse(calls.models(), retries)
    found, coming = [], itertools.chain(arrivals, [MODELS])
    step = next(conversation)
    try:
        while True:
            if isinstance(step, Pause):
                found.append(step.seconds)
                step = next(conversation)
            else:
                assert step == Send()
                step = conversation.send(next(coming))
    except StopIteration:
        return found


@pytest.mark.parametrize("status", [429, 503])
@given(seconds=st.integers(0, 60))
def test_the_stated_time_is_obeyed_and_hardly_exceeded(status: int, seconds: int) -> None:
    (pause,) = pauses(answer(status, str(seconds)))
    assert seconds <= pause <= 1.1 * seconds


def test_a_stated_date_is_obeyed() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    (pause,) = pauses(answer(503, date))
    assert 0 < pause <= 55  # less by what this test takes


@pytest.mark.parametrize(
    "text", ["Thu, 01 Jan 2015 00:00:00 GMT", "Thu, 01 Jan 2015 00:00:00 -0000"]
)
def test_a_date_that_has_passed_is_no_reason_to_wait(text: str) -> None:
    assert pauses(answer(503, text)) == [0]


@pytest.mark.parametrize("seconds", ["61", "9" * 5000])
def test_whoever_is_told_to_wait_for_too_long_gives_up(seconds: str) -> None:
    with pytest.raises(errors.OverloadedError):
        pauses(answer(429, seconds))


@pytest.mark.parametrize(
    "arrival",
    [
        answer(429),
        answer(503),
        answer(503, "soon"),
        answer(503, "-1"),
        httpx.ConnectError("refused", request=REQUEST),
        httpx.ConnectTimeout("", request=REQUEST),
        httpx.RemoteProtocolError("hung up", request=REQUEST),
    ],
)
def test_without_a_stated_time_pauses_double_with_some_chance(arrival: Arrival) -> None:
    first, second, third = pauses(arrival, arrival, arrival)
    assert 0.1 <= first <= 0.2 <= second <= 0.4 <= third <= 0.8
    assert len({pauses(arrival)[0] for _ in range(20)}) > 1


@given(attempts=st.integers(1, 2000))
def test_pauses_never_grow_beyond_a_minute(attempts: int) -> None:
    assert max(pauses(*[answer(503)] * attempts, retries=attempts)) <= 60


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_after_so_many_retries_the_last_problem_is_raised(retries: int) -> None:
    with pytest.raises(errors.UnavailableError):
        pauses(*[answer(503, "0")] * (retries + 1), retries=retries)
    assert len(pauses(*[answer(503, "0")] * retries, retries=retries)) == retries


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, errors.BadRequestError),
        (400, errors.BadRequestError),
        (401, errors.DeniedError),
        (403, errors.DeniedError),
        (404, errors.NotFoundError),
        (406, errors.BadRequestError),
        (413, errors.TooLargeError),
        (415, errors.UnsupportedError),
        (422, errors.BadRequestError),
        (499, errors.BadRequestError),
        (500, errors.InternalError),
        (502, errors.UnavailableError),
        (504, errors.DeadlineExceededError),
    ],
)
def test_any_other_refusal_is_raised_at_once(
    status: int, expected: type[errors.ProblemError]
) -> None:
    with pytest.raises(errors.ProblemError) as caught:
        pauses(answer(status, "1"))
    assert type(caught.value) is expected
    assert caught.value.status == caught.value.problem.status == status
    assert caught.value.problem.detail == "no"


@pytest.mark.parametrize("kind", [httpx.ReadTimeout, httpx.DecodingError])
def test_an_answer_that_takes_too_long_is_not_waited_for_again(
    kind: type[httpx.RequestError],
) -> None:
    with pytest.raises(errors.UnreachableError, match="http://test/v1/models") as caught:
        pauses(kind("", request=REQUEST))
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"models": [3]}', b"\xff"])
def test_an_answer_of_something_else_is_an_error_of_its_own(body: bytes) -> None:
    conversation = converse(calls.models(), 3)
    next(conversation)
    with pytest.raises(errors.UnreadableAnswerError, match="http://test/v1/models"):
        conversation.send(httpx.Response(200, content=body, request=REQUEST))


@pytest.mark.parametrize("arrival", [answer(503), httpx.ConnectError("refused", request=REQUEST)])
def test_readiness_is_asked_once(arrival: Arrival) -> None:
    conversation = converse(calls.ready(strict=False), 3)
    next(conversation)
    with pytest.raises(StopIteration) as end:
        conversation.send(arrival)
    assert end.value.value is False
