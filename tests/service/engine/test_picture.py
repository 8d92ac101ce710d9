"""Images with their colours: the same grey values, and chroma as Pillow computes it."""

import struct
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from service.engine import BrokenImageError, EmptyImageError, ImageLimits, OversizedImageError
from service.engine.arrays import UInt8Array
from service.engine.image import Picture, decode, decode_picture
from tests.support import forged
from tests.support.samples import IMAGES, encoded

MAX_SIDE = 300

COLOUR = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
GRAY = np.random.default_rng(1).integers(0, 256, (40, 50), np.uint8)
ALPHA = np.random.default_rng(3).integers(0, 256, (40, 50), np.uint8)
DEEP = np.random.default_rng(2).integers(0, 65_536, (24, 26), np.uint16)
PICTURE, GRAY_PICTURE = Image.fromarray(COLOUR), Image.fromarray(GRAY)

SMOOTH = np.zeros((80, 100, 3), np.uint8)
SMOOTH[..., 0], SMOOTH[..., 1] = np.arange(100) * 2, (np.arange(80) * 3)[:, None]
SMOOTH_PICTURE = Image.fromarray(SMOOTH)

PALETTE = PICTURE.quantize(16)
TRANSPARENT = Image.fromarray(np.dstack([COLOUR, ALPHA]))

FORGED = {
    "16-bit tiff": forged.tiff(DEEP.astype("<u2").tobytes(), (26, 24), 16, order="<"),
    "16-bit png": encoded(Image.fromarray(DEEP), "PNG"),
    "16-bit png with a transparent level": forged.png(
        24,
        24,
        b"".join(b"\0" + row.tobytes() for row in np.array([[0, 1000, 65_535] * 8] * 24, ">u2")),
        forged.png_chunk(b"tRNS", struct.pack(">H", 1000)),
        depth=16,
    ),
}

GREY = {
    **FORGED,
    "grey png": encoded(GRAY_PICTURE, "PNG"),
    "grey jpeg": encoded(GRAY_PICTURE, "JPEG"),
    "one bit": encoded(Image.fromarray(GRAY > 127), "PNG"),
    "grey with alpha": encoded(Image.merge("LA", (GRAY_PICTURE, Image.fromarray(ALPHA))), "PNG"),
}
"""Images without colours."""

RGB_JPEG = encoded(SMOOTH_PICTURE, "JPEG", keep_rgb=True)
_ADOBE = RGB_JPEG.index(b"\xff\xee")
_LENGTH = 2 + int.from_bytes(RGB_JPEG[_ADOBE + 2 : _ADOBE + 4], "big")

COLOURED = {
    **IMAGES,
    "large jpeg": encoded(SMOOTH_PICTURE.resize((1000, 700)), "JPEG"),
    "jpeg of red, green and blue": RGB_JPEG,
    "jpeg whose components are called R, G and B": RGB_JPEG[:_ADOBE] + RGB_JPEG[_ADOBE + _LENGTH :],
    "jpeg without subsampling": encoded(PICTURE, "JPEG", subsampling=0),
    "cmyk jpeg": encoded(PICTURE.convert("CMYK"), "JPEG"),
    "cmyk tiff": encoded(PICTURE.convert("CMYK"), "TIFF"),
    "palette": encoded(PALETTE, "PNG"),
    "palette with a transparent colour": encoded(PALETTE, "PNG", transparency=3),
    "palette with partial transparency": encoded(PALETTE, "PNG", transparency=bytes(range(16))),
    "rgba": encoded(TRANSPARENT, "PNG"),
    "rgba webp": encoded(TRANSPARENT, "WEBP"),
}
"""Images in colour."""


def pixels(picture: Image.Image) -> UInt8Array:
    return np.asarray(picture)


def chroma_of(picture: Image.Image) -> npt.NDArray[np.float64]:
    """Cb and Cr of a picture at half size, by Pillow's reduction and conversion."""
    small = picture.convert("RGB").reduce(2).convert("YCbCr")
    planes = np.moveaxis(pixels(small), -1, 0)
    return planes[1:].astype(np.float64)


