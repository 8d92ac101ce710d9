"""How a server is set up before it loads anything."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import DEADLINE_SECONDS, environment


def start(folder: Path, soft: int, hard: int) -> str:
    """The log of a service that has no model, where the system allows so many open files."""
    serve = f"exec {sys.executable} -m service serve --port 0 --models {folder}"
    return subprocess.run(
        ["sh", "-c", f"ulimit -Sn {soft}; ulimit -Hn {hard}; {serve} --max-connections 1000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env=environment(),
    ).stderr


def test_fewer_open_files_are_fewer_connections(tmp_path: Path) -> None:
    log = start(tmp_path, 256, 1_200)
    assert "no bundle found" in log
    assert "at most 444 connections, not 1000: the system allows 1200 open files" in log
