"""Every operation of a worker, in this process, against the bare engine."""

import io
import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic_core import to_json

from service.engine import STAGES, Codes, Engine, ImageLimits, write_bundle
from service.engine.arrays import Float32Array
from service.engine.blocks import CodesBlock
from service.engine.bundle import BundleFiles
from service.engine.probability import probabilities
from service.formats.v2 import answers
from service.formats.v2.signature import output_types
from service.pool.frames import Frame, Kind, reported_error
from service.pool.operations import Operations
from service.pool.worker_plan import WorkLimits
from tests.support import bundles, pictures, samples
from tests.support.clients import base64_of

PNG = pictures.png()
JPEG = pictures.jpeg(pictures.disc(90, 70))
BLANK = pictures.png(pictures.blank())
LIMITS = WorkLimits(ImageLimits(max_bytes=1_000_000), max_images=3, max_descriptors=50)
KEY: dict[str, Any] = {"name": "tiny", "version": 1}
NUMBER = 7


def files_of(folder: Path) -> dict[str, str]:
    return BundleFiles.of(folder).to_json()


class Worker:
    """Operations with the version `tiny` 1 loaded, and the engine to compare with."""

    def __init__(self, folder: Path) -> None:
        self.engine = Engine.load(folder)
        self.operations = Operations(1, LIMITS)
        digest = self.engine.manifest.digest
        assert self.ask(Kind.LOAD, files=files_of(folder), digest=digest).kind is Kind.DONE

    def ask(self, kind: Kind, body: bytes = b"", **fields: object) -> Frame:
        """The frame that answers."""
        answer = self.operations.answer(Frame(kind, NUMBER, {**KEY, **fields}, body))
        assert answer.job == NUMBER
        return answer

    def done(self, kind: Kind, body: bytes = b"", **fields: object) -> Frame:
        """The frame of an operation that went well; it has taken some time."""
        answer = self.ask(kind, body, **fields)
        assert answer.kind is Kind.DONE, answer.fields
        assert answer.times is not None
        assert answer.times.total >= sum(answer.times.stages.values()) >= 0
        return answer

    def error(self, kind: Kind, body: bytes = b"", **fields: object) -> str:
        """The error of an operation that did not, by its class and its message."""
        answer = self.ask(kind, body, **fields)
        assert answer.kind is Kind.FAILED
        assert answer.body == b""
        error = reported_error(answer)
        return f"{type(error).__name__}: {error}"


@pytest.fixture(scope="module")
def worker(models: Path) -> Worker:
    return Worker(models / "tiny" / "1")


def descriptors(count: int) -> Float32Array:
    return np.random.default_rng(count).random((count, 128)).astype(np.float32)


def json_of(answer: Frame) -> Any:
    return json.loads(bytes(answer.body))


def stages_of(answer: Frame) -> set[str]:
    assert answer.times is not None
    return set(answer.times.stages)


# -- Versions ---------------------------------------------------------------------------------


def test_a_ping_is_answered_without_a_version() -> None:
    answer = Operations(1, LIMITS).answer(Frame(Kind.PING, NUMBER, {}))
    assert (answer.kind, answer.job, answer.body) == (Kind.DONE, NUMBER, b"")


def test_a_version_that_was_unloaded_is_unknown_and_may_be_unloaded_again(models: Path) -> None:
    worker = Worker(models / "tiny" / "1")
    for _ in range(2):
        worker.done(Kind.UNLOAD)
    assert worker.error(Kind.CLASSIFY, PNG, top_k=1) == (
        "UnknownModelError: version 1 of model 'tiny' is no longer loaded"
    )


def test_versions_are_loaded_beside_each_other(models: Path) -> None:
    worker = Worker(models / "tiny" / "1")
    other = Engine.load(models / "apples" / "2")
    key: dict[str, Any] = {"name": "apples", "version": 2}
    files = files_of(models / "apples" / "2")
    worker.done(Kind.LOAD, files=files, digest=other.manifest.digest, **key)
    for engine, fields in ((worker.engine, KEY), (other, key)):
        answer = worker.done(Kind.CLASSIFY, PNG, top_k=4, **fields)
        assert json_of(answer)["predictions"] == list(map(asdict, engine.classify(PNG, 4)))


def test_a_version_with_another_digest_is_not_loaded(models: Path) -> None:
    operations, files = Operations(1, LIMITS), files_of(models / "tiny" / "1")
    fields = {**KEY, "files": files, "digest": "0" * 64}
    answer = operations.answer(Frame(Kind.LOAD, NUMBER, fields))
    assert "it was replaced after it was published" in str(reported_error(answer))
    answer = operations.answer(Frame(Kind.CLASSIFY, NUMBER, {**KEY, "top_k": 1}, PNG))
    assert "no longer loaded" in str(reported_error(answer))


