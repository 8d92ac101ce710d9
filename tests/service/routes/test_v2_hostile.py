"""Every way to get an inference request wrong is told in a sentence, never by a 500."""

import gzip
import json
import struct
import zlib
from collections.abc import Callable

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.strategies import inference_documents
from tests.support import pictures
from tests.support.clients import base64_of, problem_of
from tests.support.inference_v2 import INFER, LENGTH, PNG, ROW, Json, descriptors

TENSOR = struct.pack("<256f", *[0.25] * 256)
LARGE = " " * 70_000  # white space that makes a request long enough for a worker

Post = Callable[[Json], httpx.Response]


def image(data: object, n: object = 1, **changes: object) -> Json:
    return {"name": "image", "shape": [n], "datatype": "BYTES", "data": data, **changes}


def binary(tensor: Json, tail: bytes, size: object = None) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a binary request; `size` is what the tensor claims."""
    claimed = len(tail) if size is None else size
    members = {name: value for name, value in tensor.items() if name != "data"}
    request = {"inputs": [{**members, "parameters": {"binary_data_size": claimed}}]}
    header = json.dumps(request).encode()
    return header + tail, {LENGTH: str(len(header))}


def prefixed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(item)) + item for item in elements)


@pytest.fixture(params=["on the loop", "in a worker"])
def post(request: pytest.FixtureRequest, client: httpx.Client) -> Post:
    """Posts JSON; long JSON is read elsewhere and must be refused alike."""
    padding = LARGE if request.param == "in a worker" else ""

    def send(document: Json) -> httpx.Response:
        return client.post(INFER, content=json.dumps(document).encode() + padding.encode())

    return send


def detail_of(response: httpx.Response, status: int) -> str:
    detail = str(problem_of(response, status)["detail"])
    assert len(detail) < 300
    return detail


@pytest.mark.parametrize(
    ("request_", "detail"),
    [
        ({}, "inputs is missing, expected a list"),
        ({"inputs": {}}, "inputs is an object, expected a list"),
        ({"inputs": []}, "0 inputs, expected one: image or descriptors"),
        ({"inputs": [image([]), image([])]}, "2 inputs"),
        ({"inputs": [3]}, "the input is 3, expected an object"),
        ({"inputs": [{}]}, "the name of the input is missing"),
        ({"inputs": [{"name": ["image"]}]}, "the name of the input is a list"),
        ({"inputs": [{"name": "pixels"}]}, 'input "pixels" is unknown'),
        ({"inputs": [{"name": "\ud800"}]}, 'input "\\ud800" is unknown'),
        ({"inputs": [{"name": "x" * 9999}]}, "is unknown"),
        ({"inputs": [image(["x"], datatype="STRING")]}, '"STRING", expected BYTES'),
        ({"inputs": [image(["x"], datatype=None)]}, "expected BYTES"),
        ({"inputs": [descriptors([ROW, ROW], datatype="FP64")]}, '"FP64", expected FP32'),
        ({"inputs": [image(["x"], shape=None)]}, "the shape of input image is missing"),
        ({"inputs": [image(["x"], shape=1)]}, "shape of input image is 1, expected a list"),
        ({"inputs": [image(["x"], shape=[])]}, "has the shape [], expected [n]"),
        ({"inputs": [image(["x"], shape=[1, 1])]}, "has the shape [1, 1], expected [n]"),
        ({"inputs": [image(["x"], n=-1)]}, "has the shape [-1], expected [n]"),
        ({"inputs": [image(["x"], n=True)]}, "has the shape [true], expected [n]"),
        ({"inputs": [image(["x"], n=1.0)]}, "has the shape [1.0], expected [n]"),
        ({"inputs": [image(["x"], n="1")]}, 'has the shape ["1"], expected [n]'),
        ({"inputs": [image(["x"], shape=[1] * 999)]}, "[1, 1, 1, 1, …], expected [n]"),
        ({"inputs": [descriptors(ROW, shape=[1, 127])]}, "[1, 127], expected [n, 128]"),
        ({"inputs": [descriptors(ROW, shape=[128])]}, "[128], expected [n, 128]"),
        ({"inputs": [descriptors(ROW, shape=[-1, -128])]}, "[-1, -128], expected"),
        ({"inputs": [image(None)]}, "neither of data and binary_data_size"),
        ({"inputs": [image([""], parameters={"binary_data_size": 4})]}, "both of data and"),
        ({"inputs": [image(None, parameters={"binary_data_size": "4"})]}, 'is "4", expected'),
        ({"inputs": [image(None, parameters=[])]}, "parameters of input image is a list"),
        ({"inputs": [image(None, parameters={"shared_memory_region": "r"})]}, "shared memory"),
        ({"inputs": [image("abc")]}, 'data of input image is "abc", expected a list'),
        ({"inputs": [image({})]}, "data of input image is an object"),
        ({"inputs": [image(["", ""])]}, "has 2 items, its shape asks for 1"),
        ({"inputs": [image([3])]}, "image 0 is 3, expected a string of base64"),
        ({"inputs": [image([[""]])]}, "image 0 is a list, expected a string of base64"),
        ({"inputs": [image(["§"])]}, "image 0 is not base64"),
        ({"inputs": [image(["\ud800"])]}, "image 0 is not base64"),
        ({"inputs": [descriptors([ROW])]}, "has 1 items, its shape asks for 2"),
        ({"inputs": [descriptors(ROW)]}, "has 128 items, its shape asks for 256"),
        ({"inputs": [descriptors([])]}, "has 0 items, its shape asks for 2"),
        ({"inputs": [descriptors([ROW, ROW[1:]])]}, "descriptor 1 has 127 values"),
        ({"inputs": [descriptors([ROW, 0.5])]}, "descriptor 1 is 0.5, expected a list"),
        ({"inputs": [descriptors(ROW + [True] * 128)]}, "descriptor 1 has the value true"),
        ({"inputs": [descriptors(ROW + [None] * 128)]}, "descriptor 1 has the value null"),
        ({"inputs": [descriptors(ROW + [[]] * 128)]}, "descriptor 1 has the value a list"),
        ({"inputs": [descriptors([*ROW, float("nan"), *ROW[1:]])]}, "the value NaN"),
        ({"inputs": [descriptors([*ROW, float("inf"), *ROW[1:]])]}, "the value Infinity"),
        ({"inputs": [descriptors([*ROW, 10**400, *ROW[1:]])]}, "descriptor 1 has the value"),
        ({"inputs": [descriptors([1e30] * 256)]}, "descriptor 0 has the value 1e+30"),
        ({"inputs": [descriptors(ROW * 2)], "id": 7}, "id is 7, expected a string"),
        ({"inputs": [descriptors(ROW * 2)], "id": "\ud800"}, "id has half of a surrogate pair"),
        ({"inputs": [descriptors(ROW * 2)], "parameters": 7}, "parameters of the request is 7"),
        ({"inputs": [descriptors(ROW * 2)], "outputs": 7}, "outputs is 7, expected a list"),
        ({"inputs": [descriptors(ROW * 2)], "outputs": [7]}, "an output is 7"),
        ({"inputs": [descriptors(ROW * 2)], "outputs": [{}]}, "name of an output is missing"),
        (
            {"inputs": [descriptors(ROW * 2)], "outputs": [{"name": "label"}]},
            'output "label" is unknown for input descriptors, expected one of leaf_id, atom_ids',
        ),
        (
            {"inputs": [descriptors(ROW * 2)], "outputs": [{"name": "values"}] * 2},
            "an output more than once",
        ),
        ({"inputs": [descriptors(ROW * 2)], "outputs": [{"name": "values"}] * 4}, "4 outputs"),
    ],
)
def test_a_request_of_another_content_is_refused(post: Post, request_: Json, detail: str) -> None:
    assert detail in detail_of(post(request_), 422)


@pytest.mark.parametrize(
    ("name", "parameters", "detail"),
    [
        ("label", {"classification": 2}, "only of the output probabilities"),
        ("probabilities", {"classification": -1}, "classification -1, expected"),
        ("probabilities", {"classification": "2"}, 'classification is "2", expected'),
        ("probabilities", {"classification": 1.5}, "classification is 1.5"),
        ("probabilities", {"classification": True}, "classification is true"),
        ("probabilities", {"binary_data": 1}, "binary_data is 1, expected true or false"),
        ("probabilities", {"shared_memory_region": "r"}, "shared memory"),
        ("probabilities", [], "parameters of output probabilities is a list"),
    ],
)
def test_parameters_of_an_output_are_checked(
    post: Post, name: str, parameters: object, detail: str
) -> None:
    outputs = [{"name": name, "parameters": parameters}]
    request = {"inputs": [image([base64_of(PNG)])], "outputs": outputs}
    assert detail in detail_of(post(request), 422)


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        ({"timeout": -1}, "timeout is -1, expected microseconds"),
        ({"timeout": "1"}, 'timeout is "1", expected a whole number'),
        ({"timeout": float("nan")}, "timeout is NaN"),
        ({"timeout": 1e99}, "timeout is 1e+99"),
        ({"binary_data_output": "yes"}, "binary_data_output is"),
    ],
)
def test_parameters_of_a_request_are_checked(post: Post, parameters: Json, detail: str) -> None:
    request = {"inputs": [image([base64_of(PNG)])], "parameters": parameters}
    assert detail in detail_of(post(request), 422)


@pytest.mark.parametrize(
    ("tensor", "detail"),
    [
        (image([""] * 5, 5), "5 images, expected at most 4"),
        (image([""], 10**18), "images, expected at most 4"),
        (descriptors(ROW * 101, 101), "101 descriptors, expected at most 100"),
        (descriptors(ROW, 2**63), "descriptors, expected at most 100"),
        (descriptors(ROW, 10**4000), "descriptors, expected at most 100"),
    ],
)
def test_more_items_than_allowed_are_refused(post: Post, tensor: Json, detail: str) -> None:
    assert detail in detail_of(post({"inputs": [tensor]}), 413)


@pytest.mark.parametrize(
    ("data", "status", "detail"),
    [
        (b"", 400, "no image"),
        (b"no image", 415, "not an image"),
        (pictures.truncated_jpeg(), 422, ""),
        (pictures.png_header(50_000, 50_000), 422, ""),
    ],
)
def test_an_image_that_is_none_is_refused(
    client: httpx.Client, data: bytes, status: int, detail: str
) -> None:
    as_json = client.post(INFER, json={"inputs": [image([base64_of(data)])]})
    body, headers = binary(image(None), prefixed(data))
    as_bytes = client.post(INFER, content=body, headers=headers)
    raw = client.post(INFER, content=data, headers={LENGTH: "0"})
    details = {detail_of(response, status) for response in (as_json, as_bytes, raw)}
    assert len(details) == 1
    assert detail in details.pop() or not data


def test_the_bad_image_among_several_is_named(client: httpx.Client) -> None:
    body, headers = binary(image(None, 3), prefixed(PNG, PNG, b"no image"))
    assert "image 2: " in detail_of(client.post(INFER, content=body, headers=headers), 415)


@pytest.mark.parametrize(
    ("tensor", "tail", "size", "detail"),
    [
        (image(None), prefixed(PNG), 0, f"but {len(PNG) + 4} bytes follow"),
        (image(None), prefixed(PNG), -1, "binary_data_size -1"),
        (image(None), prefixed(PNG), 10**30, "binary_data_size 1000"),
        (image(None), prefixed(PNG)[:-1], None, "only"),
        (image(None), prefixed(PNG) + b"\0", None, "1 bytes follow the last element"),
        (image(None), b"\xff\xff\xff\xff", None, "element 0 says it has 4294967295 bytes"),
        (image(None), b"\1\0\0", None, "ends before the length of element 0"),
        (image(None), PNG, None, "element 0 says"),
        (image(None, 2), prefixed(PNG), None, "ends before the length of element 1"),
        (image(None, 0), prefixed(PNG), None, "bytes follow the last element"),
        (descriptors(None), TENSOR[:-4], None, "has 1020 bytes, expected 1024"),
        (descriptors(None), TENSOR[:-1], None, "has 1023 bytes, expected 1024"),
        (descriptors(None, 3), TENSOR, None, "has 1024 bytes, expected 1536"),
        (descriptors(None, 0), TENSOR, None, "has 1024 bytes, expected 0"),
    ],
)
def test_lengths_that_lie_are_refused(
    client: httpx.Client, tensor: Json, tail: bytes, size: object, detail: str
) -> None:
    body, headers = binary(tensor, tail, size)
    assert detail in detail_of(client.post(INFER, content=body, headers=headers), 400)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_binary_values_that_are_not_finite_are_refused(client: httpx.Client, value: float) -> None:
    tail = struct.pack("<256f", *[0.25] * 200, value, *[0.25] * 55)
    body, headers = binary(descriptors(None), tail)
    detail = detail_of(client.post(INFER, content=body, headers=headers), 422)
    assert "descriptor 1 has no finite norm" in detail


@pytest.mark.parametrize("stated", ["-1", "1.5", "0x10", "", "1 1", "9" * 5000, "1e3", "²"])
def test_a_stated_length_that_is_no_number_is_refused(client: httpx.Client, stated: str) -> None:
    headers = {LENGTH: stated.encode("latin-1")}
    response = client.post(INFER, content=PNG, headers=headers)  # type: ignore[arg-type]
    assert "expected a whole number" in detail_of(response, 400)


def test_a_stated_length_beyond_the_body_is_refused(client: httpx.Client) -> None:
    response = client.post(INFER, content=b"{}", headers={LENGTH: "3"})
    assert "is 3, but the body has only 2 bytes" in detail_of(response, 400)


def test_a_stated_length_that_cuts_the_json_is_refused(client: httpx.Client) -> None:
    body, headers = binary(descriptors(None), TENSOR)
    for shift in (-1, 1):
        wrong = {LENGTH: str(int(headers[LENGTH]) + shift)}
        assert "not JSON" in detail_of(client.post(INFER, content=body, headers=wrong), 400)


def test_bytes_that_nothing_announces_are_refused(client: httpx.Client) -> None:
    header = json.dumps({"inputs": [descriptors(ROW * 2)]}).encode()
    response = client.post(INFER, content=header + b"more", headers={LENGTH: str(len(header))})
    assert "4 bytes follow the JSON, but" in detail_of(response, 400)


def test_an_image_without_the_header_is_told_which_one_it_needs(client: httpx.Client) -> None:
    response = client.post(INFER, content=PNG)
    assert "needs the header Inference-Header-Content-Length: 0" in detail_of(response, 400)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff" * 99, 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"inputs":' * 5_000, 400),
        (b'{"inputs": ' + b"9" * 5000 + b"}", 400),
        (b'{"inputs": [' + b"[[" * 5_000 + b"], " * 10_000, 400),
        (b'{"inputs": [' + b"0," * 50_000 + b"0]}", 413),
        (b"[]", 422),
        (b'"' + b"x" * 70_000 + b'"', 422),
        (b"7", 422),
    ],
)
def test_what_is_no_request_is_refused(client: httpx.Client, content: bytes, status: int) -> None:
    detail_of(client.post(INFER, content=content), status)


@pytest.mark.parametrize("depth", range(960, 1000, 5))
def test_values_nested_as_deeply_as_json_allows_are_no_failure(
    client: httpx.Client, depth: int
) -> None:
    deep = "[" * depth + "]" * depth
    rows = json.dumps(ROW)[1:-1]
    content = (
        f'{{"inputs": [{json.dumps(descriptors(7, 1)).replace("7", f"[{rows[6:]},{deep}]")}]}}'
    )
    assert client.post(INFER, content=content).status_code in (400, 422)
    row = f'{{"descriptors": [[{rows[6:]},{deep}]]}}'
    headers = {"content-type": "application/json"}
    assert client.post("/v1/codes", content=row, headers=headers).status_code in (400, 422)


def test_long_json_beside_binary_data_is_rejected(client: httpx.Client) -> None:
    expected = "bytes beside its data, expected at most 32768"
    body, headers = binary(image(None, note="x" * 70_000), prefixed(PNG))
    assert expected in detail_of(client.post(INFER, content=body, headers=headers), 400)


@pytest.mark.parametrize(
    ("encoding", "content", "status", "detail"),
    [
        ("gzip", b"no gzip", 400, "not gzip"),
        ("deflate", b"no deflate", 400, "not deflate"),
        ("gzip", b"", 400, "stops before the end"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-1], 400, "stops before the end"),
        ("gzip", gzip.compress(b"{}", mtime=0) * 2, 400, "goes on behind the end"),
        ("deflate", zlib.compress(b"{}") + b"more", 400, "goes on behind the end"),
        ("gzip", gzip.compress(bytes(100_000_000), 1, mtime=0), 413, "more bytes than 1000000"),
        ("br", b"{}", 415, "expected gzip or deflate"),
        ("gzip, gzip", b"{}", 415, "expected gzip or deflate"),
    ],
    ids=[
        *("no gzip", "no deflate", "empty", "cut short", "two of them", "more behind it"),
        *("bomb", "another kind", "twice"),
    ],
)
def test_compression_that_is_broken_or_a_bomb_is_refused(
    client: httpx.Client, encoding: str, content: bytes, status: int, detail: str
) -> None:
    response = client.post(INFER, content=content, headers={"content-encoding": encoding})
    assert detail in detail_of(response, status)


def test_a_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    detail_of(client.post(INFER, content=bytes(1_000_001), headers={LENGTH: "0"}), 413)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    document=inference_documents,
    tail=st.binary(max_size=20),
    stated=st.booleans(),
)
def test_no_request_is_a_failure_of_the_service(
    client: httpx.Client, document: Json, tail: bytes, *, stated: bool
) -> None:
    header = json.dumps(document).encode()
    headers = {LENGTH: str(len(header))} if stated else {}
    response = client.post(INFER, content=header + tail, headers=headers)
    assert response.status_code in (200, 400, 413, 415, 422), response.text
    assert response.status_code == 200 or isinstance(response.json()["error"], str)
