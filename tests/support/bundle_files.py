"""Changes to the files of a bundle under digests that are true again."""

import hashlib
import json
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors.numpy import save

from service.engine.bundle import MANIFEST_FILE, TENSORS_FILE


def is_mapped(array: object) -> bool:
    """Whether an array is a view of a memory-mapped file."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array is not None


def reseal(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and make its digest true again."""
    path = folder / MANIFEST_FILE
    whole = json.loads(path.read_bytes())
    edit(whole)
    del whole["digest"]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**whole, "digest": digest}, indent=1) + "\n")


def store(folder: Path, data: bytes) -> None:
    """Replace the tensors' file and make every digest true again."""
    (folder / TENSORS_FILE).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    reseal(folder, lambda whole: whole["files"][TENSORS_FILE].update(sha256=digest))


def store_tensors(folder: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Replace the tensors, and describe them truthfully in the manifest."""
    specs = {
        name: {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        for name, tensor in tensors.items()
    }
    reseal(folder, lambda whole: whole.update(tensors=specs))
    store(folder, save(dict(tensors)))
