"""The socket that the service listens on: where it is bound, and how it is left.

Closing a listening socket resets connections that the system has made but nobody has accepted:
their clients may have sent a request already. So, on Linux, the socket is first bound to a network
interface that does not exist. From then on whoever asks for a connection is refused, as if the
socket were closed, while handshakes end that have begun: their packets find what began them, not
the listening socket. It is closed once all are accepted.
"""

import asyncio
import errno
import logging
import select
import socket
import sys

from service.errors import SettingsError

__all__ = ["bind", "turn_away", "url_of"]

logger = logging.getLogger(__name__)

# Of <asm-generic/socket.h>; Python has no name for it. Needs no privileges since Linux 5.7.
_SO_BINDTOIFINDEX = 62
_NO_INTERFACE = 2**31 - 1  # interfaces are numbered from 1
# Handshakes that had begun when newcomers were refused are complete by then.
_HANDSHAKE_SECONDS = 0.1
# More than a queue is long; where no file can be opened, none is accepted.
_MAX_ROUNDS = 10_000


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


async def turn_away(listener: socket.socket) -> None:
    """Have the system refuse new connections; those that it has made are accepted meanwhile."""
    if sys.platform != "linux":
        return
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, _NO_INTERFACE)
    except OSError as error:
        logger.debug("connections may break, newcomers cannot be refused: %s", error)
    else:
        await asyncio.sleep(_HANDSHAKE_SECONDS)
        await _until_all_are_accepted(listener)


async def _until_all_are_accepted(listener: socket.socket) -> None:
    """Let the event loop go round: uvloop accepts one connection each time."""
    queue = select.poll()
    queue.register(listener, select.POLLIN)
    for _ in range(_MAX_ROUNDS):
        if not queue.poll(0):
            return
        await asyncio.sleep(0)
    logger.debug("connections may break, not all of them could be accepted")


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
