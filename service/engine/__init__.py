"""The engine that training and serving share: numpy, numba, Pillow and safetensors only."""

from service.engine.bundle import Bundle, read_bundle, write_bundle
from service.engine.classifier import Prediction
from service.engine.coding import Codes
from service.engine.config import DESCRIPTOR_WIDTH, EngineConfig
from service.engine.errors import (
    BrokenImageError,
    BundleError,
    DescriptorError,
    EmptyImageError,
    ImageError,
    LeafcodeError,
    OversizedImageError,
    UnreadableBundleError,
    UnsupportedImageError,
    VersionTakenError,
)
from service.engine.image import ImageLimits
from service.engine.manifest import Manifest, Probe
from service.engine.pipeline import Engine, FeatureExtractor
from service.engine.stopwatch import STAGES, Stage, Stopwatch

__all__ = [
    "DESCRIPTOR_WIDTH",
    "STAGES",
    "BrokenImageError",
    "Bundle",
    "BundleError",
    "Codes",
    "DescriptorError",
    "EmptyImageError",
    "Engine",
    "EngineConfig",
    "FeatureExtractor",
    "ImageError",
    "ImageLimits",
    "LeafcodeError",
    "Manifest",
    "OversizedImageError",
    "Prediction",
    "Probe",
    "Stage",
    "Stopwatch",
    "UnreadableBundleError",
    "UnsupportedImageError",
    "VersionTakenError",
    "read_bundle",
    "write_bundle",
]
