"""The process id of a running service in a file, for whoever sends it signals."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.errors import SettingsError

__all__ = ["pid_file"]


@contextmanager
def pid_file(path: Path | None) -> Iterator[None]:
    """Have our process id in the file until the end of the block; nothing without a path.

    A file that is there already is replaced: whether its process still runs cannot be told,
    because numbers are used again. Raises `SettingsError` if it cannot be written.
    """
    if path is None:
        yield
        return
    content = f"{os.getpid()}\n"
    _replace(path, content)
    try:
        yield
    finally:
        # Another service may have taken the file over.
        with suppress(OSError):
            if path.read_text("ascii") == content:
                path.unlink()


def _replace(path: Path, content: str) -> None:
    """Write a file whole: a reader sees the old content or the new one."""
    try:
        staging = path.with_name(f".{path.name}-{os.getpid()}")
        try:
            staging.write_text(content, "ascii")
            staging.replace(path)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"LEAFCODE_PID_FILE (--pid-file) is {str(path)!r}, which cannot be written: {error}"
        ) from error
