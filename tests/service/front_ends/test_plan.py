"""How many front ends there are, and what each of them gets."""

import pytest

from service.errors import SettingsError
from service.front_ends.plan import WORKERS_PER_FRONT_END, FrontEndPlan, front_end_count
from service.pool.cores import Placement
from service.settings import Settings, load_settings


@pytest.mark.parametrize(
    ("workers", "count"),
    [
        (1, 1),
        (WORKERS_PER_FRONT_END, 1),
        (WORKERS_PER_FRONT_END + 1, 2),
        (4 * WORKERS_PER_FRONT_END, 4),
    ],
)
def test_workers_ask_for_front_ends(workers: int, count: int) -> None:
    assert front_end_count(load_settings(workers=workers)) == count


def test_a_front_end_without_a_worker_is_rejected() -> None:
    with pytest.raises(SettingsError, match=r"\(--front-ends\) is 3, .* of which there are 2"):
        front_end_count(load_settings(workers=2, front_ends=3))


def plan(number: int, **settings: object) -> FrontEndPlan:
    return FrontEndPlan.of(load_settings(**settings), number, (3, 4, 5))


def test_what_is_limited_for_all_is_shared() -> None:
    whole = {"max_connections": 9, "queue_size": 7, "workers": 2, "front_ends": 2}
    settings = plan(0, **whole, queue_bytes=100_000_000, max_body_bytes=10_000_000).own_settings
    assert (settings.max_connections, settings.queue_size) == (5, 4)
    assert settings.queue_bytes == 50_000_000


def test_a_share_has_room_for_the_largest_body() -> None:
    whole = {"workers": 4, "front_ends": 4, "max_body_bytes": 60_000_000}
    settings = plan(0, **whole, queue_bytes=100_000_000, transfer_bytes=50_000_000).own_settings
    assert (settings.queue_bytes, settings.transfer_bytes) == (60_000_000, 50_000_000)


def test_a_front_end_is_told_all_settings_but_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAFCODE_API_KEYS", "0123456789abcdef")
    settings = load_settings(workers=2, front_ends=2, models="elsewhere")
    told = FrontEndPlan.of(settings, 1, (3, 4, 5))
    assert "0123456789abcdef" not in str(told.to_json())
    assert told.service_settings == settings
    assert isinstance(told.service_settings, Settings)


CORES = tuple(range(8))


def test_shares_of_a_placement_are_all_of_it_once() -> None:
    whole = Placement.on(CORES, CORES, 7, 1, "always")
    shares = [whole.share(number, 3) for number in range(3)]
    assert [share.first_worker for share in shares] == [0, 2, 4]
    assert sum((share.workers for share in shares), ()) == whole.workers
    assert {share.front_end for share in shares} == {(7,)}


def test_every_event_loop_has_cores_to_itself_where_there_are_enough() -> None:
    whole = Placement.on(CORES, CORES, 4, 1, "always")
    assert [whole.share(number, 2).front_end for number in range(2)] == [(4, 6), (5, 7)]


def test_every_event_loop_keeps_to_its_own_last_worker_where_all_cores_have_one() -> None:
    whole = Placement.on(CORES, CORES, 8, 1, "auto")
    assert [whole.share(number, 2).front_end for number in range(2)] == [(3,), (7,)]


def test_event_loops_have_different_cores_where_workers_share_them() -> None:
    whole = Placement.on((0, 1), (0, 1), 32, 1, "auto")
    assert [whole.share(number, 2).front_end for number in range(2)] == [(0,), (1,)]


def test_workers_that_the_kernel_places_leave_the_event_loop_to_it_too() -> None:
    whole = Placement.on(CORES, CORES, 4, 1, "never")
    assert whole.share(1, 2) == Placement(((), ()), CORES, 2)
