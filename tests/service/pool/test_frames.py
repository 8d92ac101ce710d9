"""Frames: what goes in comes out, in pieces of any size; what is no frame is refused."""

import contextlib
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import BrokenImageError, LeafcodeError
from service.errors import InvalidBodyError, SettingsError
from service.pool.frames import Frame, FrameReader, Kind, WireError, failed, failure, read_frame

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
frames = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.integers(0, 2**64 - 1),
    st.dictionaries(st.text(max_size=9), values, max_size=4),
    st.binary(max_size=300),
)


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
def test_other_bytes_are_refused_in_one_way_only(data: bytes) -> None:
    with contextlib.suppress(WireError):
        FrameReader().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" + bytes(20),
        b"\x01" + bytes(8) + b"\xff" * 4 + bytes(8),
        b"\x01" + bytes(12) + b"\xff" * 8,
        b"\x01" + bytes(8) + b"\x02\0\0\0" + bytes(8) + b"[]",
        b"\x01" + bytes(8) + b"\x02\0\0\0" + bytes(8) + b"{'",
    ],
)
def test_a_damaged_header_or_damaged_fields_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        FrameReader().feed(data)


@pytest.mark.parametrize("error", [BrokenImageError("it is cut"), InvalidBodyError("no object")])
def test_errors_of_the_table_cross_with_their_message(error: LeafcodeError) -> None:
    crossed = failure(failed(7, error))
    assert type(crossed) is type(error)
    assert str(crossed) == str(error)


@pytest.mark.parametrize("error", [ValueError("a secret"), SettingsError("a secret")])
def test_other_errors_cross_without_their_message(error: Exception) -> None:
    crossed = failure(failed(7, error))
    assert type(crossed) is RuntimeError
    assert "secret" not in str(crossed)


def test_an_error_name_outside_the_table_is_not_looked_up() -> None:
    crossed = failure(Frame(Kind.FAILED, 1, {"error": "SystemExit", "message": "x"}))
    assert type(crossed) is RuntimeError
