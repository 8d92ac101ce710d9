"""How time grows with the dictionary, the tree, the nonzeros and the image.

All points of a curve are timed in turns. Coding is that of the random descriptors, the
pipeline that of one photograph from its bytes to its labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from service.engine import Engine
from trainer.bench.engine_bench import EngineBench
from trainer.bench.peers import blas_product
from trainer.bench.settings import ModelSize
from trainer.bench.spread import Spread
from trainer.bench.stopwatch import Timings

__all__ = ["CURVES", "Point"]

# Sides of the enlarged and reduced photographs, relative to its own.
_SCALES = (0.25, 0.5, 1, 2)


@dataclass(frozen=True)
class Point:
    """One value of the quantity that is varied, and the seconds that each workload takes there."""

    value: int
    seconds: dict[str, Spread]


def by_atoms(bench: EngineBench) -> list[Point]:
    """Time coding, pipeline and BLAS product for several sizes of the dictionary."""
    settings, data = bench.settings, bench.images[0]
    engines = {
        atoms: bench.models.load(ModelSize(settings.depth, atoms, settings.nonzeros))
        for atoms in settings.atoms_curve
    }
    workloads = {
        **{f"coding {atoms}": _coding(bench, engine) for atoms, engine in engines.items()},
        **{f"pipeline {atoms}": _pipeline(engine, data) for atoms, engine in engines.items()},
        **{
            f"blas_product {atoms}": blas_product(bench.vectors, engine.coder.dictionary)
            for atoms, engine in engines.items()
        },
    }
    return _points(bench.compare(workloads))


def by_depth(bench: EngineBench) -> list[Point]:
    """Time coding for several depths of the tree."""
    settings = bench.settings
    return _coding_curve(
        bench,
        {
            depth: ModelSize(depth, settings.atoms, settings.nonzeros)
            for depth in settings.depth_curve
        },
    )


def by_nonzeros(bench: EngineBench) -> list[Point]:
    """Time coding for several numbers of nonzeros."""
    settings = bench.settings
    return _coding_curve(
        bench,
        {
            nonzeros: ModelSize(settings.depth, settings.atoms, nonzeros)
            for nonzeros in settings.nonzeros_curve
        },
    )


def by_pixels(bench: EngineBench) -> list[Point]:
    """Time the pipeline for one photograph, enlarged and reduced."""
    engine = bench.models.load()
    workloads = {}
    for scale in _SCALES:
        pixels, data = _scaled(bench.images[0], scale)
        workloads[f"pipeline {pixels}"] = _pipeline(engine, data)
    return _points(bench.compare(workloads))


def _coding_curve(bench: EngineBench, sizes: dict[int, ModelSize]) -> list[Point]:
    workloads = {
        f"coding {value}": _coding(bench, bench.models.load(size)) for value, size in sizes.items()
    }
    return _points(bench.compare(workloads))


def _coding(bench: EngineBench, engine: Engine) -> Callable[[], object]:
    return lambda: engine.encode(bench.vectors)


def _pipeline(engine: Engine, data: bytes) -> Callable[[], object]:
    return lambda: engine.classify(data)


def _points(timings: Timings) -> list[Point]:
    """Return one point for each value of workloads that were called `<name> <value>`."""
    points: dict[int, Point] = {}
    for key in timings.rounds[0]:
        name, _, value = key.rpartition(" ")
        point = points.setdefault(int(value), Point(int(value), {}))
        point.seconds[name] = timings.seconds(key)
    return [points[value] for value in sorted(points)]


def _scaled(data: bytes, scale: float) -> tuple[int, bytes]:
    """The photograph as JPEG with its sides scaled, and how many pixels it has."""
    with Image.open(BytesIO(data)) as picture:
        width, height = (max(20, round(side * scale)) for side in picture.size)
        resized = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    resized.save(buffer, "JPEG", quality=90)
    return width * height, buffer.getvalue()


CURVES: dict[str, Callable[[EngineBench], list[Point]]] = {
    "atoms": by_atoms,
    "depth": by_depth,
    "nonzeros": by_nonzeros,
    "pixels": by_pixels,
}
