"""What of a score is to be explained, and an explanation as JSON."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from pydantic_core import to_json

from service.engine import Manifest

if TYPE_CHECKING:  # it takes the compiler, which the front end does not need
    from service.engine import Explanation

__all__ = ["Explaining", "ExplanationForm", "members", "write"]

ExplanationForm = Literal["json", "png"]

# Digits behind the point: 1024 cells are off by less than 10⁻⁴ together.
_DIGITS = 7


@dataclass(frozen=True)
class Explaining:
    """The label, the best one if there is none, the label it is compared with, and the form."""

    label: str | None = None
    against: str | None = None
    form: ExplanationForm = "json"


def members(explanation: "Explanation") -> dict[str, object]:
    """The members of `Explanation` in `service/routes/schemas.py`, as plain values."""
    rows, cols = explanation.cells.shape
    against = {} if explanation.against is None else {"against": explanation.against}
    return {
        "label": explanation.label,
        **against,
        "score": explanation.score,
        "bias": explanation.bias,
        "cells": explanation.cells.round(_DIGITS).tolist(),
        "grid": {
            "rows": rows,
            "cols": cols,
            "width": explanation.width,
            "height": explanation.height,
        },
        "blocks": [asdict(block) for block in explanation.blocks],
        "atoms": [asdict(atom) for atom in explanation.atoms],
    }


def write(manifest: Manifest, explanation: "Explanation") -> bytes:
    """JSON of `ImageExplanation`."""
    model = {"name": manifest.name, "version": manifest.version, "digest": manifest.digest}
    return to_json({"model": model, **members(explanation)})