def half(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(side // 2 for side in shape)


def brightness(picture: Picture) -> npt.NDArray[np.float64]:
    """Means of boxes of 2x2 grey values, in levels."""
    rows, cols = half(picture.gray.shape)
    boxes = 255.0 * picture.gray[: 2 * rows, : 2 * cols].reshape(rows, 2, cols, 2)
    means: npt.NDArray[np.float64] = boxes.mean(axis=(1, 3))
    return means


def chroma(picture: Picture) -> npt.NDArray[np.float64]:
    """Cb and Cr, (2, h, w)."""
    assert picture.colours is not None
    assert picture.colours.dtype == np.uint8
    assert picture.colours.shape == (*half(picture.gray.shape), 3)
    return np.moveaxis(picture.colours[:, :, 1:].astype(np.float64), -1, 0)


@pytest.mark.parametrize("max_side", [MAX_SIDE, 23])
@pytest.mark.parametrize("name", [*COLOURED, *GREY])
def test_the_grey_values_are_those_of_a_grey_image(name: str, max_side: int) -> None:
    data = (COLOURED | GREY)[name]
    np.testing.assert_array_equal(decode_picture(data, max_side).gray, decode(data, max_side))


@pytest.mark.parametrize("name", COLOURED)
def test_the_first_colour_is_the_brightness(name: str) -> None:
    picture = decode_picture(COLOURED[name], MAX_SIDE)
    assert picture.colours is not None
    # Rounded to whole levels before and after they are mixed with the background, and as means.
    assert np.abs(picture.colours[:, :, 0] - brightness(picture)).max() <= 2.5


@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
def test_colours_of_an_image_that_is_shrunk_lie_where_its_grey_values_do(format_: str) -> None:
    picture = decode_picture(encoded(SMOOTH_PICTURE, format_), 46)
    assert picture.colours is not None
    # A pixel at half size is ten levels brighter than the one above it.
    assert np.abs(picture.colours[:, :, 0] - brightness(picture))[1:-1, 1:-1].max() <= 2


@pytest.mark.parametrize("name", GREY)
def test_an_image_without_colours_has_none(name: str) -> None:
    assert decode_picture(GREY[name], MAX_SIDE).colours is None


LOSSLESS = [name for name in IMAGES if "jpeg" not in name and name != "webp"]


@pytest.mark.parametrize("name", [*LOSSLESS, "palette", "cmyk tiff"])
def test_chroma_of_a_lossless_format_is_exactly_pillow_s(name: str) -> None:
    with Image.open(BytesIO(COLOURED[name])) as expected:
        found = decode_picture(COLOURED[name], MAX_SIDE)
        np.testing.assert_array_equal(chroma(found), chroma_of(expected))


@pytest.mark.parametrize(
    "options",
    [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"keep_rgb": True}],
    ids=["4:4:4", "4:2:0", "progressive", "RGB"],
)
def test_chroma_of_a_jpeg_is_that_of_its_picture(options: dict[str, Any]) -> None:
    found = decode_picture(encoded(SMOOTH_PICTURE, "JPEG", quality=95, **options), MAX_SIDE)
    # Chroma of half the pixels, in steps of two levels between neighbours, and rounded.
    assert np.abs(chroma(found) - chroma_of(SMOOTH_PICTURE)).max() <= 6


def test_chroma_of_red_green_and_blue_without_a_marker_is_the_same() -> None:
    named = COLOURED["jpeg whose components are called R, G and B"]
    found, expected = (decode_picture(data, MAX_SIDE) for data in (named, RGB_JPEG))
    np.testing.assert_array_equal(chroma(found), chroma(expected))


def test_a_grey_image_stored_in_colour_has_neutral_chroma() -> None:
    found = decode_picture(encoded(GRAY_PICTURE.convert("RGB"), "PNG"), MAX_SIDE)
    assert (chroma(found) == 128).all()


def test_transparency_shows_white_which_is_neutral() -> None:
    hidden = np.dstack([COLOUR, np.zeros_like(ALPHA)])
    found = decode_picture(encoded(Image.fromarray(hidden), "PNG"), MAX_SIDE)
    assert (chroma(found) == 128).all()
    assert (found.gray == 1).all()


def test_partial_transparency_makes_colours_paler() -> None:
    found = decode_picture(encoded(TRANSPARENT, "PNG"), MAX_SIDE)
    planes = np.moveaxis(pixels(PICTURE.convert("YCbCr"))[:, :, 1:].astype(np.float64), -1, 0)
    expected = (128 + (planes - 128) * ALPHA / 255).reshape(2, 20, 2, 25, 2).mean(axis=(2, 4))
    # Whole levels of red, green and blue after mixing, and of chroma before and after it.
    assert np.abs(chroma(found) - expected).max() <= 2


@pytest.mark.parametrize("name", ["gif", "png"])
def test_the_transparent_colour_of_a_palette_has_neutral_chroma(name: str) -> None:
    data = encoded(PALETTE, name.upper(), transparency=3)
    visible = pixels(PALETTE.convert("RGB")).copy()
    visible[pixels(PALETTE) == 3] = 255
    found = chroma(decode_picture(data, MAX_SIDE))
    np.testing.assert_array_equal(found, chroma_of(Image.fromarray(visible)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_chroma_is_turned_as_the_grey_values_are(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = decode_picture(encoded(PICTURE, "PNG", exif=exif), MAX_SIDE)
    upright = chroma_of(PICTURE)
    turned = {
        1: upright,
        2: upright[:, :, ::-1],
        3: upright[:, ::-1, ::-1],
        4: upright[:, ::-1],
        5: upright.transpose(0, 2, 1),
        6: upright.transpose(0, 2, 1)[:, :, ::-1],
        7: upright.transpose(0, 2, 1)[:, ::-1, ::-1],
        8: upright.transpose(0, 2, 1)[:, ::-1],
    }[orientation]
    np.testing.assert_array_equal(chroma(found), turned)


def test_colours_shrink_to_means_of_boxes() -> None:
    found = decode_picture(encoded(PICTURE, "PNG"), 25)
    # 25x20 pixels at working size; the last column fills no box.
    small = PICTURE.crop((0, 0, 48, 40)).reduce(4).convert("YCbCr")
    np.testing.assert_array_equal(found.colours, pixels(small))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", EmptyImageError),
        (IMAGES["png"][:200], BrokenImageError),
        (IMAGES["jpeg"][:300], BrokenImageError),
        (bytes(5000), OversizedImageError),
        (encoded(Image.new("I", (24, 24)), "TIFF"), BrokenImageError),
    ],
    ids=["empty", "cut png", "cut jpeg", "too long", "32 bits"],
)
def test_what_is_no_image_is_refused_in_colour_too(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_picture(data, MAX_SIDE, ImageLimits(max_bytes=4999))
