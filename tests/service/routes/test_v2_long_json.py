"""A JSON body that is too long for the event loop is read, worked on and answered in a worker."""

import json
from pathlib import Path

import httpx
import numpy as np

from service.engine import Engine
from tests.support import pictures
from tests.support.clients import base64_of
from tests.support.inference_v2 import INFER, descriptors

LONG = "x" * 70_000  # more than the event loop reads
IMAGES = [pictures.png(), pictures.png(pictures.disc(60, 80))]


def infer(client: httpx.Client, tensor: object, **members: object) -> httpx.Response:
    request = {"inputs": [tensor], "parameters": {"note": LONG}, **members}
    return client.post(INFER, json=request)


def images(data: list[str]) -> dict[str, object]:
    return {"name": "image", "shape": [len(data)], "datatype": "BYTES", "data": data}


def test_long_and_short_json_of_images_are_answered_alike(client: httpx.Client) -> None:
    tensor = images([base64_of(data) for data in IMAGES])
    short = client.post(INFER, json={"inputs": [tensor], "id": "7"})
    long = infer(client, tensor, id="7")
    assert long.status_code == 200
    assert long.json() == short.json()


def test_long_json_of_descriptors_is_answered_by_the_engine(
    client: httpx.Client, models: Path
) -> None:
    rows = np.random.default_rng(0).random((60, 128)).astype(np.float32)
    answer = infer(client, descriptors(rows.tolist(), 60)).json()
    codes = Engine.load(models / "apples" / "2").encode(rows)
    leaf_id, atom_ids, values = answer["outputs"]
    assert leaf_id["data"] == codes.leaf_ids.tolist()
    assert atom_ids["data"] == codes.atom_ids.ravel().tolist()
    np.testing.assert_array_equal(np.float32(values["data"]), codes.values.ravel())


def test_outputs_of_long_json_can_be_binary(client: httpx.Client) -> None:
    tensor = images([base64_of(data) for data in IMAGES])
    outputs = [{"name": "label_id", "parameters": {"binary_data": True}}]
    response = infer(client, tensor, outputs=outputs)
    length = int(response.headers["Inference-Header-Content-Length"])
    (output,) = json.loads(response.content[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 8}
    assert len(response.content) == length + 8


def test_a_bad_image_in_long_json_is_named(client: httpx.Client) -> None:
    response = infer(client, images([base64_of(IMAGES[0]), base64_of(b"no image")]))
    assert response.status_code == 415
    assert response.json()["detail"].startswith("image 1: ")


def test_no_images_in_long_json_are_answered_with_empty_tensors(client: httpx.Client) -> None:
    outputs = infer(client, images([])).json()["outputs"]
    assert [(output["shape"], output["data"]) for output in outputs] == [
        ([0], []),
        ([0], []),
        ([0, 4], []),
        ([0], []),
    ]


def test_a_timeout_in_long_json_is_kept(client: httpx.Client) -> None:
    request = {
        "inputs": [images([base64_of(IMAGES[0])])],
        "parameters": {"note": LONG, "timeout": 1},
    }
    response = client.post(INFER, json=request)
    assert response.status_code == 504
