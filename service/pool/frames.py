"""Frames between the service and its workers: a fixed header, small fields, raw bytes.

    kind u8 | job u64 | size of fields u32 | size of body u64 | fields (JSON) | body

All little-endian. Fields are a JSON object of plain values; the body is an image, an
array or a finished answer. Nothing here executes, and errors cross as names of a closed
table, so that a worker which was taken over by an image cannot reach the service.
"""

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
    "read_frame",
    "report_error",
    "reported_error",
]

Fields = Mapping[str, Any]  # what JSON holds

_HEADER = struct.Struct("<BQIQ")
_MAX_FIELD_BYTES = 16_000_000
_MAX_BODY_BYTES = 8_000_000_000

_ERRORS: dict[str, type[LeafcodeError]] = {
    kind.__name__: kind
    for kind in (
        engine.BrokenImageError,
        engine.BundleError,
        engine.DescriptorError,
        engine.EmptyImageError,
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
    DONE = 20
    FAILED = 21


_KINDS = {int(kind): kind for kind in Kind}


class Stream(Protocol):
    """A blocking, buffered stream: less than asked for means that the other side is gone."""

    def read(self, n: int, /) -> bytes:
        """The next n bytes."""


class FrameError(Exception):
    """Bytes that are not a frame: the other side is broken."""


class Frame(NamedTuple):
    """One message; an answer carries the job of its question."""

    kind: Kind
    job: int
    fields: Fields
    body: bytes | memoryview = b""

    def head(self) -> bytes:
        """Everything before the body."""
        fields = to_json(self.fields)
        return _HEADER.pack(self.kind, self.job, len(fields), len(self.body)) + fields


class FrameReader:
    """Frames out of bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        if self._buffer:
            self._buffer += data
            frames, end = _parse_frames(self._buffer)
            del self._buffer[:end]
        else:
            # Most often one whole frame, so that nothing is kept.
            frames, end = _parse_frames(data)
            if end < len(data):
                self._buffer += memoryview(data)[end:]
        return frames


def _parse_frames(data: bytes | bytearray) -> tuple[list[Frame], int]:
    """The frames that are complete, and where the last of them ends."""
    frames, end, size = [], 0, len(data)
    with memoryview(data) as view:
        while size - end >= _HEADER.size:
            kind, job, n_fields, n_body = _parse_header(data, end)
            body = end + _HEADER.size + n_fields
            if size < body + n_body:
                break
            fields = _parse_fields(bytes(view[end + _HEADER.size : body]))
            end = body + n_body
            frames.append(Frame(kind, job, fields, bytes(view[body:end])))
    return frames, end


def read_frame(stream: Stream) -> Frame | None:
    """The next frame; None once the other side is gone."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    kind, job, n_fields, n_body = _parse_header(header)
    fields, body = stream.read(n_fields), stream.read(n_body)
    if len(fields) < n_fields or len(body) < n_body:
        return None
    return Frame(kind, job, _parse_fields(fields), body)


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


def _parse_header(data: bytes | bytearray, start: int = 0) -> tuple[Kind, int, int, int]:
    number, job, n_fields, n_body = _HEADER.unpack_from(data, start)
    if n_fields > _MAX_FIELD_BYTES or n_body > _MAX_BODY_BYTES:
        raise FrameError(f"a frame of {n_fields} and {n_body} bytes, more than any is long")
    kind = _KINDS.get(number)
    if kind is None:
        raise FrameError(f"a frame of unknown kind {number}")
    return kind, job, n_fields, n_body


def _parse_fields(data: bytes) -> Fields:
    try:
        fields = from_json(data)
    except ValueError as error:
        raise FrameError(f"fields that are not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FrameError("fields that are not an object")
    return fields
