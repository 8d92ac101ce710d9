"""Bodies that are in order, some of them large: an image of many pixels, forms with files.

Pillow is imported where images are drawn, because no other part of the command line needs it.
"""

import http.client
from collections.abc import Sequence
from contextlib import closing
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from service.loadtest.request import Target

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["form_of", "large_form", "large_image", "post"]

_SIDE = 6_000
_NOISE_SIDE = 900
_BOUNDARY = "leafcode-boundary"
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
    return form_of([_png(Image.fromarray(pixels))] * _FILES)


def form_of(images: Sequence[bytes]) -> tuple[str, bytes]:
    """Content type and body of a form with these files."""
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n'
    parts = b"".join([head.encode() + image + b"\r\n" for image in images])
    return f"multipart/form-data; boundary={_BOUNDARY}", parts + f"--{_BOUNDARY}--\r\n".encode()


def _png(image: "Image.Image") -> bytes:
    stream = BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def post(target: Target, body: bytes, content_type: str, call: str = "classify") -> int:
    """The status of the answer, 0 if there was none."""
    with closing(http.client.HTTPConnection(*target.address, timeout=_TIMEOUT_SECONDS)) as service:
        try:
            headers = {"Content-Type": content_type}
            service.request("POST", f"{target.prefix}/v1/{call}", body, headers)
            return service.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