def test_a_version_with_other_probes_is_not_loaded(tmp_path: Path) -> None:
    folder = bundles.write_model_with_wrong_probes(tmp_path)
    fields = {**KEY, "files": files_of(folder), "digest": ""}
    answer = Operations(1, LIMITS).answer(Frame(Kind.LOAD, NUMBER, fields))
    assert "probe 0 scores differ" in str(reported_error(answer))


# -- /v1 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [PNG, JPEG])
@pytest.mark.parametrize("top_k", [1, 3, 99])
def test_labels_are_those_of_the_engine(worker: Worker, image: bytes, top_k: int) -> None:
    answer = worker.done(Kind.CLASSIFY, image, top_k=top_k)
    assert json_of(answer)["predictions"] == list(map(asdict, worker.engine.classify(image, top_k)))
    assert stages_of(answer) == {"decode", "sift", "coding", "pooling", "classifier"}


def test_unknown_images_are_told_and_counted(models: Path) -> None:
    worker = Worker(models / "apples" / "2")
    for image, known in ((PNG, True), (BLANK, False)):
        answer = worker.done(Kind.CLASSIFY, image, top_k=1)
        assert json_of(answer)["known"] is known
        assert to_json(answer.fields) == (b"{}" if known else b'{"unknown":1}')
    explained = worker.done(Kind.CLASSIFY, BLANK, top_k=1, explain=True)
    assert json_of(explained)["known"] is False
    answer = worker.done(Kind.INFER_IMAGE, BLANK, outputs=[["known", True]])
    assert (bytes(answer.body), answer.fields["unknown"]) == (b"\x00", 1)
    body = request("image", [base64_of(image) for image in (BLANK, PNG, BLANK)], [3])
    answer = worker.done(Kind.INFER_JSON, body, accepted=time.monotonic())
    data = {output["name"]: output["data"] for output in json_of(answer)["outputs"]}
    assert (data["known"], answer.fields["unknown"]) == ([False, True, False], 2)


def test_an_explanation_is_a_stage_beside_those_of_the_labels(worker: Worker) -> None:
    answer = worker.done(Kind.EXPLAIN, PNG, label=None, against=None, form="json")
    assert json_of(answer)["score"] == worker.engine.explain(PNG).score
    assert stages_of(answer) == set(STAGES)


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (b"no image", "UnsupportedImageError: "),
        (b"", "EmptyImageError: "),
        (pictures.truncated_jpeg(), "BrokenImageError: "),
        (pictures.png_header(8_000, 9_000), "BrokenImageError: the image is 8000x9000 pixels"),
        (bytes(1_000_001), "OversizedImageError: "),
    ],
)
def test_an_image_that_is_none_is_answered_with_its_error(
    worker: Worker, image: bytes, error: str
) -> None:
    assert worker.error(Kind.CLASSIFY, image, top_k=1).startswith(error)
    assert worker.error(Kind.INFER_IMAGE, image, outputs=[["label"]]).startswith(error)


def as_json(rows: Float32Array) -> bytes:
    return json.dumps({"descriptors": rows.tolist()}).encode()


def as_raw(rows: Float32Array) -> bytes:
    return rows.astype("<f4").tobytes()


def as_npy(rows: Float32Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, rows)
    return stream.getvalue()


@pytest.mark.parametrize("count", [0, 1, 16, 50])
@pytest.mark.parametrize(("source", "form"), [("json", as_json), ("raw", as_raw), ("npy", as_npy)])
def test_codes_of_descriptors_in_every_form_are_those_of_the_engine(
    worker: Worker, source: str, form: Callable[[Float32Array], bytes], count: int
) -> None:
    rows = descriptors(count)
    answer = worker.done(Kind.WRITE_CODES, form(rows), source=source, target="json")
    found, expected = json_of(answer), worker.engine.encode(rows)
    assert found["model"]["digest"] == worker.engine.manifest.digest
    assert found["leaf_ids"] == expected.leaf_ids.tolist()
    assert found["atom_ids"] == expected.atom_ids.tolist()
    assert found["values"] == expected.values.tolist()
    assert "grid" not in found
    assert stages_of(answer) == {"coding"}


def test_codes_of_an_image_are_those_of_its_grid(worker: Worker) -> None:
    answer = worker.done(Kind.WRITE_CODES, PNG, source="image", target="json")
    found, grid = json_of(answer), worker.engine.describe(worker.engine.decode(PNG))
    rows, cols, width = grid.shape
    assert (found["grid"]["rows"], found["grid"]["cols"]) == (rows, cols)
    expected = worker.engine.encode(grid.reshape(rows * cols, width))
    assert found["leaf_ids"] == expected.leaf_ids.tolist()
    assert stages_of(answer) == {"decode", "sift", "coding"}


