"""Encoded bytes of an image to grey float32 in [0, 1], and to colours where these are asked for.

The only place that hands bytes from outside to a decoder. Formats are an explicit
list, every limit is checked from the header before pixels are allocated, and whatever
a decoder throws at damaged bytes becomes an `ImageError`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TypeGuard, TypeVar

import numpy as np
from PIL import Image, JpegImagePlugin, TiffImagePlugin, UnidentifiedImageError

from service.engine.arrays import Float32Array, UInt8Array, frozen
from service.engine.config import COLOUR_REDUCTION
from service.engine.errors import (
    BrokenImageError,
    EmptyImageError,
    ImageError,
    OversizedImageError,
    UnsupportedImageError,
)
from service.engine.image_formats import WITHOUT_HEIF, has_signature, is_heif, readable_formats
from service.engine.image_limits import ImageLimits
from service.engine.jpeg_bytes import check_length, check_scans, is_decoded_in_rows
from service.engine.jpeg_rows import (
    PIXEL_SCALE,
    JpegRows,
    OnRows,
    load_at_once,
    own_pixels,
    rows_of,
)
from service.engine.kernels.copies import has_contrast, scale_pixels

__all__ = ["Picture", "decode", "decode_picture", "decode_rgb", "stated_size"]

Pixels = TypeVar("Pixels")

_USUAL_LIMITS = ImageLimits()

# Transparent pixels show this grey level: white, as on a page.
_BACKGROUND = 255

# While it is decoded: four channels, and a copy in one.
_BYTES_PER_PIXEL = 5

# One colour comes out of a JPEG as it was, out of WebP with up to three levels of 255 between.
_LEAST_CONTRAST = 4 / 255

_ORIENTATION_TAG = 0x0112
# Where Pillow looks for the orientation of a JPEG.
_EXIF = {"exif", "xmp"}
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_JPEG_SIGNATURE = b"\xff\xd8\xff"
_BITS_PER_SAMPLE_TAG, _PHOTOMETRIC_TAG = 258, 262


@dataclass(frozen=True)
class Picture:
    """An image at working size: gray (h, w) in [0, 1] and its colours: Y, Cb and Cr.

    Colours (⌊h / 2⌋, ⌊w / 2⌋, 3) are those of the image at half of its working size. An image
    without colours, or one whose colours nobody asked for, has None.
    """

    gray: Float32Array
    colours: UInt8Array | None = None

    @property
    def is_blank(self) -> bool:
        """Whether nothing is to be seen but one grey value, as far as coding may blur it."""
        return not has_contrast(frozen(self.gray), _LEAST_CONTRAST)

    def mirrored(self) -> "Picture":
        """The picture with left and right exchanged."""
        colours = None if self.colours is None else np.ascontiguousarray(self.colours[:, ::-1])
        return Picture(np.ascontiguousarray(self.gray[:, ::-1]), colours)


def decode(
    data: bytes,
    max_side: int,
    limits: ImageLimits | None = None,
    on_rows: OnRows | None = None,
) -> Float32Array:
    """Grey image (h, w) with EXIF orientation applied and sides of at most `max_side`.

    Only the first frame of an animation is read; transparency shows white. Raises an
    `ImageError`, or `MemoryError` where there is no memory for an image that `limits` allow.
    `on_rows` is told of the first rows of some images before the others are decoded.
    """
    return _decode(data, limits, partial(_to_gray, max_side=max_side, on_rows=on_rows))


def decode_picture(
    data: bytes,
    max_side: int,
    limits: ImageLimits | None = None,
    on_rows: OnRows | None = None,
) -> Picture:
    """The image of `decode` with its colours."""
    return _decode(data, limits, partial(_to_picture, max_side=max_side, on_rows=on_rows))


def decode_rgb(data: bytes, max_side: int, limits: ImageLimits | None = None) -> UInt8Array:
    """The image of `decode` in red, green and blue, (h, w, 3), to be looked at."""
    return _decode(data, limits, partial(_to_rgb, max_side=max_side))


def stated_size(data: bytes) -> tuple[int, int]:
    """Width and height by the header of an image that can be decoded; no pixels are allocated."""
    with _open(data) as picture:
        return picture.size


def _decode(
    data: bytes, limits: ImageLimits | None, read: Callable[[Image.Image, ImageLimits], Pixels]
) -> Pixels:
    limits = limits or _USUAL_LIMITS
    _check_bytes(data, limits)
    try:
        with _open(data) as picture:
            _check_header(picture, data, limits)
            return read(picture, limits)
    except ImageError:
        raise
    except MemoryError as error:
        # Damaged images ask for absurd amounts; any image is innocent where memory is short.
        np.empty(_BYTES_PER_PIXEL * limits.max_pixels, np.uint8)
        raise BrokenImageError("the image is damaged: it asks for too much memory") from error
    except UnidentifiedImageError as error:
        if has_signature(data):
            raise BrokenImageError("the image is damaged or truncated in its header") from error
        raise UnsupportedImageError(_unsupported(data)) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BrokenImageError(f"the image has too many pixels: {error}") from error
    except Exception as error:
        # Pillow's decoders raise OSError, ValueError, SyntaxError, struct.error, EOFError,
        # KeyError and more on damaged bytes; a bad image is the sender's error, always.
        raise BrokenImageError(
            f"the image is damaged or truncated: {error or type(error).__name__}"
        ) from error


def _open(data: bytes) -> Image.Image:
    if data.startswith(_JPEG_SIGNATURE):
        # By another way Pillow warns of more than 89 million pixels and rejects twice as many,
        # of which a telephone's JPEG is decoded at a sixty-fourth; or it looks for further images.
        return JpegImagePlugin.JpegImageFile(BytesIO(data))
    return Image.open(BytesIO(data), formats=readable_formats())


def _unsupported(data: bytes) -> str:
    expected = f"expected one of {', '.join(readable_formats())}"
    if is_heif(data):
        return f"the {len(data)} bytes are a HEIC image, {expected}. {WITHOUT_HEIF}"
    return f"the {len(data)} bytes are not an image in a format that is read here, {expected}"


def _check_bytes(data: bytes, limits: ImageLimits) -> None:
    if not data:
        raise EmptyImageError("the image has no bytes, expected an encoded image")
    if len(data) > limits.max_bytes:
        raise OversizedImageError(
            f"the image has {len(data)} bytes, expected at most {limits.max_bytes}"
        )


def _check_header(picture: Image.Image, data: bytes, limits: ImageLimits) -> None:
    if not isinstance(picture, JpegImagePlugin.JpegImageFile):
        _check_size(picture.size, limits)
        return
    is_large = picture.width * picture.height > limits.max_pixels
    if max(picture.size) > limits.max_side or (is_large and not is_decoded_in_rows(data)):
        _check_size(picture.size, limits)
    check_length(data, picture.size)
    check_scans(data)


def _check_size(size: tuple[int, int], limits: ImageLimits) -> None:
    if size[0] * size[1] > limits.max_pixels or max(size) > limits.max_side:
        raise BrokenImageError(
            f"the image is {size[0]}x{size[1]} pixels, expected at most {limits.max_pixels} "
            f"pixels and no side over {limits.max_side}"
        )


def _to_gray(
    picture: Image.Image, limits: ImageLimits, max_side: int, on_rows: OnRows | None
) -> Float32Array:
    target = _fit(picture.size, max_side)
    gray = _load(picture, "L", target, limits, on_rows)
    return _gray_at(target, picture) if gray is None else gray


def _load(
    picture: Image.Image,
    mode: str,
    target: tuple[int, int],
    limits: ImageLimits,
    on_rows: OnRows | None = None,
) -> Float32Array | None:
    """Decode a JPEG straight to `mode` and to the smallest size above the target, others as is.

    A JPEG's limit of pixels is for those that are allocated. Returns the grey image of a JPEG that
    is neither scaled nor turned, if `on_rows` was told of its rows or if it has no colours.
    """
    picture.draft(mode, target)
    _check_size(picture.size, limits)
    if picture.size != target or not _is_upright_jpeg(picture):
        picture.load()
        return None
    pixels = own_pixels(picture) if picture.mode == "L" else None
    if on_rows and "progressive" not in picture.info:
        return JpegRows(picture, partial(_fill_rows, picture, pixels), on_rows, pixels).load()
    load_at_once(picture)
    return None if pixels is None else _from_bytes(pixels)


def _is_upright_jpeg(picture: Image.Image) -> TypeGuard[JpegImagePlugin.JpegImageFile]:
    is_jpeg = isinstance(picture, JpegImagePlugin.JpegImageFile)
    return is_jpeg and _orientation(picture) == 1


def _fill_rows(
    picture: JpegImagePlugin.JpegImageFile,
    pixels: UInt8Array | None,
    rows: slice,
    out: Float32Array,
) -> None:
    """Grey values of some rows of a JPEG, which is decoded into `pixels` if it has no colours."""
    if pixels is None:
        _gray_pixels(_luma(rows_of(picture, rows)), out)
    else:
        _from_bytes(pixels[rows], out)


def _gray_at(target: tuple[int, int], picture: Image.Image) -> Float32Array:
    return _gray_pixels(_at_working_size(_luma(picture), picture, target))


def _gray_pixels(gray: Image.Image, out: Float32Array | None = None) -> Float32Array:
    """Values from 0 to 1 (h, w), filled into `out` if that is given."""
    if gray.mode == "F":
        # Bicubic resampling overshoots at edges, which Pillow cuts off in 8-bit images only.
        return np.clip(np.asarray(gray, np.float32), 0, 1, out=out)
    return _from_bytes(np.asarray(gray), out)


def _from_bytes(pixels: UInt8Array, out: Float32Array | None = None) -> Float32Array:
    gray = np.empty(pixels.shape, np.float32) if out is None else out
    scale_pixels(frozen(pixels), PIXEL_SCALE, gray)
    return gray


def _to_picture(
    picture: Image.Image, limits: ImageLimits, max_side: int, on_rows: OnRows | None
) -> Picture:
    target = _fit(picture.size, max_side)
    mode = "RGB" if _is_rgb_jpeg(picture) else "YCbCr"
    gray = _load(picture, mode, target, limits, on_rows)
    gray = _gray_at(target, picture) if gray is None else gray
    colours = _colours(picture)
    return Picture(gray, None if colours is None else _reduced(colours, picture, target))


def _to_rgb(picture: Image.Image, limits: ImageLimits, max_side: int) -> UInt8Array:
    target = _fit(picture.size, max_side)
    _load(picture, "RGB", target, limits)
    colours = _colours(picture)
    if colours is None:
        gray = np.rint(255 * _gray_pixels(_luma(picture))).astype(np.uint8)
        colours = Image.fromarray(gray)
    return np.asarray(_at_working_size(colours.convert("RGB"), picture, target))


def _is_rgb_jpeg(picture: Image.Image) -> bool:
    """Whether a JPEG stores red, green and blue, which its decoder cannot turn into YCbCr.

    The order of the three signs is that of libjpeg.
    """
    if not isinstance(picture, JpegImagePlugin.JpegImageFile) or "jfif" in picture.info:
        return False
    if "adobe_transform" in picture.info:
        return bool(picture.info["adobe_transform"] == 0)
    return bytes(component[0] for component in picture.layer) == b"RGB"


def _at_working_size(
    copy: Image.Image, picture: Image.Image, target: tuple[int, int]
) -> Image.Image:
    """A copy of `picture` in other colours, scaled to `target` and turned as it was taken."""
    if copy.size != target:
        copy = copy.resize(target, Image.Resampling.BICUBIC, reducing_gap=3.0)
    return _turned(copy, picture)


def _reduced(colours: Image.Image, picture: Image.Image, target: tuple[int, int]) -> UInt8Array:
    """Y, Cb and Cr of a picture at a part of its working size, turned as it was taken.

    Means of boxes first, then what is left by interpolation: all of it by interpolation took
    twice as long, and by way of the working size four times (32 photographs over 300 pixels).
    """
    size = [max(1, side // COLOUR_REDUCTION) for side in target]
    # What fills whole boxes.
    width, height = (
        min(whole, whole * COLOUR_REDUCTION * part / side)
        for whole, part, side in zip(colours.size, size, target, strict=True)
    )
    box = (0, 0, width, height)
    small = colours.resize((size[0], size[1]), Image.Resampling.BILINEAR, box, reducing_gap=1.0)
    return np.asarray(_turned(small.convert("YCbCr"), picture))


def _turned(copy: Image.Image, picture: Image.Image) -> Image.Image:
    transposition = _TRANSPOSITIONS.get(_orientation(picture))
    return copy if transposition is None else copy.transpose(transposition)


def _fit(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    """`size` with its aspect ratio kept and no side over `max_side`; never enlarged."""
    width, height = size
    scale = min(1.0, max_side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _luma(picture: Image.Image) -> Image.Image:
    """Mode L, or mode F in [0, 1] for 16 bits a pixel, composited on the background."""
    if picture.mode.startswith("I;16"):
        return _scaled(picture)
    if picture.mode in ("I", "F"):
        raise BrokenImageError(
            f"the image has 32 bits a pixel (mode {picture.mode}) and no defined white, "
            "expected 8 or 16 bits a channel"
        )
    if not picture.has_transparency_data:
        return picture.convert("RGB").convert("L") if picture.mode == "P" else _plain(picture)
    colour = picture.convert("RGBA")
    alpha = colour.getchannel("A")
    background = Image.new("L", picture.size, _BACKGROUND)
    return Image.composite(colour.convert("L"), background, alpha)


def _colours(picture: Image.Image) -> Image.Image | None:
    """Mode RGB or YCbCr, composited on the background; None for an image without colours."""
    if picture.mode in ("1", "L", "LA", "La") or picture.mode.startswith("I;16"):
        return None
    if picture.mode == "YCbCr":
        return picture
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    colour = picture.convert("RGBA")
    background = Image.new("RGB", colour.size, (_BACKGROUND,) * 3)
    return Image.composite(colour.convert("RGB"), background, colour.getchannel("A"))


def _scaled(picture: Image.Image) -> Image.Image:
    """Up to 16 bits a pixel as mode F in [0, 1]; TIFF says how many bits, and may count down."""
    levels = np.asarray(picture)
    bits, counts_down = 16, False
    if isinstance(picture, TiffImagePlugin.TiffImageFile):
        bits = picture.tag_v2.get(_BITS_PER_SAMPLE_TAG, (bits,))[0]
        counts_down = picture.tag_v2.get(_PHOTOMETRIC_TAG) == 0
    gray = levels.astype(np.float32) / np.float32(2**bits - 1)
    if counts_down:
        gray = 1 - gray
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):
        gray[levels == transparent] = _BACKGROUND / 255
    return Image.fromarray(gray)


def _plain(picture: Image.Image) -> Image.Image:
    if picture.mode == "L":
        return picture
    if picture.mode in ("1", "RGB", "YCbCr"):
        return picture.convert("L")
    return picture.convert("RGB").convert("L")


def _orientation(picture: Image.Image) -> int:
    if isinstance(picture, JpegImagePlugin.JpegImageFile) and not picture.info.keys() & _EXIF:
        return 1  # what Pillow would find, after more work
    try:
        return int(picture.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # noqa: BLE001
        # Cameras and editors write damaged EXIF blocks around perfectly good pixels.
        return 1
