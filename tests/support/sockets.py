"""Connections to a running server, byte by byte."""

import json
import socket

from tests.support.processes import DEADLINE_SECONDS, Server


def address(server: Server) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def connect(server: Server) -> socket.socket:
    return socket.create_connection(address(server), DEADLINE_SECONDS)


def until_closed(connection: socket.socket) -> bytes:
    """All that the server sends before it hangs up."""
    received = b""
    try:
        while data := connection.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


def problem(answer: bytes) -> tuple[int, str]:
    """Status and reason of the only answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    document = json.loads(body)
    assert document["status"] == int(head.split()[1])
    return document["status"], document["type"].rpartition(":")[2]
