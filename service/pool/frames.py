"""Frames between the service and its workers: a fixed header, times, small fields, raw bytes.

    kind u8 | job u64 | size of times u8 | size of fields u32 | size of body u64
    times (float64: in all, then by stage) | fields (JSON) | body

All little-endian. Fields are a JSON object of plain values, nothing if there are none; the
body is an image, an array or a finished answer. Only answers have times, and most have no
fields: the front end then needs no JSON, whose code is cold in the processor's caches again
for every answer (8 % of its CPU). Nothing here executes, and errors cross as names of a closed
table, so that a worker which was taken over by an image cannot reach the service.
"""

import math
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from pydantic_core import from_json, to_json

from service import engine, errors
from service.engine import LeafcodeError

__all__ = [
    "Fields",
    "Frame",
    "FrameError",
    "FrameReader",
    "Kind",
    "WorkTimes",
    "read_frame",
    "report_error",
    "reported_error",
]

Fields = Mapping[str, Any]  # what JSON holds

_HEADER = struct.Struct("<BQBIQ")
_TIMES = struct.Struct(f"<{1 + len(engine.STAGES)}d")
_MAX_FIELD_BYTES = 16_000_000
_MAX_BODY_BYTES = 8_000_000_000

_ERRORS: dict[str, type[LeafcodeError]] = {
    kind.__name__: kind
    for kind in (
        engine.BrokenImageError,
        engine.BundleError,
        engine.DescriptorError,
        engine.EmptyImageError,
        engine.LabelError,
        engine.OversizedImageError,
        engine.UnreadableBundleError,
        engine.UnsupportedImageError,
        errors.DeadlineError,
        errors.InvalidBodyError,
        errors.MalformedBodyError,
        errors.OversizedBodyError,
        errors.UnknownModelError,
    )
}


class Kind(IntEnum):
    """What a frame asks for, or how it was answered."""

    LOAD = 1
    UNLOAD = 2
    PING = 3
    CLASSIFY = 4
    WRITE_CODES = 5
    INFER_IMAGE = 6
    INFER_DESCRIPTORS = 7
    INFER_JSON = 8
    WRITE_DICTIONARY = 9
    EXPLAIN = 10
    DONE = 20
    FAILED = 21


_KINDS = {int(kind): kind for kind in Kind}


class Stream(Protocol):
    """A blocking, buffered stream: less than asked for means that the other side is gone."""

    def read(self, n: int, /) -> bytes:
        """The next n bytes."""


class FrameError(Exception):
    """Bytes that are not a frame: the other side is broken."""


class WorkTimes(NamedTuple):
    """How long a worker took for a job, in seconds."""

    total: float
    stages: Mapping[str, float]
    """Those of `service.engine.STAGES` that ran."""


class Frame(NamedTuple):
    """One message; an answer carries the job of its question."""

    kind: Kind
    job: int
    fields: Fields
    body: bytes | memoryview = b""
    times: WorkTimes | None = None

    def head(self) -> bytes:
        """Everything before the body."""
        times = b"" if self.times is None else _pack_times(self.times)
        fields = to_json(self.fields) if self.fields else b""
        sizes = (len(times), len(fields), len(self.body))
        return b"".join((_HEADER.pack(self.kind, self.job, *sizes), times, fields))


class FrameReader:
    """Frames out of bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        if self._buffer:
            self._buffer += data
            with memoryview(self._buffer) as view:
                frames, end = _parse_frames(view)
            del self._buffer[:end]
        else:
            # Most often one whole frame, so that nothing is kept.
            frames, end = _parse_frames(data)
            if end < len(data):
                self._buffer += memoryview(data)[end:]
        return frames


def _parse_frames(data: bytes | memoryview) -> tuple[list[Frame], int]:
    """The frames that are complete, and where the last of them ends."""
    frames, end, size = [], 0, len(data)
    while size - end >= _HEADER.size:
        header = _parse_header(data, end)
        times = end + _HEADER.size
        fields = times + header.n_times
        body = fields + header.n_fields
        if size < body + header.n_body:
            break
        end = body + header.n_body
        parts = (bytes(data[times:fields]), bytes(data[fields:body]), bytes(data[body:end]))
        frames.append(_frame(header, *parts))
    return frames, end


def read_frame(stream: Stream) -> Frame | None:
    """The next frame; None once the other side is gone."""
    head = stream.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    header = _parse_header(head)
    sizes = (header.n_times, header.n_fields, header.n_body)
    parts = [stream.read(size) for size in sizes]
    if any(len(part) < size for part, size in zip(parts, sizes, strict=True)):
        return None
    return _frame(header, *parts)


def report_error(job: int, error: Exception) -> Frame:
    """The answer that reports an error; one that is not in the table crosses without its text."""
    name = type(error).__name__
    fields = {"error": name, "message": str(error)} if _ERRORS.get(name) is type(error) else {}
    return Frame(Kind.FAILED, job, fields)


def reported_error(frame: Frame) -> Exception:
    """The error that a FAILED frame reports."""
    kind = _ERRORS.get(str(frame.fields.get("error")))
    if kind is None:
        return RuntimeError("a worker failed unexpectedly; its traceback is in the log")
    return kind(str(frame.fields.get("message")))


class _Header(NamedTuple):
    kind: int
    job: int
    n_times: int
    n_fields: int
    n_body: int


def _parse_header(data: bytes | memoryview, start: int = 0) -> _Header:
    header = _Header._make(_HEADER.unpack_from(data, start))
    if header.n_fields > _MAX_FIELD_BYTES or header.n_body > _MAX_BODY_BYTES:
        sizes = f"{header.n_fields} and {header.n_body} bytes"
        raise FrameError(f"a frame of {sizes}, more than any is long")
    if header.kind not in _KINDS:
        raise FrameError(f"a frame of unknown kind {header.kind}")
    return header


def _frame(header: _Header, times: bytes, fields: bytes, body: bytes) -> Frame:
    return Frame(
        _KINDS[header.kind],
        header.job,
        _parse_fields(fields) if fields else {},
        body,
        _unpack_times(times) if times else None,
    )


def _pack_times(times: WorkTimes) -> bytes:
    """NaN stands for stages that did not run."""
    stages = [times.stages.get(stage, math.nan) for stage in engine.STAGES]
    return _TIMES.pack(times.total, *stages)


def _unpack_times(data: bytes) -> WorkTimes:
    if len(data) != _TIMES.size:
        raise FrameError(f"times of {len(data)} bytes, expected {_TIMES.size}")
    total, *seconds = _TIMES.unpack(data)
    if not 0 <= total < math.inf:
        raise FrameError(f"a job that took {total} s")
    pairs = zip(engine.STAGES, seconds, strict=True)
    return WorkTimes(total, {stage: value for stage, value in pairs if 0 <= value < math.inf})


def _parse_fields(data: bytes) -> Fields:
    try:
        fields = from_json(data)
    except ValueError as error:
        raise FrameError(f"fields that are not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FrameError("fields that are not an object")
    return fields
