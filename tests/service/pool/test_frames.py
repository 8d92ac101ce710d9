"""Frames: what goes in comes out, in pieces of any size; what is no frame is rejected."""

import struct
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import STAGES, BrokenImageError, LeafcodeError
from service.errors import InvalidBodyError, SettingsError
from service.pool.frames import (
    Frame,
    FrameError,
    FrameReader,
    Kind,
    WorkTimes,
    read_frame,
    report_error,
    reported_error,
)

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
seconds = st.floats(0, 1e9)
times = st.builds(WorkTimes, seconds, st.dictionaries(st.sampled_from(STAGES), seconds))
frames = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.integers(0, 2**64 - 1),
    st.dictionaries(st.text(max_size=9), values, max_size=4),
    st.binary(max_size=300),
    st.none() | times,
)

HEADER_BYTES = 22
TIMES_BYTES = 8 * (1 + len(STAGES))


def pack(frame: Frame) -> bytes:
    return frame.head() + frame.body


@given(st.lists(frames, max_size=4), st.lists(st.integers(0, 2000), max_size=8))
def test_frames_survive_any_cut_into_pieces(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(pack, sent))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = FrameReader()
    received = [frame for start, end in pairwise(edges) for frame in reader.feed(data[start:end])]
    assert received == sent


@given(frames)
def test_a_frame_that_arrives_byte_by_byte_is_complete_with_the_last(frame: Frame) -> None:
    reader, data = FrameReader(), pack(frame)
    for i in range(len(data) - 1):
        assert reader.feed(data[i : i + 1]) == []
    assert reader.feed(data[-1:]) == [frame]


@given(st.lists(frames, max_size=3))
def test_the_blocking_reader_reads_the_same(sent: list[Frame]) -> None:
    stream = BytesIO(b"".join(map(pack, sent)))
    assert [read_frame(stream) for _ in sent] == sent
    assert read_frame(stream) is None


@given(frames, st.data())
def test_half_a_frame_is_the_end(frame: Frame, data: st.DataObject) -> None:
    whole = pack(frame)
    half = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert read_frame(BytesIO(half)) is None


@given(st.binary(max_size=400))
def test_other_bytes_are_rejected_or_read_as_the_frames_that_they_are(data: bytes) -> None:
    reader = FrameReader()
    try:
        found = reader.feed(data)
    except FrameError:
        return
    # What was understood says the same when it is written again, and nothing was invented.
    again = FrameReader()
    assert [again.feed(pack(frame)) for frame in found] == [[frame] for frame in found]
    assert sum(HEADER_BYTES + len(frame.body) for frame in found) <= len(data)


def header(kind: int = 1, n_times: int = 0, n_fields: int = 2, n_body: int = 0) -> bytes:
    return struct.pack("<BQBIQ", kind, 7, n_times, n_fields, n_body)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (header(kind=255), "unknown kind 255"),
        (header(n_fields=16_000_001), "16000001 and 0 bytes, more than any is long"),
        (header(n_body=8_000_000_001), "2 and 8000000001 bytes, more than any is long"),
        (header() + b"[]", "not an object"),
        (header() + b"{'", "not JSON"),
        (header(n_times=8, n_fields=0) + bytes(8), f"times of 8 bytes, expected {TIMES_BYTES}"),
        (header(n_times=TIMES_BYTES, n_fields=0) + b"\xff" * TIMES_BYTES, "a job that took nan s"),
    ],
    ids=["kind", "fields", "body", "array", "no-json", "few-times", "nan"],
)
def test_a_damaged_header_or_damaged_fields_are_rejected_by_both_readers(
    data: bytes, words: str
) -> None:
    with pytest.raises(FrameError, match=words):
        FrameReader().feed(data)
    with pytest.raises(FrameError, match=words):
        read_frame(BytesIO(data))


@pytest.mark.parametrize("error", [BrokenImageError("it is cut"), InvalidBodyError("no object")])
def test_errors_of_the_table_cross_with_their_message(error: LeafcodeError) -> None:
    crossed = reported_error(report_error(7, error))
    assert type(crossed) is type(error)
    assert str(crossed) == str(error)


@pytest.mark.parametrize("error", [ValueError("a secret"), SettingsError("a secret")])
def test_other_errors_cross_without_their_message(error: Exception) -> None:
    crossed = reported_error(report_error(7, error))
    assert type(crossed) is RuntimeError
    assert "secret" not in str(crossed)


def test_an_error_name_outside_the_table_is_not_looked_up() -> None:
    crossed = reported_error(Frame(Kind.FAILED, 1, {"error": "SystemExit", "message": "x"}))
    assert type(crossed) is RuntimeError
