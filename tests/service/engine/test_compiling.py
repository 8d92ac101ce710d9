"""The kernels' cache on disk: used when sound, never in the way when not.

Most of it is told by one small kernel, because compiling all of them takes 15 seconds.
"""

import errno
import importlib.util
import logging
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import FunctionCache

from tests.support import processes

SOURCE = """
from service.engine.compiling import kernel

@kernel
def double(value):
    return 2 * value
"""


def start(source: Path) -> Any:
    """The kernel as a new process has it: nothing of it is compiled yet."""
    spec = importlib.util.spec_from_file_location("small_kernel", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A module with one kernel."""
    path = tmp_path / "small_kernel.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def cache(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that one start has filled."""
    folder = tmp_path / "kernels"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    kernel = start(source)
    assert kernel(21) == 42
    assert (cache_hits(kernel), cache_misses(kernel)) == (0, 1)
    return folder


def cache_hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


def cache_misses(kernel: Any) -> int:
    return sum(kernel.stats.cache_misses.values())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.nb*")}


def test_second_start_uses_what_the_first_one_compiled(source: Path, cache: Path) -> None:
    before = contents(cache)
    assert {path.suffix for path in before} == {".nbi", ".nbc"}
    kernel = start(source)
    assert kernel(21) == 42
    assert (cache_hits(kernel), cache_misses(kernel)) == (1, 0)
    assert contents(cache) == before


@pytest.mark.parametrize("size", [0, 40])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_truncated_cache_files_are_compiled_again(
    source: Path, cache: Path, caplog: pytest.LogCaptureFixture, suffix: str, size: int
) -> None:
    for path in cache.rglob(f"*.{suffix}"):
        path.write_bytes(path.read_bytes()[:size])
    assert start(source)(21) == 42
    assert "is damaged, compiling again" in caplog.text
    caplog.clear()
    mended = start(source)
    assert mended(21) == 42
    assert cache_hits(mended) == 1
    assert not caplog.records


@pytest.mark.usefixtures("cache")
def test_a_full_disk_costs_the_cache_but_not_the_start(
    source: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FunctionCache, "save_overload", fail)
    kernel = start(source)
    with caplog.at_level(logging.WARNING):
        assert kernel(2.5) == 5
    assert "cannot be written" in caplog.text


def test_a_file_in_place_of_the_cache_folder_costs_the_cache_but_not_the_start(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    assert start(source)(21) == 42


def test_a_start_without_a_folder_for_the_cache_compiles_anyway(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("service.engine.compiling._TolerantCache", nowhere)
    assert start(source)(21) == 42


@pytest.mark.usefixtures("cache")
def test_a_change_in_a_shared_file_makes_the_cache_stale(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is compiled into kernels of other files, which numba would not compile again."""
    monkeypatch.setattr("service.engine.compiling._shared_stamp", lambda: "another digest")
    kernel = start(source)
    assert kernel(21) == 42
    assert (cache_hits(kernel), cache_misses(kernel)) == (0, 1)


def test_freshly_compiled_and_cached_kernels_give_the_same_bits(
    trained_bundle: Path, drawn_images: Path, tmp_path: Path
) -> None:
    """A kernel that called another one rounded differently once it came from the cache."""
    image, models = str(drawn_images / "disc" / "000.png"), str(trained_bundle.parents[1])
    environment = processes.environment(NUMBA_CACHE_DIR=str(tmp_path))

    def classify() -> bytes:
        return processes.run(
            "classify", image, "--models", models, "--json", env=environment
        ).stdout

    first, compiled = classify(), contents(tmp_path)
    assert b"disc" in first
    assert compiled
    assert classify() == first
    assert contents(tmp_path) == compiled
