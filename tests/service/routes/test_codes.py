"""`POST /v1/codes` over HTTP."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from service.engine import Engine
from tests.support import pictures
from tests.support.clients import DEEP, problem_of

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


def test_values_with_signs_are_coded(client: httpx.Client, models: Path) -> None:
    """The model's own descriptors have none; a few rows without signs are among them."""
    descriptors = np.random.default_rng(1).normal(size=(17, 128)).astype(np.float32)
    descriptors[3:6] = np.abs(descriptors[3:6])
    response = client.post("/v1/codes", json={"descriptors": descriptors.tolist()})
    assert response.status_code == 200
    codes = Engine.load(models / "apples" / "2").encode(descriptors)
    answer = response.json()
    assert answer["leaf_ids"] == codes.leaf_ids.tolist()
    assert answer["values"] == codes.values.tolist()
    assert len(set(answer["leaf_ids"])) > 1


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


def test_the_largest_numbers_are_coded_and_larger_ones_refused(client: httpx.Client) -> None:
    largest = client.post("/v1/codes", json={"descriptors": [[1e18] * 128, [-1e18] * 128]})
    assert largest.status_code == 200
    response = client.post("/v1/codes", content=body(row(first="1.0000001e18")), headers=JSON)
    assert "expected numbers from -1e+18 to 1e+18" in str(problem_of(response, 422)["detail"])


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


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_refused(client: httpx.Client, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = client.post("/v1/codes", content=body(row()), headers=headers)
    assert "expected one of application/json" in str(problem_of(response, 415)["detail"])


def test_curls_content_type_is_refused_with_the_options_that_set_another(
    client: httpx.Client,
) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    problem = problem_of(client.post("/v1/codes", content=PNG, headers=headers), 415)
    assert "-H 'Content-Type: image/png' --data-binary @" in str(problem["detail"])


def test_an_unknown_model_is_not_found(client: httpx.Client) -> None:
    content = json.dumps({"descriptors": []})
    problem_of(client.post("/v1/codes?model=pears", content=content, headers=JSON), 404)


RAW, NPY, NPZ = "application/octet-stream", "application/x-npy", "application/x-npz"
DESCRIPTORS = np.random.default_rng(0).random((17, 128)).astype(np.float32)
PNG = pictures.png()


def npy(array: npt.ArrayLike) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def post(client: httpx.Client, content: bytes, content_type: str, accept: str) -> httpx.Response:
    headers = {"content-type": content_type, "accept": accept}
    return client.post("/v1/codes", content=content, headers=headers)


def arrays_of(response: httpx.Response) -> dict[str, npt.NDArray[Any]]:
    assert response.status_code == 200, response.text
    with np.load(io.BytesIO(response.content), allow_pickle=False) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        (RAW, DESCRIPTORS.astype("<f4").tobytes()),
        (NPY, npy(DESCRIPTORS)),
        ("application/npy", npy(DESCRIPTORS)),
        ("Application/X-Npy; x=y", npy(np.asfortranarray(DESCRIPTORS.astype(">f8")))),
    ],
)
def test_binary_descriptors_are_answered_like_json(
    client: httpx.Client, content_type: str, content: bytes
) -> None:
    as_json = client.post("/v1/codes", json={"descriptors": DESCRIPTORS.tolist()}).json()
    assert post(client, content, content_type, "*/*").json() == as_json


@pytest.mark.parametrize("accept", [NPZ, "application/npz", "application/zip", f"text/html, {NPZ}"])
def test_an_npz_holds_the_same_columns_as_json(client: httpx.Client, accept: str) -> None:
    response = post(client, npy(DESCRIPTORS), NPY, accept)
    assert response.headers["content-type"] in accept
    assert response.headers["vary"] == "Accept"
    arrays = arrays_of(response)
    answer = post(client, npy(DESCRIPTORS), NPY, "application/json").json()
    for column in ("leaf_ids", "atom_ids", "values", "n_atoms"):
        assert arrays[column].tolist() == answer[column]
    assert answer["model"] == {
        member: arrays[f"model_{member}"].item() for member in ("name", "version", "digest")
    }
    dtypes = {name: str(arrays[name].dtype) for name in ("leaf_ids", "atom_ids", "values")}
    assert dtypes == {"leaf_ids": "int32", "atom_ids": "int32", "values": "float32"}
    assert "grid" not in arrays


