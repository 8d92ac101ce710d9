"""One image to its row of the table, or to the sentence that says why there are no labels."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from service.engine import Engine, ImageError, ImageLimits, Prediction, ScoredImage, Stopwatch
from service.engine.arrays import Float32Array
from service.engine.encoding import Encoded
from trainer.data.image_files import printable
from trainer.predict.job import Wanted
from trainer.predict.summary import TableCounts

__all__ = ["Answer", "answer", "counts_of"]

_LIMITS = ImageLimits()


@dataclass(frozen=True)
class Answer:
    """Ranked labels, whether the image is known, and what else was asked for.

    `coded` is what the first block of codes was pooled from: its codes and their grid.
    """

    predictions: tuple[Prediction, ...]
    known: bool
    pooled: Float32Array | None = None
    coded: Encoded | None = None


def answer(engine: Engine, path: str, wanted: Wanted) -> Answer | str:
    """What the engine says of an image file; no file raises an error."""
    try:
        data = _read(path)
        if wanted.pooled_vectors or wanted.codes:
            return _with_features(engine, data, wanted)
        return _ranked(engine, engine.score(data), wanted)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except MemoryError:
        return "there is not enough memory to decode it"
    except ImageError as error:
        return str(error)


def counts_of(answers: Sequence[Answer | str]) -> TableCounts:
    """What a table of these answers has in it."""
    counts = TableCounts(images=len(answers))
    for found in answers:
        if isinstance(found, str):
            counts.add_problem(printable(found))
        else:
            counts.labels[found.predictions[0].label] += 1
            counts.unknown += not found.known
    return counts


def _with_features(engine: Engine, data: bytes, wanted: Wanted) -> Answer:
    """The road of `Engine.score`, with what is on the way."""
    picture, watch = engine.decode_picture(data), Stopwatch()
    encoded = [
        view.encode_image(picture, engine.threads, watch, keep=wanted.codes)
        for view in engine.views
    ]
    pooled = engine.pool_encoded(encoded, watch)
    scored = ScoredImage(engine.classifier.scores(pooled), picture.is_blank)
    coded = encoded[engine.config.codes.view] if wanted.codes else None
    return _ranked(engine, scored, wanted, pooled if wanted.pooled_vectors else None, coded)


def _ranked(
    engine: Engine,
    scored: ScoredImage,
    wanted: Wanted,
    pooled: Float32Array | None = None,
    coded: Encoded | None = None,
) -> Answer:
    ranked = engine.rank(scored.scores, wanted.top_k)
    return Answer(ranked, engine.is_known(scored), pooled, coded)


def _read(path: str) -> bytes:
    """All of a file, or its first bytes if it is too large for any image.

    Opened without waiting: a pipe among the images would never answer.
    """
    with open(path, "rb", opener=_open) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        # Not the limit alone: Python makes room for as many bytes as are asked for, and memory
        # that is taken and given back for every image costs 1.3 % of its time.
        return file.read(min(found.st_size, _LIMITS.max_bytes) + 1)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
