"""What an operator accepts as an image; `image.py` checks it."""

from dataclasses import dataclass

__all__ = ["ImageLimits"]


@dataclass(frozen=True)
class ImageLimits:
    """The largest image that an operator accepts; no limit changes an accepted image's answer.

    `max_pixels` are those that are allocated: a JPEG that is decoded at a reduced size may have
    up to 64 times as many. Files of one's own may be larger than what a service takes by default.
    """

    max_bytes: int = 100_000_000
    max_pixels: int = 50_000_000
    max_side: int = 20_000
