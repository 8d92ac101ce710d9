"""What a model reads and answers, as tensors.

A model takes images or descriptors; the name of the one input in a request says which,
and each has outputs of its own.
"""

from service.engine import DESCRIPTOR_WIDTH, EXPLANATION_CELLS, Manifest
from service.formats.v2.tensors import TensorType

__all__ = [
    "DEFAULT_OUTPUTS",
    "DESCRIPTORS",
    "EXPLANATIONS",
    "IMAGE",
    "INPUTS",
    "OUTPUTS",
    "output_types",
]

IMAGE = TensorType("image", "BYTES", (-1,))
DESCRIPTORS = TensorType("descriptors", "FP32", (-1, DESCRIPTOR_WIDTH))

INPUTS = {IMAGE.name: IMAGE, DESCRIPTORS.name: DESCRIPTORS}

DEFAULT_OUTPUTS = {
    IMAGE.name: ("label", "label_id", "probabilities", "known"),
    DESCRIPTORS.name: ("leaf_id", "atom_ids", "values"),
}
# They take half as long again as the labels, so that only who asks for them gets them.
EXPLANATIONS = ("explanation", "explanation_bias", "explanation_score")
OUTPUTS = {**DEFAULT_OUTPUTS, IMAGE.name: DEFAULT_OUTPUTS[IMAGE.name] + EXPLANATIONS}


def output_types(manifest: Manifest) -> tuple[TensorType, ...]:
    """The outputs for images, then those for descriptors."""
    n_labels, nonzeros = len(manifest.labels), manifest.config.codes.nonzeros
    return (
        TensorType("label", "BYTES", (-1,)),
        TensorType("label_id", "INT32", (-1,)),
        TensorType("probabilities", "FP32", (-1, n_labels)),
        TensorType("known", "BOOL", (-1,)),
        TensorType("explanation", "FP32", (-1, EXPLANATION_CELLS, EXPLANATION_CELLS)),
        TensorType("explanation_bias", "FP32", (-1,)),
        TensorType("explanation_score", "FP32", (-1,)),
        TensorType("leaf_id", "INT32", (-1,)),
        TensorType("atom_ids", "INT32", (-1, nonzeros)),
        TensorType("values", "FP32", (-1, nonzeros)),
    )
