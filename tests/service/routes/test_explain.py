"""`POST /v1/explain`, and `explain=true` of `POST /v1/classify`, over HTTP."""

import io
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from tests.support import bundles, pictures
from tests.support.clients import base64_of, problem_of

PNG = pictures.png()
JPEG = pictures.jpeg(pictures.disc())
BEST, OTHER = bundles.LABELS[:2]


def test_an_explanation_is_that_of_the_engine(client: httpx.Client, models: Path) -> None:
    answer = client.post("/v1/explain", content=JPEG)
    engine = Engine.load(models / "apples" / "2")
    expected = engine.explain(JPEG)
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["model"] == {"name": "apples", "version": 2, "digest": engine.manifest.digest}
    assert (found["label"], found["score"], found["bias"]) == (
        expected.label,
        expected.score,
        expected.bias,
    )
    assert "against" not in found
    np.testing.assert_allclose(found["cells"], expected.cells, atol=1e-7)
    assert np.sum(found["cells"]) + found["bias"] == pytest.approx(found["score"], abs=1e-4)
    assert found["grid"] == {
        "rows": 32,
        "cols": 32,
        "width": expected.width,
        "height": expected.height,
    }
    assert [block["kind"] for block in found["blocks"]] == ["codes"]
    assert [atom["contribution"] for atom in found["atoms"]] == [
        atom.contribution for atom in expected.atoms
    ]


def test_a_label_and_what_it_is_compared_with_are_obeyed(client: httpx.Client) -> None:
    one, other = (
        client.post("/v1/explain", content=PNG, params={"label": label}).json()
        for label in (BEST, OTHER)
    )
    both = client.post("/v1/explain", content=PNG, params={"label": BEST, "against": OTHER}).json()
    assert (one["label"], both["label"], both["against"]) == (BEST, BEST, OTHER)
    assert both["score"] == pytest.approx(one["score"] - other["score"], abs=1e-6)
    difference = np.subtract(one["cells"], other["cells"])
    np.testing.assert_allclose(both["cells"], difference, atol=3e-7)


def test_every_form_of_a_body_is_read(client: httpx.Client) -> None:
    raw = client.post("/v1/explain", content=PNG).json()
    assert client.post("/v1/explain", files={"any": PNG}).json() == raw
    assert client.post("/v1/explain", json={"image": base64_of(PNG)}).json() == raw


def test_a_picture_has_the_size_of_the_image_and_other_pixels_for_another_label(
    client: httpx.Client,
) -> None:
    pixels = []
    for label in (BEST, OTHER):
        answer = client.post(
            "/v1/explain", content=JPEG, params={"label": label}, headers={"accept": "image/png"}
        )
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["vary"] == "Accept"
        with Image.open(io.BytesIO(answer.content)) as picture, Image.open(io.BytesIO(JPEG)) as own:
            assert (picture.size, picture.mode) == (own.size, "RGB")
            pixels.append(np.asarray(picture))
    assert (pixels[0] != pixels[1]).any()


@pytest.mark.parametrize("parameter", ["label", "against"])
def test_an_unknown_label_is_named(client: httpx.Client, parameter: str) -> None:
    answer = client.post("/v1/explain", content=PNG, params={parameter: "wasp"})
    problem = problem_of(answer, 404)
    assert problem["type"] == "urn:leafcode:problem:unknown-label"
    assert problem["detail"] == "label 'wasp' is unknown to apples, expected one of its 4 labels"


def test_two_images_are_too_many(client: httpx.Client) -> None:
    answer = client.post("/v1/explain", files=[("a", PNG), ("b", PNG)])
    assert "number of files is 1" in str(problem_of(answer, 413))


def test_an_answer_in_another_form_is_not_to_be_had(client: httpx.Client) -> None:
    answer = client.post("/v1/explain", content=PNG, headers={"accept": "text/html"})
    assert "application/json, image/png" in str(problem_of(answer, 406))


def test_a_broken_image_is_rejected(client: httpx.Client) -> None:
    problem_of(client.post("/v1/explain", content=pictures.truncated_jpeg()), 422)


def test_labels_come_with_the_explanation_of_the_best_one(client: httpx.Client) -> None:
    answer = client.post("/v1/classify?explain=true&top_k=1", content=JPEG).json()
    plain = client.post("/v1/classify?top_k=1", content=JPEG).json()
    alone = client.post("/v1/explain", content=JPEG).json()
    assert alone.pop("model") == answer["model"]
    assert answer == {**plain, "explanation": alone}
    several = client.post(
        "/v1/classify?explain=true&top_k=1", files=[("a", JPEG), ("b", b"no image"), ("c", PNG)]
    ).json()["results"]
    assert several[0] == {
        "known": True,
        "predictions": plain["predictions"],
        "explanation": alone,
    }
    assert "problem" in several[1]
    assert several[2]["explanation"]["label"] == several[2]["predictions"][0]["label"]


# Long enough to be read in a worker, and short enough to be read in the front end.
@pytest.mark.parametrize("padding", [0, 40_000])
def test_the_inference_protocol_has_explanations_as_outputs(
    client: httpx.Client, models: Path, padding: int
) -> None:
    image = {"name": "image", "shape": [2], "datatype": "BYTES"}
    document = {
        "inputs": [{**image, "data": [base64_of(JPEG), base64_of(PNG)]}],
        "outputs": [{"name": f"explanation{end}"} for end in ("", "_bias", "_score")],
        "parameters": {"padding": "x" * padding},
    }
    answer = client.post("/v2/models/apples/infer", json=document).json()
    cells, bias, score = (np.reshape(item["data"], item["shape"]) for item in answer["outputs"])
    assert cells.shape == (2, 32, 32)
    np.testing.assert_allclose(cells.sum(axis=(1, 2)) + bias, score, atol=1e-4)
    engine = Engine.load(models / "apples" / "2")
    np.testing.assert_allclose(score, [engine.explain(data).score for data in (JPEG, PNG)])


def test_the_inference_protocol_explains_nobody_who_does_not_ask(client: httpx.Client) -> None:
    image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64_of(PNG)]}
    answer = client.post("/v2/models/apples/infer", json={"inputs": [image]}).json()
    names = [item["name"] for item in answer["outputs"]]
    assert names == ["label", "label_id", "probabilities", "known"]
