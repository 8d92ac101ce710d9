"""Results to written output tensors, and written tensors to the body of an answer.

Workers write the tensors, because numbers as JSON take long; what is left to put together
an answer is joining bytes, which the event loop can do for images that several workers had.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import to_json

from service.engine import EXPLANATION_CELLS, Codes, ImageError, Manifest
from service.engine.arrays import BoolArray, Float32Array, Int32Array
from service.engine.probability import probabilities
from service.formats.v2.requests import RequestedOutput
from service.formats.v2.signature import EXPLANATIONS
from service.formats.v2.tensors import Datatype, Tensor

if TYPE_CHECKING:  # it takes the compiler, which the front end does not need
    from service.engine import Explanation

__all__ = [
    "Answer",
    "LabelResults",
    "Maps",
    "WrittenTensor",
    "compose",
    "in_batch",
    "join",
    "pack",
    "unpack",
    "wants_maps",
    "write_codes",
    "write_labels",
]


@dataclass(frozen=True)
class Answer:
    """A body, and where its JSON ends if tensors follow it."""

    body: bytes
    header_length: int | None


@dataclass(frozen=True)
class WrittenTensor:
    """An output whose data are bytes: the protocol's if `binary`, else items of a JSON list."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    binary: bool
    data: bytes


@dataclass(frozen=True)
class Maps:
    """Explanations of the best labels of n images: cells (n, 32, 32), biases and scores (n,)."""

    cells: Float32Array
    biases: Float32Array
    scores: Float32Array

    @classmethod
    def of(cls, explanations: Sequence["Explanation"]) -> "Maps":
        """The maps of images in their order; of none at all if nobody asked for them."""
        cells = np.empty((len(explanations), EXPLANATION_CELLS, EXPLANATION_CELLS), np.float32)
        for number, explanation in enumerate(explanations):
            cells[number] = explanation.cells
        return cls(
            cells,
            np.array([explanation.bias for explanation in explanations], np.float32),
            np.array([explanation.score for explanation in explanations], np.float32),
        )


@dataclass(frozen=True)
class LabelResults:
    """Scores (n, n_labels) of n images, which of them (n,) are known, and maps if asked for."""

    scores: Float32Array
    known: BoolArray
    maps: Maps

    @classmethod
    def of_no_images(cls, n_labels: int) -> "LabelResults":
        """The results of an empty batch."""
        return cls(np.empty((0, n_labels), np.float32), np.empty(0, np.bool_), Maps.of(()))


def wants_maps(outputs: Sequence[RequestedOutput]) -> bool:
    """Whether any output is of an explanation."""
    return any(output.name in EXPLANATIONS for output in outputs)


def write_labels(
    manifest: Manifest, results: LabelResults, outputs: Sequence[RequestedOutput]
) -> list[WrittenTensor]:
    """The outputs for images; ties go to the lowest index."""
    scores, maps = results.scores, results.maps
    n, labels = len(scores), manifest.labels
    chances = probabilities(scores, manifest.config.probability_scale).astype(np.float32)
    best = scores.argmax(axis=1).astype(np.int32)
    makers: dict[str, Callable[[], Tensor]] = {
        "label": lambda: Tensor("label", (n,), tuple(labels[i] for i in best)),
        "label_id": lambda: Tensor("label_id", (n,), best),
        "probabilities": lambda: Tensor("probabilities", chances.shape, chances),
        "known": lambda: Tensor("known", (n,), results.known),
        "explanation": lambda: Tensor("explanation", maps.cells.shape, maps.cells),
        "explanation_bias": lambda: Tensor("explanation_bias", (n,), maps.biases),
        "explanation_score": lambda: Tensor("explanation_score", (n,), maps.scores),
    }
    return [
        _write(
            _ranked(labels, scores, chances, output.n_classes)
            if output.n_classes
            else makers[output.name](),
            output,
        )
        for output in outputs
    ]


