"""A second process that compiles: where it is of use, and never longer than it is."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numba
import pytest

from service.engine.kernel_cache import can_keep_kernels
from service.pool.compiling_helper import CompilingHelper
from service.pool.cores import allowed_cores
from tests.support.processes import children_of, is_alive


def helpers() -> list[int]:
    """Processes of ours that compile."""
    ours = children_of(os.getpid())
    return [pid for pid in ours if b"compiling_helper" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


@pytest.fixture
def one_core() -> Iterator[None]:
    """Only one core for this process."""
    before = allowed_cores()
    os.sched_setaffinity(0, before[:1])
    yield
    os.sched_setaffinity(0, before)


needs_two_cores = pytest.mark.skipif(
    len(allowed_cores()) < 2, reason="a helper is only started where there is a core for it"
)


@needs_two_cores
def test_a_helper_is_done_when_all_its_kernels_are_compiled() -> None:
    with closing(CompilingHelper()) as helper:
        helper.start()
        helper.wait()
    assert helper._process is not None
    assert helper._process.returncode == 0


@needs_two_cores
def test_a_helper_that_still_compiles_ends_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with closing(CompilingHelper()) as helper:
        helper.start()
        (pid,) = helpers()
    assert not is_alive(pid)


@pytest.mark.usefixtures("one_core")
def test_there_is_no_helper_on_one_core() -> None:
    with closing(CompilingHelper()) as helper:
        helper.start()
        assert helpers() == []
        helper.wait()


def test_there_is_no_helper_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    with closing(CompilingHelper()) as helper:
        helper.start()
        assert helpers() == []


@pytest.mark.parametrize("name", ["", "not/yet/there"])
def test_kernels_can_be_kept_in_a_folder_that_is_or_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / name))
    assert can_keep_kernels()


def test_kernels_cannot_be_kept_below_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "below"))
    assert not can_keep_kernels()
