"""What runs inside a worker process: pin, load, warm up, serve until the service is gone.

A worker answers one frame at a time. It holds engines by key, so that another version
is loaded into a running worker by the same message as the first. Encoded bytes are
decoded here and nowhere else: what a hostile image takes in memory or time is taken
from a process that can be replaced.
"""

import logging
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from PIL import Image
from pydantic_core import to_json

from service.engine import BundleError, Codes, Engine, ImageLimits, LeafcodeError, Stopwatch
from service.errors import UnknownModelError
from service.formats.codes import describe_image, parse, write_codes
from service.formats.v2.requests import BatchLimits, pack
from service.pool import frames
from service.pool.frames import Fields, Frame, Kind
from service.pool.warmup import sample_image

__all__ = ["Desk", "Plan", "run"]

logger = logging.getLogger(__name__)

# What fits is read, or sent, by one system call.
_BUFFER_BYTES = 131_072


@dataclass(frozen=True)
class Plan:
    """All that a worker is told when it starts."""

    number: int
    cores: tuple[int, ...]
    threads: int
    limits: ImageLimits
    max_descriptors: int

    def to_json(self) -> Fields:
        """Plain values for the fork server."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Fields) -> "Plan":
        """The plan that `to_json` wrote."""
        return cls(
            fields["number"],
            tuple(fields["cores"]),
            fields["threads"],
            ImageLimits(**fields["limits"]),
            fields["max_descriptors"],
        )


_NICENESS = 10


def run(connection: socket.socket, plan: Plan) -> None:
    """The life of a worker; it ends when the other side of `connection` closes."""
    # Ctrl-C and a stopping supervisor signal the whole group; only the service obeys.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Our own limit refuses such an image right after Pillow has warned about it.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    _pin(plan.cores)
    # Behind the front, which needs little and is waited for: on cores that are all busy it
    # would otherwise get its turn only when a worker's time slice ends.
    os.nice(_NICENESS)
    desk = Desk(plan)
    with connection, connection.makefile("rb", _BUFFER_BYTES) as stream:
        try:
            while (frame := frames.read_frame(stream)) is not None:
                _send(connection, desk.answer(frame))
        except OSError:
            logger.debug("worker %d: the service went away", plan.number)


def _pin(cores: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, cores)
    except (OSError, AttributeError) as error:
        # Some sandboxes forbid it; the worker is then only slower.
        logger.warning("cannot pin a worker to cores %s: %s", cores, error)


def _send(connection: socket.socket, frame: Frame) -> None:
    head = frame.head()
    if len(frame.body) <= _BUFFER_BYTES:
        connection.sendall(head + frame.body)
    else:
        connection.sendall(head)
        connection.sendall(frame.body)


Answer = tuple[Fields, bytes]


class Desk:
    """Engines by key, and a handler for each kind of frame."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._engines: dict[tuple[str, int], Engine] = {}
        self._handlers: dict[Kind, Callable[[Frame, Stopwatch], Answer]] = {
            Kind.LOAD: self._load,
            Kind.UNLOAD: self._unload,
            Kind.PING: lambda _, __: ({}, b""),
            Kind.CLASSIFY: self._classify,
            Kind.SCORES: self._scores,
            Kind.ENCODE: self._encode,
            Kind.PACK_JSON: lambda frame, _: _pack_json(frame),
            Kind.WRITE_CODES: self._write_codes,
        }

    def answer(self, frame: Frame) -> Frame:
        """What to send back; an error becomes an answer too."""
        start, watch = time.perf_counter(), Stopwatch()
        try:
            fields, body = self._handlers[frame.kind](frame, watch)
        except LeafcodeError as error:
            return frames.failed(frame.job, error)
        except Exception as error:
            logger.exception("worker %d failed at %s", self._plan.number, frame.kind.name)
            return frames.failed(frame.job, error)
        times = {"seconds": time.perf_counter() - start, "stages": watch.seconds}
        return Frame(Kind.DONE, frame.job, {**fields, **times}, body)

    def _engine(self, frame: Frame) -> Engine:
        key = (frame.fields["name"], frame.fields["version"])
        if key not in self._engines:
            raise UnknownModelError(f"version {key[1]} of model {key[0]!r} is no longer loaded")
        return self._engines[key]

    def _load(self, frame: Frame, _: Stopwatch) -> Answer:
        """Validate, map, replay the probes, and run one image of the usual size."""
        path, expected = frame.fields["path"], frame.fields["digest"]
        engine = Engine.load(path, self._plan.threads)
        # A version never changes: one number, one digest, the same answers in all workers.
        if engine.manifest.digest != expected:
            raise BundleError(
                f"{path}: has the digest {engine.manifest.digest}, expected {expected}; "
                "it was replaced after it was published"
            )
        engine.classify(sample_image(engine.config.max_side))
        self._engines[frame.fields["name"], frame.fields["version"]] = engine
        return {}, b""

    def _unload(self, frame: Frame, _: Stopwatch) -> Answer:
        self._engines.pop((frame.fields["name"], frame.fields["version"]), None)
        return {}, b""

    def _classify(self, frame: Frame, watch: Stopwatch) -> Answer:
        engine = self._engine(frame)
        scores = engine.scores(bytes(frame.body), self._plan.limits, watch)
        ranked = engine.rank(scores, frame.fields["top_k"])
        # Written here: the front is one process, the workers are many.
        return {}, to_json(
            [{"label": item.label, "probability": item.probability} for item in ranked]
        )

    def _scores(self, frame: Frame, watch: Stopwatch) -> Answer:
        scores = self._engine(frame).scores(bytes(frame.body), self._plan.limits, watch)
        return {}, scores.tobytes()

    def _encode(self, frame: Frame, watch: Stopwatch) -> Answer:
        descriptors = np.frombuffer(frame.body, np.float32).reshape(frame.fields["shape"])
        codes = self._engine(frame).encode(descriptors)
        watch.lap("coding")
        return _columns(codes)

    def _write_codes(self, frame: Frame, watch: Stopwatch) -> Answer:
        engine, body, source = self._engine(frame), bytes(frame.body), frame.fields["source"]
        if source == "image":
            descriptors, grid = describe_image(engine, body, self._plan.limits, watch)
        else:
            descriptors, grid = parse(source, body, self._plan.max_descriptors), None
        # Parsing is no stage of the engine and must not count as one.
        coding = Stopwatch()
        codes = engine.encode(descriptors)
        coding.lap("coding")
        watch.seconds.update(coding.seconds)
        return {}, write_codes(engine, codes, grid, frame.fields["target"])


def _pack_json(frame: Frame) -> Answer:
    """A request of the Open Inference Protocol, its tensor behind the JSON."""
    limits = BatchLimits(frame.fields["max_images"], frame.fields["max_descriptors"])
    header_length, body = pack(bytes(frame.body), limits)
    return {"header_length": header_length}, body


def _columns(codes: Codes) -> Answer:
    """Codes as raw little-endian columns, one behind the other."""
    n, m = codes.atom_ids.shape
    return {"shape": [n, m]}, b"".join(
        column.tobytes() for column in (codes.leaf_ids, codes.atom_ids, codes.values)
    )
