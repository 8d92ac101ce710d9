"""An HTTP server on a port that the system chooses, whose answers a test writes byte by byte."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REJECTED = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"

Address = tuple[str, int]
Respond = Callable[[bytes, bytes], list[bytes] | Awaitable[list[bytes]]]


@contextmanager
def listening(respond: Respond) -> Iterator[Address]:
    """A server that sends the pieces of `respond(head, body)`; none closes the connection.

    It does nothing else while `respond` runs, unless that is asynchronous.
    """
    writers: list[asyncio.StreamWriter] = []

    def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Coroutine[None, None, None]:
        writers.append(writer)  # at once: who comes last may be cancelled before it talks
        return talk(reader, writer)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, _, length = head.lower().partition(b"content-length: ")
                body = await reader.readexactly(int(length.split()[0]) if length else 0)
                answer = respond(head, body)
                pieces = answer if isinstance(answer, list) else await answer
                if not pieces:
                    break
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
        writer.close()

    async def serve() -> None:
        over.append((asyncio.get_running_loop(), asyncio.Event()))
        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            addresses.put(server.sockets[0].getsockname()[:2])
            await over[0][1].wait()
        for writer in writers:
            with suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()

    addresses: queue.Queue[Address] = queue.Queue()
    over: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield addresses.get()
    finally:
        ((loop, event),) = over
        loop.call_soon_threadsafe(event.set)
        thread.join()
