"""How the listening socket is left: whoever has asked gets in, nobody else does."""

import asyncio
import socket
import sys
import time
from collections.abc import Iterator

import pytest
import uvloop

from service.errors import SettingsError
from service.http.listener import bind, turn_away
from tests.support.processes import DEADLINE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can turn away")


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    try:
        bound = bind(request.param, 0)
    except SettingsError as error:
        pytest.skip(str(error))  # a container without IPv6
    with bound:
        bound.listen()
        yield bound


def test_a_handshake_that_has_begun_ends_after_newcomers_are_turned_away(
    listener: socket.socket,
) -> None:
    async def talk() -> bytes:
        # For a server that defers, the client's first data is the end of the handshake.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEADLINE_SECONDS)
        server = await asyncio.start_server(_echo, sock=listener)
        client = socket.create_connection(listener.getsockname()[:2])
        await turn_away(listener)
        received = await _answer(client, b"late")
        server.close()
        return received

    assert uvloop.run(talk()) == b"late"


def test_all_that_are_connected_are_accepted_by_an_event_loop_that_was_stalled(
    listener: socket.socket,
) -> None:
    async def talk() -> list[bytes]:
        server = await asyncio.start_server(_echo, sock=listener)
        clients = [socket.create_connection(listener.getsockname()[:2]) for _ in range(9)]
        asyncio.get_running_loop().call_soon(time.sleep, 0.2)
        await turn_away(listener)
        server.close()
        listener.close()
        return [await _answer(client, b"mine") for client in clients]

    assert uvloop.run(talk()) == [b"mine"] * 9


def test_newcomers_are_refused_while_those_in_the_queue_are_accepted(
    listener: socket.socket,
) -> None:
    with socket.create_connection(listener.getsockname()[:2]) as earlier:
        asyncio.run(turn_away(listener))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname()[:2])
        accepted, _ = listener.accept()
        with accepted:
            earlier.sendall(b"early")
            assert accepted.recv(5) == b"early"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(4))
    writer.close()


async def _answer(client: socket.socket, request: bytes) -> bytes:
    with client:
        client.sendall(request)
        client.settimeout(0)
        answer = asyncio.get_running_loop().sock_recv(client, 4)
        return await asyncio.wait_for(answer, DEADLINE_SECONDS)
