"""The short way and FastAPI's answer alike: bodies, errors, headers, metrics."""

import httpx
import pytest

from tests.support import pictures
from tests.support.metrics_page import metrics, value

PNG = pictures.png()
DESCRIPTORS = bytes(4 * 128 * 3)
OF_EACH_REQUEST = {"date", "x-request-id", "server-timing"}

# A parameter with its usual value sends a request on the usual road.
ROADS = [({}, {}), ({"model": "apples"}, {}), ({}, {"x-timeout-ms": "30000"})]

CALLS = {
    "image": ("/v1/classify", PNG, "image/png", 200),
    "no image": ("/v1/classify", b"hello", "image/png", 415),
    "nothing": ("/v1/classify", b"", "image/png", 400),
    "images": ("/v1/classify", b'{"images": ["aGVsbG8="]}', "application/json", 200),
    "no JSON": ("/v1/classify", b"{", "application/json", 400),
    "codes": ("/v1/codes", DESCRIPTORS, "application/octet-stream", 200),
    "broken codes": ("/v1/codes", DESCRIPTORS[:-1], "application/octet-stream", 422),
    "other codes": ("/v1/codes", b"x", "text/plain", 415),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_roads_give_the_same_answer(client: httpx.Client, name: str) -> None:
    path, body, kind, status = CALLS[name]
    answers = [
        client.post(path, content=body, params=query, headers={"content-type": kind, **headers})
        for query, headers in ROADS
    ]
    found = [(answer.status_code, _lasting(answer), _document(answer)) for answer in answers]
    assert found[0][0] == status
    assert found[1:] == found[:1] * 2


def _lasting(answer: httpx.Response) -> dict[str, str]:
    return {key: text for key, text in answer.headers.items() if key not in OF_EACH_REQUEST}


def _document(answer: httpx.Response) -> dict[str, object]:
    """The answer without the request's own id."""
    document: dict[str, object] = answer.json()
    if answer.is_error:
        assert document.pop("instance") == answer.headers["x-request-id"]
    return document


def test_both_roads_count_for_the_same_route(client: httpx.Client) -> None:
    labels, url = {"route": "/v1/classify", "status": "200"}, str(client.base_url).rstrip("/")
    before = value(metrics(url), "requests_total", **labels)
    for query, headers in ROADS:
        assert client.post("/v1/classify", content=PNG, params=query, headers=headers).is_success
    assert value(metrics(url), "requests_total", **labels) == before + len(ROADS)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_only_posts_are_taken(client: httpx.Client, method: str) -> None:
    answer = client.request(method, "/v1/classify")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
