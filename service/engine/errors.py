"""The engine's exceptions: one root, one class for each party that has to act.

LeafcodeError
├── ImageError             whoever sent the image
│   ├── EmptyImageError        nothing was sent
│   ├── UnsupportedImageError  not one of the formats we read
│   ├── OversizedImageError    more bytes than allowed
│   └── BrokenImageError       a known format, but damaged or beyond a limit
├── DescriptorError        whoever sent descriptors or codes
├── LabelError             whoever asked for a label
├── BundleError            whoever made or moved the bundle
│   ├── UnreadableBundleError  whoever runs the machine: the bundle may be sound
│   └── VersionTakenError      whoever publishes a version that exists
└── UnsuitableCpuError     whoever chose the machine, or built the image

Messages say what was found and what was expected. Nothing here knows HTTP.
"""

__all__ = [
    "BrokenImageError",
    "BundleError",
    "DescriptorError",
    "EmptyImageError",
    "ImageError",
    "LabelError",
    "LeafcodeError",
    "OversizedImageError",
    "UnreadableBundleError",
    "UnsuitableCpuError",
    "UnsupportedImageError",
    "VersionTakenError",
]


class LeafcodeError(Exception):
    """Root of everything the engine raises on purpose."""


class ImageError(LeafcodeError):
    """An image that cannot be used."""


class EmptyImageError(ImageError):
    """No bytes at all."""


class UnsupportedImageError(ImageError):
    """Bytes that are not an image of a format on the list."""


class OversizedImageError(ImageError):
    """More encoded bytes than the limit."""


class BrokenImageError(ImageError):
    """A format on the list, but truncated, damaged, too large or too small."""


class DescriptorError(LeafcodeError):
    """Descriptors or codes of the wrong shape, with ids out of range or values not finite."""


class LabelError(LeafcodeError):
    """A label that the model does not know."""


class BundleError(LeafcodeError):
    """A bundle that cannot be read, is damaged, or contradicts itself."""


class UnreadableBundleError(BundleError):
    """A bundle that could not be read this time, for want of memory or of open files."""


class VersionTakenError(BundleError):
    """A version folder that exists already, perhaps since a moment ago."""


class UnsuitableCpuError(LeafcodeError):
    """A CPU that cannot run kernels that were compiled for a newer one."""
