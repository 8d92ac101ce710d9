"""SIGTERM under load: whoever got through to the service gets an answer."""

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

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


# What root in a container, or any other user, may do.
UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.mark.parametrize("prefix", [(), UNPRIVILEGED], ids=["as-we-are", "unprivileged"])
def test_no_connection_breaks_when_a_service_under_load_stops(
    models: Path, prefix: tuple[str, ...]
) -> None:
    if prefix and (os.geteuid() != 0 or shutil.which(prefix[0]) is None):
        pytest.skip("only root has privileges to give up, with setpriv of util-linux")
    command = (*prefix, sys.executable, "-m", "service", "serve", "--port", "0")
    with Server("--models", str(models), "--workers", "1", command=command) as server:
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
