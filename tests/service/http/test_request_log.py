"""Request ids and the log, against the real server."""

import re

import httpx
import pytest

from tests.support import pictures
from tests.support.clients import web
from tests.support.processes import Server, environment


@pytest.mark.parametrize("given", ["a", "A-b_c.9", "x" * 64])
def test_a_well_formed_request_id_is_echoed(client: httpx.Client, given: str) -> None:
    response = client.get("/healthz", headers={"X-Request-Id": given})
    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a/b", "ä".encode().decode("latin-1")])
def test_any_other_request_id_is_replaced(client: httpx.Client, given: str) -> None:
    headers = [(b"X-Request-Id", given.encode("latin-1"))]
    found = client.get("/healthz", headers=headers).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", found)


def test_errors_carry_the_request_id_too(client: httpx.Client) -> None:
    response = client.post("/v1/classify", content=b"", headers={"X-Request-Id": "mine"})
    assert response.headers["x-request-id"] == response.json()["instance"] == "mine"


def test_a_request_is_one_line_of_the_log_in_text_if_that_is_asked_for(models: object) -> None:
    env = environment(LEAFCODE_LOG_FORMAT="text")
    with Server("--models", str(models), "--workers", "1", env=env) as server:
        for path in ("/v1/classify", "/forged%0aline"):
            headers = {"X-Request-Id": "logged"}
            web.post(server.url + path, content=pictures.png(), headers=headers)
        server.stop()
        lines = [line for line in server.log if "id=logged" in line]
        assert re.search(r" INFO POST /v1/classify 200 \d+\.\d ms id=logged\n$", lines[0])
        assert "POST /forged%0Aline 404" in lines[1]
        assert len(lines) == 2
