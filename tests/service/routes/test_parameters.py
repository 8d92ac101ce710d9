"""Query parameters that a call does not know: rejected by name, on every route."""

from typing import Any

import httpx
import pytest

from tests.support import pictures
from tests.support.clients import problem_of

PNG = pictures.png()
PATH_PARAMETERS = {"{name}": "apples", "{version}": "2"}


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        (
            "POST",
            "/v1/classify?topk=2",
            "'topk' is unknown, expected model, version, top_k or ",
        ),
        ("POST", "/v1/classify?top_k=2&verion=1", "'verion' is unknown, expected model"),
        ("POST", "/v1/codes?top_k=2", "'top_k' is unknown, expected model or version"),
        ("POST", "/v1/classify?X-Timeout-Ms=5", "'X-Timeout-Ms' is unknown"),
        ("POST", "/v2/models/apples/infer?version=1", "'version' is unknown, expected none"),
        ("POST", "/v2/models/apples/infer?name=tiny", "'name' is unknown, expected none"),
        ("GET", "/v1/models?name=apples", "'name' is unknown, expected none"),
        ("GET", "/healthz?verbose", "'verbose' is unknown, expected none"),
    ],
)
def test_an_unknown_query_parameter_is_refused_with_the_known_ones(
    client: httpx.Client, method: str, path: str, words: str
) -> None:
    response = client.request(method, path, content=PNG if method == "POST" else None)
    problem = problem_of(response, 422)
    assert f"query parameter {words}" in str(problem["detail"])
    assert problem["type"] == "urn:leafcode:problem:invalid-parameter"


def test_a_long_unknown_name_is_cut_short(client: httpx.Client) -> None:
    response = client.post(f"/v1/classify?{'x' * 9000}=1", content=PNG)
    assert len(str(problem_of(response, 422)["detail"])) < 200


def test_no_operation_of_the_document_ignores_an_unknown_query_parameter(
    client: httpx.Client,
) -> None:
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    ignored = [
        (method, path)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if client.request(method, f"{_filled(path)}?no_such=1").status_code != 422
        or "422" not in operation["responses"]
    ]
    assert paths
    assert ignored == []


def _filled(path: str) -> str:
    for name, value in PATH_PARAMETERS.items():
        path = path.replace(name, value)
    return path


def test_a_page_that_people_open_takes_any_query(client: httpx.Client) -> None:
    """Links carry parameters of those who placed them."""
    assert client.get("/?utm_source=mail").status_code == 200
    assert client.get("/docs?utm_source=mail").status_code == 200


@pytest.mark.parametrize("digits", [309, 310, 5000])
def test_a_timeout_of_very_many_digits_is_refused(client: httpx.Client, digits: int) -> None:
    headers = {"X-Timeout-Ms": "9" * digits}
    problem = problem_of(client.post("/v1/classify", content=PNG, headers=headers), 422)
    assert "header parameter X-Timeout-Ms" in str(problem["detail"])
    assert len(str(problem["detail"])) < 300
