"""The table on disk: a folder of Parquet files, one for each part, that readers take as one table.

Beside them is a file that says what the table is of. Its name begins with an underscore, so that
readers of Parquet pass it over, like hidden files. pyarrow is imported where it is called: whoever
only begins a table does not need it.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.data.files import finish, remove_unfinished, replacing, unfinished
from trainer.errors import ConfigError, DataError, TrainingError
from trainer.predict.job import Job, Part
from trainer.predict.summary import TableCounts

if TYPE_CHECKING:
    from service.engine import EngineConfig
    from trainer.predict.answers import Answer

__all__ = ["WrittenPart", "check_target", "count", "is_written", "open_table", "write_part"]

_FACTS_FILE = "_leafcode.json"
# Under this name, each file of the table has the facts in its metadata.
_METADATA = b"leafcode"
# Of these columns values repeat; of numbers they hardly do.
_REPEATED = ["label", "labels.list.element", "problem"]

# What facts are called in sentences, in the order in which a difference is told.
_NAMES = {
    "digest": "the digest of the model",
    "images": "the number of images",
    "images_sha256": "the digest of their names",
    "top_k": "--top-k",
    "pooled_vectors": "--pooled-vectors",
    "codes": "--codes",
    "leafcode": "the version of leafcode",
}


def check_target(out: Path, *, resume: bool) -> None:
    """Reject a folder that cannot be written, or that has something in it already."""
    existing = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigError(f"--out {out} cannot be written: {existing} is not a writable folder")
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / _FACTS_FILE).exists():
        raise ConfigError(f"--out {out} has other files in it, expected a new name")
    if not resume:
        raise ConfigError(
            f"--out {out} has a table in it; with --resume the same command goes on with it, "
            "else a new name is expected"
        )


def open_table(job: Job) -> None:
    """Make the folder of a table, or see that the one that is there is of this job."""
    facts_file = job.out / _FACTS_FILE
    if facts_file.exists():
        _require_same(_read_facts(facts_file), job)
        remove_unfinished(job.out)
        return
    try:
        job.out.mkdir(parents=True, exist_ok=True)
        with replacing(facts_file) as file:
            file.write(json.dumps(job.facts, indent=1).encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"--out {job.out} cannot be written: {error.strerror}") from error


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read, expected what predict wrote: {error}") from error
    return facts if isinstance(facts, dict) else {}


def _require_same(found: dict[str, Any], job: Job) -> None:
    for name, called in _NAMES.items():
        if found.get(name) != job.facts[name]:
            raise ConfigError(
                f"--out {job.out} was begun otherwise: {called} was {found.get(name)}, now it is "
                f"{job.facts[name]}; the same command goes on, any other needs a new name"
            )


@dataclass(frozen=True)
class WrittenPart:
    """A part whose file is written, but neither on the disk nor under its name yet."""

    written: Path
    path: Path
    counts: TableCounts

    def finish(self) -> TableCounts:
        """Wait for the disk; what is in the file, which is there now."""
        with _told(self.path):
            finish(self.written, self.path)
        return self.counts


def write_part(
    job: Job, part: Part, answers: Sequence["Answer | str"], config: "EngineConfig"
) -> WrittenPart:
    """Write the file of a part; a reader sees all of it or nothing."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    # By a process that has an engine; whoever starts it would wait for the compiler to be imported.
    from trainer.predict.answers import counts_of  # noqa: PLC0415
    from trainer.predict.columns import table_of  # noqa: PLC0415

    metadata = {_METADATA: json.dumps({**job.facts, "run": job.run})}
    table = table_of(part.names, answers, job.wanted, config).replace_schema_metadata(metadata)
    path = job.out / part.file_name
    with _told(path), unfinished(path) as file:
        pq.write_table(table, file, compression="zstd", use_dictionary=_REPEATED)
    return WrittenPart(Path(file.name), path, counts_of(answers))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """An error of the system as a sentence that names the file."""
    try:
        yield
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror or error}") from error


def is_written(job: Job, part: Part) -> bool:
    """Whether the file of a part is there, whole, and of this job."""
    path = job.out / part.file_name
    if not path.exists():
        return False
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        found = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    facts = json.loads((found.metadata or {}).get(_METADATA, b"{}"))
    is_ours: bool = facts.get("run") == job.run and found.num_rows == len(part.names)
    return is_ours


def count(job: Job, parts: Iterable[Part]) -> TableCounts:
    """What is in the files of these parts."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    counts = TableCounts()
    for part in parts:
        table = pq.read_table(job.out / part.file_name, columns=["label", "known", "problem"])
        counts.images += table.num_rows
        counts.unknown += table["known"].to_pylist().count(False)
        counts.labels.update(_counted(table["label"]))
        for problem, n in _counted(table["problem"]).items():
            counts.add_problem(problem, n)
    return counts


def _counted(column: Any) -> dict[str, int]:
    pairs = column.drop_null().value_counts().to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}