def test_no_descriptors_in_a_file_are_answered_with_empty_columns(client: httpx.Client) -> None:
    arrays = arrays_of(post(client, npy(np.empty((0, 128), np.float32)), NPY, NPZ))
    assert arrays["leaf_ids"].shape == (0,)
    assert arrays["values"].shape == arrays["atom_ids"].shape == (0, 3)


@pytest.mark.parametrize("as_form", [False, True])
def test_an_image_is_answered_with_the_codes_of_its_grid(
    client: httpx.Client, models: Path, *, as_form: bool
) -> None:
    engine = Engine.load(models / "apples" / "2")
    grid = engine.describe(engine.decode(PNG))
    codes = engine.encode(grid.reshape(-1, 128))
    raw = {"content": PNG, "headers": {"content-type": "image/png"}}
    answer = client.post("/v1/codes", **({"files": {"x": PNG}} if as_form else raw)).json()
    height, width = engine.decode(PNG).shape
    assert answer["grid"] == {
        "rows": grid.shape[0],
        "cols": grid.shape[1],
        "step": 2,
        "left": 2,
        "top": 2,
        "side": 16,
        "width": width,
        "height": height,
    }
    assert answer["values"] == codes.values.tolist()
    assert answer["leaf_ids"] == codes.leaf_ids.tolist()
    arrays = arrays_of(post(client, PNG, "image/png", NPZ))
    assert arrays["grid"].tolist() == list(grid.shape[:2])
    places = ("grid_step", "grid_origin", "grid_side", "image_size")
    assert [arrays[name].tolist() for name in places] == [2, [2, 2], 16, [width, height]]
    np.testing.assert_array_equal(arrays["values"], codes.values)


@pytest.mark.parametrize(
    ("content_type", "content", "status", "words"),
    [
        (RAW, bytes(511), 422, "511 bytes, expected a multiple of 512"),
        (RAW, bytes(101 * 512), 413, "101 descriptors, expected at most 100"),
        (RAW, b"", 400, "empty"),
        (RAW, np.full(128, np.nan, "<f4").tobytes(), 422, "descriptor 0"),
        (RAW, np.full(128, 1e30, "<f4").tobytes(), 422, "descriptor 0"),
        (NPY, b"", 400, "empty"),
        (NPY, b"hello", 400, "no .npy file"),
        (NPY, npy(DESCRIPTORS)[:-1], 400, "bytes behind its header"),
        (NPY, npy(np.zeros((101, 128), np.float16)), 413, "101 descriptors"),
        (NPY, npy(np.zeros((3, 3))), 422, "shape (3, 3), expected (n, 128)"),
        (NPY, npy(np.zeros((1, 128), int)), 422, "type int64, expected float16"),
        (NPY, npy(np.full((1, 128), 1e300)), 422, "descriptor 0"),
        ("image/png", b"hello", 415, "not an image"),
        ("image/png", b"", 400, "empty"),
        ("image/svg+xml", b"<svg/>", 415, "not an image"),
        ("multipart/form-data", b"hello", 400, "form"),
    ],
)
def test_binary_bodies_that_cannot_be_used_are_refused(
    client: httpx.Client, content_type: str, content: bytes, status: int, words: str
) -> None:
    problem = problem_of(post(client, content, content_type, NPZ), status)
    assert words in str(problem["detail"])


def test_a_form_with_two_files_is_refused(client: httpx.Client) -> None:
    response = client.post("/v1/codes", files=[("a", PNG), ("b", PNG)])
    assert "Maximum number of files is 1" in str(problem_of(response, 413)["detail"])


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*, nonsense"])
def test_an_answer_that_nobody_accepts_is_refused(client: httpx.Client, accept: str) -> None:
    problem = problem_of(post(client, npy(DESCRIPTORS), NPY, accept), 406)
    assert f"the client accepts {accept}" in str(problem["detail"])


def test_accept_may_be_sent_in_two_headers(client: httpx.Client) -> None:
    headers = [("accept", "text/html"), ("accept", NPZ), ("content-type", NPY)]
    arrays_of(client.post("/v1/codes", content=npy(DESCRIPTORS), headers=headers))
