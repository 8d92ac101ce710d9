"""Where the time of one image goes, and how far each stage is from its floor.

A stage's floor is what its multiply-adds take at the rate of a BLAS product, or what its
bytes take at the rate of a copy, whichever is longer: the least that one core of this
machine needs for the work as the paper states it, every table entry that is touched
being read once. Decoding is not ours: its floor is the bare library.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from service.engine import Codes, Engine
from service.engine.arrays import Float32Array, Int32Array
from service.engine.fixedpoint import Descriptors
from service.engine.pooling import pool
from service.engine.sift import locate
from trainer.bench.engine_bench import EngineBench
from trainer.bench.peers import blas_product
from trainer.bench.spread import Spread
from trainer.bench.stopwatch import Timings

__all__ = ["Rates", "Stage", "StageReport", "measure_stages"]

_FLOAT = 4  # bytes of a float32, and of an int32

# An instruction multiplies four times as many bytes, which directions, nodes and atoms are, as
# float32, whose rate is measured.
_BYTES_PER_FLOAT = 4
_COPIED_FLOATS = 2**25

# Multiply-adds of the fast SIFT per pixel: two separable 5-tap filters (10), four
# directions of two products (8) with their ninth power (4 x 5) and squared length (2).
_SIFT_WORK_PER_PIXEL = 40


@dataclass(frozen=True)
class Rates:
    """What one core does in a second, as measured: multiply-adds by BLAS, bytes by a copy."""

    multiply_adds: float
    bytes: float


@dataclass(frozen=True)
class Stage:
    """Seconds of a stage, its work, and the least seconds that the work takes."""

    name: str
    seconds: Spread
    floor: float
    multiply_adds: int = 0
    bytes: int = 0

    @property
    def bound(self) -> str:
        """The work that the floor was computed from."""
        if not self.bytes:
            return "bare library"
        return f"{self.multiply_adds / 1e6:.1f} M multiply-adds, {self.bytes / 1e6:.1f} MB"


@dataclass(frozen=True)
class StageReport:
    """All stages of one image in order, the whole pipeline beside them, and the rates."""

    stages: tuple[Stage, ...]
    whole: Spread
    rates: Rates

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class _Steps:
    """What each stage of one image passes to the next."""

    data: bytes
    gray: Float32Array
    grid: tuple[int, int]
    descriptors: Descriptors
    codes: Codes
    pooled: Float32Array
    scores: Float32Array


def measure_stages(bench: EngineBench) -> StageReport:
    """Time one photograph through the usual model, stage by stage."""
    engine = bench.models.load()
    steps = _steps(engine, bench.images[0])
    n, atoms = 4096, engine.coder.dictionary
    timings = bench.compare(
        {
            "blas_product": blas_product(bench.vectors[:n], atoms),
            "copy": _copy(),
            "bare library": lambda: _bare_decode(steps.data),
            "whole": lambda: engine.classify(steps.data),
            **_workloads(engine, steps),
        }
    )
    products = min(n, len(bench.vectors)) * atoms.size
    rates = Rates(
        products / timings.seconds("blas_product").median,
        2 * _FLOAT * _COPIED_FLOATS / timings.seconds("copy").median,
    )
    bare = timings.seconds("bare library").median
    stages = [Stage("decode", timings.seconds("decode"), bare)]
    for name, (multiply_adds, moved) in _work(engine, steps).items():
        floor = max(multiply_adds / rates.multiply_adds, moved / rates.bytes)
        stages.append(Stage(name, _seconds(timings, name), floor, multiply_adds, moved))
    return StageReport(tuple(stages), timings.seconds("whole"), rates)


def _seconds(timings: Timings, stage: str) -> Spread:
    if stage in ("route", "code"):
        # Each of these reads directions of its own, which the pipeline makes once for both.
        return timings.difference(stage, "directions")
    return timings.seconds(stage)


def _steps(engine: Engine, data: bytes) -> _Steps:
    gray = engine.decode(data)
    rows, cols, descriptors = locate(gray, "fast-sift", engine.config.view.step)
    codes = engine.coder.encode(descriptors, engine.hash.route(descriptors))
    pooled = engine.pool(codes, (rows, cols))
    scores = engine.classifier.scores(pooled)
    return _Steps(data, gray, (rows, cols), descriptors, codes, pooled, scores)


def _workloads(engine: Engine, steps: _Steps) -> dict[str, Callable[[], object]]:
    return {
        "decode": lambda: engine.decode(steps.data),
        "sift": lambda: locate(steps.gray, "fast-sift", engine.config.view.step),
        "directions": lambda: sum(len(part) for _, part in steps.descriptors.parts(wide=False)),
        "route": lambda: engine.hash.route(steps.descriptors),
        "code": lambda: engine.coder.encode(steps.descriptors, steps.codes.leaf_ids),
        "pool": lambda: pool(steps.codes, steps.grid, engine.config.codes),
        "classify": lambda: engine.rank(engine.classifier.scores(steps.pooled)),
    }


def _work(engine: Engine, steps: _Steps) -> dict[str, tuple[int, int]]:
    """Multiply-adds and bytes of every stage but decoding, outputs included."""
    n, width = len(steps.descriptors), steps.descriptors.width
    m, depth, labels = engine.config.codes.nonzeros, engine.config.view.depth, len(engine.labels)
    features_map = steps.descriptors.flat.nbytes
    directions, codes = n * width, n * m * 2 * _FLOAT
    leaves, nodes = _touched(steps.codes.leaf_ids, depth)
    used_atoms = len(np.unique(steps.codes.atom_ids))
    features = int(np.count_nonzero(steps.pooled))
    return {
        "sift": (
            _SIFT_WORK_PER_PIXEL * steps.gray.size,
            steps.gray.nbytes + features_map,
        ),
        "directions": (2 * n * width, features_map + directions),
        "route": (
            n * depth * width // _BYTES_PER_FLOAT,
            directions + nodes * (width + _FLOAT) + n * _FLOAT,
        ),
        "code": (
            n * (m * width // _BYTES_PER_FLOAT + m * m),
            directions + used_atoms * width + leaves * (m + m * (m + 1) // 2) * _FLOAT + codes,
        ),
        "pool": (n * m, codes + steps.pooled.nbytes),
        "classify": (features * labels, features * labels + steps.pooled.nbytes),
    }


def _touched(leaf_ids: Int32Array, depth: int) -> tuple[int, int]:
    """How many leaves, and nodes above them, are visited at least once."""
    here = np.unique(leaf_ids)
    leaves, nodes = len(here), 0
    for _ in range(depth):
        here = np.unique(here >> 1)
        nodes += len(here)
    return leaves, nodes


def _copy() -> Callable[[], object]:
    source = np.ones(_COPIED_FLOATS, np.float32)
    target = np.empty_like(source)
    return lambda: np.copyto(target, source)


def _bare_decode(data: bytes) -> None:
    with Image.open(BytesIO(data)) as picture:
        picture.draft("L", picture.size)
        picture.load()
