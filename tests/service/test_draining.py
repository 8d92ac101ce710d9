"""SIGTERM under load: whoever got through to the service gets an answer."""

import socket
import threading
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from tests.support import pictures
from tests.support.processes import DEADLINE_SECONDS, Server, until
from tests.support.sockets import address

PNG = pictures.png()
CLASSIFY = (
    b"POST /v1/classify?model=tiny HTTP/1.1\r\nHost: x\r\n"
    + f"Content-Length: {len(PNG)}\r\n\r\n".encode()
    + PNG
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Client(threading.Thread):
    """Sends requests until nobody listens any more, and notes how each of them ended."""

    def __init__(self, server: Server, request: bytes, *, keep_alive: bool) -> None:
        super().__init__(daemon=True)
        self.outcomes: Counter[str] = Counter()
        self._address = address(server)
        self._request = request
        self._keep_alive = keep_alive

    def run(self) -> None:
        with suppress(ConnectionRefusedError):
            while True:
                try:
                    connection = socket.create_connection(self._address, DEADLINE_SECONDS)
                except ConnectionResetError:
                    self.outcomes["reset while connecting"] += 1
                    continue
                with closing(connection):
                    self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        """Requests on one connection, as many as the service wants to answer."""
        number = 0
        while True:
            outcome, last = self._ask(connection)
            number += 1
            self.outcomes[outcome if outcome.isdigit() else f"{outcome} of request {number}"] += 1
            if last or not self._keep_alive:
                return

    def _ask(self, connection: socket.socket) -> tuple[str, bool]:
        try:
            connection.sendall(self._request)
            head = connection.recv(65_536)
        except OSError as error:
            return type(error).__name__, True
        if not head:
            return "no answer", True
        return head[9:12].decode(), b"connection: close" in head


def test_no_connection_breaks_when_a_service_under_load_stops(models: Path) -> None:
    with Server("--models", str(models), "--workers", "1") as server:
        clients = [
            Client(server, request, keep_alive=keep_alive)
            for request in (HEALTH, CLASSIFY)
            for keep_alive in (True, False)
            for _ in range(4)
        ]
        for client in clients:
            client.start()
        until(lambda: all(client.outcomes["200"] > 5 for client in clients))
        code = server.stop()
        for client in clients:
            client.join(DEADLINE_SECONDS)
    outcomes = sum((client.outcomes for client in clients), Counter())
    assert code == 0
    assert set(outcomes) <= {"200", "503"}, outcomes
