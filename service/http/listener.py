"""The socket that the service listens on: where it is bound, and how it is left.

Closing a listening socket resets connections that the system has made but nobody has accepted:
their clients may have sent a request already. On Linux a filter on the socket drops requests
for new connections first, so that all others can be accepted. Whoever was dropped tries again
after a second, as TCP does for a lost packet, and is refused.
"""

import ctypes
import errno
import logging
import socket
import struct
import sys

from service.errors import SettingsError

__all__ = ["bind", "drop_newcomers", "url_of"]

logger = logging.getLogger(__name__)

# Of <asm-generic/socket.h>; Python has no name for it.
_SO_ATTACH_FILTER = 26
# In the language of Linux's packet filters: load the flags of the TCP header; if SYN is set,
# keep no byte of the packet, else all. Only who asks for a new connection sends a SYN.
_NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


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


def drop_newcomers(listener: socket.socket) -> None:
    """Have the system drop requests for new connections; where it cannot, nothing changes."""
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _NO_SYN))
    option = struct.pack("HL", len(_NO_SYN), ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
    except OSError as error:
        logger.debug("new connections may break while the service stops: %s", error)


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
