"""Operational numbers: every field is an environment variable `LEAFCODE_…`.

Nothing here changes an answer; what does lives in the bundle. `Settings` is never
built at import, and a wrong value is rejected with its name and what is allowed, an
unknown variable with the name that is nearest.
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.engine import ImageLimits
from service.errors import SettingsError

__all__ = [
    "EMBEDDED_MODELS",
    "ENVIRONMENT_ONLY",
    "EmptyModels",
    "LogFormat",
    "LogLevel",
    "Pin",
    "Settings",
    "allowed",
    "load_settings",
]

EmptyModels = Literal["reject", "embedded"]
LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
Pin = Literal["auto", "always", "never"]

EMBEDDED_MODELS = Path(__file__).parent / "models"

# A flag would show in the list of processes.
ENVIRONMENT_ONLY = frozenset({"api_keys"})

# Pillow warns above this many pixels and rejects twice as many, whatever we allow.
_MAX_PIXELS = 89_478_485

_PREFIX = "LEAFCODE_"

# Kubernetes tells every container about every Service beside it. One named leafcode, or
# leafcode-something, has these variables, and its address in PORT.
_OF_KUBERNETES = re.compile(
    rf"{_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)"
)
_ADDRESS_OF_KUBERNETES = re.compile(r"(tcp|udp|sctp)://.*")

_PATHS = r"(/[^,\s]*(,/[^,\s]*)*)?"
_ORIGIN = r"https?://[A-Za-z0-9.\[\]:-]+"
_ORIGINS = rf"(\*|{_ORIGIN}(,{_ORIGIN})*)?"
_URL = r"(https?://[^\s/]+[^\s]*)?"


class Settings(BaseSettings):
    """One frozen set of operational numbers, from arguments or from the environment."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    models: Path = Field(EMBEDDED_MODELS, description="model repository, <name>/<version>/ below")
    empty_models: EmptyModels = Field(
        "reject",
        description="what becomes of a start with an empty model repository: it is rejected, or "
        "the embedded models are served",
    )
    default_model: str | None = Field(
        None,
        min_length=1,
        title="the name of a model",
        description="model of requests that name none; the first by name unless given",
    )
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(
        8000, ge=0, le=65_535, description="port to listen on; 0 lets the system choose"
    )
    max_body_bytes: int = Field(
        25_000_000, ge=1_000, le=1_000_000_000, description="largest request body"
    )
    max_image_pixels: int = Field(
        50_000_000, ge=400, le=_MAX_PIXELS, description="most pixels of an image, as it is decoded"
    )
    max_image_side: int = Field(
        20_000, ge=20, le=65_535, description="longest side of an image, in pixels"
    )
    max_images: int = Field(64, ge=1, le=10_000, description="most images in one request")
    max_descriptors: int = Field(
        20_000, ge=1, le=1_000_000, description="most descriptors in one request"
    )
    threads: int = Field(1, ge=1, le=1_024, description="cores that work on one image")
    workers: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="worker processes; as many as the allowed cores hold unless given",
    )
    front_ends: int | None = Field(
        None,
        ge=1,
        le=128,
        description="processes that speak HTTP, each with its share of workers, queue and "
        "connections; one for every eight workers unless given",
    )
    pin: Pin = Field(
        "auto",
        description="whether workers are pinned to cores; auto pins those that fill all allowed "
        "cores, others are placed by the kernel",
    )
    queue_size: int = Field(
        128, ge=1, le=100_000, description="most images or sets of descriptors that wait"
    )
    queue_bytes: int = Field(
        256_000_000, ge=1_000_000, le=100_000_000_000, description="most bytes that wait"
    )
    transfer_bytes: int = Field(
        256_000_000,
        ge=1_000_000,
        le=100_000_000_000,
        description="most bytes of bodies that are not complete and answers that are not read",
    )
    max_connections: int = Field(
        4_096,
        ge=1,
        le=1_000_000,
        description="most connections; for more, the longest idle one is closed, or else 503",
    )
    deadline_seconds: int = Field(
        30,
        ge=1,
        le=3_600,
        description="longest time to an answer; a worker that takes longer is replaced",
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
    max_header_bytes: int = Field(
        32_768, ge=1_000, le=1_000_000, description="most bytes of a request's line and headers"
    )
    header_timeout_seconds: int = Field(
        10, ge=1, le=3_600, description="longest time for a request's headers to come, else 408"
    )
    body_timeout_seconds: int = Field(
        10, ge=1, le=3_600, description="longest time without a byte of a body, else 408"
    )
    body_total_seconds: int = Field(
        300, ge=1, le=86_400, description="longest time for all of a body to come, else 408"
    )
    min_body_rate: int = Field(
        1_000,
        ge=1,
        le=1_000_000_000,
        description="least bytes per second of a body, else 408, and of reading an answer",
    )
    write_timeout_seconds: int = Field(
        10, ge=1, le=3_600, description="longest time in which a client reads nothing of its answer"
    )
    keep_alive_seconds: int = Field(
        5, ge=1, le=3_600, description="how long a connection may wait for its next request"
    )
    api_keys: SecretStr | None = Field(
        None,
        title="keys of 16 to 512 visible ASCII characters, separated by commas",
        description="keys of which every request must carry one",
    )
    api_keys_file: Path | None = Field(
        None,
        title="a file with one key per line",
        description="file with such keys, one per line, # before comments",
    )
    open_paths: str = Field(
        "/healthz,/readyz,/v2/health/live,/v2/health/ready,/metrics",
        pattern=f"^{_PATHS}$",
        title="paths, separated by commas",
        description="paths that need no key",
    )
    cors_origins: str = Field(
        "",
        pattern=f"^{_ORIGINS}$",
        title="origins such as https://example.org, separated by commas, or *",
        description="web pages that may call the service from a browser",
    )
    page: bool = Field(
        True,  # noqa: FBT003
        title="true or false",
        description="whether / serves the page for people; if not, it leads to /docs",
    )
    pid_file: Path | None = Field(
        None,
        title="a path whose folder exists",
        description="file that holds the process id while the service runs",
    )
    log_level: LogLevel = Field("info", description="least important messages to log")
    log_format: LogFormat = Field(
        "auto", description="shape of the log; auto is text on a terminal, else json"
    )
    otlp_endpoint: str = Field(
        "",
        pattern=f"^{_URL}$",
        title="a URL such as http://localhost:4318/v1/traces",
        description="where to send OpenTelemetry traces; needs leafcode[otel]",
    )

    @property
    def image_limits(self) -> ImageLimits:
        """The limits that the engine checks."""
        return ImageLimits(self.max_body_bytes, self.max_image_pixels, self.max_image_side)

    def listed(self, name: str) -> list[str]:
        """The items of a setting that separates them by commas."""
        return [item for item in str(getattr(self, name)).split(",") if item]


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment; `overrides` that are not None come first."""
    _reject_unknown(os.environ)
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = [_sentence(str(item["loc"][0]), item["input"]) for item in error.errors()]
        raise SettingsError("; ".join(wrong)) from error


def _reject_unknown(environment: Mapping[str, str]) -> None:
    known = [f"{_PREFIX}{name.upper()}" for name in Settings.model_fields]
    unknown = [
        name
        for name, value in sorted(environment.items())
        if name.upper().startswith(_PREFIX)
        and name.upper() not in known
        and not _OF_KUBERNETES.fullmatch(name)
        and not (name.endswith("_PORT") and _ADDRESS_OF_KUBERNETES.fullmatch(value))
    ]
    if unknown:
        raise SettingsError("; ".join(map(_guess, unknown)))


def _guess(unknown: str) -> str:
    name = unknown[len(_PREFIX) :].lower()
    nearest = difflib.get_close_matches(name, Settings.model_fields, n=1)
    if nearest:
        return f"{unknown} is unknown, did you mean {_PREFIX}{nearest[0].upper()}?"
    return f"{unknown} is unknown; python -m service serve --help lists the settings"


def _sentence(name: str, found: object) -> str:
    field = Settings.model_fields[name]
    flag = "" if name in ENVIRONMENT_ONLY else f" (--{name.replace('_', '-')})"
    shown = "something else" if name in ENVIRONMENT_ONLY else repr(found)
    sentence = f"{_PREFIX}{name.upper()}{flag} is {shown}, expected {allowed(field)}"
    if name == "port" and _ADDRESS_OF_KUBERNETES.fullmatch(str(found)):
        sentence += (
            "; Kubernetes sets it for the Service leafcode: "
            "set it for the container, or enableServiceLinks: false for the pod"
        )
    return sentence


def allowed(field: FieldInfo) -> str:
    """What a field accepts, in words."""
    if field.title:
        return field.title
    if get_origin(field.annotation) is Literal:
        return "one of " + ", ".join(get_args(field.annotation))
    if field.annotation in (int, int | None):
        low = next(item.ge for item in field.metadata if hasattr(item, "ge"))
        high = next(item.le for item in field.metadata if hasattr(item, "le"))
        return f"a whole number from {low} to {high}"
    return f"the {field.description}"
