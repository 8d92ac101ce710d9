"""Messages between the parent and a front end: JSON objects, one a line, both ways."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

__all__ = ["Lines", "Message"]

Message = dict[str, Any]

# The metrics of a front end with very many workers and models.
_MAX_LINE_BYTES = 64_000_000


class Lines:
    """One end of a socket pair; iterating over it ends when the other end is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connection: socket.socket) -> "Lines":
        """Takes the socket over."""
        streams = await asyncio.open_unix_connection(sock=connection, limit=_MAX_LINE_BYTES)
        return cls(*streams)

    def send(self, **message: Any) -> None:
        """Send a message; to nobody, if the other end is gone."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def __aiter__(self) -> AsyncIterator[Message]:
        with contextlib.suppress(OSError):
            while (line := await self._reader.readline()).endswith(b"\n"):
                yield json.loads(line)

    async def close(self) -> None:
        """Have all that was sent written, and hang up."""
        with contextlib.suppress(OSError):
            await self._writer.drain()
            self._writer.close()
            await self._writer.wait_closed()
