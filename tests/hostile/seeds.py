"""Sound inputs of the four readers, to damage or to start a fuzzer from."""

import io
import json
from collections.abc import Callable

import numpy as np
from PIL import Image

from tests.hostile.targets import sound_files
from tests.support.samples import IMAGES, encoded

__all__ = ["SEEDS", "npy_file"]


def npy_file() -> bytes:
    """Two descriptors as numpy writes them."""
    file = io.BytesIO()
    np.save(file, np.ones((2, 128), np.float32))
    return file.getvalue()


def _images() -> list[bytes]:
    modes = ("1", "L", "LA", "P", "RGBA", "CMYK", "I;16")
    small = Image.new("L", (24, 24), 99)
    return [*IMAGES.values(), *(encoded(small.convert(mode), "TIFF") for mode in modes)]


def _inferences() -> list[bytes]:
    """As `targets.read_inference` takes them: two bytes for the length, JSON, binary data."""
    image = {"name": "image", "shape": [1], "datatype": "BYTES"}
    rows = {"name": "descriptors", "shape": [1, 128], "datatype": "FP32"}
    documents = (
        ({"inputs": [{**image, "data": ["AAAA"]}], "id": "a"}, b""),
        ({"inputs": [{**rows, "data": [0.5] * 128}], "outputs": [{"name": "values"}]}, b""),
        ({"inputs": [{**image, "parameters": {"binary_data_size": 8}}]}, b"\4\0\0\0abcd"),
        ({"inputs": [{**rows, "parameters": {"binary_data_size": 512}}]}, bytes(512)),
        ({"inputs": [], "parameters": {"timeout": 1, "binary_data_output": True}}, b""),
    )
    headers = [(json.dumps(document).encode(), tail) for document, tail in documents]
    return [len(header).to_bytes(2, "little") + header + tail for header, tail in headers]


def _bundles() -> list[bytes]:
    _, manifest, tensors = sound_files()
    return [b"\0" + tensors[:9_000], b"\2" + tensors[:9_000], b"\1" + manifest, b"\3" + manifest]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "image": _images,
    "npy": lambda: [npy_file(), npy_file()[:128]],
    "inference": _inferences,
    "bundle": _bundles,
}
