"""Images worth looking at: the worst mistakes, and labels that are probably wrong.

Both are chosen by scores of classifiers that have not seen the image. Labels are doubted by
confident learning (Northcutt and others 2021): an image is probably of another class if it is as
likely to be of it as images of that class are on average.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
from PIL import Image

from service.engine import Engine, ImageError
from service.engine.arrays import Float64Array, UInt8Array
from service.engine.image import decode_rgb
from service.engine.overlay import draw_overlay
from service.engine.probability import probabilities
from trainer.data.dataset import Dataset, LabelledImage
from trainer.evaluate import ScoredImages
from trainer.metrics import Labels
from trainer.parallel import map_ordered

__all__ = ["Doubts", "Example", "doubtful_labels", "find_doubts", "small_jpeg", "worst_mistakes"]

_MOST_MISTAKES = 12
_MOST_OF_A_PAIR = 2
_MOST_DOUBTFUL = 12

# Pixels of a picture's longer side, its bytes, and the qualities of JPEG of which the first that
# is small enough is taken: photographs have 4 to 10 kB at the first, noise has 9 at the last.
_SIDE = 176
_MOST_BYTES = 10_000
_QUALITIES = (72, 50, 30)


@dataclass(frozen=True)
class Example:
    """An image, the label that it has, the one that it got, and their probabilities.

    Pictures are JPEG: a small copy, and where the label that it got comes from against its own.
    There is none of a file that cannot be read any more.
    """

    name: str
    label: str
    predicted: str
    probability: float
    own_probability: float
    picture: bytes | None = None
    overlay: bytes | None = None


@dataclass(frozen=True)
class Doubts:
    """The worst mistakes, the labels that are probably wrong, and how many of these there are."""

    mistakes: tuple[Example, ...]
    doubtful: tuple[Example, ...]
    n_doubtful: int


def find_doubts(engine: Engine, dataset: Dataset, scored: ScoredImages) -> Doubts:
    """The images of `dataset` that stand out by their scores, drawn."""
    chances = probabilities(scored.scores, engine.config.probability_scale)
    mistakes = worst_mistakes(chances, scored.labels)
    doubtful = doubtful_labels(chances, scored.labels)

    def examples(places: Iterable[int]) -> list[tuple[LabelledImage, Example]]:
        return [
            (scored.images[place], _example(engine, dataset, scored.images[place], chances[place]))
            for place in places
        ]

    return Doubts(
        _drawn(engine, examples(mistakes), explained=True),
        _drawn(engine, examples(doubtful[:_MOST_DOUBTFUL]), explained=False),
        len(doubtful),
    )


def worst_mistakes(chances: Float64Array, labels: Labels) -> list[int]:
    """Images with the wrong label that were surest, no more than two of the same mistake."""
    predicted = chances.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    chosen: list[int] = []
    seen: Counter[tuple[int, int]] = Counter()
    for place in wrong[np.argsort(_margins(chances, labels)[wrong], kind="stable")].tolist():
        pair = int(labels[place]), int(predicted[place])
        seen[pair] += 1
        if seen[pair] <= _MOST_OF_A_PAIR:
            chosen.append(place)
        if len(chosen) == _MOST_MISTAKES:
            break
    return chosen


def doubtful_labels(chances: Float64Array, labels: Labels) -> list[int]:
    """Images that are probably of another class than their label says, most doubtful first."""
    rows = np.arange(len(labels))
    sums = np.bincount(labels, weights=chances[rows, labels], minlength=chances.shape[1])
    counts = np.bincount(labels, minlength=chances.shape[1])
    # No image is likely enough for a class without images.
    usual = np.divide(sums, counts, out=np.full(len(sums), np.inf), where=counts > 0)
    predicted = chances.argmax(axis=1)
    doubted = (predicted != labels) & (chances[rows, predicted] >= usual[predicted])
    places = np.flatnonzero(doubted)
    order = np.argsort(_margins(chances, labels)[places], kind="stable")
    return [int(place) for place in places[order]]


def _margins(chances: Float64Array, labels: Labels) -> Float64Array:
    """How much likelier (n,) the own label is than the one that is given: zero or less."""
    own = chances[np.arange(len(labels)), labels]
    margins: Float64Array = own - chances.max(axis=1)
    return margins


def _example(
    engine: Engine, dataset: Dataset, image: LabelledImage, chances: Float64Array
) -> Example:
    predicted = int(chances.argmax())
    return Example(
        dataset.name_of(image.path),
        engine.labels[image.label],
        engine.labels[predicted],
        float(chances[predicted]),
        float(chances[image.label]),
    )


def _drawn(
    engine: Engine, examples: Sequence[tuple[LabelledImage, Example]], *, explained: bool
) -> tuple[Example, ...]:
    def draw(pair: tuple[LabelledImage, Example]) -> Example:
        image, example = pair
        try:
            return _with_pictures(engine, image.path.read_bytes(), example, explained=explained)
        except (ImageError, OSError):  # it was there a moment ago
            return example

    return tuple(map_ordered(draw, examples, "report"))


def _with_pictures(engine: Engine, data: bytes, example: Example, *, explained: bool) -> Example:
    pixels = decode_rgb(data, _SIDE)
    overlay = None
    if explained:
        found = engine.explain(data, example.predicted, example.label)
        with Image.open(BytesIO(draw_overlay(pixels, found.cells))) as drawn:
            overlay = small_jpeg(np.asarray(drawn))
    return replace(example, picture=small_jpeg(pixels), overlay=overlay)


def small_jpeg(pixels: UInt8Array) -> bytes:
    """Pixels (h, w, 3) as JPEG, rather coarse than large."""
    data = b""
    for quality in _QUALITIES:
        stream = BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=quality)
        data = stream.getvalue()
        if len(data) <= _MOST_BYTES:
            break
    return data
