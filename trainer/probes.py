"""Probe images: drawn by rule, the same for every bundle, small enough for a manifest."""

from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw

from service.engine import Engine, Probe

__all__ = ["make_probes", "probe_images"]

_SIZE = (96, 72)


def make_probes(engine: Engine) -> tuple[Probe, ...]:
    """Probe images with the scores that `engine` gives them."""
    return tuple(
        Probe(data, tuple(float(score) for score in engine.scores(data))) for data in probe_images()
    )


def probe_images() -> tuple[bytes, ...]:
    """The probe images, encoded."""
    return _png(_shapes()), _png(_waves())


def _shapes() -> Image.Image:
    picture = Image.new("L", _SIZE, 230)
    draw = ImageDraw.Draw(picture)
    draw.ellipse((10, 8, 60, 58), fill=40)
    draw.rectangle((40, 30, 88, 64), fill=130)
    draw.polygon([(20, 66), (48, 4), (74, 50)], outline=0)
    return picture


def _waves() -> Image.Image:
    y, x = np.mgrid[: _SIZE[1], : _SIZE[0]]
    waves = np.sin(x * x / 150) * np.cos(y / 5 + x / 17)
    return Image.fromarray(np.round(127.5 + 100 * waves).astype(np.uint8))


def _png(picture: Image.Image) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
