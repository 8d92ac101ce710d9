"""Where the models are that come with the service."""

from pathlib import Path

import service.engine

__all__ = ["EMBEDDED_MODELS"]

EMBEDDED_MODELS = Path(service.engine.__file__).parents[1] / "models"
