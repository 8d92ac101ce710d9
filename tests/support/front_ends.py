"""The front ends of a running server, and who of them has which connections."""

import contextlib
import re
from pathlib import Path

from tests.support.processes import Server, children_of
from tests.support.sockets import address

TWO = ("--workers", "2", "--front-ends", "2")


def front_ends_of(server: Server) -> list[int]:
    """Process ids, by number."""
    numbers = {pid: _number(pid) for pid in children_of(server.process.pid)}
    return sorted((pid for pid in numbers if numbers[pid]), key=lambda pid: numbers[pid])


def _number(pid: int) -> str:
    """The number of a front end; nothing for other processes, and one that has just ended."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_text()
        if match := re.search(r'front_end\0{"number": (\d+)', command):
            return match[1]
    return ""


def connections_of(pid: int, server: Server) -> int:
    """How many connections of the server's port a process has."""
    port = f":{address(server)[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = {row[9] for row in rows if row[1].endswith(port) and row[3] == "01"}
    return sum(inode in established for inode in _sockets(pid))


def _sockets(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if target := re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink())):
                found.append(target[1])
    return found
