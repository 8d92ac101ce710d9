"""What all connections together may hold, and who makes room for whom."""

import pytest

from service.http.traffic import MAX_DRAINING, Traffic


class Holder:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.gave_up = False

    def give_up(self) -> None:
        self.gave_up = True


class Connection:
    def __init__(self, since: float | None) -> None:
        self.since = since
        self.evicted = False

    def idle_since(self) -> float | None:
        return self.since

    def evict(self) -> None:
        self.evicted = True
        self.since = None


def crowd(*idle_since: float | None) -> tuple[Traffic, list[Connection]]:
    """As many connections as allowed, and one more."""
    connections = [Connection(since) for since in idle_since]
    traffic = Traffic(max_connections=len(connections) - 1, max_bytes=1)
    traffic.connections.update(connections)
    return traffic, connections


def test_bytes_are_those_that_are_held_now() -> None:
    traffic, first, second = Traffic(1, 100), Holder(1), Holder(2)
    traffic.hold(first, 10)
    traffic.hold(second, 20)
    traffic.hold(first, 30)
    assert traffic.bytes == 50
    traffic.release(first)
    traffic.release(first)
    assert traffic.bytes == 20


def test_what_is_nearest_to_its_timeout_gives_up_its_bytes() -> None:
    traffic, holders = Traffic(1, 100), [Holder(deadline) for deadline in (3, 1, 2, 9)]
    for holder in holders:
        traffic.hold(holder, 25)
    assert not any(holder.gave_up for holder in holders)
    traffic.hold(holders[3], 60)
    assert [holder.gave_up for holder in holders] == [False, True, True, False]
    assert traffic.bytes == 85


def test_the_longest_idle_connection_makes_room_for_a_new_one() -> None:
    traffic, connections = crowd(5.0, 3.0, None, 4.0, 9.0)
    assert traffic.full()
    newcomer = connections[-1]
    assert [traffic.make_room(newcomer) for _ in range(3)] == [True] * 3
    assert [connection.evicted for connection in connections] == [True, True, False, True, False]


def test_a_connection_that_was_idle_and_is_not_any_more_stays() -> None:
    traffic, connections = crowd(1.0, 2.0, 3.0, 9.0)
    assert traffic.make_room(connections[-1])
    connections[1].since = 8.0  # it had a request meanwhile
    assert traffic.make_room(connections[-1])
    assert [connection.evicted for connection in connections] == [True, False, True, False]


@pytest.mark.parametrize("busy", [1, 5])
def test_busy_connections_make_no_room(busy: int) -> None:
    traffic, connections = crowd(*[None] * busy, 9.0)
    assert not traffic.make_room(connections[-1])
    assert not any(connection.evicted for connection in connections)


def test_connections_that_end_take_no_room() -> None:
    traffic, _ = crowd(None, None, 9.0)
    traffic.draining = 1
    assert not traffic.full()


def test_only_some_connections_may_end_slowly() -> None:
    traffic = Traffic(max_connections=3, max_bytes=1)
    assert traffic.may_drain()
    traffic.draining = MAX_DRAINING
    assert not traffic.may_drain()
