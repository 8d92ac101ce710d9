"""Parsing large bodies lets the event loop run."""

import asyncio
import json
import time

import numpy as np
import pytest

from service.bodies import parse_descriptors
from service.errors import MalformedBodyError, OversizedBodyError


def test_the_event_loop_runs_while_a_large_body_is_parsed() -> None:
    body = json.dumps({"descriptors": [[0.123456] * 128] * 10_000}).encode()

    async def measure_turns() -> list[float]:
        parsing = asyncio.create_task(asyncio.to_thread(parse_descriptors, body, 20_000))
        times = [time.perf_counter()]
        while not parsing.done():
            await asyncio.sleep(0)
            times.append(time.perf_counter())
        return np.diff(times).tolist()

    # A decoder that keeps the GIL to itself holds one turn up for most of the time.
    turns = asyncio.run(measure_turns())
    assert max(turns) < sum(turns) / 2


def test_values_are_rounded_to_float32_as_numpy_does() -> None:
    values = np.random.default_rng(0).normal(size=(3, 128))
    parsed = parse_descriptors(json.dumps({"descriptors": values.tolist()}).encode(), 3)
    np.testing.assert_array_equal(parsed, values.astype(np.float32))


@pytest.mark.parametrize(
    ("item", "most", "error"),
    [(b"[]", 20_000, MalformedBodyError), (b"null", 5_000, OversizedBodyError)],
)
def test_items_are_counted_before_they_are_built(
    item: bytes, most: int, error: type[Exception]
) -> None:
    # Never closed, so that parsing it would give another error.
    body = b'{"descriptors": [' + (item + b",") * 1_000_000
    with pytest.raises(error, match=r"expected at most|the most at a time"):
        parse_descriptors(body, most)
