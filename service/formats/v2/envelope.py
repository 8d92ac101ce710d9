"""What an inference request is wrapped in: compression, and JSON with tensors behind it.

The header `Inference-Header-Content-Length` says where the JSON ends, counted after
decompression. Zero means that there is none: the body is one image, as in
`curl --data-binary @cat.jpg`.
"""

import re
import zlib
from dataclasses import dataclass

from service.errors import MalformedBodyError, OversizedBodyError, UnsupportedBodyError

__all__ = ["HEADER_LENGTH", "Envelope", "inflate", "unwrap"]

HEADER_LENGTH = "Inference-Header-Content-Length"

_LENGTH = re.compile(r"[0-9]{1,15}")
_QUOTED_LENGTH = 40
# Either a gzip or a zlib header, which is what HTTP means by deflate.
_GZIP_OR_ZLIB = zlib.MAX_WBITS + 32


@dataclass(frozen=True)
class Envelope:
    """The JSON and what follows it; without JSON, all of it is one image."""

    header: bytes | None
    tail: memoryview


def inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body before its `Content-Encoding`; never makes more than `max_bytes`."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedBodyError(
            f"the content encoding is {encoding[:_QUOTED_LENGTH]!r}, expected gzip or deflate"
        )
    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        plain = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise MalformedBodyError(f"the body is not {encoding}: {error}") from error
    if len(plain) > max_bytes:
        del plain, stream, body  # the error keeps this frame for a while, and all that is in it
        raise OversizedBodyError(
            f"the decompressed body has more bytes than {max_bytes}, the most at a time"
        )
    if not stream.eof or stream.unused_data:
        found = "goes on behind" if stream.eof else "stops before"
        del plain, stream, body
        raise MalformedBodyError(f"the body {found} the end of its {encoding} stream")
    return plain


def unwrap(body: bytes, stated: str | None) -> Envelope:
    """The parts of a body; `stated` is the value of the header that tells them apart."""
    view = memoryview(body)
    if stated is None:
        return Envelope(body, view[len(body) :])
    if not _LENGTH.fullmatch(stated):
        raise MalformedBodyError(
            f"{HEADER_LENGTH} is {stated[:_QUOTED_LENGTH]!r}, expected a whole number"
        )
    length = int(stated)
    if length > len(body):
        raise MalformedBodyError(
            f"{HEADER_LENGTH} is {length}, but the body has only {len(body)} bytes"
        )
    if length == 0:
        return Envelope(None, view)
    return Envelope(body[:length], view[length:])
