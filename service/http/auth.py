"""API keys: which requests are answered, if not all.

Keys come from the environment or from a file, several at once so that they can be
changed one after the other; SIGHUP has the file read again. Comparing takes the same
time whatever was sent, and no key is ever logged, shown or put into an answer.
"""

import hashlib
import hmac
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import SettingsError, UnauthorizedError
from service.http.problems import respond
from service.settings import Settings

__all__ = ["Keys", "RequireKey", "list_keys", "read_keys"]

logger = logging.getLogger(__name__)

# Visible characters without the comma that separates keys; too short ones can be guessed.
_KEY = re.compile(r"[!-+\--~]{16,512}")
_FORMAT = "keys of 16 to 512 visible ASCII characters without commas"


class Keys:
    """Digests of the keys that are accepted."""

    def __init__(self, read: Callable[[], list[str]]) -> None:
        self._read = read
        self._digests = [_digest(key) for key in read()]

    def reread(self) -> None:
        """Accept what is in the file now; if that cannot be used, what was there before."""
        try:
            self._digests = [_digest(key) for key in self._read()]
            logger.info("%d keys are accepted", len(self._digests))
        except SettingsError as error:
            logger.warning("the same %d keys are accepted as before: %s", len(self._digests), error)

    def accept(self, given: str) -> bool:
        """Whether it is one of them; every one of them is compared, always in full."""
        digest = _digest(given)
        return any([hmac.compare_digest(digest, known) for known in self._digests])  # noqa: C419


class RequireKey:
    """Answers 401 to requests without a key, except at the open paths."""

    def __init__(self, app: ASGIApp, keys: Keys, open_paths: frozenset[str]) -> None:
        self.app = app
        self.keys = keys
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request with a key on; answer any other with 401."""
        if scope["type"] != "http" or scope["path"] in self.open_paths:
            await self.app(scope, receive, send)
            return
        given = _given(Headers(scope=scope))
        if given and self.keys.accept(given):
            await self.app(scope, receive, send)
            return
        error = UnauthorizedError(
            "the key is not known"
            if given
            else "there is no key, expected one in 'Authorization: Bearer …' or in 'X-API-Key'"
        )
        await respond(scope, error)(scope, receive, send)


def read_keys(settings: Settings) -> Keys | None:
    """The keys of the settings, or none if everyone may ask."""
    if settings.api_keys is None and settings.api_keys_file is None:
        return None
    return Keys(partial(list_keys, settings))


def list_keys(settings: Settings) -> list[str]:
    """The keys of the settings as they are; none if there are none."""
    keys: list[str] = []
    if settings.api_keys is not None:
        keys += _parse(settings.api_keys.get_secret_value().split(","), "LEAFCODE_API_KEYS")
    if settings.api_keys_file is not None:
        keys += _parse(_lines(settings.api_keys_file), "LEAFCODE_API_KEYS_FILE")
    return keys


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(
            f"LEAFCODE_API_KEYS_FILE (--api-keys-file) is '{path}', which cannot be read: "
            f"{reason}; expected one key per line"
        ) from error
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _parse(items: list[str], source: str) -> list[str]:
    """The keys; an error tells their number and never their text."""
    keys = [item.strip() for item in items]
    for number, key in enumerate(keys, 1):
        if not _KEY.fullmatch(key):
            raise SettingsError(
                f"{source}: key {number} of {len(keys)} cannot be used, it has {len(key)} "
                f"characters; expected {_FORMAT}"
            )
    if not keys:
        raise SettingsError(f"{source} has no key, expected {_FORMAT}")
    return keys


def _given(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


def _digest(key: str) -> bytes:
    # Of one length, so that not even the length of a key shows in the time.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
