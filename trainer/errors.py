"""What the trainer raises when the data or the settings cannot give a model."""

from service.engine import LeafcodeError

__all__ = ["ClusterError", "ConfigError", "DataError", "MeasurementError", "TrainingError"]


class TrainingError(LeafcodeError):
    """Root of the trainer's own errors."""


class DataError(TrainingError):
    """The folder of images cannot be trained on or evaluated."""


class ConfigError(TrainingError):
    """A setting is missing, unknown or out of range."""


class ClusterError(TrainingError):
    """Workers on other machines, or the way to them, are not what training needs."""


class MeasurementError(TrainingError):
    """Something that a benchmark promises could not be measured."""
