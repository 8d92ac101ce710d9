"""The socket that the service listens on: where it is bound, and how it is left.

Closing a listening socket resets connections that the system has made but nobody has accepted:
their clients may have sent a request already. So requests for new connections are dropped first:
on Linux by a filter on the socket, which lets handshakes end that have begun, or, where a process
without privileges may have none, by a queue that is full. Whoever was dropped tries again after
a second, as TCP does for a lost packet, and is refused.
"""

import asyncio
import ctypes
import errno
import logging
import socket
import struct
import sys

from service.errors import SettingsError

__all__ = ["bind", "turn_away", "url_of"]

logger = logging.getLogger(__name__)

# Of <asm-generic/socket.h>; Python has no name for it.
_SO_ATTACH_FILTER = 26
# In the language of Linux's packet filters: load the flags of the TCP header; if SYN is set,
# keep no byte of the packet, else all. Only who asks for a new connection sends a SYN.
_NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))

# Handshakes that had begun when newcomers were dropped are complete by then.
_HANDSHAKE_SECONDS = 0.1
# How long the event loop has to accept the connections of a queue, and how often.
_ACCEPT_SECONDS = 0.005
_MAX_TRIES = 100


def bind(host: str, port: int) -> socket.socket:
    """A socket on the first address of `host`; it does not listen yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise SettingsError(_bind_sentence(host, port, error)) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise SettingsError(_bind_sentence(host, port, error)) from error
    return listener


async def turn_away(listener: socket.socket) -> socket.socket | None:
    """Have the system drop requests for new connections; all that it has made are accepted.

    What is returned must stay open until the listener is closed, at once.
    """
    if _attach_filter(listener):
        await asyncio.sleep(_HANDSHAKE_SECONDS)
        return None
    return await _fill_queue(listener)


def _attach_filter(listener: socket.socket) -> bool:
    """Whether requests for new connections are filtered out from now on."""
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _NO_SYN))
    option = struct.pack("HL", len(_NO_SYN), ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
    except OSError as error:
        logger.debug("no filter on the listening socket: %s", error)
        return False
    return True


async def _fill_queue(listener: socket.socket) -> socket.socket | None:
    """A connection to ourselves that nobody accepts: it takes the only place in the queue."""
    listener.listen(0)
    for _ in range(_MAX_TRIES):
        await asyncio.sleep(_ACCEPT_SECONDS)  # the event loop accepts who is there
        own = socket.socket(listener.family, socket.SOCK_STREAM)
        own.settimeout(0)
        own.connect_ex(listener.getsockname())
        try:
            own.getpeername()
        except OSError:
            own.close()  # somebody else has the place
        else:
            return own
    logger.debug("connections may break: the queue of the listening socket could not be filled")
    return None


def _bind_sentence(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use, choose another with --port or LEAFCODE_PORT"
    return f"cannot listen on port {port} of {host!r}: {error.strerror}"


def url_of(listener: socket.socket) -> str:
    """Where a client finds it."""
    host, port = listener.getsockname()[:2]
    return (
        f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"
    )
