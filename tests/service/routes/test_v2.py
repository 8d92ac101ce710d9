"""`/v2` over plain HTTP: every form of a body, as curl would send it."""

import gzip
import json
import shutil
import subprocess
import zlib
from itertools import chain
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import BrokenImageError, Engine
from service.errors import MalformedBodyError
from service.formats.v2.answers import LabelResults, Maps, in_batch, write_labels
from service.formats.v2.requests import RequestedOutput
from service.formats.v2.tensors import Tensor, join_elements, split_elements
from tests.support import bundles
from tests.support.clients import base64_of, problem_of
from tests.support.inference_v2 import INFER, LENGTH, PNG, ROW, Json, descriptors
from tests.support.processes import Server


def test_a_raw_image_is_answered_in_json(client: httpx.Client, models: Path) -> None:
    response = client.post(INFER, content=PNG, headers={LENGTH: "0"})
    engine = Engine.load(models / "apples" / "2")
    (best, *_) = engine.classify(PNG)
    assert response.headers["content-type"] == "application/json"
    assert LENGTH not in response.headers
    answer = response.json()
    assert answer["model_name"] == "apples"
    assert answer["model_version"] == "2"
    assert answer["parameters"] == {"digest": engine.manifest.digest}
    assert "id" not in answer
    label, label_id, probabilities, known = answer["outputs"]
    assert label == {"name": "label", "shape": [1], "datatype": "BYTES", "data": [best.label]}
    assert label_id["data"] == [bundles.LABELS.index(best.label)]
    assert probabilities["shape"] == [1, 4]
    assert max(probabilities["data"]) == pytest.approx(best.probability)
    assert known == {"name": "known", "shape": [1], "datatype": "BOOL", "data": [True]}


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, absent here")
def test_curl_sends_a_raw_image(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    url = f"{server.url}/v2/models/tiny/versions/1/infer"
    command = ["curl", "-s", "--data-binary", "@cat.png", "-H", f"{LENGTH}: 0", url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["outputs"][0]["data"][0] in bundles.LABELS


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", ""])
def test_json_is_read_whatever_it_is_called(client: httpx.Client, content_type: str) -> None:
    image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64_of(PNG)]}
    content = json.dumps({"id": "a", "inputs": [image]}).encode()
    headers = {"content-type": content_type} if content_type else {}
    answer = client.post(INFER, content=content, headers=headers).json()
    assert answer["id"] == "a"
    names = [item["name"] for item in answer["outputs"]]
    assert names == ["label", "label_id", "probabilities", "known"]


def test_nested_and_flat_data_are_the_same(client: httpx.Client) -> None:
    rows = np.random.default_rng(0).random((2, 128))
    nested = client.post(INFER, json={"inputs": [descriptors(rows.tolist())]})
    flat = client.post(INFER, json={"inputs": [descriptors(rows.ravel().tolist())]})
    assert nested.json() == flat.json()
    leaf_id, atom_ids, values = nested.json()["outputs"]
    codes = client.post("/v1/codes", json={"descriptors": rows.tolist()}).json()
    assert leaf_id["data"] == codes["leaf_ids"]
    assert atom_ids["data"] == list(chain(*codes["atom_ids"]))
    assert values["data"] == list(chain(*codes["values"]))
    assert values["shape"] == [2, 3]


def test_binary_answers_are_json_and_then_the_tensors(client: httpx.Client) -> None:
    request = {
        "parameters": {"binary_data_output": True},
        "inputs": [descriptors([ROW, ROW])],
        "outputs": [{"name": "values", "parameters": {"binary_data": False}}, {"name": "leaf_id"}],
    }
    response = client.post(INFER, json=request)
    assert response.headers["content-type"] == "application/octet-stream"
    length = int(response.headers[LENGTH])
    values, leaf_id = json.loads(response.content[:length])["outputs"]
    assert len(values["data"]) == 6
    assert "parameters" not in values
    assert leaf_id["parameters"] == {"binary_data_size": 8}
    assert "data" not in leaf_id
    first, second = np.frombuffer(response.content[length:], "<i4")
    assert first == second


def test_no_outputs_named_means_all_of_them(client: httpx.Client) -> None:
    request = {"inputs": [descriptors([ROW, ROW])], "outputs": []}
    assert len(client.post(INFER, json=request).json()["outputs"]) == 3


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)],
)
def test_the_stated_length_is_of_the_uncompressed_json(
    client: httpx.Client, encoding: str, compress: object
) -> None:
    assert callable(compress)
    tensor = np.full((1, 128), 0.5, "<f4").tobytes()
    parameters = {"binary_data_size": len(tensor)}
    request = {"inputs": [descriptors(None, 1, parameters=parameters)]}
    header = json.dumps(request).encode()
    headers = {LENGTH: str(len(header)), "content-encoding": encoding}
    response = client.post(INFER, content=compress(header + tensor), headers=headers)
    assert response.status_code == 200, response.text
    assert len(response.json()["outputs"][0]["data"]) == 1