def write_codes(codes: Codes, outputs: Sequence[RequestedOutput]) -> list[WrittenTensor]:
    """The outputs for descriptors."""
    columns: dict[str, Int32Array | Float32Array] = {
        "leaf_id": codes.leaf_ids,
        "atom_ids": codes.atom_ids,
        "values": codes.values,
    }
    return [
        _write(Tensor(output.name, columns[output.name].shape, columns[output.name]), output)
        for output in outputs
    ]


def join(images: Sequence[Sequence[WrittenTensor]]) -> list[WrittenTensor]:
    """The outputs for several images out of those of each, in their order."""
    return [_joined(parts) for parts in zip(*images, strict=True)]


def pack(tensors: Sequence[WrittenTensor]) -> tuple[list[list[object]], bytes]:
    """Tensors as plain values and bytes for another process, where `unpack` reads them."""
    entries: list[list[object]] = [
        [tensor.name, tensor.datatype, tensor.shape, tensor.binary, len(tensor.data)]
        for tensor in tensors
    ]
    return entries, b"".join([tensor.data for tensor in tensors])


def unpack(entries: Sequence[Sequence[Any]], data: bytes | memoryview) -> list[WrittenTensor]:
    """The tensors that `pack` wrote."""
    tensors, start = [], 0
    for name, datatype, shape, binary, size in entries:
        own = bytes(data[start : start + size])
        tensors.append(WrittenTensor(name, datatype, tuple(shape), binary, own))
        start += size
    return tensors


def compose(manifest: Manifest, id_: str | None, tensors: Sequence[WrittenTensor]) -> Answer:
    """The answer's JSON, and behind it the tensors that are wanted as bytes."""
    members = to_json(
        {
            "model_name": manifest.name,
            "model_version": str(manifest.version),
            **({} if id_ is None else {"id": id_}),
            "parameters": {"digest": manifest.digest},
        }
    )
    header = b'%b,"outputs":[%b]}' % (members[:-1], b",".join(map(_entry, tensors)))
    binary = [tensor.data for tensor in tensors if tensor.binary]
    return Answer(b"".join([header, *binary]), len(header) if binary else None)


def in_batch(error: ImageError, number: int, count: int) -> ImageError:
    """The error of one image among `count`, with its number if there are others.

    Another one than it was: an error that is raised from itself is a circle, which keeps all that
    its image has decoded until a garbage collection. 284 MB instead of 73, of hostile images.
    """
    return type(error)(str(error) if count == 1 else f"image {number}: {error}")


def _write(tensor: Tensor, output: RequestedOutput) -> WrittenTensor:
    data = tensor.to_bytes() if output.binary else to_json(tensor.flat())[1:-1]
    return WrittenTensor(tensor.name, tensor.datatype, tensor.shape, output.binary, data)


def _joined(parts: Sequence[WrittenTensor]) -> WrittenTensor:
    first = parts[0]
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
    data = (b"" if first.binary else b",").join([part.data for part in parts])
    return WrittenTensor(first.name, first.datatype, shape, first.binary, data)


def _entry(tensor: WrittenTensor) -> bytes:
    """A tensor as a member of `outputs`."""
    entry: dict[str, object] = {
        "name": tensor.name,
        "shape": tensor.shape,
        "datatype": tensor.datatype,
    }
    if tensor.binary:
        return to_json({**entry, "parameters": {"binary_data_size": len(tensor.data)}})
    return b'%b,"data":[%b]}' % (to_json(entry)[:-1], tensor.data)


def _ranked(
    labels: Sequence[str], scores: Float32Array, chances: Float32Array, n_classes: int
) -> Tensor:
    """The classification extension: "probability:index:label", best first."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :n_classes]
    texts = (
        f"{chances[image, i]!s}:{i}:{labels[i]}" for image, row in enumerate(best) for i in row
    )
    return Tensor("probabilities", best.shape, tuple(texts))
