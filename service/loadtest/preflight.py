"""One request before the load, so that a mistake is told in a sentence and not by a table."""

import json
from contextlib import suppress
from dataclasses import replace

from service.loadtest.errors import LoadTestError
from service.loadtest.generator import Generator
from service.loadtest.load import UNANSWERED, Exchange
from service.loadtest.request import Target

__all__ = ["check_service"]

# What services without such a key and services of another kind answer.
_NO_KEY, _NO_ROUTE = (401, 403), (404, 405)
# What is wrong with this very request. An image that is none is one of many, so its rejection
# is counted like any other answer; descriptors are all alike.
_BAD_REQUEST = (400, 413, 415, 422)


def check_service(generator: Generator, target: Target, request: bytes, *, all_alike: bool) -> None:
    """Send one request; raise `LoadTestError` if the others cannot fare better."""
    load = replace(generator, keep_bodies=True, watch=None).closed_loop([request], 1)
    (answer,) = load.exchanges
    path = request.split(b" ", 2)[1].decode()
    if answer.status == UNANSWERED:
        raise LoadTestError(_no_answer(target, answer.reason, generator.timeout))
    if answer.status in _NO_KEY:
        raise LoadTestError(
            f"{target} rejects the key with status {answer.status}{_detail(answer)}; "
            "--api-key-file names a file with one that it takes"
        )
    if answer.status in _NO_ROUTE:
        found = f"POST {path} was answered with status {answer.status}"
        raise LoadTestError(f"{target} is no Leafcode service: {found}")
    if all_alike and answer.status in _BAD_REQUEST:
        raise LoadTestError(
            f"{target} rejects such requests with status {answer.status}{_detail(answer)}"
        )


def _no_answer(target: Target, reason: str, timeout: float) -> str:
    return {
        "no HTTP": f"{target} does not speak HTTP",
        "connection closed": f"{target} closed the connection without an answer",
        "timed out": f"{target} did not answer within {timeout:g} s",
    }.get(reason, f"{target} cannot be reached: {reason}")


def _detail(answer: Exchange) -> str:
    with suppress(ValueError, AttributeError):
        return f" ({json.loads(answer.body).get('detail', '')})"
    return ""
