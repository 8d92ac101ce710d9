"""What an operator accepts as an image; `image.py` checks it."""

from dataclasses import dataclass

__all__ = ["ImageLimits"]


@dataclass(frozen=True)
class ImageLimits:
    """The largest image that an operator accepts; no limit changes an accepted image's answer."""

    max_bytes: int = 25_000_000
    max_pixels: int = 50_000_000
    max_side: int = 20_000
