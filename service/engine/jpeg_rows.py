"""The first rows of a JPEG, told of while the others are still being decoded.

Pillow hands a JPEG to its decoder in blocks of bytes, and the decoder fills rows from the top as
far as the bytes go. Those of a grey image can be seen to come in memory of ours, by processors
whose stores are seen in their order. Of all others, the rows that are there can be read between
two blocks.
"""

import platform
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, JpegImagePlugin

from service.engine.arrays import Float32Array, UInt8Array, frozen
from service.engine.kernels.strips import NOT_DECODING, Decoding

__all__ = ["PIXEL_SCALE", "JpegRows", "OnRows", "load_at_once", "own_pixels", "rows_of"]

# What is told of rows: the grey image (h, w), how many of its rows, from the top, are there, and
# how to see others come. They are filled later, in the same array. The first time, none is there.
OnRows = Callable[[Float32Array, int, Decoding], None]

# Where a row has begun, those above it are complete: of x86, also where it is emulated.
_STORES_IN_ORDER = platform.machine().lower() in {"x86_64", "amd64"}

# What a grey level of 255 becomes one by.
PIXEL_SCALE = 1 / 255

# The part of the bytes after which rows are looked for, and again if as much, or a block of
# Pillow's, is left. Each time takes .07 ms: with .4 a photograph took 4 % longer on two cores, with
# .2 and .3 as long.
_SHARE = 0.22

_START_OF_SCAN = b"\xff\xda"


def own_pixels(picture: JpegImagePlugin.JpegImageFile) -> UInt8Array:
    """Pixels (h, w) that a JPEG without colours, which is not loaded yet, will be decoded into.

    Pillow makes memory for an image if it has none. To copy its own takes a tenth of decoding.
    """
    width, height = picture.size
    pixels = np.zeros((height, width), np.uint8)
    # What `Image.frombuffer` ends in, after it has made and dropped another image.
    core: Any = Image.core  # type: ignore[attr-defined]
    picture.im = core.map_buffer(pixels, (width, height), "raw", 0, ("L", 0, 1))
    return pixels


def load_at_once(picture: JpegImagePlugin.JpegImageFile) -> None:
    """Decode a JPEG by one call of its decoder, which has all bytes already, not by 64 kB each."""
    picture.decodermaxblock = max(len(_bytes_of(picture)), picture.decodermaxblock)
    picture.load()


def _bytes_of(picture: JpegImagePlugin.JpegImageFile) -> bytes:
    assert isinstance(picture.fp, BytesIO)  # noqa: S101  # it was opened so, and is not loaded yet
    return picture.fp.getvalue()


def rows_of(picture: JpegImagePlugin.JpegImageFile, rows: slice) -> Image.Image:
    """A copy of some rows of a JPEG that is being loaded."""
    box = (0, rows.start, picture.width, rows.stop)
    # Not by `crop`, which would load the image, as is being done.
    return picture._new(picture.im.crop(box))  # noqa: SLF001


class JpegRows:
    """A JPEG that is not loaded yet, and that is not to be scaled or turned.

    `fill_rows` fills the grey values of some of its rows, which are decoded, into (rows, w).
    `pixels` are those that a JPEG without colours is decoded into.
    """

    def __init__(
        self,
        picture: JpegImagePlugin.JpegImageFile,
        fill_rows: Callable[[slice, Float32Array], object],
        on_rows: OnRows,
        pixels: UInt8Array | None,
    ) -> None:
        self._picture, self._fill_rows, self._on_rows = picture, fill_rows, on_rows
        self._gray = np.empty((picture.height, picture.width), np.float32)
        self._rows, self._decoding = 0, NOT_DECODING
        if pixels is not None and _STORES_IN_ORDER:
            self._decoding = Decoding(frozen(pixels), self._gray, PIXEL_SCALE)
        self._read, self._first, self._block = picture.load_read, 0, 0

    def load(self) -> Float32Array:
        """Decode the image; the whole of it in grey."""
        self._on_rows(self._gray, 0, self._decoding)
        if self._decoding is NOT_DECODING:
            self._load_and_look()
        else:
            load_at_once(self._picture)
        self._fill(self._picture.height)
        return self._gray

    def _load_and_look(self) -> None:
        self._first, self._block = _block_sizes(self._picture)
        overridden: Any = self._picture
        overridden.load_read = self._read_block
        try:
            self._picture.load()
        finally:
            # Image and method would refer to each other, and their memory would stay for a while.
            del overridden.load_read

    def _read_block(self, size: int) -> bytes:
        """The next block of bytes, for the decoder, which has been given the previous one."""
        if self._first:
            first, self._first = self._first, 0
            return self._read(first)
        self._look()
        return self._read(max(size, self._block))

    def _look(self) -> None:
        # Memory for an image is of zeros at first. Rows of zeros, which may be black or still to
        # come, count as still to come.
        box = self._picture.im.getbbox()
        if box is not None and box[3] > self._rows:
            self._fill(box[3])
            self._on_rows(self._gray, self._rows, self._decoding)

    def _fill(self, rows: int) -> None:
        if rows > self._rows:
            new = slice(self._rows, rows)
            self._fill_rows(new, self._gray[new])
            self._rows = rows


def _block_sizes(picture: JpegImagePlugin.JpegImageFile) -> tuple[int, int]:
    """How many bytes to decode first, and how many at a time, at the least, afterwards.

    The first time, those before the first scan come on top.
    """
    data = _bytes_of(picture)
    start = max(data.find(_START_OF_SCAN), 0)
    block = max(int(_SHARE * (len(data) - start)), 1)
    return start + block, block
