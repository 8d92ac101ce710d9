"""Version folders that were damaged, or forged under true digests.

A kind damages a copy of a sound bundle; what it returns must be in the sentence that reading
the bundle is rejected with.
"""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from service.engine.bundle import MANIFEST_FILE, TENSORS_FILE
from tests.hostile.corpus import kind, pick
from tests.hostile.threats import Threat
from tests.support.bundle_files import reseal, store
from tests.support.clients import base64_of
from tests.support.pictures import png_header, truncated_jpeg

Rng = np.random.Generator

FILES = (MANIFEST_FILE, TENSORS_FILE)
NO_SAFETENSORS = "not a sound safetensors file"

# Of the configuration's parts, values that no engine can run or that the tensors contradict.
CONFIGURATIONS: dict[str, dict[str, tuple[object, ...]]] = {
    "engine": {
        "views": ([], [1], [{}], {}, None, 7, [{"depth": 4}] * 2, [{"depth": 4}] * 10_000),
        "blocks": ([], [1], [{}], {}, None, [{"kind": "codes"}], [{"kind": []}]),
        "max_side": (0, -1, 2**31, 1e300, {}),
        "probability_scale": (0, -1, "x", float("nan"), float("inf")),
        "known_threshold": ("x", float("nan"), float("inf"), float("-inf"), True, []),
        "unknown": (1,),
    },
    "views": {
        "depth": (0, -1, 3, 24, 25, 2**40, 4.0, "4", None, True),
        "descriptor": ("colour", "sift", None, []),
        "step": (-1, 1, 3, 2**40, 2.0, None, True),
        "reduction": (0, -1, 17, 2**40, 2.0, None),
        "hash": ("tanh", "md5", None, 7),
        "unknown": (1,),
    },
    "blocks": {
        "kind": ("residuals", "atoms", None, 7, []),
        "n_atoms": (0, -1, 31, 2**20, 2**40, 10**300, []),
        "nonzeros": (0, 2, 128, 129, 2**40),
        "pyramid": ([], [0], [64], [4, 3], [2**20], 4, ["4"], None),
        "sign_rule": ("split", "none", None),
        "weight": (0, -1, "x", float("nan"), float("inf"), 100, None, True),
        "view": (-1, 1, 2**40, "0", None, True),
        "unknown": (1,),
    },
}


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change some tensors and make all digests true again."""
    tensors = {name: tensor.copy() for name, tensor in load_file(folder / TENSORS_FILE).items()}
    change(tensors)
    store(folder, save(tensors))


@kind(Threat.DAMAGED_BUNDLE)
def file_cut_short(rng: Rng, folder: Path) -> str:
    name, share = pick(rng, FILES), rng.uniform(0, 0.999)
    rewrite(folder / name, lambda data: data[: int(len(data) * share)])
    return f"{name}: "


@kind(Threat.DAMAGED_BUNDLE)
def bytes_behind_a_file(rng: Rng, folder: Path) -> str:
    name, tail = pick(rng, FILES), b"\0" + rng.bytes(int(rng.integers(99)))
    rewrite(folder / name, lambda data: data + tail)
    return f"{name}: "


@kind(Threat.BITS_AND_WEIGHTS)
def flipped_bit(rng: Rng, folder: Path) -> str:
    name = pick(rng, FILES)
    data = bytearray((folder / name).read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    (folder / name).write_bytes(data)
    return f"{name}: "


@kind(Threat.DAMAGED_BUNDLE)
def what_is_no_file(rng: Rng, folder: Path) -> str:
    path = folder / pick(rng, FILES)
    path.unlink()
    replacement = rng.integers(3)
    if replacement == 0:
        path.mkdir()
    elif replacement == 1:
        path.symlink_to(path)
    return path.name


@kind(Threat.DAMAGED_BUNDLE)
def tensors_that_are_none(rng: Rng, folder: Path) -> str:
    """With a true digest, so that only their own content speaks against them."""
    files = (
        pickle.dumps({"weights": [1.0]}),
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        b"PK\x03\x04" + rng.bytes(64),
        rng.bytes(int(rng.integers(1, 8))),
        int(rng.integers(2**33, 2**62)).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"\xff\xff",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
    )
    store(folder, pick(rng, files))
    return NO_SAFETENSORS


@kind(Threat.DAMAGED_BUNDLE)
def tensors_with_lying_offsets(rng: Rng, folder: Path) -> str:
    """Overlaps, gaps, ends before begins, and beyond the file."""
    data = (folder / TENSORS_FILE).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    begin, end = header["block0.atoms"]["data_offsets"]
    lies = ([begin, end + 4], [end, begin], [begin - 4, end], [begin, 2**63], [0, end], [-4, end])
    header["block0.atoms"]["data_offsets"] = pick(rng, lies)
    text = json.dumps(header).encode()
    store(folder, struct.pack("<Q", len(text)) + text + data[8 + length :])
    return NO_SAFETENSORS


@kind(Threat.BITS_AND_WEIGHTS)
def weight_that_is_not_finite(rng: Rng, folder: Path) -> str:
    def spoil(tensors: dict[str, Any]) -> None:
        name = pick(rng, [name for name in tensors if tensors[name].dtype == np.float32])
        flat = tensors[name].reshape(-1)
        flat[rng.integers(flat.size)] = pick(rng, (np.nan, np.inf, -np.inf))

    change_tensors(folder, spoil)
    return "not finite"


@kind(Threat.BITS_AND_WEIGHTS)
def tensor_of_another_shape_or_type(rng: Rng, folder: Path) -> str:
    def spoil(tensors: dict[str, Any]) -> None:
        name = pick(rng, tensors)
        other = pick(rng, (tensors[name].reshape(-1)[:-1], tensors[name].astype(np.uint16)))
        tensors[name] = np.ascontiguousarray(other)

    change_tensors(folder, spoil)
    return "expected"


@kind(Threat.BITS_AND_WEIGHTS)
def tensor_missing_or_unknown(rng: Rng, folder: Path) -> str:
    def spoil(tensors: dict[str, Any]) -> None:
        values = tensors.pop(pick(rng, tensors))
        if rng.integers(2):
            tensors[f"unknown{rng.integers(99)}"] = values

    change_tensors(folder, spoil)
    return "holds the tensors"


@kind(Threat.BITS_AND_WEIGHTS)
def atom_that_does_not_exist(rng: Rng, folder: Path) -> str:
    def spoil(tensors: dict[str, Any]) -> None:
        flat = tensors["block0.table"].reshape(-1)
        flat[rng.integers(flat.size)] = pick(rng, (-1, -(2**31), 2**31 - 1, 32))

    change_tensors(folder, spoil)
    return "table names atoms"


@kind(Threat.BITS_AND_WEIGHTS)
def other_weights_under_true_digests(rng: Rng, folder: Path) -> str:
    def spoil(tensors: dict[str, Any]) -> None:
        weights = tensors["classifier_weights"]
        weights[:] = rng.permutation(weights.reshape(-1)).reshape(weights.shape)

    change_tensors(folder, spoil)
    return "probe"


@kind(Threat.DAMAGED_BUNDLE)
def manifest_that_is_none(rng: Rng, folder: Path) -> str:
    texts = (
        *(b"", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 9_000, b"9" * 9_000),
        *(b'{"format_version": 2}', rng.bytes(99), pickle.dumps({}), b'{"format_version": NaN}'),
    )
    (folder / MANIFEST_FILE).write_bytes(pick(rng, texts))
    return f"{MANIFEST_FILE}: "


@kind(Threat.DAMAGED_BUNDLE)
def configuration_that_cannot_be(rng: Rng, folder: Path) -> str:
    """Numbers that no engine can run, or that the tensors contradict, under a true digest."""
    part: str = pick(rng, CONFIGURATIONS)
    values: tuple[object, ...]
    name, values = pick(rng, CONFIGURATIONS[part].items())
    value: object = pick(rng, values)

    def spoil(whole: dict[str, Any]) -> None:
        config = whole["config"]
        (config if part == "engine" else config[part][0]).update({name: value})

    reseal(folder, spoil)
    return ""


@kind(Threat.DAMAGED_BUNDLE)
def member_of_another_type(rng: Rng, folder: Path) -> str:
    members = ("name", "version", "created", "config", "labels", "probes", "tensors", "files")
    name = pick(rng, (*members, "provenance", "quality", "format_version"))
    value = pick(rng, (None, True, 1.5, [7], "x", {"x": 7}, [["x"]]))
    strings = name in ("name", "created") and value == "x"
    reports = name in ("provenance", "quality") and isinstance(value, dict)
    reseal(folder, lambda whole: whole.update({name: [] if strings or reports else value}))
    return f"{MANIFEST_FILE}: " if name != "files" or value != {"x": 7} else ""


@kind(Threat.DAMAGED_BUNDLE)
def probe_that_is_no_image(rng: Rng, folder: Path) -> str:
    images = (b"", b"no image", truncated_jpeg(), png_header(50_000, 50_000), rng.bytes(500))
    image = base64_of(pick(rng, images))
    reseal(folder, lambda whole: whole["probes"][0].update(image=image))
    return "probe"


@kind(Threat.DAMAGED_BUNDLE)
def probe_with_other_scores(rng: Rng, folder: Path) -> str:
    scores = pick(rng, ([], [1.0], [1e300] * 4, [float("nan")] * 4, [9.0] * 4, ["x"] * 4))
    reseal(folder, lambda whole: whole["probes"][0].update(scores=scores))
    return "probe"


@kind(Threat.DAMAGED_BUNDLE)
def labels_that_cannot_be(rng: Rng, folder: Path) -> str:
    labels = pick(rng, ([], ["a"], ["a", "a", "b", "c"], ["a"] * 4, [1, 2], ["x"] * 10_000))
    reseal(folder, lambda whole: whole.update(labels=labels))
    return "labels"


@kind(Threat.DAMAGED_BUNDLE)
def pipe_in_place_of_a_file(rng: Rng, folder: Path) -> str:
    """Whoever opens it would wait for a writer for ever."""
    path = folder / pick(rng, FILES)
    path.unlink()
    os.mkfifo(path)
    return path.name
