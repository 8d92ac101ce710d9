"""What docker/compose.yaml says about a container, as options of `podman run`."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.processes import ROOT

__all__ = ["SERVICES", "options_of"]

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "docker" / "compose.yaml").read_text()
)["services"]


def options_of(name: str) -> tuple[str, ...]:
    """All that decides whether a service can run; ports and volumes are left to the test."""
    return tuple(_options(SERVICES[name]))


def _options(service: dict[str, Any]) -> Iterator[str]:
    yield f"--read-only={str(service['read_only']).lower()}"
    yield from (f"--tmpfs={mount}" for mount in service["tmpfs"])
    yield from (f"--cap-drop={name}" for name in service["cap_drop"])
    yield from (f"--security-opt={name.removesuffix(':true')}" for name in service["security_opt"])
    yield from (f"--env={name}={value}" for name, value in service.get("environment", {}).items())
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    for option, name in (("cpus", "cpus"), ("memory", "memory"), ("pids-limit", "pids")):
        if name in limits:
            yield f"--{option}={limits[name]}"
