"""The kernels' cache on disk: used when sound, never in the way when not.

Most of it is told by one small kernel, because compiling all of them takes half a minute or more.
"""

import errno
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile, NullCache
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from service.engine import kernel_cache, kernels
from service.engine.compiling import allocating_kernel, kernel, part
from tests.support import processes
from tests.support.small_kernel import SOURCE, start
from trainer.learn import kernels as training_kernels

KERNEL_MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (kernels, training_kernels)
    for module in pkgutil.iter_modules(package.__path__)
]


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


@pytest.mark.parametrize("place", [0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_flipped_bit_of_a_cache_file_is_compiled_again(
    source: Path, cache: Path, caplog: pytest.LogCaptureFixture, suffix: str, place: float
) -> None:
    """It was run as machine code, which ended the process or gave another answer."""
    for path in cache.rglob(f"*.{suffix}"):
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 1
        path.write_bytes(data)
    kernel = start(source)
    assert kernel(21) == 42
    assert (cache_hits(kernel), cache_misses(kernel)) == (0, 1)
    assert "is damaged, compiling again" in caplog.text


@pytest.fixture
def nowhere(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in place of every folder of the cache, which stops root, too."""
    blocked = tmp_path / "file"
    blocked.touch()
    (source.parent / "__pycache__").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(blocked))
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    kernel_cache._warn_of_compiling_again.cache_clear()
    return blocked


def test_a_cache_that_cannot_be_written_costs_time_and_one_line_with_the_setting_that_helps(
    source: Path, nowhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = start(source)
    assert (kernel(21), kernel(2.5)) == (42, 5)
    (record,) = caplog.records
    assert f"none of {nowhere}/" in record.getMessage()
    assert "set NUMBA_CACHE_DIR to a folder that can" in record.getMessage()


def test_a_full_disk_costs_the_cache_but_not_the_start(
    source: Path, cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    kernel_cache._warn_of_compiling_again.cache_clear()
    monkeypatch.setattr(IndexDataCacheFile, "save", fail)
    assert start(source)(2.5) == 5
    assert f"none of {cache}/" in caplog.text


def test_a_kernel_without_its_source_is_compiled(source: Path) -> None:
    code = compile(source.read_text(), str(source.parent / "gone.py"), "exec")
    members: dict[str, Any] = {}
    exec(code, members)
    assert members["double"](21) == 42


def test_a_file_in_place_of_the_cache_folder_costs_the_cache_but_not_the_start(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    assert start(source)(21) == 42


def test_a_relative_home_folder_is_not_used(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system does not know the user, "~" stays as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    (source.parent / "__pycache__").touch()
    assert start(source)(21) == 42
    assert not (tmp_path / "~").exists()


def test_kernels_in_the_users_cache_are_used_where_those_beside_the_source_are_stale(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with monkeypatch.context() as older:
        older.setattr("service.engine.kernel_cache._shared_stamp", lambda: "another digest")
        assert start(source)(21) == 42
    beside, aside = source.parent / "__pycache__", source.parent / "aside"
    beside.rename(aside)
    beside.touch()
    assert start(source)(21) == 42
    beside.unlink()
    aside.rename(beside)
    kernel = start(source)
    assert kernel(21) == 42
    assert (cache_hits(kernel), cache_misses(kernel)) == (1, 0)


# Prepared as root, the service's kernels are run by a user without a name, a home folder and
# the right to write anything.
_RUN_AS_ANOTHER_USER = """
import os, sys
from numba.core import event
import numba, service.pool.warmup
# Another user may not read the libraries: all of them are imported now, our own modules later.
numba.njit(lambda value: value)(1)
for name in [name for name in sys.modules if name.partition(".")[0] == "service"]:
    del sys.modules[name]
os.setgroups([]); os.setgid(12345); os.setuid(12345)
import service.pool.warmup
with event.install_recorder("numba:compile") as recorder:
    service.pool.warmup.run_every_kernel()
print(service.__file__, os.access(os.path.dirname(service.__file__), os.W_OK), len(recorder.buffer))
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)
def test_kernels_prepared_by_root_are_used_by_another_user_who_cannot_write_them() -> None:
    # Not in pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        shutil.copytree(processes.ROOT / "service", folder / "service", ignore=_but_the_package)
        environment = {**processes.environment(PYTHONPATH=name), "HOME": "/nonexistent"}
        environment.pop("XDG_CACHE_HOME", None)
        for program in (["-m", "service", "warm"], ["-c", _RUN_AS_ANOTHER_USER]):
            done = subprocess.run(
                [sys.executable, *program],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=processes.DEADLINE_SECONDS,
            )
            assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [str(folder / "service" / "__init__.py"), "False", "0"]
        assert "NUMBA_CACHE_DIR" not in done.stderr


def _but_the_package(folder: str, names: list[str]) -> set[str]:
    """The names of models and drawings, which no kernel needs."""
    return {"models", "examples"} & set(names) if Path(folder).name == "service" else set()


@pytest.mark.usefixtures("cache")
def test_a_change_in_a_shared_file_makes_the_cache_stale(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is compiled into kernels of other files, which numba would not compile again."""
    monkeypatch.setattr("service.engine.kernel_cache._shared_stamp", lambda: "another digest")
    kernel = start(source)
    assert kernel(21) == 42
    assert (cache_hits(kernel), cache_misses(kernel)) == (0, 1)


# Two of the kernels, with the most parts: compiling all of them takes half a minute or more.
_DESCRIBE = """
import hashlib
import numpy as np
from service.engine import sift
gray = np.random.default_rng(0).random((60, 80), dtype=np.float32)
print(hashlib.sha256(sift.describe(gray, "fast-sift", 2).tobytes()).hexdigest())
"""


def test_freshly_compiled_and_cached_kernels_give_the_same_bits(tmp_path: Path) -> None:
    """A kernel that called another one rounded differently once it came from the cache."""
    environment = processes.environment(NUMBA_CACHE_DIR=str(tmp_path))

    def describe() -> str:
        command = [sys.executable, "-c", _DESCRIBE]
        return subprocess.run(
            command, env=environment, capture_output=True, check=True, text=True
        ).stdout

    first, compiled = describe(), contents(tmp_path)
    assert compiled
    assert describe() == first
    assert contents(tmp_path) == compiled


@pytest.mark.parametrize("module", KERNEL_MODULES)
def test_kernels_call_nothing_compiled_but_parts(module: str) -> None:
    """What a kernel calls is compiled into it, so that fresh and cached ones round alike."""
    members = vars(importlib.import_module(module))
    called = {
        (name, other)
        for name, member in members.items()
        if isinstance(member, Dispatcher)
        for other in member.py_func.__code__.co_names
        if isinstance(members.get(other), Dispatcher)
    }
    assert [pair for pair in called if not _is_part(members[pair[1]])] == []


@part
def _add(values: Any, total: Any) -> None:
    for i in range(values.shape[0]):
        total[0] += values[i]


def _add_rows(rows: Any, total: Any) -> None:
    for i in range(rows.shape[0]):
        _add(rows[i], total)


def _machine_code(decorate: Callable[[Any], Any]) -> str:
    compiled = decorate(_add_rows)
    compiled._cache = NullCache()
    rows, total = np.arange(6.0).reshape(2, 3), np.zeros(1)
    compiled(rows, total)
    assert total[0] == 15
    return "".join(compiled.inspect_asm().values())


def test_kernels_count_no_references() -> None:
    """An atomic instruction for every array that a part is given, shared by all threads."""
    assert "NRT_decref" in _machine_code(allocating_kernel)
    assert "NRT_decref" not in _machine_code(kernel)


def test_a_kernel_that_makes_an_array_is_not_compiled() -> None:
    def make(count: int) -> Any:
        return np.zeros(count)

    with pytest.raises(NumbaError, match="array passed into the function as argument"):
        kernel(make)(3)


def _is_part(compiled: Any) -> bool:
    return bool(compiled.targetoptions.get("inline") == "always")