def test_the_dictionary_is_written_as_an_array(worker: Worker) -> None:
    answer = worker.done(Kind.WRITE_DICTIONARY)
    written = np.load(io.BytesIO(bytes(answer.body)), allow_pickle=False)
    np.testing.assert_array_equal(written, worker.engine.coder.dictionary)


def test_codes_are_written_as_arrays_too(worker: Worker) -> None:
    rows = descriptors(9)
    answer = worker.done(Kind.WRITE_CODES, as_raw(rows), source="raw", target="npz")
    found, expected = np.load(io.BytesIO(bytes(answer.body))), worker.engine.encode(rows)
    for column in ("leaf_ids", "atom_ids", "values"):
        np.testing.assert_array_equal(found[column], getattr(expected, column))


@pytest.mark.parametrize(
    ("source", "body", "error"),
    [
        ("json", b"{", "MalformedBodyError: "),
        ("json", b'{"descriptors": [[1, 2]]}', "DescriptorError: "),
        ("raw", bytes(5), "DescriptorError: "),
        ("npy", b"no array", "MalformedBodyError: "),
        ("raw", bytes(51 * 512), "OversizedBodyError: "),
        ("image", b"no image", "UnsupportedImageError: "),
    ],
)
def test_descriptors_that_are_none_are_answered_with_their_error(
    worker: Worker, source: str, body: bytes, error: str
) -> None:
    found = worker.error(Kind.WRITE_CODES, body, source=source, target="json")
    assert found.startswith(error)


# -- Open Inference Protocol --------------------------------------------------------------------


def test_tensors_of_an_image_are_made_of_the_scores_of_the_engine(worker: Worker) -> None:
    outputs = [["label"], ["label_id", True], ["probabilities", True], ["label", False, 2]]
    answer = worker.done(Kind.INFER_IMAGE, PNG, outputs=outputs)
    label, label_id, chances, ranked = answers.unpack(answer.fields["tensors"], answer.body)
    scores, engine = worker.engine.scores(PNG), worker.engine
    best = int(scores.argmax())
    assert json.loads(label.data) == engine.labels[best]
    assert (label_id.shape, np.frombuffer(label_id.data, "<i4").tolist()) == ((1,), [best])
    expected = probabilities(scores[np.newaxis], engine.config.probability_scale)
    np.testing.assert_array_equal(
        np.frombuffer(chances.data, "<f4"), expected.astype(np.float32).ravel()
    )
    assert ranked.shape[-1] == 2
    assert stages_of(answer) == {"decode", "sift", "coding", "pooling", "classifier"}


@pytest.mark.parametrize("count", [0, 1, 17])
def test_tensors_of_descriptors_are_the_codes_of_the_engine(worker: Worker, count: int) -> None:
    rows = descriptors(count)
    outputs = [["leaf_id", True], ["atom_ids", True], ["values", True]]
    answer = worker.done(Kind.INFER_DESCRIPTORS, as_raw(rows), outputs=outputs, id="seven")
    end = answer.fields["header_length"]
    head, expected = json.loads(bytes(answer.body[:end])), worker.engine.encode(rows)
    assert (head["id"], head["model_name"], head["model_version"]) == ("seven", "tiny", "1")
    columns = (expected.leaf_ids, expected.atom_ids, expected.values)
    assert bytes(answer.body[end:]) == b"".join(column.tobytes() for column in columns)
    assert stages_of(answer) == {"coding"}


def request(name: str, data: list[Any], shape: list[int], **members: object) -> bytes:
    datatype = "BYTES" if name == "image" else "FP32"
    tensor = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    return json.dumps({"inputs": [tensor], **members}).encode()


def test_a_request_in_json_with_descriptors_is_answered_with_their_codes(worker: Worker) -> None:
    rows = descriptors(2)
    body = request("descriptors", rows.tolist(), [2, 128], id="nine")
    answer = worker.done(Kind.INFER_JSON, body, accepted=time.monotonic())
    found = json_of(answer)
    assert found["id"] == "nine"
    data = {output["name"]: output["data"] for output in found["outputs"]}
    assert data["leaf_id"] == worker.engine.encode(rows).leaf_ids.tolist()


def test_a_request_in_json_with_images_adds_up_the_stages_of_all(worker: Worker) -> None:
    body = request("image", [base64_of(PNG), base64_of(JPEG)], [2])
    answer = worker.done(Kind.INFER_JSON, body, accepted=time.monotonic())
    data = {output["name"]: output["data"] for output in json_of(answer)["outputs"]}
    best = [worker.engine.classify(image, 1)[0].label for image in (PNG, JPEG)]
    assert data["label"] == best
    assert stages_of(answer) == {"decode", "sift", "coding", "pooling", "classifier"}


