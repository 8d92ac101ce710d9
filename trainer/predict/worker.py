"""What a process does: one part of the job, from files to the file of the part.

Processes of this machine and workers of a cluster run the same function. Whoever only has them
called needs no kernel, so that the engine is imported where it is used.
"""

import contextlib
import gc
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from service.engine import BundleError
from trainer.predict.job import Job, Model, Part
from trainer.predict.table import WrittenPart, write_part

if TYPE_CHECKING:
    from service.engine import Engine
    from trainer.predict.answers import Answer

__all__ = ["Attempt", "classify_part", "prepare", "reached"]


@dataclass(frozen=True)
class Attempt:
    """How to go about a part that has ended processes before.

    A careful attempt notes which image it is at. Images that ended processes, by their places in
    the part, are not read again; their rows have the sentence that is given here.
    """

    careful: bool = False
    blamed: Mapping[int, str] = field(default_factory=dict)


def prepare(bundle: Path) -> None:
    """Load all that parts need, for processes that are forked later."""
    import pyarrow.parquet  # noqa: F401, PLC0415

    from trainer.predict import answers, columns  # noqa: F401, PLC0415

    _load_engine(bundle)


def classify_part(job: Job, part: Part, attempt: Attempt) -> WrittenPart:
    """Classify the images of a part and write its file, for somebody to finish."""
    engine = _engine_of(job.model)
    from trainer.predict.answers import answer  # noqa: PLC0415

    answers: list[Answer | str] = []
    with ExitStack() as stack:
        note = stack.enter_context(_Note(job, part)) if attempt.careful else None
        for place, name in enumerate(part.names):
            if place in attempt.blamed:
                answers.append(attempt.blamed[place])
                continue
            if note:
                note.at(place)
            answers.append(answer(engine, os.path.join(job.images, name), job.wanted))  # noqa: PTH118
        return write_part(job, part, answers, engine.config)


def _engine_of(model: Model) -> "Engine":
    engine = _load_engine(model.bundle)
    if engine.manifest.digest != model.digest:
        raise BundleError(
            f"{model.bundle} has the digest {engine.manifest.digest}, expected {model.digest}"
        )
    return engine


@cache
def _load_engine(bundle: Path) -> "Engine":
    """The engine of a bundle, loaded once in each process, with one thread."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    from service.engine import Engine  # noqa: PLC0415

    threadpool_limits(1, "blas")
    engine = Engine.load(bundle)
    gc.freeze()  # nothing of what is loaded is garbage
    return engine


class _Note:
    """A file that says which image of a part is being read; gone when the part is done."""

    def __init__(self, job: Job, part: Part) -> None:
        self._path = _note_path(job, part)

    def __enter__(self) -> Self:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def at(self, place: int) -> None:
        os.pwrite(self._file, b"%10d" % place, 0)


def reached(job: Job, part: Part) -> int | None:
    """The place of the image that a careful attempt was at when its process ended, if any."""
    with contextlib.suppress(OSError, ValueError):
        return int(_note_path(job, part).read_bytes())
    return None


def _note_path(job: Job, part: Part) -> Path:
    return job.out / f".{part.file_name}.at"
