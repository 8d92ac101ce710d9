"""What a folder holds that no training will see, in a sentence each."""

from collections.abc import Iterator, Sized
from pathlib import Path

from service.engine.image_formats import HEIF_SUFFIXES, WITHOUT_HEIF, readable_formats
from trainer.data.dataset import Dataset, shortened
from trainer.data.image_files import printable

__all__ = ["heif_without_library", "notes"]


def notes(dataset: Dataset, labels: Path | None = None) -> Iterator[str]:
    """Sentences on files that are left out; `labels` is the file that names the others."""
    if dataset.skipped:
        first = printable(dataset.skipped[0])
        yield f"{_count(dataset.skipped)} skipped, not named like images; the first is {first}"
    if dataset.unlabelled:
        why = f"not named in {labels}" if labels else "not in a class folder"
        names = [printable(path.relative_to(dataset.root)) for path in dataset.unlabelled]
        yield f"{_count(names)} left out, without a label ({why}): {shortened(names)}"
    heif = heif_without_library(dataset)
    if heif:
        yield f"{_count(heif)} left out, HEIC images by their names: {WITHOUT_HEIF}"


def heif_without_library(dataset: Dataset) -> list[Path]:
    """Images that need a library which is not installed."""
    if "HEIF" in readable_formats():
        return []
    paths = (image.path for image in dataset.images)
    return [path for path in paths if path.suffix.lower() in HEIF_SUFFIXES]


def _count(files: Sized) -> str:
    return "1 file is" if len(files) == 1 else f"{len(files)} files are"
