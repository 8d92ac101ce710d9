"""What a worker can do: one method for each kind of frame.

A worker holds engines by key, so that another version is loaded into a running worker by
the same message as the first. Encoded bytes are decoded here and nowhere else: what a
hostile image takes in memory or time is taken from a process that can be replaced. Answers
are written here, too: the front end is one process, the workers are many.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from pydantic_core import to_json

from service.engine import (
    DESCRIPTOR_WIDTH,
    BundleError,
    Codes,
    Engine,
    Explanation,
    ImageError,
    ImageLimits,
    LeafcodeError,
    Stopwatch,
)
from service.engine.arrays import Float32Array
from service.engine.bundle import BundleFiles
from service.engine.description import patches
from service.engine.image import decode_rgb
from service.engine.overlay import draw_overlay
from service.engine.stopwatch import Stage
from service.errors import DeadlineError, UnknownModelError
from service.formats import codes, explanations, npy
from service.formats.codes import Grid
from service.formats.v2 import answers
from service.formats.v2.answers import Answer, LabelResults, Maps, WrittenTensor
from service.formats.v2.requests import BatchLimits, RequestedOutput, read_json
from service.pool import frames
from service.pool.frames import Fields, Frame, Kind, WorkTimes
from service.pool.warmup import sample_image
from service.pool.worker_plan import WorkLimits

__all__ = ["Operations"]

logger = logging.getLogger(__name__)

Result = tuple[Fields, bytes]


class Operations:
    """Engines by key, and a handler for each kind of frame."""

    def __init__(self, threads: int, limits: WorkLimits) -> None:
        self._threads = threads
        self._limits = limits
        self._engines: dict[tuple[str, int], Engine] = {}
        self._handlers: dict[Kind, Callable[[Frame, Stopwatch], Result]] = {
            Kind.LOAD: self._load,
            Kind.UNLOAD: self._unload,
            Kind.PING: lambda _, __: ({}, b""),
            Kind.CLASSIFY: self._classify,
            Kind.EXPLAIN: self._explain,
            Kind.WRITE_CODES: self._write_codes,
            Kind.WRITE_DICTIONARY: self._write_dictionary,
            Kind.INFER_IMAGE: self._infer_image,
            Kind.INFER_DESCRIPTORS: self._infer_descriptors,
            Kind.INFER_JSON: self._infer_json,
        }

    def answer(self, frame: Frame) -> Frame:
        """The frame to send back; an error becomes an answer, too.

        But for `MemoryError` in a job, which is then tried in another process.
        """
        start, watch = time.perf_counter(), Stopwatch()
        try:
            fields, body = self._handlers[frame.kind](frame, watch)
        except LeafcodeError as error:
            return frames.report_error(frame.job, error)
        except Exception as error:
            if isinstance(error, MemoryError) and frame.kind is not Kind.LOAD:
                raise
            logger.exception("a worker failed at the operation %s", frame.kind.name)
            return frames.report_error(frame.job, error)
        times = WorkTimes(time.perf_counter() - start, dict(watch.seconds.items()))
        return Frame(Kind.DONE, frame.job, fields, body, times)

    def _engine(self, frame: Frame) -> Engine:
        key = (frame.fields["name"], frame.fields["version"])
        if key not in self._engines:
            raise UnknownModelError(f"version {key[1]} of model {key[0]!r} is no longer loaded")
        return self._engines[key]

    # -- Versions --------------------------------------------------------------------------

    def _load(self, frame: Frame, _: Stopwatch) -> Result:
        """Validate, map, replay the probes, and run one image of the usual size."""
        files, expected = BundleFiles.from_json(frame.fields["files"]), frame.fields["digest"]
        engine = Engine.load(files, self._threads)
        # A version never changes: one number, one digest, the same answers in all workers.
        if engine.manifest.digest != expected:
            raise BundleError(
                f"{files.folder}: has the digest {engine.manifest.digest}, expected {expected}; "
                "it was replaced after it was published"
            )
        engine.classify(sample_image(engine.config.max_side))
        self._engines[frame.fields["name"], frame.fields["version"]] = engine
        return {}, b""

    def _unload(self, frame: Frame, _: Stopwatch) -> Result:
        self._engines.pop((frame.fields["name"], frame.fields["version"]), None)
        return {}, b""

    # -- /v1 -------------------------------------------------------------------------------

    def _classify(self, frame: Frame, watch: Stopwatch) -> Result:
        engine, data, limits = self._engine(frame), bytes(frame.body), self._limits.image
        explanation = {}
        if frame.fields.get("explain"):
            scored, found = engine.explained_scores(data, None, None, limits, watch)
            explanation["explanation"] = explanations.members(found)
        else:
            scored = engine.score(data, limits, watch)
        ranked = [
            {"label": item.label, "probability": item.probability}
            for item in engine.rank(scored.scores, frame.fields["top_k"])
        ]
        known = engine.is_known(scored)
        return _unknown(int(not known)), to_json(
            {"known": known, "predictions": ranked, **explanation}
        )

    def _explain(self, frame: Frame, watch: Stopwatch) -> Result:
        engine, data, limits = self._engine(frame), bytes(frame.body), self._limits.image
        label, against = frame.fields["label"], frame.fields["against"]
        _, found = engine.explained_scores(data, label, against, limits, watch)
        if frame.fields["form"] == "png":
            return {}, draw_overlay(decode_rgb(data, engine.config.max_side, limits), found.cells)
        return {}, explanations.write(engine.manifest, found)

    def _write_codes(self, frame: Frame, watch: Stopwatch) -> Result:
        engine, body, source = self._engine(frame), bytes(frame.body), frame.fields["source"]
        if source == "image":
            descriptors, grid = _describe(engine, body, self._limits.image, watch)
        else:
            descriptors, grid = codes.parse(source, body, self._limits.max_descriptors), None
        found = _encode(engine, descriptors, watch)
        return {}, codes.write_codes(engine.manifest, found, grid, frame.fields["target"])

    def _write_dictionary(self, frame: Frame, _: Stopwatch) -> Result:
        return {}, npy.write_npy(self._engine(frame).coder.dictionary)

    # -- Open Inference Protocol ------------------------------------------------------------

    def _infer_image(self, frame: Frame, watch: Stopwatch) -> Result:
        """One image among those of a request: its part of each output."""
        engine, outputs = self._engine(frame), _outputs(frame)
        tensors, unknown = self._write_labels(engine, [bytes(frame.body)], outputs, watch)
        entries, data = answers.pack(tensors)
        return {"tensors": entries, **unknown}, data

    def _infer_descriptors(self, frame: Frame, watch: Stopwatch) -> Result:
        engine = self._engine(frame)
        descriptors = np.frombuffer(frame.body, "<f4").reshape(-1, DESCRIPTOR_WIDTH)
        found = _encode(engine, descriptors.astype(np.float32, copy=False), watch)
        tensors = answers.write_codes(found, _outputs(frame))
        return _whole(answers.compose(engine.manifest, frame.fields["id"], tensors))

    def _infer_json(self, frame: Frame, watch: Stopwatch) -> Result:
        """A whole request in JSON, its images one after the other."""
        engine, limits = self._engine(frame), self._limits
        batch = BatchLimits(limits.max_images, limits.max_descriptors)
        request = read_json(bytes(frame.body), batch)
        # The timeout is known only now; monotonic time is that of all processes.
        age = time.monotonic() - frame.fields["accepted"]
        if request.timeout is not None and age > request.timeout:
            raise DeadlineError(
                f"there was no answer after {age:.3g} s, the job was still queued or being read"
            )
        if isinstance(request.batch, tuple):
            tensors, unknown = self._write_labels(engine, request.batch, request.outputs, watch)
        else:
            found = _encode(engine, request.batch, watch)
            tensors, unknown = answers.write_codes(found, request.outputs), {}
        fields, body = _whole(answers.compose(engine.manifest, request.id, tensors))
        return {**fields, **unknown}, body

    def _write_labels(
        self,
        engine: Engine,
        images: Sequence[bytes],
        outputs: Sequence[RequestedOutput],
        watch: Stopwatch,
    ) -> tuple[list[WrittenTensor], Fields]:
        """The outputs for images; the first one that has none ends it and is named."""
        scores = np.empty((len(images), len(engine.labels)), np.float32)
        known = np.empty(len(images), np.bool_)
        explained: list[Explanation] = []
        total: Counter[Stage] = Counter()
        for number, image in enumerate(images):
            own, limits = Stopwatch(), self._limits.image
            try:
                if answers.wants_maps(outputs):
                    scored, found = engine.explained_scores(image, None, None, limits, own)
                    explained.append(found)
                else:
                    scored = engine.score(image, limits, own)
            except ImageError as error:
                raise answers.in_batch(error, number, len(images)) from error
            scores[number], known[number] = scored.scores, engine.is_known(scored)
            total.update(own.seconds)
        watch.seconds.update(total.items())
        results = LabelResults(scores, known, Maps.of(explained))
        written = answers.write_labels(engine.manifest, results, outputs)
        return written, _unknown(int((~known).sum()))


def _describe(
    engine: Engine, body: bytes, limits: ImageLimits, watch: Stopwatch
) -> tuple[Float32Array, Grid]:
    """The descriptors (n, 128) of an encoded image, row by row, and their grid."""
    gray = engine.decode(body, limits)
    watch.lap("decode")
    descriptors = engine.describe(gray)
    watch.lap("sift")
    rows, cols, length = descriptors.shape
    height, width = gray.shape
    places = patches(height, width, engine.config.view)
    grid = Grid(rows, cols, places.step, places.left, places.top, places.side, width, height)
    return descriptors.reshape(rows * cols, length), grid


def _encode(engine: Engine, descriptors: Float32Array, watch: Stopwatch) -> Codes:
    """Codes, timed on their own: parsing is no stage of the engine and must not count as one."""
    coding = Stopwatch()
    found = engine.encode(descriptors)
    coding.lap("coding")
    watch.seconds.update(coding.seconds)
    return found


def _outputs(frame: Frame) -> list[RequestedOutput]:
    return [RequestedOutput(*output) for output in frame.fields["outputs"]]


def _unknown(count: int) -> Fields:
    """The number of images that are not known, for the metrics; most answers need no fields."""
    return {"unknown": count} if count else {}


def _whole(answer: Answer) -> Result:
    return {"header_length": answer.header_length}, answer.body
