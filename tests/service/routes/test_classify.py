"""`POST /v1/classify` over HTTP, every way in and every way to get it wrong."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.engine import Engine
from tests.support import bundles, pictures
from tests.support.clients import DEEP, base64_of, problem_of

PNG = pictures.png()
JPEG = pictures.jpeg(pictures.disc())
BLANK = pictures.jpeg(pictures.blank())
FORM_TYPE = "application/x-www-form-urlencoded"
LONG_NUMBER = b'{"image": ' + b"9" * 5000 + b"}"


def labels_of(path: Path, data: bytes, top_k: int = 5) -> list[dict[str, object]]:
    ranked = Engine.load(path).classify(data, top_k)
    return [{"label": item.label, "probability": item.probability} for item in ranked]


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", FORM_TYPE, ""])
def test_a_raw_body_of_any_type_is_an_image(
    client: httpx.Client, models: Path, content_type: str
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = client.post("/v1/classify", content=PNG, headers=headers)
    manifest = Engine.load(models / "apples" / "2").manifest
    assert response.status_code == 200
    assert response.json() == {
        "model": {"name": "apples", "version": 2, "digest": manifest.digest},
        "known": True,
        "predictions": labels_of(models / "apples" / "2", PNG),
    }


def test_probabilities_of_all_labels_sum_to_one(client: httpx.Client) -> None:
    answer = client.post("/v1/classify", content=JPEG, params={"top_k": 1000}).json()
    assert len(answer["predictions"]) == len(bundles.LABELS)
    assert sum(item["probability"] for item in answer["predictions"]) == pytest.approx(1)


def test_model_version_and_top_k_are_obeyed(client: httpx.Client, models: Path) -> None:
    params: dict[str, str | int] = {"model": "apples", "version": 1, "top_k": 2}
    answer = client.post("/v1/classify", content=PNG, params=params).json()
    assert answer["model"]["version"] == 1
    assert answer["predictions"] == labels_of(models / "apples" / "1", PNG, 2)


def test_one_file_in_a_form_is_answered_like_a_raw_body(client: httpx.Client) -> None:
    form = client.post("/v1/classify", files={"anything": PNG})
    assert form.json() == client.post("/v1/classify", content=PNG).json()


def test_a_bad_image_does_not_spoil_its_neighbours(client: httpx.Client, models: Path) -> None:
    sent = [PNG, pictures.truncated_jpeg(), b"", JPEG]
    response = client.post("/v1/classify", files=[("image", data) for data in sent])
    assert response.status_code == 200
    first, broken, empty, last = response.json()["results"]
    assert first == {"known": True, "predictions": labels_of(models / "apples" / "2", PNG)}
    assert last == {"known": True, "predictions": labels_of(models / "apples" / "2", JPEG)}
    assert broken["problem"]["status"] == 422
    assert empty["problem"]["status"] == 400
    assert "instance" not in empty["problem"]


def test_json_with_one_image_is_answered_like_a_raw_body(client: httpx.Client) -> None:
    response = client.post("/v1/classify", json={"image": base64_of(PNG)})
    assert response.json() == client.post("/v1/classify", content=PNG).json()


def test_json_with_a_list_of_images_is_answered_with_results(client: httpx.Client) -> None:
    response = client.post("/v1/classify", json={"images": [base64_of(PNG)]})
    single = client.post("/v1/classify", content=PNG).json()
    assert response.json()["results"] == [{"known": True, "predictions": single["predictions"]}]


def test_an_image_like_none_of_the_classes_has_labels_and_is_not_known(
    client: httpx.Client, models: Path
) -> None:
    answer = client.post("/v1/classify", content=BLANK).json()
    assert answer["known"] is False
    assert answer["predictions"] == labels_of(models / "apples" / "2", BLANK)
    files = [("a", PNG), ("b", BLANK), ("c", b"no image")]
    results = client.post("/v1/classify", files=files).json()["results"]
    assert [result.get("known") for result in results] == [True, False, None]


def test_all_images_are_known_to_a_model_without_a_threshold(client: httpx.Client) -> None:
    answer = client.post("/v1/classify?version=1&model=apples", content=BLANK).json()
    assert answer["known"] is True


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"hello", 415, "not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not an image"),
        (b"", 400, "no bytes"),
        (pictures.truncated_jpeg(), 422, "truncated"),
        (PNG[:60], 422, "truncated"),
        (pictures.png_header(9_000, 9_000), 422, "9000x9000"),
        (pictures.png_header(30_000, 1), 422, "30000x1"),
        (pictures.png_header(60_000, 60_000), 422, "too many pixels"),
        (pictures.png(pictures.noise(8, 8)), 422, "8x8"),
    ],
    ids=[
        *("text", "SVG", "EPS", "empty", "half a JPEG", "start of a PNG"),
        *("many pixels", "one long side", "a bomb", "too small"),
    ],
)
def test_a_body_that_is_no_usable_image_is_refused(
    client: httpx.Client, body: bytes, status: int, words: str
) -> None:
    problem = problem_of(client.post("/v1/classify", content=body), status)
    assert words in str(problem["detail"])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff\xfe\x00", 400, "not JSON"),
        (DEEP, 400, "nested too deeply"),
        (LONG_NUMBER, 400, "not JSON"),
        (b"[]", 422, "not an object"),
        (b"{}", 422, "expected"),
        (b'{"images": []}', 422, "expected"),
        (b'{"image": "aGk=", "images": []}', 422, "expected"),
        (b'{"image": 7}', 422, "image is 7, expected a string"),
        (b'{"images": ["aGk=", "?"]}', 422, "image 1 is not base64"),
        (b'{"images": ["aGk=", "\\u00e4"]}', 422, "image 1 is not base64"),
        (b'{"image": "data:image/png,%89PNG"}', 422, "image is a data URI without base64"),
        (b'{"image": "data:image/png;base64"}', 422, "image is a data URI without base64"),
        (b'{"image": "data:image/png;base64,?"}', 422, "image is not base64"),
        (b'{"image": "aGk="}', 415, "not an image"),
        (b'{"image": ""}', 400, "no bytes"),
        (json.dumps({"images": ["aGk="] * 5}).encode(), 413, "5 images, expected at most 4"),
        (json.dumps({"images": ["aGk="] * 50}).encode(), 413, "more than 4 images"),
        (b"", 400, "no bytes"),
    ],
)
def test_json_that_holds_no_image_is_refused(
    client: httpx.Client, body: bytes, status: int, words: str
) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    problem = problem_of(client.post("/v1/classify", content=body, headers=headers), status)
    assert words in str(problem["detail"])


# What `curl -d @file` leaves of a file.
DAMAGED_PNG, DAMAGED_JPEG = (image.translate(None, b"\r\n\0") for image in (PNG, JPEG))


@pytest.mark.parametrize(
    ("body", "status"), [(DAMAGED_PNG, 415), (DAMAGED_JPEG, 422)], ids=["PNG", "JPEG"]
)
@pytest.mark.parametrize("path", ["/v1/classify", "/v2/models/apples/infer"])
def test_an_image_that_curl_damaged_is_refused_with_the_option_that_keeps_it_whole(
    client: httpx.Client, path: str, body: bytes, status: int
) -> None:
    headers = {"content-type": FORM_TYPE, "inference-header-content-length": "0"}
    problem = problem_of(client.post(path, content=body, headers=headers), status)
    assert "curl -d removes line ends, send it with --data-binary" in str(problem["detail"])


def test_an_image_that_another_client_damaged_is_not_explained_by_curl(
    client: httpx.Client,
) -> None:
    headers = {"content-type": "image/png"}
    problem = problem_of(client.post("/v1/classify", content=DAMAGED_PNG, headers=headers), 415)
    assert "curl" not in str(problem["detail"])


@pytest.mark.parametrize("prefix", ["data:image/png;base64,", "DATA:;x=y;Base64,", "data:;base64,"])
def test_a_data_uri_in_json_is_read_like_base64(client: httpx.Client, prefix: str) -> None:
    image = base64_of(PNG)
    expected = client.post("/v1/classify", json={"images": [image] * 4}).json()
    answer = client.post("/v1/classify", json={"images": [prefix + image] * 4})
    assert answer.json() == expected
    assert "problem" not in answer.text


def test_a_data_uri_in_an_inference_request_is_read_like_base64(client: httpx.Client) -> None:
    def infer(image: str) -> httpx.Response:
        tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [image]}
        return client.post("/v2/models/apples/infer", json={"inputs": [tensor]})

    answer = infer(f"data:image/png;base64,{base64_of(PNG)}")
    assert answer.status_code == 200
    assert answer.json() == infer(base64_of(PNG)).json()


def test_a_form_without_a_file_is_refused(client: httpx.Client) -> None:
    # Built by hand: httpx sends a form without files URL-encoded.
    body = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\nphoto.jpg\r\n--b--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=b"}
    problem = problem_of(client.post("/v1/classify", content=body, headers=headers), 400)
    assert "the form has no file" in str(problem["detail"])


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=b"])
def test_a_form_that_cannot_be_read_is_refused(client: httpx.Client, content_type: str) -> None:
    headers = {"content-type": content_type}
    problem_of(client.post("/v1/classify", content=b"nonsense", headers=headers), 400)


def form_of(*parts: bytes, end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + end


def file_part(data: bytes) -> bytes:
    return b'Content-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + data


@pytest.mark.parametrize("charset", ["undefined", "punycode"])
def test_a_form_in_a_charset_that_reads_nothing_is_rejected(
    client: httpx.Client, charset: str
) -> None:
    """Python has codecs that raise another error than others, which was a 500."""
    headers = {"content-type": f"multipart/form-data; boundary=b; charset={charset}"}
    answer = client.post("/v1/classify", content=form_of(file_part(PNG)), headers=headers)
    assert "charset" in str(problem_of(answer, 400)["detail"])


@pytest.mark.parametrize("end", [b"", b"--b"], ids=["no boundary", "another part begins"])
def test_a_form_that_stops_early_is_rejected(client: httpx.Client, end: bytes) -> None:
    """The files before the last one were answered as if they were all."""
    headers = {"content-type": "multipart/form-data; boundary=b"}
    content = form_of(file_part(PNG), file_part(PNG), end=end)
    answer = client.post("/v1/classify", content=content, headers=headers)
    assert "stops before its last boundary" in str(problem_of(answer, 400)["detail"])


def test_a_form_with_too_many_files_is_refused(client: httpx.Client) -> None:
    response = client.post("/v1/classify", files=[("image", PNG)] * 5)
    assert "Maximum number of files is 4" in str(problem_of(response, 413)["detail"])


@pytest.mark.parametrize(
    "params",
    [
        {"top_k": "0"},
        {"top_k": "-1"},
        {"top_k": "many"},
        {"top_k": "1.5"},
        {"top_k": "9" * 5000},
        {"version": "latest"},
        {"version": "-1"},
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(
    client: httpx.Client, params: dict[str, str]
) -> None:
    problem = problem_of(client.post("/v1/classify", content=PNG, params=params), 422)
    assert str(problem["detail"]).count(f"query parameter {next(iter(params))} is") == 1
    assert len(str(problem["detail"])) < 300


@pytest.mark.parametrize(
    "params",
    [{"model": "pears"}, {"model": "../apples"}, {"model": ""}, {"version": "7"}],
)
def test_an_unknown_model_or_version_is_not_found(
    client: httpx.Client, params: dict[str, str]
) -> None:
    problem = problem_of(client.post("/v1/classify", content=PNG, params=params), 404)
    assert "expected one of" in str(problem["detail"])


def test_an_oversized_body_is_refused_by_its_stated_length(client: httpx.Client) -> None:
    problem = problem_of(client.post("/v1/classify", content=bytes(1_000_001)), 413)
    assert "at least 1000001 bytes, expected at most 1000000" in str(problem["detail"])


def test_an_oversized_body_without_a_length_is_refused(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(11):
            yield bytes(100_000)

    problem_of(client.post("/v1/classify", content=chunks()), 413)


def test_an_oversized_file_in_a_form_is_refused(client: httpx.Client) -> None:
    problem_of(client.post("/v1/classify", files={"image": bytes(1_000_001)}), 413)


def test_the_server_goes_on_after_bad_input(client: httpx.Client) -> None:
    before = client.post("/v1/classify", content=PNG).json()
    for body in (b"", b"hello", pictures.truncated_jpeg(), bytes(1_000_001)):
        assert client.post("/v1/classify", content=body).is_client_error
    assert client.post("/v1/classify", content=PNG).json() == before
    assert client.get("/readyz").status_code == 200
