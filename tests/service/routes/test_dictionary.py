"""`GET /v1/models/…/dictionary`, and what it is for: descriptors out of codes."""

import io
from pathlib import Path

import httpx
import numpy as np
import pytest

from service.engine import Engine
from tests.support.clients import problem_of

PATH = "/v1/models/apples/dictionary"


@pytest.mark.parametrize(("path", "version"), [("", 2), ("/versions/2", 2), ("/versions/1", 1)])
def test_the_dictionary_is_that_of_the_bundle(
    client: httpx.Client, models: Path, path: str, version: int
) -> None:
    response = client.get(f"/v1/models/apples{path}/dictionary")
    engine = Engine.load(models / "apples" / str(version))
    dictionary = np.load(io.BytesIO(response.content), allow_pickle=False)
    assert response.headers["content-type"] == "application/x-npy"
    assert response.headers["etag"] == f'"{engine.manifest.digest}"'
    assert dictionary.dtype == np.float32
    np.testing.assert_array_equal(dictionary, engine.coder.dictionary)


def test_whoever_has_the_dictionary_is_told_so(client: httpx.Client) -> None:
    tag = client.get(PATH).headers["etag"]
    for header in (tag, f'"older", W/{tag}', "*"):
        response = client.get(PATH, headers={"If-None-Match": header})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == tag


@pytest.mark.parametrize("header", ['"older"', "", "nonsense, *", '"'])
def test_whoever_has_another_dictionary_gets_this_one(client: httpx.Client, header: str) -> None:
    response = client.get(PATH, headers={"If-None-Match": header})
    assert response.status_code == 200
    assert response.content == client.get(PATH).content


@pytest.mark.parametrize(
    ("path", "status"),
    [("pears", 404), ("apples/versions/3", 404), ("apples/versions/x", 422)],
)
def test_an_unknown_dictionary_is_not_found(client: httpx.Client, path: str, status: int) -> None:
    problem_of(client.get(f"/v1/models/{path}/dictionary"), status)
