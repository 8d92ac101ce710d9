"""Rows that are told of early are those of the image, and whoever reads them lets go of it."""

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from service.engine import BrokenImageError, Engine, Stopwatch, jpeg_rows
from service.engine.arrays import Float32Array, UInt8Array, frozen
from service.engine.early_start import EarlyStart
from service.engine.image import Picture, decode, decode_picture
from service.engine.jpeg_rows import JpegRows, own_pixels
from service.engine.kernels.classifier import DONE_PARTS, IS_POOLED
from service.engine.kernels.strips import DONE_ROWS, NOT_DECODING, Decoding, set_counter
from service.engine.views import ImageCoding
from tests.support.processes import until
from tests.support.samples import CONFIG, SEVERAL, random_bundle

HEIGHT, WIDTH, UNLIMITED = 230, 190, 4096
BUNDLE = random_bundle(replace(CONFIG, max_side=400))
ALONE, TOGETHER = Engine(BUNDLE), Engine(BUNDLE, 2)
ORIENTATION = 0x0112


Options = dict[str, Any]


def noise(seed: int = 0, height: int = HEIGHT, width: int = WIDTH) -> UInt8Array:
    """Blurred a little, so that a JPEG of it has more than its noise."""
    levels = np.random.default_rng(seed).integers(0, 256, (height + 2, width + 2, 3))
    windows = [levels[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    blurred: UInt8Array = np.mean(windows, axis=0).astype(np.uint8)
    return blurred


def jpeg(pixels: UInt8Array, **options: object) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return jpeg(noise(), exif=exif)


def with_long_header() -> bytes:
    """Three quarters of the bytes are no part of the image."""
    data = jpeg(noise())
    comment = b"\xff\xfe" + (50_000).to_bytes(2, "big") + bytes(49_998)
    return data[:2] + 3 * (len(data) // 50_000 + 1) * comment + data[2:]


class Told:
    """What somebody is told of rows, and what these were then."""

    def __init__(self) -> None:
        self.images: list[Float32Array] = []
        self.parts: list[Float32Array] = []
        self.decodings: list[Decoding] = []

    def __call__(self, gray: Float32Array, rows: int, decoding: Decoding) -> None:
        self.images.append(gray)
        self.parts.append(gray[:rows].copy())
        self.decodings.append(decoding)


@pytest.fixture
def out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor whose stores may be seen in another order: rows have to be told of."""
    monkeypatch.setattr(jpeg_rows, "_STORES_IN_ORDER", False)


in_both_orders = pytest.mark.parametrize("in_order", [False, True])


EARLY: dict[str, Callable[[], bytes]] = {
    "colours": lambda: jpeg(noise()),
    "colours, not subsampled": lambda: jpeg(noise(), subsampling=0),
    "grey": lambda: jpeg(noise()[:, :, 0]),
    "restart markers": lambda: jpeg(noise(), restart_marker_rows=1),
    "a long header": with_long_header,
    "upright": lambda: turned(1),
}


@pytest.mark.usefixtures("out_of_order")
@pytest.mark.parametrize("name", EARLY)
@pytest.mark.parametrize("in_colour", [False, True])
def test_rows_are_told_of_before_the_others_are_there(name: str, in_colour: bool) -> None:  # noqa: FBT001
    data, told = EARLY[name](), Told()
    if in_colour:
        picture, expected = (decode_picture(data, UNLIMITED, None, on) for on in (told, None))
        gray, whole = picture.gray, expected.gray
        np.testing.assert_array_equal(
            np.array(picture.colours, object), np.array(expected.colours, object)
        )
    else:
        gray, whole = (decode(data, UNLIMITED, None, on) for on in (told, None))
    np.testing.assert_array_equal(gray, whole)
    first, *others = told.parts
    assert not len(first)
    assert others
    assert all(image is gray for image in told.images)
    assert all(len(a) < len(b) for a, b in pairwise([*told.parts, whole]))
    for part in told.parts:
        np.testing.assert_array_equal(part, whole[: len(part)])


def black(rows: slice) -> bytes:
    pixels = noise()
    pixels[rows] = 0
    return jpeg(pixels, subsampling=0)


NOT_EARLY: dict[str, Callable[[], bytes]] = {
    "progressive": lambda: jpeg(noise(), progressive=True),
    "turned": lambda: turned(6),
    "PNG": lambda: png(noise()),
}


def png(pixels: UInt8Array) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("name", NOT_EARLY)
def test_of_others_nobody_is_told(name: str) -> None:
    data, told = NOT_EARLY[name](), Told()
    np.testing.assert_array_equal(decode(data, UNLIMITED, None, told), decode(data, UNLIMITED))
    assert not told.parts


def test_of_an_image_that_is_scaled_nobody_is_told() -> None:
    data, told = jpeg(noise()), Told()
    np.testing.assert_array_equal(decode(data, 100, None, told), decode(data, 100))
    assert not told.parts


@pytest.mark.usefixtures("out_of_order")
def test_a_large_image_is_told_of_more_than_once() -> None:
    data, told = jpeg(noise(2, 700, 800), quality=95, subsampling=0), Told()
    whole = decode(data, UNLIMITED, None, told)
    assert len(told.parts) > 3
    for part in told.parts:
        np.testing.assert_array_equal(part, whole[: len(part)])


def test_bytes_behind_an_image_do_not_count() -> None:
    data, told = jpeg(noise()), Told()
    longer = data + bytes(4 * len(data))
    np.testing.assert_array_equal(decode(longer, UNLIMITED, None, told), decode(data, UNLIMITED))


BLACK = [slice(None), slice(0, 100), slice(60, None), slice(20, 200)]


@pytest.mark.usefixtures("out_of_order")
@pytest.mark.parametrize("rows", BLACK)
def test_black_rows_are_not_taken_for_others(rows: slice) -> None:
    data, told = black(rows), Told()
    whole = decode(data, UNLIMITED)
    np.testing.assert_array_equal(decode(data, UNLIMITED, None, told), whole)
    for part in told.parts:
        np.testing.assert_array_equal(part, whole[: len(part)])


# --- rows that are seen to come -------------------------------------------------------


def test_a_grey_image_is_decoded_where_its_rows_can_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jpeg_rows, "_STORES_IN_ORDER", True)
    told = Told()
    gray = decode(jpeg(noise()), UNLIMITED, None, told)
    (decoding,) = told.decodings
    assert told.images[0] is gray is decoding.gray
    np.testing.assert_array_equal(decoding.pixels * np.float32(decoding.scale), gray)


def test_the_rows_of_a_coloured_image_are_told_of() -> None:
    told = Told()
    decode_picture(jpeg(noise()), UNLIMITED, None, told)
    assert len(told.parts) > 1
    assert all(decoding is NOT_DECODING for decoding in told.decodings)


def begin(gray: Float32Array, decoding: Decoding) -> ImageCoding:
    begun = TOGETHER.view.begin_image(gray, decoding, TOGETHER.threads.count)
    TOGETHER.threads.help(begun.help, TOGETHER.threads.count)
    return begun


def test_other_threads_see_rows_that_nobody_tells_them_of() -> None:
    whole = noise()[:, :, 0] | np.uint8(1)  # no black pixels
    pixels, gray = np.zeros_like(whole), np.full(whole.shape, np.nan, np.float32)
    decoding = Decoding(frozen(pixels), gray, 1 / 255)
    begun = begin(gray, decoding)
    done = begun._work.strips.counters
    pixels[: HEIGHT // 2] = whole[: HEIGHT // 2]
    until(lambda: bool(done[DONE_ROWS]))  # nobody but the other thread takes strips here
    pixels[HEIGHT // 2 :] = whole[HEIGHT // 2 :]
    gray[:] = whole * np.float32(1 / 255)
    begun.show_rows()
    found, expected = (
        begun.finish(Stopwatch()),
        ALONE.view.encode_image(Picture(gray), ALONE.threads, Stopwatch()),
    )
    assert found.finest is not None
    assert expected.finest is not None
    np.testing.assert_array_equal(found.finest, expected.finest)


@pytest.mark.parametrize("rows", BLACK)
def test_rows_that_cannot_be_seen_are_waited_for(rows: slice) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(TOGETHER.scores(black(rows)), ALONE.scores(black(rows)))


# --- engines that begin early ---------------------------------------------------------


@in_both_orders
@pytest.mark.parametrize("name", [*EARLY, *NOT_EARLY])
@pytest.mark.parametrize("threads", [2, 3])
def test_scores_do_not_depend_on_an_early_start(
    name: str,
    threads: int,
    in_order: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jpeg_rows, "_STORES_IN_ORDER", in_order)
    data = {**EARLY, **NOT_EARLY}[name]()
    for _ in range(3):
        np.testing.assert_array_equal(Engine(BUNDLE, threads).scores(data), ALONE.scores(data))


def test_an_early_start_gives_the_blocks_of_several_views() -> None:
    bundle, data = random_bundle(replace(SEVERAL, max_side=400)), jpeg(noise(1))
    expected = Engine(bundle).pooled_vector(data)
    np.testing.assert_array_equal(Engine(bundle, 2).pooled_vector(data), expected)


def test_other_threads_begin_while_an_image_is_decoded() -> None:
    data, early = jpeg(noise()), EarlyStart(TOGETHER.view, TOGETHER.threads)
    with early:
        picture = TOGETHER.decode_picture(data, None, early.on_rows)
    begun = early.begun_for(TOGETHER.view)
    assert begun is not None
    found = TOGETHER.view.encode_image(picture, TOGETHER.threads, Stopwatch(), begun=begun)
    expected = ALONE.view.encode_image(picture, ALONE.threads, Stopwatch())
    assert found.finest is not None
    assert expected.finest is not None
    np.testing.assert_array_equal(found.finest, expected.finest)


def test_other_threads_score_the_pooled_vector_once_it_is_there() -> None:
    gray, pooled = decode(jpeg(noise()), UNLIMITED), no_vector()
    scores = TOGETHER.classifier.begin(pooled)
    begun = TOGETHER.view.begin_image(gray, NOT_DECODING, TOGETHER.threads.count, scores)
    begun.show_rows()
    TOGETHER.pool_encoded([begun.finish(Stopwatch())], Stopwatch(), pooled)
    TOGETHER.threads.help(begun.help, TOGETHER.threads.count)
    counters = scores.scoring.counters
    set_counter(counters, IS_POOLED, 1)
    until(lambda: counters[DONE_PARTS] == len(scores.scoring.ends))  # by nobody but the helper
    np.testing.assert_array_equal(scores.finish(), ALONE.classifier.scores(pooled))


def test_a_pooled_vector_that_never_comes_is_not_waited_for() -> None:
    picture, data = TOGETHER.decode_picture(jpeg(noise())), jpeg(noise())
    for _ in range(3):
        scores = TOGETHER.classifier.begin(no_vector())
        TOGETHER.view.encode_image(picture, TOGETHER.threads, Stopwatch(), scores=scores)
    np.testing.assert_array_equal(TOGETHER.scores(data), ALONE.scores(data))


def no_vector() -> Float32Array:
    return np.empty(TOGETHER.config.n_features, np.float32)


def test_one_thread_is_told_of_no_rows() -> None:
    assert EarlyStart(ALONE.view, ALONE.threads).on_rows is None


@in_both_orders
@pytest.mark.parametrize("share", [0.4, 0.8, 0.95])
def test_a_truncated_image_has_the_error_of_one_thread_and_harms_no_other(
    share: float,
    in_order: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jpeg_rows, "_STORES_IN_ORDER", in_order)
    data = jpeg(noise())
    truncated = data[: int(share * len(data))]
    with pytest.raises(BrokenImageError) as expected:
        ALONE.scores(truncated)
    for _ in range(5):
        with pytest.raises(BrokenImageError) as found:
            TOGETHER.scores(truncated)
        assert str(found.value) == str(expected.value)
        np.testing.assert_array_equal(TOGETHER.scores(data), ALONE.scores(data))


def test_an_image_too_small_for_a_descriptor_is_an_error_of_the_caller_s_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small = jpeg(noise(0, 12, 300))
    for _ in range(5):
        with pytest.raises(BrokenImageError, match="300x12 pixels"):
            TOGETHER.scores(small)
    np.testing.assert_array_equal(TOGETHER.scores(jpeg(noise())), ALONE.scores(jpeg(noise())))
    assert not caplog.records


def test_rows_that_never_come_are_not_waited_for() -> None:
    gray = decode(jpeg(noise()), UNLIMITED)
    begun = begin(gray, NOT_DECODING)
    begun.show_rows(HEIGHT // 3)
    begun.give_up()
    np.testing.assert_array_equal(TOGETHER.scores(png(noise())), ALONE.scores(png(noise())))


@pytest.mark.parametrize("share", [1, 0.8])
def test_no_image_lives_until_the_collector_comes(share: float) -> None:
    """Memory of an image that is not free when the next one comes is cleared by the system."""
    data = jpeg(noise())
    gc.collect()
    gc.disable()
    try:
        for engine in (ALONE, TOGETHER):
            try:
                engine.scores(data[: int(share * len(data))])
            except BrokenImageError:
                assert share < 1
        helper_is_done = threading.Event()
        TOGETHER.threads.help(helper_is_done.set, 2)
        assert helper_is_done.wait(60)
        # By type, because to ask a proxy of something that is gone for its class is an error.
        left = [item for item in gc.get_objects() if type(item) in (ImageCoding, JpegRows)]
        assert not left
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
def test_a_grey_jpeg_is_decoded_into_the_pixels_that_it_was_given(options: Options) -> None:
    data = jpeg(noise(), **options)
    with JpegImagePlugin.JpegImageFile(BytesIO(data)) as picture:
        picture.draft("L", picture.size)
        pixels = own_pixels(picture)
        assert not pixels.any()
        picture.load()
    with Image.open(BytesIO(data)) as expected:
        expected.draft("L", expected.size)
        np.testing.assert_array_equal(pixels, np.asarray(expected))
    np.testing.assert_array_equal(decode(data, UNLIMITED), pixels * np.float32(1 / 255))
