"""The kernels' cache on disk: used when sound, never in the way when not."""

import subprocess
from pathlib import Path

import pytest

from tests.support import processes


def _warm(cache: Path) -> subprocess.CompletedProcess[bytes]:
    return processes.run("warm", env=processes.environment(NUMBA_CACHE_DIR=str(cache)))


def _cached(cache: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in cache.rglob("*.nb*")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that one start has filled."""
    folder = tmp_path_factory.mktemp("kernels")
    assert _warm(folder).returncode == 0
    return folder


def test_second_start_uses_what_the_first_one_compiled(cache: Path) -> None:
    before = _cached(cache)
    done = _warm(cache)
    assert before
    assert _cached(cache) == before
    assert b"compiling" not in done.stderr


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_truncated_cache_files_are_compiled_again(cache: Path, suffix: str) -> None:
    damaged = list(cache.rglob(f"*.{suffix}"))
    for path in damaged:
        path.write_bytes(path.read_bytes()[:40])
    done = _warm(cache)
    assert done.returncode == 0, done.stderr
    assert b"is damaged, compiling" in done.stderr
    assert b"is damaged" not in _warm(cache).stderr


def test_start_without_a_usable_cache_folder_compiles_anyway(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    done = _warm(blocked)
    assert done.returncode == 0, done.stderr


def test_freshly_compiled_and_cached_kernels_give_the_same_bits(
    trained_bundle: Path, drawn_images: Path, tmp_path: Path
) -> None:
    """A kernel that called another one rounded differently once it came from the cache."""
    image, models = str(drawn_images / "disc" / "000.png"), str(trained_bundle.parents[1])
    cache = processes.environment(NUMBA_CACHE_DIR=str(tmp_path))
    first, second = (
        processes.run("classify", image, "--models", models, "--json", env=cache).stdout
        for _ in range(2)
    )
    assert b"disc" in first
    assert first == second
