"""Compressed bodies, and what is left of those that are rejected."""

import gzip
import os
from types import TracebackType

import pytest

from service.engine import LeafcodeError
from service.formats.v2.envelope import inflate

MEGABYTE = 1_000_000
NOISE = os.urandom(2 * MEGABYTE)


def kept_by(trace: TracebackType | None) -> int:
    """Bytes that the frames of an error refer to, those of the test left out."""
    kept = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != __file__:
            values = trace.tb_frame.f_locals.values()
            kept += sum(len(value) for value in values if isinstance(value, bytes))
        trace = trace.tb_next
    return kept


@pytest.mark.parametrize(
    "body",
    [gzip.compress(bytes(50 * MEGABYTE), 1, mtime=0), gzip.compress(NOISE, 1, mtime=0)[:-1]],
    ids=["bomb", "cut short"],
)
def test_the_error_of_a_compressed_body_keeps_nothing_of_it(body: bytes) -> None:
    """It is kept for a while with its frames, and a dozen bombs were 300 MB."""
    with pytest.raises(LeafcodeError) as raised:
        inflate(body, "gzip", 25 * MEGABYTE)
    assert kept_by(raised.value.__traceback__) < 1_000
