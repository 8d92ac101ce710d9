"""Images that are too much, too little, damaged, or not what they seem."""

import base64
import functools
import json
import struct
import zlib

import numpy as np
from PIL import Image

from tests.hostile.corpus import OK, Input, Limits, kind, pick, post, rejected
from tests.hostile.threats import Threat
from tests.support import forged, pictures

Rng = np.random.Generator

BROKEN = (422, "broken-image")
NO_IMAGE = (415, "unsupported-image")
# Whatever came out of a damaged file: an image or not, but no failure.
ANY = frozenset({OK, BROKEN, NO_IMAGE})


def carriers(data: bytes, limits: Limits) -> list[bytes]:
    """The ways to send one image that are answered alike."""
    raw = [
        post("/v1/classify", data, "Content-Type: image/png"),
        post("/v1/codes", data, "Content-Type: image/jpeg"),
        post("/v2/models/apples/infer", data, "Inference-Header-Content-Length: 0"),
    ]
    if 4 * len(data) // 3 + 1_000 > limits.max_body_bytes:
        return raw
    form = b'--b\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
    form += data + b"\r\n--b--\r\n"
    document = json.dumps({"image": base64.b64encode(data).decode()}).encode()
    header = json.dumps({"inputs": [_tensor(len(data) + 4)]}).encode()
    return [
        *raw,
        post("/v1/classify", form, "Content-Type: multipart/form-data;boundary=b"),
        post("/v1/classify", document, "Content-Type: application/json"),
        post(
            "/v2/models/apples/infer",
            header + struct.pack("<I", len(data)) + data,
            f"Inference-Header-Content-Length: {len(header)}",
        ),
    ]


