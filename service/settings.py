"""Operational numbers: every field is an environment variable `LEAFCODE_…`.

Nothing here changes an answer; what does lives in the bundle. `Settings` is never
built at import, and a wrong value is refused with its name and what is allowed.
"""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.cores import usable_cores
from service.engine import ImageLimits
from service.errors import SettingsError

__all__ = ["EMBEDDED_MODELS", "LogLevel", "Settings", "load_settings"]

EMBEDDED_MODELS = Path(__file__).parent / "models"

# Pillow warns above this many pixels and refuses twice as many, whatever we allow.
_MOST_PIXELS = 89_478_485

_PREFIX = "LEAFCODE_"

LogLevel = Literal["debug", "info", "warning", "error"]


def _one_per_core(given: dict[str, Any]) -> int:
    return max(1, len(usable_cores()) // int(given.get("threads", 1)))


class Settings(BaseSettings):
    """One frozen set of operational numbers, from arguments or from the environment."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    models: Path = Field(EMBEDDED_MODELS, description="model repository, <name>/<version>/ below")
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(
        8000, ge=0, le=65_535, description="port to listen on; 0 lets the system choose"
    )
    max_body_bytes: int = Field(
        25_000_000, ge=1_000, le=1_000_000_000, description="largest request body"
    )
    max_image_pixels: int = Field(
        50_000_000, ge=400, le=_MOST_PIXELS, description="most pixels of an image"
    )
    max_image_side: int = Field(
        20_000, ge=20, le=65_535, description="longest side of an image, in pixels"
    )
    max_images: int = Field(64, ge=1, le=10_000, description="most images in one request")
    max_descriptors: int = Field(
        20_000, ge=1, le=1_000_000, description="most descriptors in one request"
    )
    threads: int = Field(1, ge=1, le=1_024, description="cores that work on one image")
    workers: int = Field(
        default_factory=_one_per_core,
        ge=1,
        le=1_024,
        description="worker processes; one for each share of allowed cores unless given",
    )
    queue_size: int = Field(
        128, ge=1, le=100_000, description="most images or sets of descriptors that wait"
    )
    queue_bytes: int = Field(
        256_000_000, ge=1_000_000, le=100_000_000_000, description="most bytes that wait"
    )
    deadline_seconds: int = Field(
        30, ge=1, le=3_600, description="longest time to an answer; a worker at it is replaced"
    )
    shutdown_seconds: int = Field(
        10, ge=1, le=3_600, description="how long a stopping service waits for its requests"
    )
    poll_seconds: int = Field(
        0,
        ge=0,
        le=86_400,
        description="how often to look for new versions; 0 only on SIGHUP",
    )
    log_level: LogLevel = Field("info", description="least important messages to log")

    @property
    def image_limits(self) -> ImageLimits:
        """The limits that the engine checks."""
        return ImageLimits(self.max_body_bytes, self.max_image_pixels, self.max_image_side)


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment; `overrides` that are not None come first."""
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = [
            _sentence(str(item["loc"][0]), item["input"])
            for item in error.errors()
            if item["type"] != "default_factory_not_called"  # it follows from another one
        ]
        raise SettingsError("; ".join(wrong)) from error


def _sentence(name: str, found: object) -> str:
    field = Settings.model_fields[name]
    flag = "--" + name.replace("_", "-")
    return f"{_PREFIX}{name.upper()} ({flag}) is {found!r}, expected {allowed(field)}"


def allowed(field: FieldInfo) -> str:
    """What a field accepts, in words."""
    if choices := get_args(field.annotation):
        return "one of " + ", ".join(choices)
    if field.annotation is int:
        low = next(item.ge for item in field.metadata if hasattr(item, "ge"))
        high = next(item.le for item in field.metadata if hasattr(item, "le"))
        return f"a whole number from {low} to {high}"
    return f"the {field.description}"
