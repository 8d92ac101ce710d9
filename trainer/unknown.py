"""`--unknown`: images of none of the classes, to learn from or to count those that are rejected."""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from service.engine import Engine, ImageError
from service.engine.image import decode
from service.engine.sift import grid_shape
from trainer.config import FitConfig
from trainer.data.dataset import Dataset, LabelledImage
from trainer.data.image_files import FoundFiles, find_images, printable
from trainer.data.sampling import UnreadableImage, log_unreadable
from trainer.errors import ConfigError, DataError
from trainer.evaluate import ScoredImages, score_images
from trainer.learn.held_out import UNKNOWN
from trainer.learn.rejection import rejected_share, threshold_keeping
from trainer.metrics import area_under_roc
from trainer.parallel import map_ordered
from trainer.workplace import Workplace

__all__ = [
    "UnknownFigures",
    "add_unknown_option",
    "measure_unknown",
    "unknown_images",
    "with_unknown",
]

logger = logging.getLogger(__name__)

# Of the test images, for figures of models whatever their own threshold is.
_KEPT_PERCENT = 95


@dataclass(frozen=True)
class UnknownFigures:
    """How well a model tells the images of a folder from test images of its classes.

    `rejected` is the share that its threshold rejects, None without one; `rejected_at_95` that
    of a threshold which keeps 95 % of the test images. `auroc` is the area under the ROC curve.
    """

    folder: str
    n_images: int
    rejected: float | None
    rejected_at_95: float
    auroc: float

    def to_json(self) -> dict[str, object]:
        """Figures as plain JSON values."""
        return asdict(self)


def add_unknown_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the option that names folders of such images."""
    parser.add_argument(
        "--unknown",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help=f"folder, however nested, of images of none of the classes, {purpose}; may be "
        "repeated",
    )


def with_unknown(dataset: Dataset, folders: Sequence[Path]) -> Dataset:
    """The data set with all images below some folders, which show none of its classes."""
    found = [_find(folder) for folder in folders]
    unknown = {path.resolve(): path for files in found for path in files.images}
    for image in dataset.images if unknown else ():
        if image.path.resolve() in unknown:
            label = dataset.labels[image.label]
            raise DataError(
                f"{printable(image.path)} is of the class {label} and among the images of "
                f"--unknown, expected one of both; --exclude {label} leaves the class out"
            )
    skipped = (path for files in found for path in files.skipped)
    return replace(dataset, unknown=tuple(unknown.values()), skipped=(*dataset.skipped, *skipped))


def unknown_images(
    dataset: Dataset, config: FitConfig, workplace: Workplace
) -> tuple[LabelledImage, ...]:
    """The images of none of the classes that can be read, one at least if there are any."""
    if not dataset.unknown:
        return ()
    if config.classifier != "svm":
        raise ConfigError(
            f"classifier is {config.classifier!r} with --unknown, expected 'svm', which tells each "
            "class from all other images"
        )
    results = workplace.each(_read_each, config, dataset.unknown, "images of --unknown")
    log_unreadable(each for each in results if isinstance(each, UnreadableImage))
    images = tuple(each for each in results if isinstance(each, LabelledImage))
    if not images:
        raise DataError(f"none of the {len(results)} images of --unknown is readable")
    logger.info("%d images of none of the classes", len(images))
    return images


def measure_unknown(engine: Engine, tested: ScoredImages, folder: Path) -> UnknownFigures:
    """How well `engine` tells the images below a folder from test images that it has scored."""
    images = [LabelledImage(path, UNKNOWN) for path in _find(folder).images]
    found = score_images(engine, images, f"images of --unknown {folder}")
    log_unreadable(found.unreadable)
    known, unknown = tested.confidences, found.confidences
    threshold = engine.config.known_threshold
    return UnknownFigures(
        folder=printable(folder),
        n_images=len(unknown),
        rejected=None if threshold is None else rejected_share(unknown, threshold),
        rejected_at_95=rejected_share(unknown, threshold_keeping(known, _KEPT_PERCENT)),
        auroc=area_under_roc(known, unknown),
    )


def _find(folder: Path) -> FoundFiles:
    if not folder.is_dir():
        raise DataError(f"--unknown {folder} is not a folder, expected one with images")
    files = find_images(folder)
    if not files.images:
        raise DataError(f"--unknown {folder} has no images, expected some of none of the classes")
    return files


def _read_each(config: FitConfig, paths: Sequence[Path]) -> list[LabelledImage | UnreadableImage]:
    return list(map_ordered(lambda path: _read(path, config), paths, "images"))


def _read(path: Path, config: FitConfig) -> LabelledImage | UnreadableImage:
    try:
        height, width = decode(path.read_bytes(), config.max_side).shape
        grid_shape(height, width, config.view.step)
    except (ImageError, OSError) as error:
        return UnreadableImage(path, str(error))
    return LabelledImage(path, UNKNOWN)
