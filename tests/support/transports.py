"""The service's HTTP protocol on a transport without a socket."""

import asyncio

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from service.http.closing import CloseLimits
from service.http.problems import REASONS
from service.http.protocol import HeaderLimits, LimitedProtocol
from service.http.traffic import Traffic
from service.observability.metrics import Metrics

__all__ = ["CLOSE_LIMITS", "HEADER_LIMITS", "KEEP_ALIVE", "Transport", "connect"]

HEADER_LIMITS = HeaderLimits(max_bytes=4_000, timeout=10)
CLOSE_LIMITS = CloseLimits(drain_bytes=1_000, drain_timeout=5, write_timeout=20, read_rate=10)
KEEP_ALIVE = 1_000


class Transport(asyncio.Transport):
    """Remembers every write, and when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed_at: float | None = None
        self.half_closed = False
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed_at = asyncio.get_running_loop().time()

    abort = close

    def write_eof(self) -> None:
        self.half_closed = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Tests say when the system does not take an answer."""

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""

    @property
    def closed(self) -> bool:
        return self.closed_at is not None

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    @property
    def statuses(self) -> list[bytes]:
        return [answer[1:4] for answer in self.written.split(b"HTTP/1.1")[1:]]


def connect(application: ASGIApp) -> tuple[LimitedProtocol, Transport]:
    config = uvicorn.Config(
        application, ws="none", lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE
    )
    protocol = LimitedProtocol(
        config=config,
        server_state=ServerState(),
        app_state={},
        limits=HEADER_LIMITS,
        close_limits=CLOSE_LIMITS,
        traffic=Traffic(max_connections=10, max_bytes=10_000),
        metrics=Metrics(REASONS),
        _loop=asyncio.get_running_loop(),
    )
    transport = Transport()
    protocol.connection_made(transport)
    return protocol, transport
