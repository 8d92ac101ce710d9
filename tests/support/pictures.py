"""Encoded images for tests, made by Pillow from arrays of a known content."""

import functools
import zlib
from io import BytesIO

import numpy as np
from PIL import Image

from service.engine.arrays import UInt8Array


def noise(width: int = 64, height: int = 48, seed: int = 0) -> Image.Image:
    """Coarse random grey blotches: every part has gradients."""
    rng = np.random.default_rng(seed)
    coarse: UInt8Array = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def disc(width: int = 64, height: int = 64) -> Image.Image:
    """A red disc on white."""
    y, x = np.mgrid[:height, :width]
    radius = min(width, height) / 3
    inside = (x - width / 2) ** 2 + (y - height / 2) ** 2 < radius**2
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[inside] = (200, 30, 30)
    return Image.fromarray(pixels)


def blank(width: int = 64, height: int = 48) -> Image.Image:
    """Nothing but red."""
    return Image.new("RGB", (width, height), (200, 30, 30))


def encode(picture: Image.Image, kind: str, **options: object) -> bytes:
    """The picture as bytes in one of Pillow's formats."""
    stream = BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def png(picture: Image.Image | None = None) -> bytes:
    """A PNG of `picture`, or of some noise."""
    return encode(picture or noise(), "PNG")


def jpeg(picture: Image.Image | None = None) -> bytes:
    """A JPEG of `picture`, or of some noise."""
    return encode(picture or noise(), "JPEG", quality=90)


def truncated_jpeg() -> bytes:
    """A JPEG whose second half never arrived."""
    data = jpeg(noise(200, 150))
    return data[: len(data) // 2]


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds no pixels: limits must act on the header."""
    data = bytearray(png(noise(32, 32)))
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


@functools.cache
def telephone_jpeg() -> bytes:
    """A JPEG of 108 million pixels, 12000x9000: blotches that do not shrink to nothing."""
    coarse = np.random.default_rng(7).integers(0, 256, (45, 60), dtype=np.uint8)
    return encode(Image.fromarray(np.repeat(np.repeat(coarse, 200, 0), 200, 1)), "JPEG", quality=50)
