"""The bytes of a request, the same that `classify` and `codes` of `service.client` send.

A header that a client sends costs the service time, so a load test sends all of them. A
test compares these bytes with those of the real client, so that the two cannot drift apart.
"""

import io
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from service import __version__
from service.engine.arrays import Float32Array
from service.errors import SettingsError

__all__ = ["Sending", "Target", "classify_request", "parse_url"]

_DEFAULT_PORT = 80
# Defaults of the client: `top_k` of a call, and `timeout` of 30 seconds.
_TOP_K = 5
_TIMEOUT_MS = 30_000


@dataclass(frozen=True)
class Target:
    """The service that gets the load: the address to connect to, and what its URL adds."""

    host: str
    port: int
    host_header: str
    prefix: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"http://{self.host_header}{self.prefix}"


def parse_url(url: str) -> Target:
    """The target of `http://HOST[:PORT][/PREFIX]`; raises `SettingsError` for anything else."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError(f"{url!r} is not a URL of a service: {error}") from error
    surplus = parts.query or parts.fragment or parts.username
    if parts.scheme != "http" or not host or surplus:
        raise SettingsError(f"{url!r} is not a URL of a service, expected http://HOST[:PORT]")
    return Target(host, port or _DEFAULT_PORT, parts.netloc, parts.path.rstrip("/"))


@dataclass(frozen=True)
class Sending:
    """What all requests of a load test have in common."""

    target: Target
    timeout_ms: int = _TIMEOUT_MS
    api_key: str | None = None

    def post(self, path: str, body: bytes, content_type: str, accept: str = "") -> bytes:
        """A request for a connection that stays open, its headers in the client's order."""
        headers = {
            "Host": self.target.host_header,
            **({} if accept else {"Accept": "*/*"}),
            "Accept-Encoding": "gzip, deflate",
            "Connection": "keep-alive",
            "User-Agent": f"leafcode-loadtest/{__version__}",
            "X-Timeout-Ms": str(self.timeout_ms),
            **({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}),
            "Content-Type": content_type,
            **({"Accept": accept} if accept else {}),
            "Content-Length": str(len(body)),
        }
        lines = [f"POST {self.target.prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def classify(self, image: bytes, top_k: int = _TOP_K) -> bytes:
        """A request for the labels of an image."""
        return self.post(f"/v1/classify?top_k={top_k}", image, "image/png")

    def codes(self, descriptors: Float32Array) -> bytes:
        """A request for the codes of descriptors (n, 128)."""
        file = io.BytesIO()
        np.save(file, descriptors, allow_pickle=False)
        return self.post("/v1/codes", file.getvalue(), "application/x-npy", "application/x-npz")


def classify_request(
    data: bytes, target: Target, top_k: int = _TOP_K, timeout_ms: int = _TIMEOUT_MS
) -> bytes:
    """A request for the labels of an image, by a client without a key."""
    return Sending(target, timeout_ms).classify(data, top_k)
