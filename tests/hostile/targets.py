"""The four readers of foreign bytes, as functions that fail unless a reader behaves.

Each takes any bytes. What a reader may do with them is to return a sound value or to raise its
own kind of error; anything else, and anything without an end, is a defect. The properties
(`test_properties.py`) and the coverage-guided fuzzer (`fuzz.py`) share them.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from service.engine import BundleError, ImageError, ImageLimits, LeafcodeError
from service.engine.bundle import MANIFEST_FILE, TENSORS_FILE, read_bundle, write_bundle
from service.engine.image import decode
from service.formats.npy import parse_npy
from service.formats.v2.envelope import unwrap
from service.formats.v2.requests import BatchLimits, read_json, read_request
from tests.support.samples import random_bundle

__all__ = ["TARGETS", "read_bundle_files", "read_image", "read_inference", "read_npy"]

MAX_SIDE = 64
LIMITS = BatchLimits(max_images=3, max_descriptors=3)


def read_image(data: bytes) -> None:
    """Any bytes are a grey image or an `ImageError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in production
        try:
            gray = decode(data, MAX_SIDE, ImageLimits(max_pixels=200_000))
        except ImageError:
            return
    assert gray.dtype == np.float32
    assert gray.ndim == 2
    assert 1 <= min(gray.shape) <= max(gray.shape) <= MAX_SIDE
    assert np.isfinite(gray).all()
    assert 0 <= gray.min() <= gray.max() <= 1


def read_npy(data: bytes) -> None:
    """Any bytes are at most three descriptors or an error of ours."""
    try:
        values = parse_npy(data, 3)
    except LeafcodeError:
        return
    assert values.dtype == np.float32
    assert values.shape[0] <= 3
    assert values.shape[1:] == (128,)


def read_inference(data: bytes) -> None:
    """Any bytes are an inference request or an error of ours, with and without binary data.

    The first two bytes say where the JSON ends.
    """
    for stated in (None, str(int.from_bytes(data[:2], "little"))):
        try:
            envelope = unwrap(data[2:], stated)
            if envelope.header is None:
                return
            request = read_request(envelope.header, envelope.tail, LIMITS)
            assert len(request.batch) <= 3
            assert request.outputs
            if stated is None:
                again = read_json(data[2:], LIMITS)
                assert len(again.batch) == len(request.batch)
        except LeafcodeError:
            continue


@cache
def sound_files() -> tuple[Path, bytes, bytes]:
    """A folder for all calls, and the files of a sound bundle."""
    folder = Path(tempfile.mkdtemp(prefix="leafcode-fuzz-")) / "sample" / "1"
    write_bundle(random_bundle(), folder)
    return folder, (folder / MANIFEST_FILE).read_bytes(), (folder / TENSORS_FILE).read_bytes()


def read_bundle_files(data: bytes) -> None:
    """Any bytes in place of one of a bundle's files are a bundle or a `BundleError`.

    The first byte says which file, and whether all digests are made true, so that the content
    itself is judged.
    """
    folder, manifest, tensors = sound_files()
    choice, data = data[:1] or b"\0", data[1:]
    is_manifest, is_sealed = choice[0] & 1, choice[0] & 2
    manifest, tensors = (data, tensors) if is_manifest else (manifest, data)
    if is_sealed:
        manifest = _sealed(manifest, tensors)
    (folder / MANIFEST_FILE).write_bytes(manifest)
    (folder / TENSORS_FILE).write_bytes(tensors)
    try:
        bundle = read_bundle(folder)
    except BundleError:
        return
    assert all(np.isfinite(tensor).all() for tensor in bundle.tensors.values())


def _sealed(manifest: bytes, tensors: bytes) -> bytes:
    """The manifest with the digests of both files, if it is a JSON object at all."""
    try:
        whole = json.loads(manifest)
        whole["files"] = {TENSORS_FILE: {"sha256": hashlib.sha256(tensors).hexdigest()}}
        whole.pop("digest", None)
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        return (json.dumps({**whole, "digest": digest}, indent=1) + "\n").encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return manifest


TARGETS: dict[str, Callable[[bytes], None]] = {
    "image": read_image,
    "npy": read_npy,
    "inference": read_inference,
    "bundle": read_bundle_files,
}