def test_an_image_of_a_request_in_json_that_is_none_is_named(worker: Worker) -> None:
    body = request("image", [base64_of(PNG), base64_of(b"no image")], [2])
    error = worker.error(Kind.INFER_JSON, body, accepted=time.monotonic())
    assert error.startswith("UnsupportedImageError: image 1: ")


def test_a_request_in_json_may_hold_no_more_than_the_limits_say(worker: Worker) -> None:
    body = request("image", [base64_of(PNG)] * 4, [4])
    error = worker.error(Kind.INFER_JSON, body, accepted=time.monotonic())
    assert error.startswith("OversizedBodyError: ")


def test_a_request_in_json_whose_own_timeout_is_over_is_not_worked_on(worker: Worker) -> None:
    rows = descriptors(1)
    body = request("descriptors", rows.tolist(), [1, 128], parameters={"timeout": 1_000})
    error = worker.error(Kind.INFER_JSON, body, accepted=time.monotonic() - 3_600)
    assert error.startswith("DeadlineError: there was no answer after 3.6e+03 s")


# -- A bundle of several blocks -----------------------------------------------------------------


@pytest.fixture(scope="module")
def worker_of_several(tmp_path_factory: pytest.TempPathFactory) -> Worker:
    folder = tmp_path_factory.mktemp("several") / "1"
    write_bundle(samples.random_bundle(samples.SEVERAL), folder)
    return Worker(folder)


def first_codes(engine: Engine, rows: Float32Array) -> Codes:
    """The codes of the first block of codes, which reads the second view."""
    block = engine.blocks[1]
    assert isinstance(block, CodesBlock)
    return block.coder.encode(rows, engine.views[1].hash.route(rows))


def test_codes_are_those_of_the_first_block_of_codes(worker_of_several: Worker) -> None:
    rows, engine = descriptors(20), worker_of_several.engine
    body, expected = as_raw(rows), first_codes(engine, rows)
    found = json_of(worker_of_several.done(Kind.WRITE_CODES, body, source="raw", target="json"))
    assert found["n_atoms"] == 20
    assert found["leaf_ids"] == expected.leaf_ids.tolist()
    assert found["atom_ids"] == expected.atom_ids.tolist()
    assert found["values"] == expected.values.tolist()
    outputs = [["leaf_id", True], ["atom_ids", True], ["values", True]]
    answer = worker_of_several.done(Kind.INFER_DESCRIPTORS, body, outputs=outputs, id=None)
    columns = (expected.leaf_ids, expected.atom_ids, expected.values)
    tensors = bytes(answer.body[answer.fields["header_length"] :])
    assert tensors == b"".join(column.tobytes() for column in columns)
    shapes = {output.name: output.shape for output in output_types(engine.manifest)}
    assert shapes["values"] == shapes["atom_ids"] == (-1, 3)


def test_the_dictionary_is_that_of_the_first_block_of_codes(worker_of_several: Worker) -> None:
    answer = worker_of_several.done(Kind.WRITE_DICTIONARY)
    written = np.load(io.BytesIO(bytes(answer.body)), allow_pickle=False)
    block = worker_of_several.engine.blocks[1]
    assert isinstance(block, CodesBlock)
    np.testing.assert_array_equal(written, block.coder.dictionary)


def test_the_grid_of_a_reduced_view_is_stated_in_pixels_of_the_image(
    worker_of_several: Worker,
) -> None:
    image = samples.random_png(0, 80, 70)
    answer = worker_of_several.done(Kind.WRITE_CODES, image, source="image", target="json")
    # Contours begin two pixels inside the image, patches two pixels of the half-sized copy on.
    grid = {"rows": 10, "cols": 7, "step": 4, "left": 6, "top": 6, "side": 32}
    assert json_of(answer)["grid"] == {**grid, "width": 70, "height": 80}


@pytest.mark.parametrize("size", [(80, 70), (30, 70)], ids=["all views", "first view only"])
def test_an_image_is_classified_by_all_blocks_that_it_is_large_enough_for(
    worker_of_several: Worker, size: tuple[int, int]
) -> None:
    image = samples.random_png(1, *size)
    answer = worker_of_several.done(Kind.CLASSIFY, image, top_k=3)
    expected = worker_of_several.engine.classify(image, 3)
    assert json_of(answer)["predictions"] == list(map(asdict, expected))
    assert stages_of(answer) == {"decode", "sift", "coding", "pooling", "classifier"}


# -- Errors of our own --------------------------------------------------------------------------


def test_an_error_of_our_own_is_logged_and_crosses_without_its_text(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        error = worker.error(Kind.CLASSIFY, PNG)  # without the field top_k
    assert error.startswith("RuntimeError: a worker failed unexpectedly")
    assert "the operation CLASSIFY" in caplog.text
    assert "top_k" in caplog.text
