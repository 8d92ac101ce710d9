"""How a view describes an image: descriptors on a regular grid.

They come from the image itself, from a reduced copy, from a drawing of its contours (the square
root of the gradient's magnitude, whose own gradients tell where contours bend and end), or from
its colours.
"""

from typing import NamedTuple

import numpy as np

from service.engine import colour, sift
from service.engine.arrays import Float32Array, frozen
from service.engine.config import DESCRIPTOR_WIDTH, ViewConfig
from service.engine.fixedpoint import Descriptors
from service.engine.image import Picture
from service.engine.kernels.copies import draw_contours, reduce_image
from service.engine.sift import SiftKind

__all__ = [
    "Patches",
    "describe",
    "grid_shape",
    "image_copy",
    "is_early",
    "is_in_bands",
    "locate",
    "patches",
    "sift_kind",
]

# Pixels at each border that have no gradient.
_FILTER = 2


class Patches(NamedTuple):
    """Where the patches of a grid are, in pixels of the image at working size.

    The first one, of `side` pixels a side, has its corner at `left` and `top`.
    """

    left: int
    top: int
    step: int
    side: int


def describe(picture: Picture, view: ViewConfig) -> Float32Array:
    """Descriptors (rows, cols, 128) of a picture."""
    copy = image_copy(picture, view)
    rows, cols = grid_shape(copy, view)
    if not rows:
        return np.empty((0, 0, DESCRIPTOR_WIDTH), np.float32)
    return locate(copy, view).joined().reshape(rows, cols, DESCRIPTOR_WIDTH)


def image_copy(picture: Picture, view: ViewConfig) -> Float32Array:
    """What descriptors are computed from: a grey image (h, w), or cells of colours."""
    if view.descriptor == "colour":
        return colour.colour_map(picture)
    if view.descriptor == "contour-sift":
        return _contours(picture.gray, view.reduction)
    return _reduced(picture.gray, view.reduction)


def grid_shape(copy: Float32Array, view: ViewConfig) -> tuple[int, int]:
    """Rows and columns of descriptors; the image itself must be large enough for one.

    A smaller copy need not be, so that a small image is classified by its other views.
    """
    if view.descriptor == "colour":
        return colour.grid_shape(copy, view.step)
    height, width = copy.shape
    is_whole_image = view.reduction == 1 and view.descriptor != "contour-sift"
    if is_whole_image or min(height, width) >= sift.SMALLEST_SIDE:
        return sift.grid_shape(height, width, view.step)
    return 0, 0


def locate(copy: Float32Array, view: ViewConfig) -> Descriptors:
    """The descriptors of the grid, row by row; there must be some."""
    if view.descriptor == "colour":
        return colour.locate(copy, view.step)
    return sift.locate(copy, sift_kind(view), view.step).descriptors


def is_in_bands(view: ViewConfig) -> bool:
    """Whether descriptors can be computed band by band, by `sift.in_bands`."""
    return view.descriptor in ("fast-sift", "contour-sift")


def is_early(view: ViewConfig) -> bool:
    """Whether the first rows of an image suffice for the first descriptors.

    Others come from a copy that is made of the whole image, or from a grid in its middle.
    """
    return view.descriptor == "fast-sift" and view.reduction == 1


def patches(height: int, width: int, view: ViewConfig) -> Patches:
    """Where a view's descriptors of an image of this size are."""
    if view.descriptor == "colour":
        return Patches(0, 0, view.reduction * view.step, view.reduction * colour.PATCH_SIDE)
    border = _FILTER if view.descriptor == "contour-sift" else 0
    scale = view.reduction
    rows, cols = (height - 2 * border) // scale, (width - 2 * border) // scale
    left, top = sift.first_patch(rows, cols, sift_kind(view), view.step)
    return Patches(
        border + scale * left, border + scale * top, scale * view.step, scale * sift.PATCH_SIDE
    )


def sift_kind(view: ViewConfig) -> SiftKind:
    """How a grey copy is described."""
    return "lazebnik-sift" if view.descriptor == "lazebnik-sift" else "fast-sift"


def _reduced(gray: Float32Array, reduction: int) -> Float32Array:
    if reduction == 1:
        return gray
    copy = np.empty([side // reduction for side in gray.shape], np.float32)
    reduce_image(frozen(gray), reduction, copy)
    return copy


def _contours(gray: Float32Array, reduction: int) -> Float32Array:
    shape = [max(side - 2 * _FILTER, 0) // reduction for side in gray.shape]
    copy = np.zeros(shape, np.float32)
    if copy.size:
        draw_contours(frozen(gray), *sift.FILTERS, reduction, copy)
    return copy
