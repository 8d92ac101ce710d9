"""Which models a command answers with: those of the settings, or the embedded ones."""

import logging

from service.repository import Model, Repository, is_empty
from service.settings import EMBEDDED_MODELS, Settings

__all__ = ["choose_model", "with_models"]

logger = logging.getLogger(__name__)


def with_models(settings: Settings) -> Settings:
    """The settings, with the embedded models if they say so for an empty folder, and it is."""
    if settings.empty_models == "reject" or not is_empty(settings.models):
        return settings
    logger.info(
        "%s is empty: the embedded models are served; publish models there and start again",
        settings.models,
    )
    return settings.model_copy(update={"models": EMBEDDED_MODELS})


def choose_model(settings: Settings, name: str | None, version: int | None) -> Model:
    """A model by its manifest; its tensors are checked by whoever loads it."""
    repository = Repository.load(settings.models, settings.default_model, check_tensors=False)
    return repository.find(name, version)
