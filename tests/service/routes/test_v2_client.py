"""The real `tritonclient[http]`, synchronous and asynchronous, against a real server."""

import asyncio
import base64
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from service.engine import Engine
from tests.support import bundles, pictures
from tests.support.processes import Server, workers_of

IMAGES = (pictures.png(), pictures.jpeg(pictures.disc()), pictures.png(pictures.noise(seed=5)))
DESCRIPTORS = np.random.default_rng(0).random((17, 128)).astype(np.float32)

Call = Callable[..., Any]

# The asynchronous client looks at the status of a probe and drops the answer unread, which
# aiohttp warns of if the body was late. `gc.collect` lets that happen where it is expected.
drops_answers = pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")


def address(server: Server) -> str:
    return server.url.removeprefix("http://")


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, server: Server) -> Iterator[Call]:
    """Calls a method of either client by its name and returns the result."""
    if request.param == "sync":
        with triton.InferenceServerClient(address(server)) as client:
            yield lambda name, *args, **kwargs: getattr(client, name)(*args, **kwargs)
        return

    async def once(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        async with triton_aio.InferenceServerClient(address(server)) as client:
            method: Callable[..., Awaitable[Any]] = getattr(client, name)
            return await method(*args, **kwargs)

    yield lambda name, *args, **kwargs: asyncio.run(once(name, args, kwargs))


@pytest.fixture(scope="module")
def engines(models: Path) -> dict[str, Engine]:
    return {version: Engine.load(models / "apples" / version) for version in ("1", "2")}


def image_input(images: tuple[bytes, ...] = IMAGES, *, binary: bool = True) -> triton.InferInput:
    """Images as they are behind the JSON, or in base64 within it."""
    items = images if binary else tuple(map(base64.b64encode, images))
    tensor = triton.InferInput("image", [len(items)], "BYTES")
    return tensor.set_data_from_numpy(np.array(items, np.object_), binary_data=binary)


def descriptor_input(
    descriptors: npt.NDArray[np.float32] = DESCRIPTORS, *, binary: bool = True
) -> triton.InferInput:
    tensor = triton.InferInput("descriptors", list(descriptors.shape), "FP32")
    return tensor.set_data_from_numpy(descriptors, binary_data=binary)


def wanted(*names: str, binary: bool) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def chances(engine: Engine, image: bytes) -> dict[str, float]:
    return {item.label: item.probability for item in engine.classify(image, top_k=99)}


def texts(array: npt.NDArray[np.object_]) -> list[str]:
    """BYTES arrive as bytes from the binary form, as str from JSON."""
    return [item.decode() if isinstance(item, bytes) else item for item in array.ravel()]


def assert_labels(result: Any, engine: Engine, images: tuple[bytes, ...] = IMAGES) -> None:
    expected = [chances(engine, image) for image in images]
    best = [max(found, key=lambda label: found[label]) for found in expected]
    assert texts(result.as_numpy("label")) == best
    assert [bundles.LABELS[i] for i in result.as_numpy("label_id")] == best
    assert result.as_numpy("label_id").dtype == np.int32
    table = np.array([[found[label] for label in bundles.LABELS] for found in expected], np.float32)
    np.testing.assert_array_equal(result.as_numpy("probabilities"), table)
    assert result.as_numpy("probabilities").dtype == np.float32


def assert_codes(result: Any, engine: Engine) -> None:
    codes = engine.encode(DESCRIPTORS)
    np.testing.assert_array_equal(result.as_numpy("leaf_id"), codes.leaf_ids)
    np.testing.assert_array_equal(result.as_numpy("atom_ids"), codes.atom_ids)
    np.testing.assert_array_equal(result.as_numpy("values"), codes.values)
    assert result.as_numpy("values").dtype == np.float32


@drops_answers
def test_health(call: Call) -> None:
    assert call("is_server_live") is True
    assert call("is_server_ready") is True
    gc.collect()


@drops_answers
@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [
        ("apples", "", True),
        ("apples", "1", True),
        ("apples", "3", False),
        ("pears", "", False),
        ("../apples", "", False),
    ],
)
def test_readiness_of_a_model(call: Call, name: str, version: str, *, ready: bool) -> None:
    assert call("is_model_ready", name, version) is ready
    gc.collect()


def test_server_metadata_name_the_extensions_that_work(call: Call) -> None:
    metadata = call("get_server_metadata")
    assert metadata["name"] == "leafcode"
    assert metadata["extensions"] == ["binary_tensor_data", "classification", "model_configuration"]


