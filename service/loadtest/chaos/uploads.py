"""Large bodies that are in order: an image of many pixels, a form with large files.

Pillow is imported where images are drawn, because no other part of the command line needs it.
"""

import http.client
from contextlib import closing
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from service.loadtest.request import Target

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["large_form", "large_image", "post"]

_SIDE = 6_000
_NOISE_SIDE = 900
_BOUNDARY = "leafcode-chaos"
_FILES = 4
_TIMEOUT_SECONDS = 60.0


def large_image() -> bytes:
    """A PNG of 36 million pixels in colour, 150 MB once decoded, in a few hundred KB."""
    from PIL import Image  # noqa: PLC0415

    return _png(Image.linear_gradient("L").resize((_SIDE, _SIDE)).convert("RGB"))


def large_form() -> tuple[str, bytes]:
    """Content type and body of a form with several files of two megabytes."""
    from PIL import Image  # noqa: PLC0415

    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (_NOISE_SIDE, _NOISE_SIDE, 3), np.uint8)
    image = _png(Image.fromarray(pixels))
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n'
    part = head.encode() + image + b"\r\n"
    return f"multipart/form-data; boundary={_BOUNDARY}", (
        _FILES * part + f"--{_BOUNDARY}--\r\n".encode()
    )


def _png(image: "Image.Image") -> bytes:
    stream = BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def post(target: Target, body: bytes, content_type: str) -> int:
    """The status of the answer, 0 if there was none."""
    with closing(http.client.HTTPConnection(*target.address, timeout=_TIMEOUT_SECONDS)) as service:
        try:
            headers = {"Content-Type": content_type}
            service.request("POST", f"{target.prefix}/v1/classify", body, headers)
            return service.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
