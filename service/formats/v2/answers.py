"""Results to output tensors, and output tensors to the body of an answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic_core import to_json

from service.engine import Codes, Manifest
from service.engine.arrays import Float32Array, Int32Array
from service.engine.classifier import probabilities
from service.formats.v2.requests import InferRequest, RequestedOutput
from service.formats.v2.tensors import Tensor

__all__ = ["Answer", "code_tensors", "compose", "label_tensors"]


@dataclass(frozen=True)
class Answer:
    """A body, and where its JSON ends if tensors follow it."""

    body: bytes
    header_length: int | None


def label_tensors(
    manifest: Manifest, scores: Float32Array, outputs: Sequence[RequestedOutput]
) -> list[Tensor]:
    """The outputs for images with scores (n, n_labels); ties go to the lowest index."""
    n, labels = len(scores), manifest.labels
    chances = probabilities(scores, manifest.config.probability_scale).astype(np.float32)
    best = scores.argmax(axis=1).astype(np.int32)
    makers: dict[str, Callable[[], Tensor]] = {
        "label": lambda: Tensor("label", (n,), tuple(labels[i] for i in best)),
        "label_id": lambda: Tensor("label_id", (n,), best),
        "probabilities": lambda: Tensor("probabilities", chances.shape, chances),
    }
    return [
        _ranked(labels, scores, chances, output.n_classes)
        if output.n_classes
        else makers[output.name]()
        for output in outputs
    ]


def code_tensors(codes: Codes, outputs: Sequence[RequestedOutput]) -> list[Tensor]:
    """The outputs for descriptors."""
    columns: dict[str, Int32Array | Float32Array] = {
        "leaf_id": codes.leaf_ids,
        "atom_ids": codes.atom_ids,
        "values": codes.values,
    }
    return [
        Tensor(output.name, columns[output.name].shape, columns[output.name]) for output in outputs
    ]


def compose(manifest: Manifest, request: InferRequest, tensors: Sequence[Tensor]) -> Answer:
    """The answer's JSON, and behind it the tensors that are wanted as bytes."""
    entries, buffers = [], []
    for output, tensor in zip(request.outputs, tensors, strict=True):
        entry: dict[str, object] = {
            "name": tensor.name,
            "shape": tensor.shape,
            "datatype": tensor.datatype,
        }
        if output.binary:
            buffers.append(tensor.to_bytes())
            entry["parameters"] = {"binary_data_size": len(buffers[-1])}
        else:
            entry["data"] = tensor.flat()
        entries.append(entry)
    header = to_json(
        {
            "model_name": manifest.name,
            "model_version": str(manifest.version),
            **({} if request.id is None else {"id": request.id}),
            "parameters": {"digest": manifest.digest},
            "outputs": entries,
        }
    )
    return Answer(b"".join([header, *buffers]), len(header) if buffers else None)


def _ranked(
    labels: Sequence[str], scores: Float32Array, chances: Float32Array, n_classes: int
) -> Tensor:
    """The classification extension: "probability:index:label", best first."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :n_classes]
    texts = (
        f"{chances[image, i]!s}:{i}:{labels[i]}" for image, row in enumerate(best) for i in row
    )
    return Tensor("probabilities", best.shape, tuple(texts))
