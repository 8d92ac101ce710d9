"""`POST /v1/codes` over HTTP."""

import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from service.engine import Engine
from tests.service.test_classify import DEEP, problem_of

JSON = {"content-type": "application/json"}


def row(**changes: str) -> str:
    """A descriptor as JSON text whose first value is something else."""
    return "[" + changes.get("first", "0.5") + ",0.25" * 127 + "]"


def body(*rows: str) -> bytes:
    return ('{"descriptors": [' + ",".join(rows) + "]}").encode()


def test_codes_are_those_of_the_engine(client: httpx.Client, models: Path) -> None:
    descriptors = np.random.default_rng(0).random((17, 128)).astype(np.float32)
    response = client.post("/v1/codes", json={"descriptors": descriptors.tolist()})
    engine = Engine.load(models / "apples" / "2")
    codes = engine.encode(descriptors)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "model": {"name": "apples", "version": 2, "digest": engine.manifest.digest},
        "n_atoms": 32,
        "leaf_ids": codes.leaf_ids.tolist(),
        "atom_ids": codes.atom_ids.tolist(),
        "values": codes.values.tolist(),
    }


def test_no_descriptors_are_answered_with_empty_columns(client: httpx.Client) -> None:
    answer = client.post("/v1/codes", json={"descriptors": []}).json()
    assert answer["leaf_ids"] == answer["atom_ids"] == answer["values"] == []


def test_whole_numbers_are_numbers(client: httpx.Client) -> None:
    assert client.post("/v1/codes", json={"descriptors": [[1] * 128]}).status_code == 200


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e999", "1e39", "9" * 400, "null", "true", '"1"', "[]"],
)
def test_a_value_that_is_no_finite_number_is_refused(client: httpx.Client, value: str) -> None:
    content = body(row(), row(first=value))
    problem = problem_of(client.post("/v1/codes", content=content, headers=JSON), 422)
    assert "descriptor 1 has the value" in str(problem["detail"])
    assert len(str(problem["detail"])) < 200


def test_a_norm_beyond_float32_is_refused(client: httpx.Client) -> None:
    content = body(row(first="1e30"))
    problem_of(client.post("/v1/codes", content=content, headers=JSON), 422)


@pytest.mark.parametrize("width", [0, 1, 127, 129])
def test_a_descriptor_of_the_wrong_width_is_refused(client: httpx.Client, width: int) -> None:
    response = client.post("/v1/codes", json={"descriptors": [[0.5] * width]})
    assert f"descriptor 0 has {width} values, expected" in str(problem_of(response, 422)["detail"])


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"descriptors": [[1,]]}', 400),
        (DEEP, 400),
        (b"[" * 99, 400),
        (b'{"descriptors":' * 5_000, 400),
        (b'{"descriptors": ' + b"9" * 5000 + b"}", 400),
        (b'{"descriptors": [' + b"[]," * 200 + b"[]]}", 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"descriptors": 3}', 422),
        (b'{"descriptors": [3]}', 422),
        (b'{"descriptors": [], "more": 1}', 422),
        (body(*[row()] * 101), 413),
    ],
)
def test_a_body_of_another_shape_is_refused(
    client: httpx.Client, content: bytes, status: int
) -> None:
    problem_of(client.post("/v1/codes", content=content, headers=JSON), status)


def test_as_many_descriptors_as_allowed_are_coded(client: httpx.Client) -> None:
    answer = client.post("/v1/codes", content=body(*[row()] * 100), headers=JSON)
    assert len(answer.json()["leaf_ids"]) == 100


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", ""])
def test_another_content_type_is_refused(client: httpx.Client, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = client.post("/v1/codes", content=body(row()), headers=headers)
    assert "expected application/json" in str(problem_of(response, 415)["detail"])


def test_an_unknown_model_is_not_found(client: httpx.Client) -> None:
    content = json.dumps({"descriptors": []})
    problem_of(client.post("/v1/codes?model=pears", content=content, headers=JSON), 404)
