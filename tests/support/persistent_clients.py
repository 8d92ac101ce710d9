"""Clients that send requests for as long as somebody listens: what a stop must not break."""

import socket
import threading
from collections import Counter
from contextlib import closing, suppress

from tests.support.processes import DEADLINE_SECONDS


class PersistentClient(threading.Thread):
    """Sends requests until nobody listens any more, and notes how each of them ended."""

    def __init__(self, address: tuple[str, int], request: bytes, *, keep_alive: bool) -> None:
        super().__init__(daemon=True)
        self.outcomes: Counter[str] = Counter()
        self._address = address
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
