"""Which cores may be used, and who gets them."""

import os
from pathlib import Path

import pytest

from service.pool.cores import cpu_quota, deal, usable_cores


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "membership"


def test_usable_cores_are_allowed_ones() -> None:
    cores = usable_cores()
    assert cores
    assert set(cores) <= os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None), ("nonsense", None)],
)
def test_a_quota_of_version_two_is_read(
    tmp_path: Path, membership: Path, text: str, quota: float | None
) -> None:
    membership.write_text("0::/service\n")
    write(tmp_path / "cgroups" / "service", cpu_max=text)
    assert cpu_quota(membership, tmp_path / "cgroups") == quota


@pytest.mark.parametrize(("text", "quota"), [("150000", 1.5), ("-1", None), ("", None)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_one_is_read(
    tmp_path: Path, membership: Path, mount: str, text: str, quota: float | None
) -> None:
    membership.write_text("4:memory:/docker/7\n3:cpu,cpuacct:/docker/7\n0::/\n")
    folder = tmp_path / "cgroups" / mount / "docker" / "7"
    write(folder, cpu_cfs_quota_us=text, cpu_cfs_period_us="100000")
    assert cpu_quota(membership, tmp_path / "cgroups") == quota


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/pod/container\n")
    write(tmp_path / "pod" / "container", cpu_max="400000 100000")
    write(tmp_path / "pod", cpu_max="300000 100000")
    assert cpu_quota(membership, tmp_path) == 3.0


def test_a_path_of_the_host_falls_back_to_our_own_root(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/kubepods/elsewhere\n")
    write(tmp_path / "cgroups", cpu_max="100000 100000")
    assert cpu_quota(membership, tmp_path / "cgroups") == 1.0


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "nothing", tmp_path) is None


@pytest.mark.parametrize(
    ("cores", "workers", "threads", "shares"),
    [
        ((0, 1), 2, 1, ((0,), (1,))),
        ((2, 3, 5, 7), 2, 2, ((2, 3), (5, 7))),
        ((4,), 3, 1, ((4,), (4,), (4,))),
        ((0, 1, 2), 2, 2, ((0, 1), (0, 2))),
        ((0, 1), 1, 4, ((0, 1),)),
    ],
)
def test_cores_are_dealt_out_in_turn(
    cores: tuple[int, ...], workers: int, threads: int, shares: tuple[tuple[int, ...], ...]
) -> None:
    assert deal(cores, workers, threads) == shares
