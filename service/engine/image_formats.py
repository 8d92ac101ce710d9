"""Which formats images are read in: Pillow's own, and HEIC where its library is installed.

An explicit list, because Pillow's default one would start Ghostscript for an EPS file.
"""

import re
from functools import cache

__all__ = [
    "HEIF_SUFFIXES",
    "IMAGE_SUFFIXES",
    "WITHOUT_HEIF",
    "has_signature",
    "is_heif",
    "readable_formats",
]

_PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

HEIF_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
"""How the names of HEIC files end, those of telephones above all."""

IMAGE_SUFFIXES = HEIF_SUFFIXES | {
    *(".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"),
}
"""How the names of files end that are taken for images, in lower case.

AVIF is among them so that reading tells that it is not read: Pillow's decoder allocates what the
coded image states, up to 268 million pixels, whatever the header says that limits are checked by.
"""

WITHOUT_HEIF = "HEIC is read only where the extra heif is installed: pip install 'leafcode[heif]'"

# How files begin whose header Pillow may not get through when it is cut or damaged.
_SIGNATURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF....WEBP|II[*+]\0|MM\0[*+]", re.DOTALL
)
_HEIF_SIGNATURE = re.compile(rb"....ftyp(he[iv][csxm]|mif1|msf1)", re.DOTALL)


@cache
def readable_formats() -> tuple[str, ...]:
    """Pillow's names of the formats that are read here.

    The library for HEIC is loaded and registered by the first call, so that only processes
    that decode have it. Thumbnails stay out, because they are not the image; one thread,
    because images are decoded side by side.
    """
    try:
        from pillow_heif import register_heif_opener  # noqa: PLC0415
    except ImportError:
        return _PILLOW_FORMATS
    register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)
    return (*_PILLOW_FORMATS, "HEIF")


def is_heif(data: bytes) -> bool:
    """Whether bytes begin like HEIC or another image in a HEIF container."""
    return _HEIF_SIGNATURE.match(data) is not None


def has_signature(data: bytes) -> bool:
    """Whether bytes begin like an image of a format that is read here."""
    return _SIGNATURE.match(data) is not None or (is_heif(data) and "HEIF" in readable_formats())
