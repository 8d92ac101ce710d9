"""What is to be done: which images, by which model, with which columns, cut into parts.

A part is what one process classifies and writes at a time, and what an interruption may lose.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from service import __version__
from service.engine import Manifest

__all__ = ["Job", "Model", "Part", "Wanted", "cut", "job_of"]

# Images a part. With the embedded model of objects, 256 take about two seconds.
_LARGEST = 256
_SMALLEST = 16
# Pooled vectors have half a megabyte each, and those of a part are in memory together.
_LARGEST_WITH_VECTORS = 64
# The last parts are small, so that no process waits long for the last one: a part has at most this
# share of the images that are left. 9144 images are 79 parts.
_PARTS_OF_THE_REST = 16
# Folders with very many files are slow, so that of very many images parts are larger.
_MOST_PARTS = 4096


@dataclass(frozen=True)
class Wanted:
    """Which columns the table has beside the best label."""

    top_k: int = 1
    pooled_vectors: bool = False
    codes: bool = False


@dataclass(frozen=True)
class Model:
    """A bundle as all processes find it, and what identifies it."""

    bundle: Path
    name: str
    version: int
    digest: str

    @classmethod
    def of(cls, bundle: Path, manifest: Manifest) -> "Model":
        """The model of a version folder."""
        return cls(bundle.absolute(), manifest.name, manifest.version, manifest.digest)


@dataclass(frozen=True)
class Job:
    """All that a process needs to know beside its part.

    `facts` say what the table is of, in words for people; `run` is a digest of them, by which
    the files of a part are known.
    """

    model: Model
    images: Path
    out: Path
    wanted: Wanted
    facts: dict[str, object]
    run: str


@dataclass(frozen=True)
class Part:
    """Some images, by their names relative to the job's folder; parts are numbered from 0."""

    number: int
    names: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The name of the part's file; by these names the files are in order."""
        return f"part-{self.number:06d}.parquet"


def job_of(model: Model, images: Path, names: Sequence[str], out: Path, wanted: Wanted) -> Job:
    """The job of classifying the images of these names, relative to the folder `images`."""
    facts = {
        "model": model.name,
        "version": model.version,
        "digest": model.digest,
        "leafcode": __version__,
        "images": len(names),
        "images_sha256": _digest(names),
        **asdict(wanted),
    }
    run = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return Job(model, images.absolute(), out.absolute(), wanted, facts, run)


def cut(names: Sequence[str], wanted: Wanted) -> Iterator[Part]:
    """The parts of a table. They depend on nothing else, so that a resumed run finds the same."""
    largest = _LARGEST_WITH_VECTORS if wanted.pooled_vectors else _LARGEST
    largest = max(largest, len(names) // _MOST_PARTS)
    begin = number = 0
    while begin < len(names):
        share = (len(names) - begin) // _PARTS_OF_THE_REST
        end = begin + min(largest, max(_SMALLEST, share))
        yield Part(number, tuple(names[begin:end]))
        begin, number = end, number + 1


def _digest(names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(os.fsencode(name) + b"\0")
    return digest.hexdigest()