def test_model_metadata_describe_every_tensor(call: Call) -> None:
    metadata = call("get_model_metadata", "apples")
    assert metadata["versions"] == ["1", "2"]
    assert metadata["platform"] == "leafcode"
    assert metadata["inputs"] == [
        {"name": "image", "datatype": "BYTES", "shape": [-1]},
        {"name": "descriptors", "datatype": "FP32", "shape": [-1, 128]},
    ]
    assert metadata["outputs"] == [
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "label_id", "datatype": "INT32", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "known", "datatype": "BOOL", "shape": [-1]},
        {"name": "explanation", "datatype": "FP32", "shape": [-1, 32, 32]},
        {"name": "explanation_bias", "datatype": "FP32", "shape": [-1]},
        {"name": "explanation_score", "datatype": "FP32", "shape": [-1]},
        {"name": "leaf_id", "datatype": "INT32", "shape": [-1]},
        {"name": "atom_ids", "datatype": "INT32", "shape": [-1, 3]},
        {"name": "values", "datatype": "FP32", "shape": [-1, 3]},
    ]
    assert call("get_model_metadata", "apples", "1")["versions"] == ["1"]


def test_model_configuration_has_whole_shapes_and_no_batching(call: Call) -> None:
    for config in (call("get_model_config", "apples"), call("get_model_config", "apples", "1")):
        assert config["max_batch_size"] == 0
        assert [item["name"] for item in config["input"]] == ["image", "descriptors"]
        assert config["output"][2] == {
            "name": "probabilities",
            "data_type": "TYPE_FP32",
            "dims": [-1, 4],
        }


def test_the_index_lists_every_version(call: Call) -> None:
    index = call("get_model_repository_index")
    found = [(item["name"], item["version"], item["state"]) for item in index]
    versions = [("apples", "1"), ("apples", "2"), ("tiny", "1")]
    assert found == [(name, version, "READY") for name, version in versions]


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
def test_images_get_their_labels(
    call: Call, engines: dict[str, Engine], *, binary_input: bool, binary_output: bool
) -> None:
    outputs = wanted("label", "label_id", "probabilities", binary=binary_output)
    result = call("infer", "apples", [image_input(binary=binary_input)], outputs=outputs)
    assert_labels(result, engines["2"])


@pytest.mark.parametrize("binary", [True, False])
def test_images_are_known_or_not(call: Call, *, binary: bool) -> None:
    blank = pictures.png(pictures.blank())
    images = image_input((IMAGES[0], blank, IMAGES[1]))
    result = call("infer", "apples", [images], outputs=wanted("known", binary=binary))
    assert result.as_numpy("known").tolist() == [True, False, True]
    assert result.as_numpy("known").dtype == np.bool_


def test_without_outputs_all_come_in_binary_form(call: Call, engines: dict[str, Engine]) -> None:
    result = call("infer", "apples", [image_input()], request_id="number 7 ✓")
    assert_labels(result, engines["2"])
    answer = result.get_response()
    assert answer["model_name"] == "apples"
    assert answer["model_version"] == "2"
    assert answer["id"] == "number 7 ✓"
    assert all("binary_data_size" in item["parameters"] for item in answer["outputs"])


def test_each_output_may_have_another_form(call: Call, engines: dict[str, Engine]) -> None:
    outputs = [
        *wanted("probabilities", binary=True),
        *wanted("label", binary=False),
        *wanted("label_id", binary=True),
    ]
    result = call("infer", "apples", [image_input()], outputs=outputs)
    assert_labels(result, engines["2"])
    assert [item["name"] for item in result.get_response()["outputs"]] == [
        "probabilities",
        "label",
        "label_id",
    ]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_version_is_obeyed(call: Call, engines: dict[str, Engine], version: str) -> None:
    result = call("infer", "apples", [image_input()], model_version=version)
    assert_labels(result, engines[version])
    assert result.get_response()["model_version"] == version


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
def test_descriptors_get_their_codes(
    call: Call, engines: dict[str, Engine], *, binary_input: bool, binary_output: bool
) -> None:
    outputs = wanted("leaf_id", "atom_ids", "values", binary=binary_output)
    result = call("infer", "apples", [descriptor_input(binary=binary_input)], outputs=outputs)
    assert_codes(result, engines["2"])


def test_as_many_descriptors_as_allowed_come_in_json(call: Call) -> None:
    many = np.random.default_rng(1).random((100, 128)).astype(np.float32)
    from_json = call("infer", "apples", [descriptor_input(many, binary=False)])
    from_bytes = call("infer", "apples", [descriptor_input(many)])
    assert from_json.as_numpy("values").shape == (100, 3)
    np.testing.assert_array_equal(from_json.as_numpy("values"), from_bytes.as_numpy("values"))


def test_a_large_image_in_json_takes_the_same_road(call: Call, engines: dict[str, Engine]) -> None:
    large = (pictures.png(pictures.noise(400, 300)),)
    assert len(large[0]) > 32_768
    result = call("infer", "apples", [image_input(large, binary=False)])
    assert_labels(result, engines["2"], large)


