"""Which cores may be used, and which of them workers and the event loop get."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from service.pool import cores
from service.pool.cores import Placement, allowed_cores, cpu_quota, stay_on, usable_cores
from service.settings import Pin


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "membership"


def on_one_core(ask: Callable[[], tuple[int, ...]]) -> tuple[int, tuple[int, ...]]:
    """The last core that we may use, and what `ask` answers in a thread that is kept to it."""
    last = max(os.sched_getaffinity(0))

    def keep_and_ask() -> tuple[int, ...]:
        stay_on([last])
        return ask()

    # The mask belongs to the thread: ours stays as it is.
    with ThreadPoolExecutor(1) as thread:
        return last, thread.submit(keep_and_ask).result()


def test_allowed_cores_are_those_of_the_mask() -> None:
    last, allowed = on_one_core(allowed_cores)
    assert allowed == (last,)


def test_usable_cores_are_those_of_the_mask_without_a_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, membership: Path
) -> None:
    monkeypatch.setattr(cores, "cpu_quota", partial(cpu_quota, membership, tmp_path))
    last, usable = on_one_core(usable_cores)
    assert usable == (last,)


@pytest.mark.parametrize(
    ("quota", "usable"),
    [("250000", (1, 3)), ("100000", (1,)), ("20000", (1,)), ("900000", (1, 3, 5, 7))],
)
def test_a_quota_leaves_its_whole_part_of_the_mask_and_at_least_one_core(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    membership: Path,
    quota: str,
    usable: tuple[int, ...],
) -> None:
    membership.write_text("0::/service\n")
    write(tmp_path / "service", cpu_max=f"{quota} 100000")
    monkeypatch.setattr(cores, "cpu_quota", partial(cpu_quota, membership, tmp_path))
    monkeypatch.setattr(cores, "allowed_cores", lambda: (1, 3, 5, 7))
    assert usable_cores() == usable


def test_a_core_that_is_not_ours_is_asked_for_in_vain() -> None:
    before = os.sched_getaffinity(0)
    stay_on([4_000])
    assert os.sched_getaffinity(0) == before


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
    ("usable", "workers", "threads", "shares"),
    [
        ((0, 1), 2, 1, ((0,), (1,))),
        ((2, 3, 5, 7), 2, 2, ((2, 3), (5, 7))),
        ((4,), 3, 1, ((4,), (4,), (4,))),
        ((0, 1, 2), 2, 2, ((0, 1), (0, 2))),
        ((0, 1), 1, 4, ((0, 1),)),
    ],
)
def test_workers_get_cores_in_turn(
    usable: tuple[int, ...], workers: int, threads: int, shares: tuple[tuple[int, ...], ...]
) -> None:
    assert Placement.on(usable, usable, workers, threads, "always").workers == shares


@pytest.mark.parametrize(
    ("usable", "threads", "shares"),
    [
        ((0, 1, 2), 1, ((0,), (1,), (2,))),
        ((0, 1, 2), 2, ((0, 1),)),
        ((0, 1), 4, ((0, 1),)),
    ],
)
def test_there_are_as_many_workers_as_fit_unless_a_number_is_given(
    usable: tuple[int, ...], threads: int, shares: tuple[tuple[int, ...], ...]
) -> None:
    assert Placement.on(usable, usable, None, threads, "always").workers == shares


def test_the_event_loop_keeps_to_cores_without_a_worker() -> None:
    assert Placement.on((0, 1), (0, 1, 2, 3), 1, 1, "always").front_end == (1, 2, 3)


def test_the_event_loop_shares_the_last_core_if_every_core_has_a_worker() -> None:
    assert Placement.on((0, 1, 2), (0, 1, 2), None, 1, "auto").front_end == (2,)


def test_all_workers_have_each_of_their_cores_once() -> None:
    assert Placement.on((2, 0, 1), (0, 1, 2), 2, 2, "auto").all_workers == (0, 1, 2)


def test_the_placement_of_this_process_is_on_its_usable_cores() -> None:
    expected = Placement.on(usable_cores(), allowed_cores(), 2, 1, "always")
    assert Placement.of(2, 1, "always") == expected


@pytest.mark.parametrize(
    ("usable", "workers", "pin", "shares"),
    [
        ((0, 1, 2), None, "auto", ((0,), (1,), (2,))),
        ((0, 1, 2), 4, "auto", ((0,), (1,), (2,), (0,))),
        # Two cores by the quota: those of every container on this machine would be the same.
        ((0, 1), None, "auto", ((), ())),
        ((0, 1, 2), 1, "auto", ((),)),
        ((0, 1), None, "always", ((0,), (1,))),
        ((0, 1, 2), None, "never", ((), (), ())),
    ],
)
def test_workers_are_pinned_if_they_fill_the_allowed_cores_or_as_the_setting_says(
    usable: tuple[int, ...], workers: int | None, pin: Pin, shares: tuple[tuple[int, ...], ...]
) -> None:
    assert Placement.on(usable, (0, 1, 2), workers, 1, pin).workers == shares


def test_the_event_loop_of_workers_that_are_not_pinned_may_run_on_every_core() -> None:
    assert Placement.on((0, 1), (0, 1, 2), None, 1, "auto").front_end == (0, 1, 2)
