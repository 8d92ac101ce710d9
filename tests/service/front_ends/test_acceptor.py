"""Who accepts a connection that comes to a shared socket."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from service.front_ends.acceptor import Acceptor, ConnectionCounts, open_counts
from tests.support.processes import DEADLINE_SECONDS


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        yield listening


class Side:
    """One front end that accepts, and keeps what it accepted."""

    def __init__(self, listener: socket.socket, counts: ConnectionCounts, number: int) -> None:
        self.connections: set[socket.socket] = set()
        self.listener = listener
        self.acceptor = Acceptor(listener, self._connect, self.connections, counts, number)

    def _connect(self, connection: socket.socket) -> "asyncio.Future[object]":
        self.connections.add(connection)
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def until_accepted(sides: list[Side], number: int) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while sum(len(side.connections) for side in sides) < number:  # noqa: ASYNC110
            await asyncio.sleep(0)


def connected(listener: socket.socket, number: int) -> list[socket.socket]:
    return [socket.create_connection(listener.getsockname()) for _ in range(number)]


def test_one_that_has_more_leaves_connections_to_the_other(listener: socket.socket) -> None:
    async def run() -> list[int]:
        with open_counts(2) as file:
            counts = ConnectionCounts(file.fileno(), 2)
            # In processes of their own they have files of their own, too.
            sides = [Side(listener.dup(), counts, number) for number in range(2)]
            clients = connected(listener, 40)
            for side in sides:
                side.acceptor.start()
            await until_accepted(sides, 40)
            for side in sides:
                side.acceptor.stop()
                side.listener.close()
            for connection in (*clients, *sides[0].connections, *sides[1].connections):
                connection.close()
            return [len(side.connections) for side in sides]

    first, second = asyncio.run(run())
    assert abs(first - second) <= 8


def test_one_that_has_more_takes_what_a_hung_one_leaves(listener: socket.socket) -> None:
    async def run() -> int:
        with open_counts(2) as file:
            counts = ConnectionCounts(file.fileno(), 2)
            counts.set(1, 0)  # the other one, which accepts nothing
            side = Side(listener, counts, 0)
            clients = connected(listener, 5)
            side.acceptor.start()
            await until_accepted([side], 5)
            side.acceptor.stop()
            for connection in (*clients, *side.connections):
                connection.close()
            return len(side.connections)

    assert asyncio.run(run()) == 5


def test_an_only_one_and_one_whose_sibling_has_ended_take_all(listener: socket.socket) -> None:
    async def run() -> int:
        with open_counts(2) as file:
            counts = ConnectionCounts(file.fileno(), 2)
            side = Side(listener, counts, 0)
            clients = connected(listener, 10)
            side.acceptor.start()
            await until_accepted([side], 10)
            side.acceptor.stop()
            assert counts.all() == []
            for connection in (*clients, *side.connections):
                connection.close()
            return len(side.connections)

    assert asyncio.run(run()) == 10


def test_one_that_stops_takes_what_is_left(listener: socket.socket) -> None:
    async def run() -> int:
        with open_counts(2) as file:
            counts = ConnectionCounts(file.fileno(), 2)
            counts.set(1, 0)
            side = Side(listener, counts, 0)
            clients = connected(listener, 10)
            side.acceptor.start()
            side.acceptor.take_all()
            await until_accepted([side], 10)
            side.acceptor.stop()
            for connection in (*clients, *side.connections):
                connection.close()
            return len(side.connections)

    assert asyncio.run(run()) == 10
