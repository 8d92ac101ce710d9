"""Image files built byte by byte, for what no encoder would write."""

import struct
import zlib

import numpy as np
from PIL import Image

from tests.support.samples import encoded

__all__ = [
    "insert_before_end",
    "jpeg_claiming",
    "jpeg_segment",
    "last_scan",
    "png",
    "png_chunk",
    "png_claiming",
    "progressive_jpeg",
    "tiff",
]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes, *extra: bytes, depth: int = 8) -> bytes:
    """A grey PNG; `rows` start with their filter byte, `extra` chunks precede the pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    chunks = [
        png_chunk(b"IHDR", header),
        *extra,
        png_chunk(b"IDAT", zlib.compress(rows)),
        png_chunk(b"IEND", b""),
    ]
    return _SIGNATURE + b"".join(chunks)


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header promises far more pixels than follow."""
    return png(width, height, b"\0" * 100)


def tiff(
    pixels: bytes,
    size: tuple[int, int],
    bits: int,
    *,
    order: str = "<",
    white_is_zero: bool = False,
) -> bytes:
    """An uncompressed grey TIFF with one strip; `order` is "<" or ">" as in struct."""
    long, short = 4, 3
    entries = [
        (256, long, size[0]),
        (257, long, size[1]),
        (258, short, bits),
        (259, short, 1),
        (262, short, 0 if white_is_zero else 1),
        (273, long, 8),
        (277, short, 1),
        (278, long, size[1]),
        (279, long, len(pixels)),
    ]
    mark = b"II*\0" if order == "<" else b"MM\0*"
    directory = struct.pack(order + "H", len(entries))
    for tag, kind, value in entries:
        field = struct.pack(order + "HH", value, 0) if kind == short else b""
        field = field or struct.pack(order + "I", value)
        directory += struct.pack(order + "HHI", tag, kind, 1) + field
    offset = struct.pack(order + "I", 8 + len(pixels))
    return mark + offset + pixels + directory + bytes(4)


def progressive_jpeg(side: int = 48) -> bytes:
    pixels = np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)
    return encoded(Image.fromarray(pixels), "JPEG", progressive=True)


def last_scan(jpeg: bytes) -> bytes:
    """The bytes from the last start of scan up to the end of the image."""
    return jpeg[jpeg.rindex(b"\xff\xda") : -2]


def insert_before_end(jpeg: bytes, extra: bytes) -> bytes:
    return jpeg[:-2] + extra + jpeg[-2:]


def jpeg_segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg_claiming(width: int, height: int) -> bytes:
    """A small JPEG whose header promises another size."""
    jpeg = encoded(Image.new("RGB", (24, 24), "red"), "JPEG")
    frame = jpeg.index(b"\xff\xc0")
    return jpeg[: frame + 5] + struct.pack(">HH", height, width) + jpeg[frame + 9 :]
