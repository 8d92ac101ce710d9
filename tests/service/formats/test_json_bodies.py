"""Numbers out of JSON."""

import json

import numpy as np
import pytest

from service.errors import MalformedBodyError, OversizedBodyError
from service.formats.json_bodies import parse_descriptors


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
