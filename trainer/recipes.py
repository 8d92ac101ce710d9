"""Which views and blocks a bundle is made of: the paper's pipeline, and what goes beyond it.

A recipe begins with the view and the block of codes that the settings of a fit describe. Weights
between blocks are where a search on folds of the training images starts; blocks that it drops
cost nothing when serving.
"""

from dataclasses import dataclass, replace
from typing import Literal

from service.engine.config import BlockConfig, CodesConfig, ResidualsConfig, ViewConfig

__all__ = ["Recipe", "RecipeName", "recipe_of"]

RecipeName = Literal["paper", "fast", "best"]

# Principal components of a node's residuals: 16 lost a point or more, 48 won nothing.
_COMPONENTS = 32

# Larger regions have more descriptors, and so more nodes: 64 in all regions lost .008 in
# scenes, 128 in the smallest won nothing for the twofold width, and 32 there lost .005 of
# Caltech 101.
_RESIDUALS = ResidualsConfig((6, 7, 7), _COMPONENTS, (4, 2, 1))

# Beside residuals of all descriptors, codes of every fourth one do as well as all codes.
_STRIDE = 2

# Without the regions of a sixteenth of the image, which cost more than all others together.
_COARSE_RESIDUALS = ResidualsConfig((7, 7), _COMPONENTS, (2, 1))

# Weights are where the search on folds starts. A colour helps one data set by many points,
# another by one.
_COLOUR_RESIDUALS = ResidualsConfig((6, 6), _COMPONENTS, (2, 1), weight=0.4)


@dataclass(frozen=True)
class Recipe:
    """Views, whose depths are the largest that they may have, and blocks with first weights."""

    views: tuple[ViewConfig, ...]
    blocks: tuple[BlockConfig, ...]

    def blocks_of(self, view: int) -> tuple[BlockConfig, ...]:
        """The blocks that read a view."""
        return tuple(block for block in self.blocks if block.view == view)

    def without_colours(self) -> "Recipe":
        """The recipe for grey images. Views of colours come last, so that no number changes."""
        views = tuple(view for view in self.views if view.descriptor != "colour")
        return Recipe(views, tuple(block for block in self.blocks if block.view < len(views)))


def recipe_of(name: RecipeName, view: ViewConfig, codes: CodesConfig) -> Recipe:
    """The recipe whose first view and block are these.

    Contours and colours have residuals only: beside those, codes of their own won nothing, and
    they would cost a dictionary. `fast` pays for its further blocks by a coarser grid.
    """
    contours = ViewConfig(max(_COARSE_RESIDUALS.levels), "contour-sift", reduction=2)
    if name == "paper":
        return Recipe((view,), (codes,))
    if name == "fast":
        coarse = replace(view, step=2 * view.step)
        return _joined(codes, (coarse, _COARSE_RESIDUALS), (contours, _COARSE_RESIDUALS))
    colours = ViewConfig(max(_COLOUR_RESIDUALS.levels), "colour", step=4, reduction=2)
    return _joined(
        replace(codes, stride=_STRIDE),
        (view, _RESIDUALS),
        (contours, _RESIDUALS),
        (colours, _COLOUR_RESIDUALS),
    )


def _joined(codes: CodesConfig, *views: tuple[ViewConfig, ResidualsConfig]) -> Recipe:
    """Codes of the first view, and residuals of every view whose hash is a tree."""
    residuals = [
        replace(block, view=number)
        for number, (view, block) in enumerate(views)
        if view.hash == "tree"
    ]
    return Recipe(tuple(view for view, _ in views), (codes, *residuals))
