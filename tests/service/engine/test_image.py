"""Decoding: what is read and how, and everything on the list of hostile images."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from service.engine import (
    BrokenImageError,
    EmptyImageError,
    ImageLimits,
    OversizedImageError,
    UnsupportedImageError,
)
from service.engine.arrays import Float32Array
from service.engine.image import Picture, decode
from tests.support import forged, pictures
from tests.support.samples import IMAGES, PROPERTY, encoded

MAX_SIDE = 300

COLOUR = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
GRAY = np.random.default_rng(1).integers(0, 256, (40, 50), np.uint8)
PICTURE, GRAY_PICTURE = Image.fromarray(COLOUR), Image.fromarray(GRAY)

# Pillow warns of damaged metadata, and of sizes between its limit and twice its limit.
# As errors these warnings would end the decoding; in production they do not.
production_warnings = pytest.mark.filterwarnings("ignore")

every_file = pytest.mark.parametrize("name", IMAGES)


def levels(pixels: npt.NDArray[np.integer]) -> Float32Array:
    """8-bit grey levels as decode returns them: one product with the rounded 1/255."""
    scaled: Float32Array = pixels.astype(np.float32) * np.float32(1 / 255)
    return scaled.clip(0, 1)


def luma(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """ITU-R 601 luma of RGB pixels in [0, 255], unrounded."""
    weighted: npt.NDArray[np.float64] = pixels[..., :3] @ np.array([0.299, 0.587, 0.114])
    return weighted


def assert_grey_levels(found: Float32Array, expected: npt.NDArray[np.float64]) -> None:
    """Equal up to the two roundings to whole levels of luma and compositing."""
    assert found.shape == expected.shape
    assert np.abs(found * 255.0 - expected).max() <= 1.01


@every_file
def test_every_format_decodes_to_float32_between_zero_and_one(name: str) -> None:
    gray = decode(IMAGES[name], MAX_SIDE)
    assert gray.shape == (40, 50)
    assert gray.dtype == np.float32
    assert gray.min() >= 0
    assert gray.max() <= 1


@pytest.mark.parametrize("image_format", ["PNG", "BMP", "TIFF", "GIF"])
def test_grey_levels_survive_a_lossless_format_exactly(image_format: str) -> None:
    np.testing.assert_array_equal(
        decode(encoded(GRAY_PICTURE, image_format), MAX_SIDE), levels(GRAY)
    )


@pytest.mark.parametrize(
    ("image_format", "options"),
    [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})],
)
def test_colour_becomes_luma(image_format: str, options: dict[str, Any]) -> None:
    found = decode(encoded(PICTURE, image_format, **options), MAX_SIDE)
    assert_grey_levels(found, luma(COLOUR))


@pytest.mark.parametrize("options", [{}, {"keep_rgb": True}], ids=["YCbCr", "RGB"])
def test_a_jpeg_decodes_to_its_luma(options: dict[str, Any]) -> None:
    smooth = np.zeros((40, 50, 3), np.uint8)
    smooth[..., 0], smooth[..., 1] = np.arange(50) * 5, (np.arange(40) * 6)[:, None]
    jpeg = encoded(Image.fromarray(smooth), "JPEG", quality=100, subsampling=0, **options)
    # At the best quality each frequency is rounded to a whole level or so.
    assert np.abs(decode(jpeg, MAX_SIDE) * 255.0 - luma(smooth)).max() <= 4


def test_a_white_image_is_exactly_one() -> None:
    assert (decode(encoded(Image.new("L", (24, 24), 255), "PNG"), MAX_SIDE) == 1).all()


def test_a_one_bit_image_is_black_and_white() -> None:
    bits = Image.fromarray(GRAY > 127)
    np.testing.assert_array_equal(decode(encoded(bits, "PNG"), MAX_SIDE), GRAY > 127)


def test_a_palette_image_shows_its_colours() -> None:
    palette = PICTURE.quantize(16)
    expected = luma(np.asarray(palette.convert("RGB")))
    assert_grey_levels(decode(encoded(palette, "PNG"), MAX_SIDE), expected)


@pytest.mark.parametrize("image_format", ["JPEG", "TIFF"])
def test_cmyk_is_accepted(image_format: str) -> None:
    # Cyan, magenta, yellow and black of nothing is white; all of black is black.
    cmyk = np.zeros((24, 24, 4), np.uint8)
    cmyk[12:, :, 3] = 255
    gray = decode(encoded(Image.fromarray(cmyk, "CMYK"), image_format), MAX_SIDE)
    assert gray[:11].min() > 0.95
    assert gray[13:].max() < 0.05


# --- 16 bits -------------------------------------------------------------------------

DEEP = np.random.default_rng(2).integers(0, 65_536, (24, 26), np.uint16)
DEEP[0, :4] = [0, 255, 256, 65_535]


def test_a_16_bit_png_is_scaled_exactly() -> None:
    expected = DEEP.astype(np.float32) / np.float32(65_535)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(DEEP), "PNG"), MAX_SIDE), expected)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_16_bit_tiff_of_either_byte_order_is_scaled_exactly(order: str) -> None:
    data = forged.tiff(DEEP.astype(order + "u2").tobytes(), (26, 24), 16, order=order)
    expected = DEEP.astype(np.float32) / np.float32(65_535)
    np.testing.assert_array_equal(decode(data, MAX_SIDE), expected)


def test_a_16_bit_image_stays_in_range_when_it_shrinks() -> None:
    # Black and white checks make bicubic resampling overshoot the most.
    checks = (np.indices((90, 120)).sum(axis=0) // 7 % 2 * 65_535).astype(np.uint16)
    gray = decode(encoded(Image.fromarray(checks), "PNG"), 60)
    assert gray.shape == (45, 60)
    assert (gray.min(), gray.max()) == (0, 1)


def test_a_16_bit_image_shrinks_like_its_8_bit_copy() -> None:
    small = decode(encoded(GRAY_PICTURE, "PNG"), 30)
    deep = decode(encoded(Image.fromarray(GRAY.astype(np.uint16) * 257), "PNG"), 30)
    # The 8-bit way rounds to whole levels after each of its two passes.
    assert np.abs(small - deep).max() <= 1.01 / 255


def test_the_transparent_level_of_a_16_bit_png_shows_white() -> None:
    pixels = np.array([[0, 1000, 65_535] * 8] * 24, ">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    transparent = forged.png_chunk(b"tRNS", struct.pack(">H", 1000))
    gray = decode(forged.png(24, 24, rows, transparent, depth=16), MAX_SIDE)
    np.testing.assert_array_equal(gray[0, :3], [0, 1, 1])


@pytest.mark.parametrize(
    "data",
    [
        forged.tiff(bytes(24 * 24 * 2), (24, 24), 16, white_is_zero=True),
        forged.tiff(b"\xff" * (24 * 24 * 3 // 2), (24, 24), 12),
    ],
    ids=["16 bits, zero is white", "12 bits"],
)
def test_white_of_an_unusual_tiff_is_white_or_refused(data: bytes) -> None:
    # Pillow hands over the bare numbers: zeros, or 4095 that 65535 would make dark grey.
    try:
        gray = decode(data, MAX_SIDE)
    except BrokenImageError:
        return
    assert (gray == 1).all()


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bits_a_pixel_are_refused(mode: str) -> None:
    with pytest.raises(BrokenImageError, match=f"32 bits a pixel .mode {mode}"):
        decode(encoded(Image.new(mode, (24, 24)), "TIFF"), MAX_SIDE)


# --- transparency --------------------------------------------------------------------

ALPHA = np.random.default_rng(3).integers(0, 256, (40, 50), np.uint8)


def on_white(gray: npt.NDArray[Any], alpha: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    share = alpha / 255
    blended: npt.NDArray[np.float64] = gray * share + 255 * (1 - share)
    return blended


@pytest.mark.parametrize("image_format", ["PNG", "TIFF", "WEBP"])
def test_rgba_is_composited_on_white(image_format: str) -> None:
    picture = Image.fromarray(np.dstack([COLOUR, ALPHA]))
    options = {"lossless": True, "exact": True} if image_format == "WEBP" else {}
    found = decode(encoded(picture, image_format, **options), MAX_SIDE)
    assert_grey_levels(found, on_white(luma(COLOUR), ALPHA))


def test_grey_with_alpha_is_composited_on_white() -> None:
    picture = Image.merge("LA", (GRAY_PICTURE, Image.fromarray(ALPHA)))
    assert_grey_levels(decode(encoded(picture, "PNG"), MAX_SIDE), on_white(GRAY, ALPHA))


def test_a_fully_transparent_image_hides_its_colour() -> None:
    picture = Image.new("RGBA", (24, 24), (255, 0, 0, 0))
    assert (decode(encoded(picture, "PNG"), MAX_SIDE) == 1).all()


@pytest.mark.parametrize("image_format", ["PNG", "GIF"])
def test_the_transparent_colour_of_a_palette_shows_white(image_format: str) -> None:
    picture = Image.new("P", (24, 24), 1)
    picture.putpalette([255, 0, 0, 0, 0, 0])
    picture.paste(0, (0, 0, 12, 24))
    gray = decode(encoded(picture, image_format, transparency=0), MAX_SIDE)
    assert (gray[:, :12] == 1).all()
    assert not gray[:, 12:].any()


def test_a_palette_with_partial_transparency_is_composited_on_white() -> None:
    picture = Image.new("P", (24, 24), 0)
    picture.putpalette([0, 0, 0])
    gray = decode(encoded(picture, "PNG", transparency=b"\x80"), MAX_SIDE)
    assert_grey_levels(gray, np.full((24, 24), 255.0 - 128))


@pytest.mark.parametrize(
    ("mode", "key", "other"), [("RGB", (9, 9, 9), (0, 0, 0)), ("L", 9, 0), ("1", 0, 1)]
)
def test_the_transparent_colour_of_an_image_without_alpha_shows_white(
    mode: str, key: Any, other: Any
) -> None:
    picture = Image.new(mode, (24, 24), key)
    picture.paste(other, (0, 0, 12, 24))
    gray = decode(encoded(picture, "PNG", transparency=key), MAX_SIDE)
    assert (gray[:, 12:] == 1).all()
    assert (gray[:, :12] == (1 if mode == "1" else 0)).all()


# --- orientation ---------------------------------------------------------------------

UPRIGHT: dict[int, Callable[[Float32Array], Float32Array]] = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: a[::-1, ::-1],
    4: np.flipud,
    5: lambda a: a.T,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].T,
    8: lambda a: np.rot90(a, 1),
}

every_orientation = pytest.mark.parametrize("orientation", UPRIGHT)


def oriented(orientation: int, image_format: str, **options: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(PICTURE, image_format, exif=exif, **options)


@every_orientation
@pytest.mark.parametrize("max_side", [MAX_SIDE, 25])
@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        ("JPEG", {}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
    ],
)
def test_exif_orientation_is_applied(
    orientation: int, max_side: int, image_format: str, options: dict[str, Any]
) -> None:
    plain = decode(encoded(PICTURE, image_format, **options), max_side)
    found = decode(oriented(orientation, image_format, **options), max_side)
    np.testing.assert_array_equal(found, UPRIGHT[orientation](plain))


@every_orientation
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_exif_orientation_of_a_tiff_is_applied_once(orientation: int, compression: str) -> None:
    plain = decode(encoded(PICTURE, "TIFF"), MAX_SIDE)
    found = decode(oriented(orientation, "TIFF", compression=compression), MAX_SIDE)
    np.testing.assert_array_equal(found, UPRIGHT[orientation](plain))


@pytest.mark.parametrize("orientation", [0, 9, 65_535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation: int) -> None:
    plain = decode(IMAGES["jpeg"], MAX_SIDE)
    np.testing.assert_array_equal(decode(oriented(orientation, "JPEG"), MAX_SIDE), plain)


@production_warnings
def test_a_damaged_exif_block_does_not_spoil_good_pixels() -> None:
    damaged = forged.jpeg_segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff garbage")
    jpeg = IMAGES["jpeg"][:2] + damaged + IMAGES["jpeg"][2:]
    np.testing.assert_array_equal(decode(jpeg, MAX_SIDE), decode(IMAGES["jpeg"], MAX_SIDE))


# --- size ----------------------------------------------------------------------------


@PROPERTY
@given(st.integers(1, 400), st.integers(1, 400), st.integers(20, 300))
def test_the_largest_side_is_the_limit_and_the_aspect_is_kept(
    width: int, height: int, max_side: int
) -> None:
    gray = decode(encoded(Image.new("L", (width, height)), "PNG"), max_side)
    scale = min(1.0, max_side / max(width, height))
    assert max(gray.shape) == min(max_side, max(width, height))
    # Rounded to a whole pixel, and never to none.
    assert abs(gray.shape[0] - height * scale) <= 0.5 or gray.shape[0] == 1
    assert abs(gray.shape[1] - width * scale) <= 0.5 or gray.shape[1] == 1


@pytest.mark.parametrize("size", [(900, 600), (601, 899), (1500, 20), (301, 301), (2401, 2400)])
def test_a_jpeg_decoded_at_a_fraction_has_the_same_size_as_a_png(size: tuple[int, int]) -> None:
    picture = Image.new("L", size, 90)
    assert (
        decode(encoded(picture, "JPEG"), MAX_SIDE).shape
        == decode(encoded(picture, "PNG"), MAX_SIDE).shape
    )


def test_a_small_image_is_never_enlarged() -> None:
    gray = decode(encoded(GRAY_PICTURE, "PNG"), 1000)
    np.testing.assert_array_equal(gray, levels(GRAY))


def test_one_pixel_decodes() -> None:
    assert decode(encoded(Image.new("RGB", (1, 1)), "PNG"), MAX_SIDE).shape == (1, 1)


# --- animation and several images ----------------------------------------------------

FRAMES = [Image.new("RGB", (24, 24), colour) for colour in ("black", "white", "white")]


@pytest.mark.parametrize("image_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_only_the_first_frame_of_an_animation_is_read(image_format: str) -> None:
    data = encoded(FRAMES[0], image_format, save_all=True, append_images=FRAMES[1:])
    assert not decode(data, MAX_SIDE).any()


def test_a_multi_picture_jpeg_is_accepted() -> None:
    data = encoded(PICTURE, "MPO", save_all=True, append_images=[PICTURE.rotate(180)])
    np.testing.assert_array_equal(decode(data, MAX_SIDE), decode(IMAGES["jpeg"], MAX_SIDE))


# --- scans of a JPEG -----------------------------------------------------------------

PROGRESSIVE = forged.progressive_jpeg()
SCAN = forged.last_scan(PROGRESSIVE)


def test_a_normal_progressive_jpeg_is_accepted() -> None:
    assert decode(PROGRESSIVE, MAX_SIDE).shape == (48, 48)


@pytest.mark.parametrize("side", [1_000, 3_000, 7_000])
def test_a_jpeg_that_claims_more_than_its_bytes_can_hold_is_refused(side: int) -> None:
    with pytest.raises(BrokenImageError, match=r"which take at least .* bytes"):
        decode(forged.jpeg_claiming(side, side), MAX_SIDE)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_large_jpeg_of_one_colour_is_accepted(*, progressive: bool) -> None:
    blank = encoded(
        Image.new("L", (3_000, 2_000), 255), "JPEG", optimize=True, progressive=progressive
    )
    assert decode(blank, MAX_SIDE).min() == 1


@pytest.mark.parametrize("place", [(0, 0), (15, 7), (31, 39)])
def test_one_pixel_that_differs_is_something_to_see(place: tuple[int, int]) -> None:
    gray = np.full((32, 40), 0.5, np.float32)
    assert Picture(gray).is_blank
    gray[place] += 5 / 255
    assert not Picture(gray).is_blank


def test_a_jpeg_of_400_scans_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(BrokenImageError, match="has 410 scans, expected at most 64"):
        decode(forged.insert_before_end(PROGRESSIVE, 400 * SCAN), MAX_SIDE)


@pytest.mark.parametrize(
    "filler",
    [b"\xff", b"\xff\x00", b"\xff\xd0", b"\xff\x01", b"\x00garbage", b"\xff\xfe\x00\x02"],
    ids=["fill byte", "stuffed zero", "restart", "TEM", "garbage", "comment"],
)
def test_no_bytes_between_the_scans_hide_them(filler: bytes) -> None:
    # libjpeg passes over all of these; TEM, like a restart marker, has no length to skip.
    with pytest.raises(BrokenImageError, match="has 410 scans"):
        decode(forged.insert_before_end(PROGRESSIVE, 400 * (filler + SCAN)), MAX_SIDE)


@pytest.mark.parametrize(
    ("marker", "prefix"),
    [(0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"), (0xE2, b"ICC"), (0xFE, b"")],
    ids=["EXIF thumbnails", "profile", "comment"],
)
def test_scans_inside_a_segment_do_not_count(marker: int, prefix: bytes) -> None:
    thumbnails = forged.progressive_jpeg(16) * 20
    segment = forged.jpeg_segment(marker, prefix + thumbnails)
    jpeg = PROGRESSIVE[:2] + segment + PROGRESSIVE[2:]
    np.testing.assert_array_equal(decode(jpeg, MAX_SIDE), decode(PROGRESSIVE, MAX_SIDE))


def test_scans_behind_the_end_of_the_image_do_not_count() -> None:
    jpeg = PROGRESSIVE + 500 * SCAN + 500 * b"\xff\xda"
    np.testing.assert_array_equal(decode(jpeg, MAX_SIDE), decode(PROGRESSIVE, MAX_SIDE))


# --- refused -------------------------------------------------------------------------


def test_no_bytes_are_an_empty_image() -> None:
    with pytest.raises(EmptyImageError, match="no bytes"):
        decode(b"", MAX_SIDE)


def test_too_many_bytes_are_oversized() -> None:
    with pytest.raises(OversizedImageError, match="has 11 bytes, expected at most 10"):
        decode(b"x" * 11, MAX_SIDE, ImageLimits(max_bytes=10))


def test_as_many_bytes_as_allowed_are_accepted() -> None:
    data = IMAGES["png"]
    assert decode(data, MAX_SIDE, ImageLimits(max_bytes=len(data))).shape == (40, 50)


@pytest.mark.parametrize(
    "data",
    [
        b"not an image",
        b"\0" * 1000,
        np.random.default_rng(5).bytes(4096),
        b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 24 24\nshowpage\n",
        b"%PDF-1.7\n",
        b"\0\0\0\x20ftypavif\0\0\0\0avifmif1" + bytes(100),
        b"P5 24 24 255\n" + bytes(576),
        b"PK\x03\x04" + bytes(100),
        encoded(PICTURE, "ICO"),
        encoded(PICTURE, "TGA"),
        encoded(PICTURE, "PPM"),
        encoded(PICTURE, "JPEG2000"),
    ],
    ids=[
        "text",
        "zeros",
        "random",
        "SVG",
        "EPS",
        "PDF",
        "AVIF",
        "PGM",
        "ZIP",
        "ICO",
        "TGA",
        "PPM",
        "JPEG 2000",
    ],
)
def test_what_is_not_on_the_list_of_formats_is_unsupported(data: bytes) -> None:
    with pytest.raises(UnsupportedImageError, match="expected one of JPEG, PNG, WEBP, GIF"):
        decode(data, MAX_SIDE)


@production_warnings
@every_file
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_image_is_broken(name: str, share: float) -> None:
    data = IMAGES[name]
    with pytest.raises(BrokenImageError):
        decode(data[: int(len(data) * share)], MAX_SIDE)


@production_warnings
@pytest.mark.parametrize(
    "signature",
    [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\x10\0\0\0WEBPVP8 ", b"II*\0"],
    ids=["JPEG", "PNG", "GIF", "WEBP", "TIFF"],
)
def test_a_signature_with_nothing_behind_it_is_broken(signature: bytes) -> None:
    with pytest.raises(BrokenImageError):
        decode(signature, MAX_SIDE)


@pytest.mark.parametrize(
    "trailer",
    [b"<html><script>alert(1)</script>", b"PK\x03\x04" + bytes(60), bytes(5000)],
    ids=["HTML", "ZIP", "zeros"],
)
@pytest.mark.parametrize("name", ["png", "jpeg", "gif", "webp"])
def test_bytes_behind_the_image_are_ignored(name: str, trailer: bytes) -> None:
    found = decode(IMAGES[name] + trailer, MAX_SIDE)
    np.testing.assert_array_equal(found, decode(IMAGES[name], MAX_SIDE))


def gif_claiming(width: int, height: int) -> bytes:
    gif = bytearray(IMAGES["gif"])
    gif[6:10] = struct.pack("<HH", width, height)
    return bytes(gif)


@pytest.mark.parametrize(
    "data",
    [
        forged.png_claiming(50_000, 50_000),
        forged.png_claiming(13_000, 13_000),
        forged.png_claiming(9_000, 9_000),
        forged.png_claiming(2**31 - 1, 1),
        forged.jpeg_claiming(65_500, 65_500),
        forged.jpeg_claiming(9_000, 9_000),
        gif_claiming(65_535, 65_535),
        forged.tiff(bytes(100), (100_000, 100_000), 8),
        encoded(Image.new("1", (60_000, 1)), "PNG"),
        encoded(Image.new("1", (1, 60_000)), "PNG"),
    ],
    ids=[
        "PNG 50000",
        "PNG 13000",
        "PNG 9000",
        "PNG 2147483647x1",
        "JPEG 65500",
        "JPEG 9000",
        "GIF 65535",
        "TIFF 100000",
        "60000x1",
        "1x60000",
    ],
)
@production_warnings
def test_too_many_pixels_are_refused_from_the_header(data: bytes) -> None:
    with pytest.raises(BrokenImageError, match="pixels"):
        decode(data, MAX_SIDE)


@pytest.mark.parametrize("limits", [ImageLimits(max_pixels=1999), ImageLimits(max_side=49)])
def test_the_operator_s_limits_are_obeyed(limits: ImageLimits) -> None:
    with pytest.raises(BrokenImageError, match="is 50x40 pixels, expected at most"):
        decode(IMAGES["png"], MAX_SIDE, limits)


def test_an_image_at_the_operator_s_limits_is_accepted() -> None:
    limits = ImageLimits(max_pixels=2000, max_side=50)
    assert decode(IMAGES["png"], MAX_SIDE, limits).shape == (40, 50)


# --- large photographs ---------------------------------------------------------------


def test_a_jpeg_of_108_million_pixels_is_decoded_at_a_reduced_size() -> None:
    gray = decode(pictures.telephone_jpeg(), MAX_SIDE)
    assert gray.shape == (225, 300)
    # Each of the 60x45 blotches is 5x5 pixels here, its middle of one level.
    coarse = np.random.default_rng(7).integers(0, 256, (45, 60), dtype=np.uint8)
    assert np.abs(gray[2::5, 2::5] - levels(coarse)).max() < 0.05


LARGE = Image.effect_noise((2000, 1500), 40)


def test_a_jpeg_is_judged_by_the_pixels_that_are_allocated_for_it() -> None:
    jpeg = encoded(LARGE, "JPEG")
    assert decode(jpeg, MAX_SIDE, ImageLimits(max_pixels=500 * 375)).shape == (225, 300)
    with pytest.raises(BrokenImageError, match="is 500x375 pixels, expected at most 187499"):
        decode(jpeg, MAX_SIDE, ImageLimits(max_pixels=500 * 375 - 1))
    with pytest.raises(BrokenImageError, match="no side over 1999"):
        decode(jpeg, MAX_SIDE, ImageLimits(max_side=1999))


def _components_in_scans_of_their_own(jpeg: bytes) -> bytes:
    data = bytearray(jpeg)
    data[data.rindex(b"\xff\xda") + 4] = 1
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        encoded(LARGE, "JPEG", progressive=True),
        _components_in_scans_of_their_own(encoded(LARGE.convert("RGB"), "JPEG")),
        encoded(LARGE, "PNG"),
    ],
    ids=["progressive", "several scans", "PNG"],
)
def test_an_image_that_is_decoded_whole_is_judged_by_all_its_pixels(data: bytes) -> None:
    with pytest.raises(BrokenImageError, match="is 2000x1500 pixels, expected at most 2999999"):
        decode(data, MAX_SIDE, ImageLimits(max_pixels=2_999_999))


def deflated_zeros(megabytes: int) -> bytes:
    compressor = zlib.compressobj(9)
    parts = [compressor.compress(bytes(2**20)) for _ in range(megabytes)]
    return b"".join(parts) + compressor.flush()


ROWS = bytes(24 * 25)


@pytest.mark.parametrize(
    "chunks",
    [
        [forged.png_chunk(b"zTXt", b"k\0\0" + deflated_zeros(8))],
        [forged.png_chunk(b"iTXt", b"k\0\x01\0\0\0" + deflated_zeros(8))],
        [forged.png_chunk(b"iCCP", b"k\0\0" + deflated_zeros(8))],
        [forged.png_chunk(b"zTXt", b"k\0\0" + deflated_zeros(1))] * 100,
    ],
    ids=["zTXt", "iTXt", "iCCP", "many zTXt"],
)
def test_text_that_inflates_without_bound_is_broken(chunks: list[bytes]) -> None:
    with pytest.raises(BrokenImageError):
        decode(forged.png(24, 24, ROWS, *chunks), MAX_SIDE)


@pytest.mark.parametrize(
    "place", [12, 16, 30, 40, 60], ids=["IHDR", "width", "CRC", "IDAT", "pixels"]
)
def test_a_damaged_png_is_broken(place: int) -> None:
    data = bytearray(forged.png(24, 24, np.random.default_rng(0).bytes(24 * 25)))
    data[place] ^= 0xFF
    with pytest.raises(BrokenImageError):
        decode(bytes(data), MAX_SIDE)


def test_messages_never_echo_the_bytes() -> None:
    with pytest.raises(UnsupportedImageError) as raised:
        decode(b"secret-token" * 20, MAX_SIDE)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("max_pixels", "expected"), [(50_000_000, BrokenImageError), (2**50, MemoryError)]
)
def test_an_image_is_to_blame_for_memory_that_runs_out_only_where_there_is_enough(
    max_pixels: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: Image.Image) -> None:
        raise MemoryError

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", load)
    with pytest.raises(expected):
        decode(IMAGES["png"], MAX_SIDE, ImageLimits(max_pixels=max_pixels))
