"""What a load test sends: image files, or descriptors that are drawn at random."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from service.engine.image_formats import IMAGE_SUFFIXES
from service.loadtest.errors import LoadTestError
from service.loadtest.request import Sending

__all__ = ["descriptor_requests", "find_images", "image_requests", "read_image_list"]

# All of them are held in memory, so that reading them takes no time of the test.
_MAX_BYTES = 2_000_000_000
_DIMENSIONS = 128
_MAX_DESCRIPTORS = 100_000
_DIFFERENT = 8


def read_image_list(file: Path) -> list[Path]:
    """The image files that a text file names, one a line."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadTestError(f"{file} cannot be read: {error}") from error
    if not lines:
        raise LoadTestError(f"{file} is empty, expected one image file a line")
    return [Path(line) for line in lines]


def find_images(paths: Sequence[Path]) -> list[Path]:
    """The files among `paths`, and the images in the folders among them."""
    found = [
        file
        for path in paths
        for file in (sorted(_images_below(path)) if path.is_dir() else [path])
    ]
    if not found:
        raise LoadTestError(
            f"no images in {', '.join(map(str, paths))}, expected files that end in one of "
            f"{', '.join(sorted(IMAGE_SUFFIXES))}"
        )
    return found


def _images_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES]


def image_requests(files: Iterable[Path], sending: Sending, top_k: int) -> list[bytes]:
    """One request for the labels of each image."""
    requests: list[bytes] = []
    size = 0
    for file in files:
        try:
            requests.append(sending.classify(file.read_bytes(), top_k))
        except OSError as error:
            raise LoadTestError(f"{file} cannot be read: {error.strerror}") from error
        size += len(requests[-1])
        if size > _MAX_BYTES:
            raise LoadTestError(
                f"the first {len(requests)} images have {size} bytes, expected at most "
                f"{_MAX_BYTES} in all; name fewer"
            )
    return requests


def descriptor_requests(count: int, sending: Sending) -> list[bytes]:
    """A few different requests for the codes of `count` descriptors of unit length each."""
    if count > _MAX_DESCRIPTORS:
        raise LoadTestError(f"{count} descriptors a request, expected at most {_MAX_DESCRIPTORS}")
    random = np.random.default_rng(0)
    drawn = random.exponential(size=(_DIFFERENT, count, _DIMENSIONS)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    return [sending.codes(descriptors) for descriptors in drawn]
