"""HEIC, which telephones write: read where its library is there, explained where it is not."""

import struct
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from service.engine import BrokenImageError, ImageLimits, UnsupportedImageError
from service.engine.image import decode, decode_picture
from service.engine.image_formats import readable_formats
from tests.support import pictures

PICTURE = pictures.noise(160, 120).convert("RGB")
MAX_SIDE = 300


@pytest.fixture(scope="module")
def heic() -> bytes:
    pytest.importorskip("pillow_heif", reason="make setup brings the extra heif")
    assert "HEIF" in readable_formats()
    return pictures.encode(PICTURE, "HEIF", quality=90)


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    readable_formats.cache_clear()
    yield
    readable_formats.cache_clear()


def _claiming(heic: bytes, width: int, height: int) -> bytes:
    """The image, but its header states another size."""
    data = bytearray(heic)
    place = data.index(b"ispe") + 8
    data[place : place + 8] = struct.pack(">II", width, height)
    return bytes(data)


def test_heic_decodes_to_about_the_pixels_that_were_encoded(heic: bytes) -> None:
    gray = decode(heic, MAX_SIDE)
    assert gray.shape == (120, 160)
    assert np.abs(gray * 255 - np.asarray(PICTURE.convert("L"), np.float32)).mean() < 4


def test_heic_has_colours() -> None:
    pytest.importorskip("pillow_heif")
    assert readable_formats()[-1] == "HEIF"
    red = pictures.encode(Image.new("RGB", (64, 48), (200, 30, 30)), "HEIF")
    colours = decode_picture(red, MAX_SIDE).colours
    assert colours is not None
    assert colours[..., 2].min() > 180


def test_the_orientation_of_heic_is_applied_once(heic: bytes) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = decode(pictures.encode(PICTURE, "HEIF", quality=90, exif=exif.tobytes()), MAX_SIDE)
    assert turned.shape == (160, 120)
    assert np.abs(turned - np.rot90(decode(heic, MAX_SIDE), -1)).mean() < 0.03


def test_too_many_pixels_of_heic_are_refused_by_the_header(heic: bytes) -> None:
    with pytest.raises(BrokenImageError, match="160x120 pixels, expected at most 10000 pixels"):
        decode(heic, MAX_SIDE, ImageLimits(max_pixels=10_000))
    with pytest.raises(BrokenImageError, match="9000x9000 pixels, expected at most"):
        decode(_claiming(heic, 9_000, 9_000), MAX_SIDE)


@pytest.mark.parametrize("size", [(16, 16), (150, 110), (900, 700)])
def test_heic_that_holds_another_size_than_it_claims_is_refused(
    heic: bytes, size: tuple[int, int]
) -> None:
    with pytest.raises(BrokenImageError, match="damaged or truncated"):
        decode(_claiming(heic, *size), MAX_SIDE)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_truncated_heic_is_broken(heic: bytes, share: float) -> None:
    with pytest.raises(BrokenImageError):
        decode(heic[: int(len(heic) * share)], MAX_SIDE)


def test_changed_bytes_of_heic_are_read_or_broken(heic: bytes) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        data = bytearray(heic)
        for place in rng.integers(len(data), size=rng.integers(1, 12)):
            data[place] = rng.integers(256)
        try:
            decode(bytes(data), MAX_SIDE)
        except (BrokenImageError, UnsupportedImageError):
            continue


@pytest.mark.usefixtures("without_library")
def test_without_the_library_the_extra_is_named() -> None:
    data = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100)
    with pytest.raises(UnsupportedImageError, match=r"a HEIC image, .*pip install 'leafcode\[heif"):
        decode(data, MAX_SIDE)