def _tensor(size: int) -> dict[str, object]:
    parameters = {"binary_data_size": size}
    return {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": parameters}


def sent(rng: Rng, limits: Limits, data: bytes, *expected: tuple[int, str]) -> Input:
    """An image in one of the ways to send it."""
    return Input(pick(rng, carriers(data, limits)), frozenset(expected or (BROKEN,)))


def accepted(data: bytes, twin: bytes = b"") -> Input:
    """An image that is answered with labels, those of its twin if there is one."""
    twin = post("/v1/classify", twin) if twin else b""
    return Input(post("/v1/classify", data), frozenset({OK}), twin)


def drawing(rng: Rng, mode: str = "L") -> Image.Image:
    width, height = map(int, rng.integers(30, 90, 2))
    return pictures.noise(width, height, int(rng.integers(2**31))).convert(mode)


FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def any_file(rng: Rng) -> bytes:
    """A sound image of any format."""
    mode = pick(rng, ("L", "RGB"))
    return pictures.encode(drawing(rng, mode), pick(rng, FORMATS))


def side(rng: Rng, low: int, high: int) -> int:
    return int(rng.integers(low, high))


# -- Pixels -----------------------------------------------------------------------------


@kind(Threat.MORE_PIXELS_THAN_PILLOW_ALLOWS)
def png_beyond_all_limits(rng: Rng, limits: Limits) -> Input:
    width, height = side(rng, 30_000, 2**31), side(rng, 30_000, 2**31)
    return sent(rng, limits, forged.png_claiming(width, height))


@kind(Threat.MORE_PIXELS_THAN_PILLOW_ALLOWS)
def jpeg_beyond_all_limits(rng: Rng, limits: Limits) -> Input:
    width, height = side(rng, 2**14, 65_501), side(rng, 2**14, 65_501)
    return sent(rng, limits, forged.jpeg_claiming(width, height))


@kind(Threat.MORE_PIXELS_THAN_PILLOW_ALLOWS)
def gif_beyond_all_limits(rng: Rng, limits: Limits) -> Input:
    data = bytearray(pictures.encode(drawing(rng, "P"), "GIF"))
    data[6:10] = struct.pack("<HH", side(rng, 2**14, 2**16), side(rng, 2**14, 2**16))
    return sent(rng, limits, bytes(data))


@kind(Threat.MORE_PIXELS_THAN_PILLOW_ALLOWS)
def tiff_beyond_all_limits(rng: Rng, limits: Limits) -> Input:
    size = side(rng, 20_000, 100_001), side(rng, 20_000, 100_001)
    return sent(rng, limits, forged.tiff(rng.bytes(100), size, 8, order=pick(rng, "<>")))


@kind(Threat.MORE_PIXELS_THAN_PILLOW_ALLOWS)
def bmp_beyond_all_limits(rng: Rng, limits: Limits) -> Input:
    data = bytearray(pictures.encode(drawing(rng), "BMP"))
    data[18:26] = struct.pack("<ii", side(rng, 20_001, 2**31), side(rng, 20_001, 2**31))
    return sent(rng, limits, bytes(data))


@functools.lru_cache(maxsize=4)
def _black_png(width: int) -> bytes:
    """A true PNG of one bit a pixel: a square inch of file, a field of pixels."""
    return forged.png(width, width, bytes(width * (1 + (width + 7) // 8)), depth=1)


@kind(Threat.PIXELS_THAT_PILLOW_WARNS_OF)
def small_file_of_many_pixels(rng: Rng, limits: Limits) -> Input:
    return sent(rng, limits, _black_png(pick(rng, (9_500, 13_000, 13_377))))


@kind(Threat.PIXELS_THAT_PILLOW_ACCEPTS)
def small_file_of_too_many_pixels(rng: Rng, limits: Limits) -> Input:
    return sent(rng, limits, _black_png(pick(rng, (7_100, 9_000, 9_400))))


@kind(Threat.LONG_SIDE)
def one_long_line(rng: Rng, limits: Limits) -> Input:
    size = (side(rng, 20_001, 65_000), side(rng, 1, 4))
    line = Image.new("1", pick(rng, (size, size[::-1])))
    return sent(rng, limits, pictures.encode(line, pick(rng, ("PNG", "TIFF", "BMP"))))


@kind(Threat.UNUSUAL_MODES)
def too_small_for_a_descriptor(rng: Rng, limits: Limits) -> Input:
    size = (side(rng, 1, 16), side(rng, 1, 80))
    small = Image.new("L", pick(rng, (size, size[::-1])))
    return sent(rng, limits, pictures.encode(small, pick(rng, FORMATS)))


# -- Text and scans ---------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _zeros(megabytes: int) -> bytes:
    return zlib.compress(bytes(megabytes * 2**20), 1)


_TEXTS = {b"zTXt": b"k\0\0", b"iTXt": b"k\0\x01\0\0\0", b"iCCP": b"k\0\0"}


@kind(Threat.INFLATING_TEXT)
def text_that_inflates(rng: Rng, limits: Limits) -> Input:
    name = pick(rng, _TEXTS)
    chunk = forged.png_chunk(name, _TEXTS[name] + _zeros(pick(rng, (8, 32))))
    return sent(rng, limits, forged.png(24, 24, bytes(24 * 25), chunk))


@kind(Threat.INFLATING_TEXT)
def many_texts_that_inflate(rng: Rng, limits: Limits) -> Input:
    names = (b"%d\0\0" % place for place in range(side(rng, 80, 200)))
    chunks = [forged.png_chunk(b"zTXt", name + _zeros(1)) for name in names]
    return sent(rng, limits, forged.png(24, 24, bytes(24 * 25), *chunks))


@kind(Threat.MANY_SCANS)
def jpeg_of_many_scans(rng: Rng, limits: Limits) -> Input:
    jpeg = forged.progressive_jpeg(side(rng, 24, 200))
    between = pick(rng, (b"", b"\xff", b"\xff\x01", b"\xff\xd0", forged.jpeg_segment(0xFE, b"x")))
    scans = (between + forged.last_scan(jpeg)) * side(rng, 65, 500)
    data = forged.insert_before_end(jpeg, scans)
    return sent(rng, limits, data[: limits.max_body_bytes // 2])


# -- Damage -----------------------------------------------------------------------------


@kind(Threat.TRUNCATED_IMAGE)
def truncated_image(rng: Rng, limits: Limits) -> Input:
    data = any_file(rng)
    return sent(rng, limits, data[: int(len(data) * rng.uniform(0.15, 0.9))])


@functools.lru_cache(maxsize=2)
def _half_a_png(width: int) -> bytes:
    return forged.png(width, width, bytes(width * width // 2))


@kind(Threat.TRUNCATED_IMAGE)
def large_image_that_stops(rng: Rng, limits: Limits) -> Input:
    """Nearly as many pixels as are allowed, so that they are decoded, but half of them come."""
    return sent(rng, limits, _half_a_png(pick(rng, (6_000, 7_000))))


@kind(Threat.TRUNCATED_IMAGE)
def jpeg_that_claims_more_than_it_has(rng: Rng, limits: Limits) -> Input:
    width, height = side(rng, 3_000, 7_000), side(rng, 3_000, 7_000)
    return sent(rng, limits, forged.jpeg_claiming(width, height))


@kind(Threat.TRUNCATED_IMAGE)
def signature_and_nothing_else(rng: Rng, limits: Limits) -> Input:
    signatures = (b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0", b"MM\0*")
    return sent(rng, limits, pick(rng, signatures) + bytes(side(rng, 0, 3)))


@kind(Threat.ERRORS_OF_DECODERS)
def changed_bytes(rng: Rng, limits: Limits) -> Input:
    data = bytearray(any_file(rng))
    for place in rng.integers(len(data), size=rng.integers(1, 20)):
        data[place] = rng.integers(256)
    return sent(rng, limits, bytes(data), *ANY)


@kind(Threat.ERRORS_OF_DECODERS)
def changed_header(rng: Rng, limits: Limits) -> Input:
    data = bytearray(any_file(rng))
    for place in rng.integers(min(len(data), 120), size=rng.integers(1, 5)):
        data[place] = pick(rng, (0, 1, 0x7F, 0x80, 0xFF))
    return sent(rng, limits, bytes(data), *ANY)


@kind(Threat.ERRORS_OF_DECODERS)
def repeated_piece(rng: Rng, limits: Limits) -> Input:
    data = any_file(rng)
    first, last = sorted(map(int, rng.integers(len(data), size=2)))
    piece = data[first:last] * side(rng, 0, 4)
    return sent(rng, limits, data[:first] + piece + data[last:], *ANY)


@kind(Threat.ERRORS_OF_DECODERS)
def png_with_a_wrong_checksum(rng: Rng, limits: Limits) -> Input:
    data = bytearray(forged.png(24, 24, rng.bytes(24 * 25)))
    data[pick(rng, range(16, 33))] ^= 1 << side(rng, 0, 8)
    return sent(rng, limits, bytes(data))


@kind(Threat.ERRORS_OF_DECODERS)
def tiff_of_lies(rng: Rng, limits: Limits) -> Input:
    """Counts, offsets and types at random in the directory of a sound file."""
    pixels = rng.bytes(32 * 32)
    data = bytearray(forged.tiff(pixels, (32, 32), 8))
    start = 8 + len(pixels) + 2
    for _ in range(side(rng, 1, 4)):
        entry = start + 12 * side(rng, 0, 9)
        place = entry + pick(rng, (0, 2, 4, 8))
        data[place : place + 4] = struct.pack("<I", pick(rng, (0, 1, 2**16, 2**31, 2**32 - 1)))
    return sent(rng, limits, bytes(data), *ANY)


@kind(Threat.ERRORS_OF_DECODERS)
def pixels_without_a_white(rng: Rng, limits: Limits) -> Input:
    wide = drawing(rng).convert(pick(rng, ("I", "F")))
    return sent(rng, limits, pictures.encode(wide, "TIFF"))


# -- No images --------------------------------------------------------------------------

_OTHERS = (
    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n(ls) run\n",
    b"%PDF-1.7\n",
    b"\0\0\0\x1cftypavif\0\0\0\0",
    b"P5 64 64 255\n",
    b"PK\x03\x04",
    b"\x7fELF\x02\x01\x01",
    b"#!/bin/sh\n",
    b"<!DOCTYPE html><script>alert(1)</script>",
    b"\0\0\x01\0\x01\0",
    b"8BPS\0\x01",
    b"#define x_width 16\n#define x_height 16\nstatic char x_bits[] = {\n",
)


@kind(Threat.NO_IMAGE)
def another_format(rng: Rng, limits: Limits) -> Input:
    return sent(rng, limits, pick(rng, _OTHERS) + rng.bytes(side(rng, 1, 3_000)), NO_IMAGE)


@kind(Threat.NO_IMAGE)
def damaged_heic(rng: Rng, limits: Limits) -> Input:
    """Unsupported, or broken where the extra heif is installed."""
    data = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + rng.bytes(side(rng, 1, 3_000))
    return sent(rng, limits, data, NO_IMAGE, BROKEN)


@kind(Threat.NO_IMAGE)
def random_bytes(rng: Rng, limits: Limits) -> Input:
    return sent(rng, limits, b"\xa5" + rng.bytes(side(rng, 1, 20_000)), NO_IMAGE)


@kind(Threat.EMPTY_BODY)
def no_bytes_at_all(rng: Rng, limits: Limits) -> Input:
    if rng.integers(2):
        return rejected(post("/v1/codes", b"", "Content-Type: image/png"), 400, "malformed-body")
    return rejected(post("/v1/classify", b""), 400, "no-image")


# -- Unusual, but sound -----------------------------------------------------------------


@kind(Threat.TRAILING_BYTES)
def something_behind_the_image(rng: Rng, limits: Limits) -> Input:
    image = pictures.encode(drawing(rng), pick(rng, ("PNG", "JPEG", "GIF", "WEBP")))
    tail = pick(rng, (b"<html><script>", b"PK\x03\x04")) + rng.bytes(side(rng, 0, 5_000))
    return accepted(image + tail, image)


@kind(Threat.SIXTEEN_BITS)
def sixteen_bits_a_pixel(rng: Rng, limits: Limits) -> Input:
    levels = np.asarray(drawing(rng))
    wide = Image.fromarray(levels.astype(np.uint16) * 257)
    return accepted(pictures.encode(wide, "PNG"), pictures.png(Image.fromarray(levels)))


@kind(Threat.HIDDEN_COLOUR)
def colour_behind_transparency(rng: Rng, limits: Limits) -> Input:
    hidden = drawing(rng, "RGB")
    hidden.putalpha(0)
    white = Image.new("L", hidden.size, 255)
    return accepted(pictures.encode(hidden, pick(rng, ("PNG", "TIFF"))), pictures.png(white))


_UNUSUAL = (
    *(("JPEG", "CMYK"), ("TIFF", "CMYK"), ("PNG", "P"), ("PNG", "LA"), ("PNG", "1")),
    *(("TIFF", "LAB"), ("TIFF", "YCbCr"), ("GIF", "P"), ("TIFF", "1"), ("WEBP", "RGBA")),
)


@kind(Threat.UNUSUAL_MODES)
def unusual_mode(rng: Rng, limits: Limits) -> Input:
    name, mode = pick(rng, _UNUSUAL)
    # Nothing is converted to LAB.
    bands = [drawing(np.random.default_rng(0)) for _ in mode]
    picture = Image.merge("LAB", bands) if mode == "LAB" else drawing(rng).convert(mode)
    return accepted(pictures.encode(picture, name))


@kind(Threat.UNUSUAL_MODES)
def turned_image(rng: Rng, limits: Limits) -> Input:
    picture = drawing(rng)
    number, turn = pick(rng, {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_270}.items())
    exif = Image.Exif()
    exif[0x0112] = number
    turned = pictures.png(picture.transpose(turn))
    return accepted(pictures.encode(picture, "PNG", exif=exif), turned)


@kind(Threat.ANIMATED)
def animated_image(rng: Rng, limits: Limits) -> Input:
    first = drawing(rng)
    others = [Image.new("L", first.size, level) for level in (0, 255)]
    frames = pictures.encode(first, pick(rng, ("PNG", "TIFF")), save_all=True, append_images=others)
    return accepted(frames, pictures.png(first))
