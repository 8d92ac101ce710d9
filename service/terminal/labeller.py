"""One image to its labels, or to the sentence that says why there are none."""

from dataclasses import dataclass
from typing import IO

from service.engine import Engine, ImageLimits, LeafcodeError, OversizedImageError, Prediction
from service.engine.image_formats import IMAGE_SUFFIXES
from service.terminal.images import STDIN

__all__ = ["Labelled", "Labeller", "Outcome", "read_within"]


@dataclass(frozen=True)
class Labelled:
    """The ranked labels of an image, and whether it looks like one of the model's classes."""

    predictions: tuple[Prediction, ...]
    known: bool


Outcome = Labelled | str


@dataclass(frozen=True)
class Labeller:
    """Classifies images by the names of their files; `stdin` is what standard input held."""

    engine: Engine
    top_k: int
    limits: ImageLimits
    stdin: bytes = b""

    def __call__(self, image: str) -> Outcome:
        """The ranked labels of an image, or why there are none; no file ends the others."""
        try:
            scored = self.engine.score(self._read(image), self.limits)
            ranked = self.engine.rank(scored.scores, self.top_k)
            return Labelled(ranked, self.engine.is_known(scored))
        except IsADirectoryError:
            suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
            return f"no images below it, expected files that end in {suffixes}"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except MemoryError:
            return "there is not enough memory to decode it"
        except LeafcodeError as error:
            return str(error)

    def _read(self, image: str) -> bytes:
        data = self.stdin if image == STDIN else _read_file(image, self.limits)
        if len(data) > self.limits.max_bytes:
            raise OversizedImageError(
                f"the image has more bytes than {self.limits.max_bytes} (LEAFCODE_MAX_BODY_BYTES)"
            )
        return data


def _read_file(image: str, limits: ImageLimits) -> bytes:
    with open(image, "rb") as file:  # noqa: PTH123
        return read_within(file, limits)


def read_within(file: IO[bytes], limits: ImageLimits) -> bytes:
    """All of a file, or the first byte too many of one that is too large for an image."""
    return file.read(limits.max_bytes + 1)
