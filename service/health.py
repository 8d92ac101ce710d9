"""`python -m service health`: whether a service is ready, for whoever cannot run curl.

A container's health check runs it every few seconds, so it needs little: the settings that the
service itself was started with, and one request.
"""

import argparse
import http.client
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from service.errors import SettingsError
from service.settings import Settings, load_settings

__all__ = ["Health", "add_health", "ask"]

_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 1_000_000
# Where a service listens that listens everywhere.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


@dataclass(frozen=True)
class Health:
    """Whether a service is ready, and a sentence that says so, or why not."""

    ready: bool
    sentence: str


def add_health(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `health`."""
    parser = commands.add_parser(
        "health",
        help="ask a running service whether it is ready",
        description="Ask /readyz of a service, the one that the settings describe unless a URL is "
        "given, and say in one sentence whether it is ready. Exits with 1 if it is not.",
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="the service, as http://HOST[:PORT]")
    parser.set_defaults(command=_health)


def _health(options: argparse.Namespace) -> int:
    settings = load_settings()
    found = ask(options.url or _url(settings), _credentials(settings))
    print(found.sentence, file=sys.stdout if found.ready else sys.stderr)
    return 0 if found.ready else 1


def ask(url: str, headers: Mapping[str, str]) -> Health:
    """Ask a service whether it is ready; one that does not answer in a few seconds is not."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path.rstrip("/"):
        raise SettingsError(f"{url!r} is not the address of a service, expected http://HOST[:PORT]")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz", headers=dict(headers))
        answer = connection.getresponse()
        return _read(answer.status, answer.read(_MAX_BYTES))
    except (OSError, http.client.HTTPException) as error:
        return Health(ready=False, sentence=f"no answer from {url}: {error or repr(error)}")
    finally:
        connection.close()


def _read(status: int, body: bytes) -> Health:
    try:
        answer: dict[str, Any] = json.loads(body)
        if status == http.client.OK:
            workers = answer["workers"]
            ready = sum(worker["ready"] for worker in workers)
            return Health(ready=True, sentence=f"ready: {ready} of {len(workers)} workers")
        return Health(ready=False, sentence=f"not ready: {answer['detail']}")
    except (ValueError, KeyError, TypeError):
        return Health(ready=False, sentence=f"not Leafcode: /readyz answered {status}")


def _url(settings: Settings) -> str:
    if settings.port == 0:
        raise SettingsError("LEAFCODE_PORT is 0, so that only the service's log tells its port")
    host = _EVERYWHERE.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _credentials(settings: Settings) -> dict[str, str]:
    """A key, for a service that asks for one even at its probes."""
    if "/readyz" in settings.listed("open_paths"):
        return {}
    # Here, because it brings the web framework, which takes half a second.
    from service.http.auth import list_keys  # noqa: PLC0415

    keys = list_keys(settings)
    return {"X-API-Key": keys[0]} if keys else {}
