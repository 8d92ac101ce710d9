"""The OpenAPI document: complete, true to the running service, and readable offline."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service.app import create_app
from service.http.problems import Problem
from service.settings import Settings
from tests.support.clients import problem_of

STATUSES = {"200", "400", "404", "408", "413", "415", "422", "429", "431", "503", "504"}


def test_openapi_tells_every_body_and_every_error(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    classify = document["paths"]["/v1/classify"]["post"]
    assert set(classify["requestBody"]["content"]) == {
        "application/octet-stream",
        "image/*",
        "multipart/form-data",
        "application/json",
    }
    names = {item["name"] for item in classify["parameters"]}
    assert names == {"explain", "top_k", "model", "version", "X-Timeout-Ms", "X-Request-Id"}
    for path, more in (
        ("/v1/classify", set()),
        ("/v1/explain", {"406"}),
        ("/v1/codes", {"406"}),
    ):
        answers = document["paths"][path]["post"]["responses"]
        assert set(answers) == {*STATUSES, *more}
        assert set(answers["422"]["content"]) == {"application/problem+json"}
    assert "error" in document["components"]["schemas"]["Problem"]["properties"]


def test_openapi_refers_to_nothing_that_is_missing(client: httpx.Client) -> None:
    text = client.get("/openapi.json").text
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= set(schemas)
    assert "HTTPValidationError" not in used


@pytest.fixture
def page(client: httpx.Client) -> str:
    return client.get("/docs").text


def test_the_documentation_page_needs_no_other_host(page: str) -> None:
    assert re.findall(r"""["'(](?:\w+:)?//[^"')]+""", page) == []


def test_everything_that_the_documentation_page_loads_is_here(
    client: httpx.Client, page: str
) -> None:
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) == 3
    for path in (*loaded, "/openapi.json"):
        assert path.startswith("/")
        assert client.get(path).status_code == 200
    assert "SwaggerUIBundle" in client.get(next(p for p in loaded if p.endswith(".js"))).text


def test_an_asset_that_is_not_there_is_a_problem(client: httpx.Client) -> None:
    for path in ("/docs/assets/nothing.js", "/docs/assets/..%2f..%2fcore.py"):
        problem_of(client.get(path), 404)


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def test_every_operation_is_told_in_full(client: httpx.Client) -> None:
    for operation in operations(client.get("/openapi.json").json()):
        assert operation["summary"]
        assert operation["description"]
        assert all(parameter["description"] for parameter in operation["parameters"])
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"]
            assert ("Retry-After" in response["headers"]) == (status in {"429", "503"})
            for content_type, content in response.get("content", {}).items():
                assert content["schema"]
                if content_type == "application/problem+json":
                    assert content["examples"]


def test_operations_have_the_names_that_functions_of_a_client_have(client: httpx.Client) -> None:
    names = [item["operationId"] for item in operations(client.get("/openapi.json").json())]
    assert sorted(names) == [
        *("classify", "encode", "explain", "get_metrics", "get_model", "get_model_config"),
        *("get_model_dictionary", "get_model_metadata", "get_model_version"),
        *("get_model_version_config", "get_model_version_dictionary"),
        *("get_model_version_metadata", "get_repository_index", "get_server_metadata"),
        *("health", "infer", "infer_version", "is_model_ready", "is_model_version_ready"),
        *("is_server_live", "is_server_ready", "list_models", "ready"),
    ]


def test_examples_of_errors_are_problem_documents(client: httpx.Client) -> None:
    for operation in operations(client.get("/openapi.json").json()):
        for status, response in operation["responses"].items():
            content = response.get("content", {})
            problems = content.get("application/problem+json", {"examples": {}})
            for slug, example in problems["examples"].items():
                problem = Problem.model_validate(example["value"])
                assert problem.status == int(status)
                assert problem.type == f"urn:leafcode:problem:{slug}"


def test_examples_of_bodies_are_answered(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    classify = paths["/v1/classify"]["post"]["requestBody"]["content"]["application/json"]
    codes = paths["/v1/codes"]["post"]["requestBody"]["content"]["application/json"]
    for example in classify["examples"].values():
        answer = client.post("/v1/classify", json=example["value"]).json()
        assert "problem" not in str(answer)
    assert client.post("/v1/codes", json=codes["example"]).status_code == 200


def test_the_limits_in_force_are_stated(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    codes = paths["/v1/codes"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert codes["properties"]["descriptors"]["maxItems"] == 100


def test_a_starting_service_says_when_to_come_back(models: Path) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(Settings(models=models)))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/readyz")

    response = asyncio.run(ask())
    assert problem_of(response, 503)
    assert response.headers["retry-after"] == "1"


def test_keys_are_told_where_they_are_asked_for(models: Path) -> None:
    keys = SecretStr("0123456789abcdef")
    document = create_app(Settings(models=models, api_keys=keys)).openapi()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "key"}
    guarded, open_ = document["paths"]["/v1/classify"]["post"], document["paths"]["/healthz"]["get"]
    assert guarded["security"] == [{"bearer": []}, {"key": []}]
    assert "401" in guarded["responses"]
    assert "security" not in open_


def test_no_keys_are_told_where_none_are_asked_for(models: Path) -> None:
    assert "securitySchemes" not in create_app(Settings(models=models)).openapi()["components"]
