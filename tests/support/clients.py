"""Clients of a server, or of an application without one, and what every answer is checked for."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from tests.support.processes import DEADLINE_SECONDS

# To make a client reads the certificates of the system, 40 ms every time, which a server
# without TLS does not need. Every request has a connection of its own, as with `httpx.get`.
web = httpx.Client(
    verify=False, timeout=DEADLINE_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)
)

# JSON that overflows the stack of a parser that recurses.
DEEP = b"[" * 100_000 + b"]" * 100_000


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def problem_of(response: httpx.Response, status: int) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = response.json()
    assert problem["status"] == status
    assert problem["error"] == problem["detail"]
    assert problem["instance"] == response.headers["x-request-id"]
    return problem


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
