"""Pooled vectors on disk between runs."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine, FeatureExtractor
from service.engine.arrays import Float32Array
from service.engine.config import CodesConfig, EngineConfig, ResidualsConfig, ViewConfig
from tests.support import pictures
from tests.support.samples import random_bundle
from trainer.cli import main
from trainer.vector_cache import VectorCache
from trainer.vectors import Pooling, caching

CONFIG = EngineConfig(
    views=(ViewConfig(3, step=4), ViewConfig(2, "colour", step=4, reduction=2)),
    blocks=(CodesConfig(20, 3), ResidualsConfig((1, 0), 5, (2, 1), weight=0.4, view=1)),
    max_side=90,
)
ENGINE = Engine(random_bundle(CONFIG))


def _key(number: int) -> bytes:
    return f"{number:064d}".encode()


def _vector(number: int, size: int = 1000) -> Float32Array:
    return np.random.default_rng(number).normal(size=size).astype(np.float32)


def _keep(folder: Path, *numbers: int, limit: int = 10**6) -> None:
    with VectorCache.opened(folder, limit) as cache:
        for number in numbers:
            cache.add(_key(number), _vector(number))


def _kept(folder: Path, *numbers: int) -> list[bool]:
    """Which of the vectors are there, as they were added."""
    with VectorCache.opened(folder) as cache:
        found = [cache.get(_key(number)) for number in numbers]
    for number, vector in zip(numbers, found, strict=True):
        if vector is not None:
            np.testing.assert_array_equal(vector, _vector(number))
    return [vector is not None for vector in found]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.vectors"))


def _counts(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def test_vectors_of_an_earlier_run_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    _keep(folder, 1, 2)
    _keep(folder, 3)
    assert _kept(folder, 1, 2, 3, 4) == [True, True, True, False]


def test_a_run_that_adds_nothing_leaves_no_file(tmp_path: Path) -> None:
    _keep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_keeps_what_it_added(tmp_path: Path) -> None:
    def interrupted() -> None:
        with VectorCache.opened(tmp_path) as cache:
            cache.add(_key(1), _vector(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert _kept(tmp_path, 1) == [True]


def test_files_used_least_recently_make_room(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        _keep(tmp_path, number, limit=10**6)
    for age, path in enumerate(reversed(_files(tmp_path))):
        os.utime(path, (0, 10**9 - age))
    assert _kept(tmp_path, 1) == [True]  # now it is used most recently
    _keep(tmp_path, 4, limit=13_000)
    assert _kept(tmp_path, 1, 2, 3, 4) == [True, False, True, True]
    assert sum(path.stat().st_size for path in _files(tmp_path)) <= 13_000


def test_no_run_adds_more_than_the_limit(tmp_path: Path) -> None:
    _keep(tmp_path, 1, 2, 3, limit=9000)
    assert _kept(tmp_path, 1, 2, 3) == [True, True, False]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:0],
        lambda data: data[:0] + b"foreign",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-50] + bytes([data[-50] ^ 1]) + data[-49:],
        lambda data: data + b"\0",
        lambda data: b"\0" * len(data),
    ],
)
def test_a_damaged_file_is_left_out_and_vectors_are_kept_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    _keep(tmp_path, 1)
    (file,) = _files(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert _kept(tmp_path, 1) == [False]
    assert "is no file of vectors" in caplog.text
    _keep(tmp_path, 1)
    assert _kept(tmp_path, 1) == [True]


def test_a_damaged_vector_is_not_given_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _keep(tmp_path, 1, 2)
    (file,) = _files(tmp_path)
    data = bytearray(file.read_bytes())
    data[17] ^= 1
    file.write_bytes(data)
    assert _kept(tmp_path, 1, 2) == [False, True]
    assert "damaged and computed again" in caplog.text


def test_a_file_that_another_run_removes_stays_readable(tmp_path: Path) -> None:
    _keep(tmp_path, 1)
    with VectorCache.opened(tmp_path) as cache:
        _keep(tmp_path, 2, limit=5000)
        assert [path.exists() for path in _files(tmp_path)] == [True]
        np.testing.assert_array_equal(cache.get(_key(1)), _vector(1))
    assert _kept(tmp_path, 1, 2) == [False, True]


def test_runs_at_the_same_time_do_not_harm_each_other(tmp_path: Path) -> None:
    def run(first: int) -> None:
        for start in range(first, first + 40, 4):
            _keep(tmp_path, *range(start, start + 4), limit=100_000)
            assert _kept(tmp_path, *range(start, start + 4)) in ([True] * 4, [False] * 4)

    with ThreadPoolExecutor(3) as executor:
        list(executor.map(run, [0, 100, 200]))
    assert sum(_kept(tmp_path, *(100 * n + i for n in range(3) for i in range(40)))) >= 4
    assert all(path.suffix == ".vectors" for path in tmp_path.iterdir())
    assert _counts(tmp_path) < 3 * 100_000


def test_unfinished_files_of_yesterday_are_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "unfinished-a", tmp_path / "unfinished-b"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    _keep(tmp_path, 1)
    assert not old.exists()
    assert new.exists()


def test_a_folder_that_cannot_be_written_costs_only_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache"
    _keep(folder, 1)
    assert _kept(folder, 1) == [False]
    assert "cannot keep pooled vectors" in caplog.text


@pytest.fixture
def image() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    return pictures.png(Image.fromarray(pixels))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_vector_from_the_cache_is_the_same_bit_for_bit(
    cache: Path, image: bytes, *, mirrored: bool
) -> None:
    expected = Pooling(ENGINE).vector(image, mirrored=mirrored)
    for _ in range(2):
        with VectorCache.opened(cache) as vectors, caching(vectors):
            found = Pooling(ENGINE).vector(image, mirrored=mirrored)
        assert found.tobytes() == expected.tobytes()
    assert len(_files(cache)) == 1


def test_the_weighted_vector_is_that_of_the_engine(cache: Path, image: bytes) -> None:
    for _ in range(2):
        with VectorCache.opened(cache) as vectors, caching(vectors):
            found = Pooling(ENGINE).weighted_vector(image)
        assert found.tobytes() == ENGINE.pooled_vector(image).tobytes()


def test_an_extractor_with_other_weights_or_fewer_blocks_finds_its_vectors(
    cache: Path, image: bytes
) -> None:
    with VectorCache.opened(cache) as vectors, caching(vectors):
        Pooling(ENGINE).vector(image)
    with VectorCache.opened(cache) as vectors, caching(vectors):
        for weights in ([1.0, 3.0], [1.0, 0.0]):
            pooling = Pooling(ENGINE.weighted(weights))
            assert pooling.is_known(image)
            even = ENGINE.weighted([float(weight > 0) for weight in weights])
            assert pooling.vector(image).tobytes() == even.pooled_vector(image).tobytes()


def test_other_tensors_settings_or_bytes_are_other_vectors(cache: Path, image: bytes) -> None:
    with VectorCache.opened(cache) as vectors, caching(vectors):
        Pooling(ENGINE).vector(image)
    others = [
        Engine(random_bundle(CONFIG, seed=1)),
        Engine(random_bundle(replace(CONFIG, max_side=80))),
    ]
    with VectorCache.opened(cache) as vectors, caching(vectors):
        assert [Pooling(engine).is_known(image) for engine in others] == [False, False]
        assert not Pooling(ENGINE).is_known(image + b"\0")
        assert Pooling(ENGINE).is_known(image)


def test_vectors_of_more_images_than_fit_are_not_added(cache: Path, image: bytes) -> None:
    with VectorCache.opened(cache, 10**6) as vectors, caching(vectors):
        Pooling(ENGINE, n_images=10**6).vector(image)
    assert _files(cache) == []


def test_fit_from_a_bundle_and_evaluate_use_the_vectors_of_earlier_runs(
    trained_bundle: Path, drawn_images: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    fit = ["fit", str(drawn_images), "--from-bundle", str(trained_bundle)]
    out = [str(tmp_path / "models" / name) for name in ("first", "second", "third")]
    assert main([*fit, "--out", out[0], "--cache", str(folder)]) == 0
    size = _counts(folder / "vectors")
    assert size
    assert main([*fit, "--out", out[1], "--cache", str(folder)]) == 0
    assert main(["evaluate", f"{out[0]}/1", str(drawn_images), "--cache", str(folder)]) == 0
    assert _counts(folder / "vectors") == size
    assert main([*fit, "--out", out[2], "--no-cache"]) == 0
    tensors = [Engine.load(f"{each}/1").classifier.tensors() for each in out]
    for name, tensor in tensors[0].items():
        assert tensor.tobytes() == tensors[1][name].tobytes() == tensors[2][name].tobytes()


def test_commands_keep_vectors_in_the_folder_for_caches(
    trained_bundle: Path, drawn_images: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["evaluate", str(trained_bundle), str(drawn_images), "--json"]) == 0
    assert len(_files(tmp_path / "leafcode" / "trainer" / "vectors")) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cache-size", "-1"], "--cache-size is -1, expected a number of gigabytes"),
        (["--cache-size", "nan"], "--cache-size is nan, expected a number of gigabytes"),
        (["--cache", __file__], "is a file, expected a folder or a new name"),
    ],
)
def test_wrong_options_are_rejected(
    trained_bundle: Path,
    drawn_images: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    assert main(["evaluate", str(trained_bundle), str(drawn_images), *options]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("blank", [True, False])
def test_whether_an_image_is_blank_is_kept_with_its_vector(
    cache: Path, image: bytes, monkeypatch: pytest.MonkeyPatch, *, blank: bool
) -> None:
    data = pictures.png(pictures.blank()) if blank else image
    assert Pooling(ENGINE).is_blank(data) is blank
    for mirrored in (False, True):
        with VectorCache.opened(cache) as vectors, caching(vectors):
            Pooling(ENGINE).vector(data, mirrored=mirrored)
            assert Pooling(ENGINE).is_blank(data) is blank
    with VectorCache.opened(cache) as vectors, caching(vectors):
        pooling = Pooling(ENGINE)
        monkeypatch.setattr(FeatureExtractor, "decode_picture", None)  # so that nothing is decoded
        assert pooling.is_blank(data) is blank
