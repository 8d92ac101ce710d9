"""The engine that training and serving share: numpy, numba, Pillow and safetensors only.

Of its names, those that need one of the four are imported when they are first asked for:
numba alone takes a third of a second and 60 MB, which a process that runs no kernel can save.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from service.engine.config import DESCRIPTOR_WIDTH, EXPLANATION_CELLS, EngineConfig
from service.engine.errors import (
    BrokenImageError,
    BundleError,
    DescriptorError,
    EmptyImageError,
    ImageError,
    LabelError,
    LeafcodeError,
    OversizedImageError,
    UnreadableBundleError,
    UnsupportedImageError,
    VersionTakenError,
)
from service.engine.image_limits import ImageLimits
from service.engine.manifest import Manifest, Probe
from service.engine.stopwatch import STAGES, Stage, Stopwatch

if TYPE_CHECKING:
    from service.engine.bundle import Bundle, read_bundle, write_bundle
    from service.engine.codes import Codes
    from service.engine.explanation import Explanation
    from service.engine.pipeline import Engine, FeatureExtractor
    from service.engine.ranking import Prediction, ScoredImage
else:
    _LATER = {
        **dict.fromkeys(("Bundle", "read_bundle", "write_bundle"), "service.engine.bundle"),
        "Codes": "service.engine.codes",
        "Explanation": "service.engine.explanation",
        **dict.fromkeys(("Engine", "FeatureExtractor"), "service.engine.pipeline"),
        **dict.fromkeys(("Prediction", "ScoredImage"), "service.engine.ranking"),
    }

    def __getattr__(name: str) -> object:
        """A name that was not imported yet (PEP 562)."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATER[name]), name)


__all__ = [
    "DESCRIPTOR_WIDTH",
    "EXPLANATION_CELLS",
    "STAGES",
    "BrokenImageError",
    "Bundle",
    "BundleError",
    "Codes",
    "DescriptorError",
    "EmptyImageError",
    "Engine",
    "EngineConfig",
    "Explanation",
    "FeatureExtractor",
    "ImageError",
    "ImageLimits",
    "LabelError",
    "LeafcodeError",
    "Manifest",
    "OversizedImageError",
    "Prediction",
    "Probe",
    "ScoredImage",
    "Stage",
    "Stopwatch",
    "UnreadableBundleError",
    "UnsupportedImageError",
    "VersionTakenError",
    "read_bundle",
    "write_bundle",
]
