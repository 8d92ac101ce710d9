"""The bytes of a request, the same that `service.client.Client.classify` sends.

A header that a client sends costs the service time, so a load test sends all of them. A
test compares these bytes with those of the real client, so that the two cannot drift apart.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from service import __version__
from service.errors import SettingsError

__all__ = ["Target", "classify_request", "parse_url"]

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


def classify_request(
    data: bytes, target: Target, top_k: int = _TOP_K, timeout_ms: int = _TIMEOUT_MS
) -> bytes:
    """A request for the labels of an image, for a connection that stays open."""
    head = (
        f"POST {target.prefix}/v1/classify?top_k={top_k} HTTP/1.1\r\n"
        f"Host: {target.host_header}\r\n"
        "Accept: */*\r\n"
        "Accept-Encoding: gzip, deflate\r\n"
        "Connection: keep-alive\r\n"
        f"User-Agent: leafcode-loadtest/{__version__}\r\n"
        f"X-Timeout-Ms: {timeout_ms}\r\n"
        "Content-Type: image/png\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
