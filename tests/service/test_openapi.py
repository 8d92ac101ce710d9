"""The OpenAPI document: complete, true to the running service, and readable offline."""

import httpx

STATUSES = {"200", "400", "404", "413", "415", "422", "429", "503", "504"}


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
    assert names == {"top_k", "model", "version", "X-Timeout-Ms", "X-Request-Id"}
    for path, more in (("/v1/classify", set()), ("/v1/codes", {"406"})):
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