@pytest.mark.parametrize("binary", [True, False])
def test_nothing_is_answered_with_empty_tensors(call: Call, *, binary: bool) -> None:
    nothing = image_input((), binary=binary)
    result = call("infer", "apples", [nothing])
    assert result.as_numpy("probabilities").shape == (0, 4)
    nothing = descriptor_input(np.empty((0, 128), np.float32), binary=binary)
    assert call("infer", "apples", [nothing]).as_numpy("atom_ids").shape == (0, 3)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("asked", "given"), [(1, 1), (3, 3), (4, 4), (1000, 4)])
def test_classification_answers_value_index_and_label_best_first(
    call: Call, engines: dict[str, Engine], *, binary: bool, asked: int, given: int
) -> None:
    output = triton.InferRequestedOutput("probabilities", binary_data=binary, class_count=asked)
    result = call("infer", "apples", [image_input()], outputs=[output])
    found = result.as_numpy("probabilities")
    assert found.shape == (len(IMAGES), given)
    for row, image in zip(found, IMAGES, strict=True):
        ranked = engines["2"].classify(image, given)
        values, indices, labels = zip(*(item.split(":") for item in texts(row)), strict=True)
        assert list(labels) == [item.label for item in ranked]
        assert [bundles.LABELS[int(index)] for index in indices] == list(labels)
        assert [np.float32(value) for value in values] == [
            np.float32(item.probability) for item in ranked
        ]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_read(
    call: Call, engines: dict[str, Engine], algorithm: str
) -> None:
    result = call(
        "infer",
        "apples",
        [image_input()],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert_labels(result, engines["2"])


def test_parameters_that_mean_nothing_here_are_ignored(call: Call) -> None:
    result = call(
        "infer",
        "apples",
        [descriptor_input()],
        priority=3,
        sequence_id=9,
        timeout=60_000_000,
        parameters={"camera": "north"},
    )
    assert result.as_numpy("leaf_id").shape == (17,)


@pytest.mark.parametrize(
    ("model", "tensor", "status", "message"),
    [
        ("pears", image_input(), "404", "'pears' is not loaded"),
        ("apples", image_input((b"no image",)), "415", "not an image"),
        ("apples", image_input((IMAGES[0], b"")), "400", "image 1: "),
        ("apples", image_input(IMAGES * 2), "413", "6 images, expected at most 4"),
        ("apples", descriptor_input(DESCRIPTORS * np.nan), "422", "finite"),
        ("apples", triton.InferInput("pixels", [1], "BYTES"), "422", "image or descriptors"),
    ],
)
def test_errors_are_told_in_words(
    call: Call, model: str, tensor: triton.InferInput, status: str, message: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        call("infer", model, [tensor])
    assert caught.value.status() == status
    assert message in caught.value.message()


def test_errors_of_metadata_are_told_in_words(call: Call) -> None:
    with pytest.raises(InferenceServerException, match="'pears' is not loaded"):
        call("get_model_metadata", "pears")
    with pytest.raises(InferenceServerException, match="nothing is served at"):
        call("load_model", "apples")


def test_many_requests_at_once_get_the_answers_of_their_own(
    server: Server, engines: dict[str, Engine]
) -> None:
    async def ask(client: Any, image: bytes) -> Any:
        return await client.infer("apples", [image_input((image,))])

    async def ask_all() -> list[Any]:
        async with triton_aio.InferenceServerClient(address(server)) as client:
            return await asyncio.gather(*(ask(client, image) for image in IMAGES * 5))

    for image, result in zip(IMAGES * 5, asyncio.run(ask_all()), strict=True):
        assert_labels(result, engines["2"], (image,))


def test_requests_of_the_synchronous_client_in_the_background(
    server: Server, engines: dict[str, Engine]
) -> None:
    with triton.InferenceServerClient(address(server), concurrency=4) as client:
        pending = [client.async_infer("apples", [image_input()]) for _ in range(4)]
        for request in pending:
            assert_labels(request.get_result(), engines["2"])


def test_a_timeout_in_microseconds_is_answered_504(small_server: Server) -> None:
    (worker,) = workers_of(small_server)
    with triton.InferenceServerClient(address(small_server)) as client:
        os.kill(worker, signal.SIGSTOP)
        for tensor in (image_input(), descriptor_input()):
            with pytest.raises(InferenceServerException, match="no answer after") as caught:
                client.infer("apples", [tensor], timeout=20_000)
            assert caught.value.status() == "504"
        os.kill(worker, signal.SIGCONT)
        client.infer("apples", [image_input()], timeout=100_000_000)