def test_timeouts_as_long_as_one_likes_are_cut_down(client: httpx.Client) -> None:
    for timeout in (0, 10**9, 10**4000):
        request = {"inputs": [descriptors([ROW, ROW])], "parameters": {"timeout": timeout}}
        content = json.dumps(request).encode() if timeout < 10**99 else _with_long_timeout(request)
        assert client.post(INFER, content=content).status_code == 200


def _with_long_timeout(request: Json) -> bytes:
    text = json.dumps({**request, "parameters": {"timeout": 12345678}})
    return text.replace("12345678", "9" * 4000).encode()


def test_probes_and_metadata_of_the_server(client: httpx.Client) -> None:
    assert client.get("/v2").json()["name"] == "leafcode"
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    ready = client.get("/v2/models/apples/ready").json()
    assert ready == {"name": "apples", "version": "2", "ready": True}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/pears", 404),
        ("GET", "/v2/models/apples/versions/3", 404),
        ("GET", "/v2/models/apples/versions/latest", 422),
        ("GET", "/v2/models/apples/versions/-1", 422),
        ("GET", "/v2/models/apples/versions/" + "9" * 5000, 422),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v2/models/%00", 404),
        ("GET", "/v2/models/%ff/config", 404),
        ("GET", "/v2/models/apples/stats", 404),
        ("GET", "/v2/models/apples/infer", 405),
        ("GET", "/v2/repository/index", 405),
        ("POST", "/v2/models/pears/infer", 404),
        ("POST", "/v2/models/apples/versions/3/infer", 404),
        ("POST", "/v2/repository/models/apples/unload", 404),
    ],
)
def test_what_is_not_there_is_a_problem_with_an_error(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    problem_of(client.request(method, path), status)


def test_openapi_tells_the_body_and_every_error_of_inference(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"):
        infer = paths[path]["post"]
        content = infer["requestBody"]["content"]
        assert set(content) == {"application/json", "application/octet-stream"}
        assert "$ref" not in json.dumps(content)
        assert set(infer["responses"]) == {
            *("200", "400", "404", "408", "413", "415", "422", "429", "431", "503", "504")
        }


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_elements_survive_being_joined(elements: list[bytes]) -> None:
    assert split_elements(join_elements(elements), len(elements)) == tuple(elements)


@given(st.lists(st.binary(max_size=9), max_size=4), st.data())
def test_elements_that_do_not_fill_their_bytes_are_refused(
    elements: list[bytes], data: st.DataObject
) -> None:
    joined = join_elements(elements)
    cut = data.draw(st.integers(0, len(joined)))
    for wrong in (joined[:cut], joined + b"\0"):
        if wrong != joined:
            with pytest.raises(MalformedBodyError):
                split_elements(wrong, len(elements))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_are_elements_or_malformed(data: bytes, count: int) -> None:
    try:
        elements = split_elements(data, count)
    except MalformedBodyError:
        return
    assert join_elements(elements) == data


def test_bytes_are_little_endian_and_row_major() -> None:
    values = np.array([[1, 2], [3, -1]], ">i4").astype(np.int32).T
    assert Tensor("t", (2, 2), values).to_bytes().hex() == "010000000300000002000000ffffffff"
    assert Tensor("t", (2,), ("é", "")).to_bytes().hex() == "02000000c3a900000000"
    assert Tensor("t", (2,), np.array([True, False])).to_bytes().hex() == "0100"


def test_equal_scores_go_to_the_lowest_index() -> None:
    manifest = bundles.random_bundle().manifest
    scores = np.array([[0, 1, 1, 0]], np.float32)
    outputs = [RequestedOutput("label_id"), RequestedOutput("probabilities", n_classes=4)]
    results = LabelResults(scores, np.array([True]), Maps.of(()))
    label_id, ranked = write_labels(manifest, results, outputs)
    assert label_id.data == b"1"
    texts = json.loads(b"[%b]" % ranked.data)
    assert [text.split(":")[1] for text in texts] == ["1", "2", "0", "3"]


def test_memory_of_an_image_does_not_wait_for_a_garbage_collection() -> None:
    error = BrokenImageError("the image is damaged")
    alone, among = in_batch(error, 0, 1), in_batch(error, 1, 2)
    assert alone is not error  # raised from itself, it would be a circle
    assert (str(alone), str(among)) == ("the image is damaged", "image 1: the image is damaged")
    assert isinstance(alone, BrokenImageError)
