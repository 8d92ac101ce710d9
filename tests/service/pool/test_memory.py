"""Which limit on memory counts, and how much of it is in use."""

from pathlib import Path

import pytest

from service.pool.memory import Memory, memory

MACHINE = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
NO_LIMIT = "9223372036854771712"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    (tmp_path / "meminfo").write_text(MACHINE)
    return tmp_path / "meminfo"


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "membership"


def write_group(folder: Path, limit: str, used: int) -> None:
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text("anon 300\ninactive_file 50\n")


def write_old_group(folder: Path, limit: str, used: int) -> None:
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 50\n")


def test_without_control_groups_the_memory_is_the_machines(meminfo: Path, tmp_path: Path) -> None:
    found = memory(tmp_path / "nothing", tmp_path, meminfo)
    assert found == Memory(used=600 * 1024, limit=1000 * 1024)


def test_a_container_counts_without_the_pages_of_files_that_nobody_uses(
    meminfo: Path, membership: Path, tmp_path: Path
) -> None:
    membership.write_text("0::/service\n")
    write_group(tmp_path / "cgroups" / "service", "512000", 400_000)
    assert memory(membership, tmp_path / "cgroups", meminfo) == Memory(399_950, 512_000)


def test_a_container_of_version_one_counts(meminfo: Path, membership: Path, tmp_path: Path) -> None:
    membership.write_text("4:memory:/docker/7\n3:cpu:/docker/7\n0::/\n")
    write_old_group(tmp_path / "cgroups" / "memory" / "docker" / "7", "512000", 400_000)
    assert memory(membership, tmp_path / "cgroups", meminfo) == Memory(399_950, 512_000)


def test_the_tightest_limit_on_the_way_up_counts(
    meminfo: Path, membership: Path, tmp_path: Path
) -> None:
    membership.write_text("0::/pod/container\n")
    write_group(tmp_path / "cgroups" / "pod", "300000", 200_000)
    (tmp_path / "cgroups" / "pod" / "container").mkdir()
    assert memory(membership, tmp_path / "cgroups", meminfo) == Memory(199_950, 300_000)


def test_a_group_without_a_limit_leaves_the_machines(
    meminfo: Path, membership: Path, tmp_path: Path
) -> None:
    membership.write_text("4:memory:/a\n0::/b\n")
    write_old_group(tmp_path / "cgroups" / "memory" / "a", NO_LIMIT, 400_000)
    write_group(tmp_path / "cgroups" / "b", "max", 400_000)
    assert memory(membership, tmp_path / "cgroups", meminfo) == Memory(600 * 1024, 1000 * 1024)


def test_a_system_that_does_not_tell_has_no_memory_to_report(tmp_path: Path) -> None:
    assert memory(tmp_path, tmp_path, tmp_path / "nothing") is None
