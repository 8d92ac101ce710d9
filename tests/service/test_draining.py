"""SIGTERM under load: whoever got through to the service gets an answer."""

from collections import Counter
from pathlib import Path

from tests.support import pictures
from tests.support.persistent_clients import PersistentClient
from tests.support.processes import DEADLINE_SECONDS, Server, until
from tests.support.sockets import address

PNG = pictures.png()
CLASSIFY = (
    b"POST /v1/classify?model=tiny HTTP/1.1\r\nHost: x\r\n"
    + f"Content-Length: {len(PNG)}\r\n\r\n".encode()
    + PNG
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def test_no_connection_breaks_when_a_service_under_load_stops(models: Path) -> None:
    with Server("--models", str(models), "--workers", "1") as server:
        clients = [
            PersistentClient(address(server), request, keep_alive=keep_alive)
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
